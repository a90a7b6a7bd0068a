//! The settings of the process: its arguments, and the environment of the reference.

use crate::bucket::DEFAULT_VALUES;
use crate::config::Options;
use crate::fields::{parse_time, shortened};
use crate::service::Manner;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;
use tracing::level_filters::LevelFilter;

/// The settings of the process.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The files and directories of the configuration.
    pub paths: Vec<PathBuf>,
    /// Where Envoy asks.
    pub grpc: SocketAddr,
    /// Where other proxies ask.
    pub http: SocketAddr,
    /// Where people see the page; `None` without one.
    pub page: Option<SocketAddr>,
    /// How the files are read.
    pub options: Options,
    /// Whether a service without any rule is not healthy.
    pub needs_rules: bool,
    /// Where levels are kept while the service does not run.
    pub state: Option<PathBuf>,
    /// How long requests may take to end after SIGTERM.
    pub drain: Duration,
    /// How the service answers.
    pub manner: Manner,
    /// How many values each rule keeps.
    pub most_values: u64,
    /// The URL of the store that several instances share.
    pub store: Option<String>,
    /// What is logged.
    pub level: LevelFilter,
    /// Whether decisions are exported as spans.
    pub traces: bool,
    /// Whether logs are JSON.
    pub json_logs: bool,
    /// What the operator should know: settings of the reference that mean nothing here.
    pub notes: Vec<String>,
}

/// Settings of the reference that would change decisions or security, and that this service does not have. Each with the
/// values that are harmless, and what to do.
const REFUSED: [(&str, &[&str], &str); 7] = [
    ("GRPC_SERVER_USE_TLS", &["false"], "this service speaks plain text: unset it, and let a sidecar or mesh do TLS"),
    ("CONFIG_TYPE", &["FILE"], "this service reads files only: unset it, and write the files with your control plane"),
    ("GRPC_UDS", &[""], "this service listens on addresses only: unset it, and use GRPC_HOST and GRPC_PORT"),
    ("BACKEND_TYPE", &["redis"], "this service counts in Redis, in PostgreSQL or in its memory: unset it"),
    ("REDIS_TYPE", &["SINGLE", "single"], "this service asks one server: unset it, and let REDIS_URL name the server"),
    ("REDIS_TLS", &["false"], "this service speaks plain text to Redis: unset it"),
    ("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", &["false"], "write `all_or_nothing: true` in the domain instead"),
];

/// Settings of the reference that have no effect here.
const WITHOUT_EFFECT: [(&str, &str); 4] = [
    ("REDIS_PERSECOND_URL", "all limits are in the store of REDIS_URL"),
    ("USE_STATSD", "metrics are at /metrics of the HTTP port"),
    ("USE_DOG_STATSD", "metrics are at /metrics of the HTTP port"),
    ("RESPONSE_DYNAMIC_METADATA", "answers have no metadata"),
];

impl Settings {
    /// Reads the settings. `paths` are those of the command line; if there are none, the directory of the reference counts.
    ///
    /// # Errors
    ///
    /// Returns one line that names the variable, its value, and what to write instead.
    pub fn read(paths: Vec<PathBuf>, env: &dyn Fn(&str) -> Option<String>) -> Result<Self, String> {
        let env = Env(env);
        for (name, harmless, remedy) in REFUSED {
            if let Some(value) = env.text(name).filter(|value| !harmless.contains(&&**value)) {
                return Err(format!("{name}={}: {remedy}", shortened(&value)));
            }
        }
        let is_set = |name: &str| env.text(name).is_some_and(|value| value != "false");
        let notes = WITHOUT_EFFECT.iter().filter(|(name, _)| is_set(name));
        let traces = ["TRACING_ENABLED", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"];
        let headers = ["LIMIT_LIMIT_HEADER", "LIMIT_REMAINING_HEADER", "LIMIT_RESET_HEADER"];
        let names = ["RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"];
        let fields = [0, 1, 2].map(|index| env.text(headers[index]).unwrap_or_else(|| names[index].to_owned()));
        let store = env.store()?;
        let manner = Manner {
            shadow: env.flag("SHADOW_MODE")?,
            quota: env.flag("QUOTA_MODE")?,
            near: env.parsed("NEAR_LIMIT_RATIO", "a number from 0 to 1", |ratio| (0.0..=1.0).contains(ratio), 0.8)?,
            fields: env.flag("LIMIT_RESPONSE_HEADERS_ENABLED")?.then_some(fields),
        };
        Ok(Self {
            paths: if paths.is_empty() { vec![env.directory()] } else { paths },
            grpc: env.address("GRPC_HOST", "GRPC_PORT", 8081)?,
            http: env.address("HOST", "PORT", 8080)?,
            page: env.page()?,
            options: Options {
                merge_domains: env.flag("MERGE_DOMAIN_CONFIG")?,
                is_shared: store.is_some(),
                quota_mode: manner.quota,
            },
            needs_rules: env.flag("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED")?,
            state: env.text("STATE_FILE").map(PathBuf::from),
            drain: env.time("DRAIN_TIME", Duration::from_secs(30))?,
            manner,
            most_values: env.parsed("MAX_VALUES", "a number from 1", |most| *most > 0, DEFAULT_VALUES)?,
            store,
            level: env.level()?,
            traces: traces.into_iter().any(is_set),
            json_logs: env.text("LOG_FORMAT").is_some_and(|format| format.eq_ignore_ascii_case("json")),
            notes: notes.map(|(name, text)| format!("{name} has no effect: {text}")).collect(),
        })
    }
}

struct Env<'a>(&'a dyn Fn(&str) -> Option<String>);

impl Env<'_> {
    fn text(&self, name: &str) -> Option<String> {
        (self.0)(name).filter(|value| !value.is_empty())
    }

    fn parsed<T: FromStr>(
        &self,
        name: &str,
        what: &str,
        is_valid: impl Fn(&T) -> bool,
        default: T,
    ) -> Result<T, String> {
        let Some(text) = self.text(name) else { return Ok(default) };
        let value = text.parse().ok().filter(is_valid);
        value.ok_or_else(|| format!("{name}={}: write {what}", shortened(&text)))
    }

    /// Reads what the reference reads as true or false.
    fn flag(&self, name: &str) -> Result<bool, String> {
        match self.text(name).as_deref().map(str::to_ascii_lowercase).as_deref() {
            None | Some("false" | "f" | "0") => Ok(false),
            Some("true" | "t" | "1") => Ok(true),
            Some(other) => Err(format!("{name}={}: write true or false", shortened(other))),
        }
    }

    fn time(&self, name: &str, default: Duration) -> Result<Duration, String> {
        let Some(text) = self.text(name) else { return Ok(default) };
        parse_time(&text).ok_or_else(|| format!("{name}={}: write a time such as 30s", shortened(&text)))
    }

    fn address(&self, host: &str, port: &str, default: u16) -> Result<SocketAddr, String> {
        let any = IpAddr::from([0, 0, 0, 0]);
        let address = self.parsed(host, "an IP address such as 127.0.0.1", |_| true, any)?;
        Ok((address, self.parsed(port, "a port from 0 to 65535", |_| true, default)?).into())
    }

    /// The page shows values of requests, so only this machine sees it if nothing else is said.
    fn page(&self) -> Result<Option<SocketAddr>, String> {
        let host =
            self.parsed("PAGE_HOST", "an IP address such as 127.0.0.1", |_| true, IpAddr::from([127, 0, 0, 1]))?;
        let port = self.parsed("PAGE_PORT", "a port from 0 to 65535", |_| true, 0)?;
        Ok(self.text("PAGE_PORT").map(|_| (host, port).into()))
    }

    /// The reference finds its Redis by several variables, and its password in one of them: `PASSWORD` or `USER:PASSWORD`.
    fn store(&self) -> Result<Option<String>, String> {
        let (redis, postgres) = (self.text("REDIS_URL"), self.text("POSTGRES_URL"));
        if redis.is_some() && postgres.is_some() {
            return Err("REDIS_URL and POSTGRES_URL are both set: unset one".to_owned());
        }
        if let Some(url) = postgres {
            let is_url = url.starts_with("postgres://") || url.starts_with("postgresql://");
            return if is_url { Ok(Some(url)) } else { Err("POSTGRES_URL: write postgres://HOST/DATABASE".to_owned()) };
        }
        let Some(url) = redis else { return Ok(None) };
        if url.starts_with('/') {
            return Err(format!("REDIS_URL={}: write redis+unix://{url}", shortened(&url)));
        }
        match self.text("REDIS_AUTH") {
            Some(auth) if !url.contains("://") => {
                let (user, password) = auth.split_once(':').unwrap_or(("", &auth));
                Ok(Some(format!("redis://{}:{}@{url}/", encoded(user), encoded(password))))
            }
            Some(_) => Err("REDIS_AUTH: write the password into REDIS_URL, as redis://:PASSWORD@HOST:PORT/".to_owned()),
            None => Ok(Some(url)),
        }
    }

    fn level(&self) -> Result<LevelFilter, String> {
        let Some(text) = self.text("LOG_LEVEL") else { return Ok(LevelFilter::INFO) };
        let known = match text.to_ascii_lowercase().as_str() {
            "warning" => Ok(LevelFilter::WARN),
            "fatal" | "panic" => Ok(LevelFilter::ERROR),
            other => other.parse(),
        };
        known.map_err(|_| format!("LOG_LEVEL={}: write error, warn, info, debug or trace", shortened(&text)))
    }

    /// The directory in which the reference looks for files.
    fn directory(&self) -> PathBuf {
        let root = self.text("RUNTIME_ROOT").unwrap_or_else(|| "/srv/runtime_data/current".to_owned());
        let subdirectory = self.text("RUNTIME_SUBDIRECTORY").unwrap_or_default();
        PathBuf::from(root)
            .join(subdirectory)
            .join(self.text("RUNTIME_APPDIRECTORY").unwrap_or_else(|| "config".to_owned()))
    }
}

/// Returns a text as a part of a URL.
fn encoded(text: &str) -> String {
    let plain =
        |byte: u8| if byte.is_ascii_alphanumeric() { char::from(byte).to_string() } else { format!("%{byte:02x}") };
    text.bytes().map(plain).collect()
}
