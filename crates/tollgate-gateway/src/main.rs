//! A reverse proxy with rate limits for all requests, for each key and by route.
//!
//! ```text
//! tollgate-gateway --demo
//! tollgate-gateway --upstream http://127.0.0.1:3000 --limit "20/s, burst 20"
//! tollgate-gateway init && tollgate-gateway check && tollgate-gateway
//! ```
//!
//! `gateway.toml`, in the folder of the crate, lists every setting. A request waits in the queue of its own key, then
//! for its share of the limit of all, for `max_wait` at most in total. Its tokens are in flight, in both limits, to the last byte of
//! its response. A refusal is 429, or 503 if other requests cause a wait that no schedule can tell (the common queue is
//! full, or they hold the places in flight). Each refusal has a `Retry-After`. SIGHUP reads the file again. SIGTERM and
//! ctrl-c end the gateway after it has served the accepted requests.
//!
//! The page, `/metrics` and `/health` are for the operator. They have an address of their own, which by default is
//! reachable from this machine only. So they take no path from the API.
//!
//! The gateway speaks HTTP/1.1 and HTTP/2, over TLS too, and passes gRPC and WebSockets. It does not verify keys: the
//! upstream does, or `unlisted = "refuse"` admits only the keys of the file. A client that hangs up while it waits leaves
//! the queue at once, unless more of its request body is pending than the socket buffers hold: then the connection is not
//! read, and the end is not noticed.
//!
//! # Where things are
//!
//! Each folder uses only those above it in this table; `gateway.rs` puts them together.
//!
//! | folder | contents |
//! |---|---|
//! | `http` | rules and responses of HTTP that know nothing of limits |
//! | `request` | what a request is: its client, its route, the rules that charge it, its outcome |
//! | `body` | bodies of requests and responses, as they stream |
//! | `upstream` | the upstreams: their addresses, connections and health |
//! | `llm` | language models: what a request to one costs, and what its response says that it took |
//! | `config` | the command line and the TOML file, checked |
//! | `limits` | the limiters, built from a configuration and changed by the next one |
//! | `telemetry` | what is counted and logged about requests |
//! | `proxy` | one request and its response at the upstream, tunnels, health checks |
//! | `downstream` | the side of the clients: connections, streams, and the steps of a request until the upstream gets it |
//! | `admin` | for the operator: the page, `/metrics`, reload, the state file |

pub(crate) mod admin;
pub(crate) mod body;
pub(crate) mod config;
pub(crate) mod demo;
pub(crate) mod downstream;
pub(crate) mod gateway;
pub(crate) mod http;
pub(crate) mod limits;
pub(crate) mod llm;
pub(crate) mod proxy;
pub(crate) mod request;
pub(crate) mod telemetry;
pub(crate) mod upstream;

use std::error::Error;
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use tokio::signal::unix::{Signal, SignalKind, signal};

use admin::reload::FileWatcher;
use admin::saver::Saver;
use config::Config;
use config::file::Address;
use config::options::{Command, Options};
use config::problem::Problem;
use gateway::{Gateway, ListenConfig};
use limits::Limits;
use limits::state::State;

type Failure = Box<dyn Error + Send + Sync>;

fn main() -> ExitCode {
    run(Options::parse())
}

/// Exit codes. 0: it ended as it should. 1: a request got no response, or a check of the demo failed. 2: it could not
/// run.
pub(crate) fn run(options: Options) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let ended = runtime.map_err(Failure::from).and_then(|runtime| runtime.block_on(serve(options)));
    match ended {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("gateway: {error:#}");
            ExitCode::from(2)
        }
    }
}

async fn serve(options: Options) -> Result<bool, Failure> {
    match &options.command {
        Some(Command::Init { file }) => return init(file).map(|()| true),
        Some(Command::Check { file }) => {
            Config::parse(file, &Config::read(file)?)?;
            println!("{} is valid", file.display());
            return Ok(true);
        }
        None => {}
    }
    if let Some(address) = options.echo {
        return demo::echo(address).await.map(|()| true);
    }
    if options.demo {
        let [listen, admin] = [&options.listen, &options.admin].map(|address| address.as_ref().map(|to| to.0));
        return demo::run(options.seconds, listen, admin).await;
    }
    limit(options).await
}

/// Writes a file with all settings. Replaces none.
fn init(file: &Path) -> Result<(), Failure> {
    let created = std::fs::File::create_new(file).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => format!("{} exists: name another file, or remove it", file.display()),
        _ => format!("{} cannot be written: {error}", file.display()),
    });
    created?.write_all(include_bytes!("../gateway.toml"))?;
    println!(
        "{0} has all settings, with comments: set `upstream` and the limits, then run\n  tollgate-gateway check {0}\n  \
         tollgate-gateway --config {0}",
        file.display()
    );
    Ok(())
}

/// Runs with the limits of a file, or of the command line.
async fn limit(options: Options) -> Result<bool, Failure> {
    // Before the addresses are printed: a process that reads them may change the file, or send signals, at once.
    let (config, watch) = match options.of_command_line() {
        Some(text) => (Config::parse(Path::new("the command line"), &text)?, FileWatcher::new(None).await?),
        None => {
            let text = Config::read(&options.config)?;
            let watch = FileWatcher::new(Some((options.config.clone(), text.clone()))).await?;
            (Config::parse(&options.config, &text)?, watch)
        }
    };
    let connections = &config.fixed.max_connections;
    let listen_config = ListenConfig {
        listen: options.listen.map_or(config.fixed.listen.value, |Address(listen)| listen),
        admin: options.admin.map_or(config.fixed.admin.value, |Address(admin)| admin),
        max_connections: downstream::open_files::raise_limit(connections.value)
            .map_err(|what| Problem::at_line(&options.config, connections.line, what))?,
    };
    let ending = ShutdownSignal::new(options.seconds)?;
    let (state, every) = (config.fixed.state.value.clone(), config.fixed.state_every.value);
    let gateway = Gateway::start(restored(config, state.as_deref())?, listen_config, !options.without_limits).await?;
    let saver = state.map(|path| Saver::new(Arc::clone(&gateway.limits), &path));
    if let Some(saver) = &saver {
        // A folder that cannot be written is told now, and not after the first minute.
        saver.save().map_err(|error| saver.failed(&error))?;
    }
    gateway.announce();
    if options.without_limits {
        eprintln!("gateway: with --without-limits no request is limited, and no key is asked for");
    }
    let saving = async {
        match saver.clone() {
            Some(saver) => saver.run(every).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = ending.received() => {}
        () = watch.run(Arc::clone(&gateway.limits), Arc::clone(&gateway.status)) => {}
        () = saving => {}
    }
    let is_done = end(gateway).await;
    if let Some(saver) = &saver {
        saver.save().map_err(|error| saver.failed(&error))?;
    }
    Ok(is_done)
}

/// The limits, which continue from the state file if there is one. A damaged file is no reason not to serve.
fn restored(config: Config, path: Option<&Path>) -> Result<Limits, Failure> {
    let Some(path) = path else { return Ok(Limits::new(config)?) };
    match State::read(path) {
        Ok(Some(state)) => {
            let count = state.count();
            let limits = Limits::restored(config, state)?;
            eprintln!("gateway: restored {count} levels from {}", path.display());
            return Ok(limits);
        }
        Ok(None) => eprintln!("gateway: no state yet in {}: all buckets are full", path.display()),
        Err(error) => eprintln!("gateway: {}: {error}; all buckets are full", path.display()),
    }
    Ok(Limits::new(config)?)
}

/// Returns true if every request got a response.
async fn end(gateway: Gateway) -> bool {
    let grace = gateway.limits.config().grace;
    eprintln!("gateway: ending, with {grace:?} for the requests that wait and those in flight");
    let (counters, is_quiet) = (Arc::clone(&gateway.counters), gateway.has_log_on_stdout());
    let is_done = gateway.shut_down().await;
    match is_quiet {
        true => eprintln!("gateway: ended; {}", counters.counts()),
        false => println!("gateway: ended; {}", counters.counts()),
    }
    is_done
}

/// Waits for SIGTERM, ctrl-c, or the end of `seconds`.
pub(crate) struct ShutdownSignal {
    terminate: Signal,
    interrupt: Signal,
    after: Duration,
}

impl ShutdownSignal {
    /// From now on these signals do not end the process.
    fn new(seconds: Option<u64>) -> std::io::Result<Self> {
        let (terminate, interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        Ok(Self { terminate, interrupt, after: seconds.map_or(Duration::MAX, Duration::from_secs) })
    }

    async fn received(mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            () = tokio::time::sleep(self.after) => {}
        }
    }
}
