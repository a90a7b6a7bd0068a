//! `tollgate-service`: a rate limit service for Envoy and other proxies.

#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tollgate_service::bucket::Maker;
use tollgate_service::config::{self, Loaded};
use tollgate_service::demo::Demo;
use tollgate_service::files;
use tollgate_service::health::Health;
use tollgate_service::meter::Meters;
use tollgate_service::page::Page;
use tollgate_service::problem::{Problem, Source};
use tollgate_service::reload::Reloader;
use tollgate_service::server::{Ports, listen};
use tollgate_service::service::Service;
use tollgate_service::settings::Settings;
use tollgate_service::state;
use tollgate_service::store::SharedStore;
#[cfg(feature = "otlp")]
use tollgate_service::traces;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt};

const USAGE: &str = "\
tollgate-service [FILE|DIRECTORY]...         answers rate limit requests on ports 8081 (gRPC) and 8080 (HTTP)
tollgate-service check [FILE|DIRECTORY]...   prints all problems of a configuration
tollgate-service --demo                      shows itself with a sample file, nginx if it is installed, and clients

Without a path, the files are those of the directory $RUNTIME_ROOT/$RUNTIME_SUBDIRECTORY/$RUNTIME_APPDIRECTORY.
Settings come from the environment: GRPC_HOST, GRPC_PORT, HOST, PORT, LOG_LEVEL, LOG_FORMAT and others; see README.md.
";

/// The most problems that are printed with their line of the file, which takes longer the larger the file is.
const MOST_SHOWN: usize = 100;

/// The settings of a demo, which other machines cannot reach.
const DEMO_SETTINGS: [(&str, &str); 3] = [("HOST", "127.0.0.1"), ("GRPC_HOST", "127.0.0.1"), ("PAGE_PORT", "8082")];

fn main() -> ExitCode {
    let mut arguments: Vec<String> =
        std::env::args_os().skip(1).map(|argument| argument.to_string_lossy().into_owned()).collect();
    let is_check = arguments.first().is_some_and(|first| first == "check");
    if is_check {
        arguments.remove(0);
    }
    let mut demo = None;
    if arguments == ["--demo"] {
        match Demo::new() {
            Ok(started) => arguments = vec![demo.insert(started).file().display().to_string()],
            Err(error) => return fail(&error),
        }
    }
    if let Some(option) = arguments.iter().find(|argument| argument.starts_with('-')) {
        match option.as_str() {
            "--help" | "-h" => print!("{USAGE}"),
            "--version" | "-V" => println!("tollgate-service {}", env!("CARGO_PKG_VERSION")),
            _ => return fail(&format!("there is no option {option}:\n{USAGE}")),
        }
        return ExitCode::SUCCESS;
    }
    let paths = arguments.into_iter().map(PathBuf::from).collect();
    let for_demo =
        |name: &str| DEMO_SETTINGS.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
    let variable = |name: &str| std::env::var(name).ok().or_else(|| for_demo(name).filter(|_| demo.is_some()));
    let settings = match Settings::read(paths, &variable) {
        Ok(settings) => settings,
        Err(error) => return fail(&error),
    };
    let meters = Arc::<Meters>::default();
    let (sources, loaded) = match load(&settings, &meters) {
        Ok(loaded) => loaded,
        Err(problems) => return report(&problems),
    };
    if is_check {
        loaded.notes.iter().for_each(|note| println!("note: {note}\n"));
        println!("{} domains, {} rules: no problems", loaded.rules.domains.len(), loaded.rules.all.len());
        return ExitCode::SUCCESS;
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&format!("cannot start threads: {error}")),
    };
    match runtime.block_on(run(settings, sources, loaded, meters, demo)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

fn load(settings: &Settings, meters: &Meters) -> Result<(Vec<Arc<Source>>, Loaded), Vec<Problem>> {
    let sources = files::read(&settings.paths)?;
    let loaded = config::load(&sources, settings.options, meters)?;
    Ok((sources, loaded))
}

async fn run(
    settings: Settings,
    sources: Vec<Arc<Source>>,
    loaded: Loaded,
    meters: Arc<Meters>,
    mut demo: Option<Demo>,
) -> Result<(), String> {
    start_logs(&settings)?;
    settings.notes.iter().for_each(|note| tracing::warn!("{note}"));
    loaded.notes.iter().for_each(|note| tracing::info!("{}", note.line()));
    if sources.is_empty() {
        tracing::warn!("there are no *.yaml files yet in {:?}: all requests pass", settings.paths);
    }
    let ports = Ports::bind(settings.grpc, settings.http).await?;
    let (grpc, http) = ports.addresses().map_err(|error| error.to_string())?;
    let count = loaded.rules.all.len();
    let store = match &settings.store {
        Some(url) => Some(SharedStore::connect(url).await?),
        None => None,
    };
    let maker = Maker { most_values: settings.most_values, store, ..Maker::default() };
    let service = Arc::new(Service::new(loaded.rules, meters, settings.manner, maker));
    let state_file = settings.state.clone();
    if let Some(path) = &state_file {
        match state::restore(path, &service) {
            Ok(count) => tracing::info!("{count} rules continue from {}", path.display()),
            Err(error) => tracing::error!("{error}"),
        }
    }
    let health = Health::default();
    let (options, needs_rules) = (settings.options, settings.needs_rules);
    let reloader = Reloader::new(Arc::clone(&service), health.clone(), settings.paths, options, needs_rules, sources);
    let reloader = Arc::new(reloader);
    if let Some(address) = settings.page {
        let listener = listen(address, "PAGE_PORT").await?;
        let address = listener.local_addr().map_err(|error| error.to_string())?;
        tracing::info!("the page is at http://{address}/");
        tokio::spawn(Page::new(Arc::clone(&service), health.clone(), Arc::clone(&reloader)).serve(listener));
    }
    tokio::spawn(reloader.run());
    let (end, ended) = watch::channel(false);
    let mut terminate = signal(SignalKind::terminate()).map_err(|error| error.to_string())?;
    let draining = health.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
        }
        tracing::info!("ending: requests that wait are answered first");
        draining.drain();
        let _ = end.send(true);
    });
    tracing::info!("{count} rules: gRPC on {grpc}, HTTP on {http}");
    if let Some(demo) = &mut demo {
        demo.start(http).await?;
    }
    ports.serve(Arc::clone(&service), health, ended, settings.drain).await;
    #[cfg(feature = "otlp")]
    traces::shut_down();
    match state_file {
        Some(path) => state::save(&path, &service).map(drop),
        None => Ok(()),
    }
}

fn start_logs(settings: &Settings) -> Result<(), String> {
    let logs = fmt::layer().with_target(false).with_writer(std::io::stderr);
    let logs = if settings.json_logs { logs.json().flatten_event(true).boxed() } else { logs.with_ansi(false).boxed() };
    let logs = tracing_subscriber::registry().with(logs.with_filter(settings.level));
    #[cfg(feature = "otlp")]
    let logs = logs.with(if settings.traces { Some(traces::layer()?) } else { None });
    logs.init();
    if settings.traces && cfg!(not(feature = "otlp")) {
        // Not an error: an operator of a cluster sets these variables for all programs.
        tracing::warn!("no traces are exported: this program was built without the feature `otlp`");
    }
    Ok(())
}

fn fail(error: &str) -> ExitCode {
    eprintln!("tollgate-service: {}", error.trim_end());
    ExitCode::FAILURE
}

fn report(problems: &[Problem]) -> ExitCode {
    let (first, more) = problems.split_at(problems.len().min(MOST_SHOWN));
    first.iter().for_each(|problem| eprintln!("error: {problem}\n"));
    more.iter().for_each(|problem| eprintln!("error: {}", problem.line()));
    match problems.len() {
        1 => eprintln!("1 problem"),
        count => eprintln!("{count} problems"),
    }
    ExitCode::FAILURE
}
