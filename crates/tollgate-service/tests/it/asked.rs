//! A service with a configuration, and requests in one line: `domain key=value,key=value key=value`.

// What most tests name.
pub use std::net::SocketAddr;
pub use std::path::{Path, PathBuf};
pub use std::sync::Arc;
pub use std::sync::atomic::Ordering;
pub use std::time::Duration;
pub use tokio::task::JoinSet;
pub use tokio::time::{advance, sleep};
pub use tollgate_service::bucket::{Maker, Reason};
pub use tollgate_service::config::{self, Options};
pub use tollgate_service::health::Health;
pub use tollgate_service::meter::Meters;
pub use tollgate_service::problem::Source;
pub use tollgate_service::proto::{Code, RateLimitRequest, UInt64Value};
pub use tollgate_service::reload::Reloader;
pub use tollgate_service::service::{Manner, Service};

use std::time::UNIX_EPOCH;
use tollgate::clock::TokioClock;
use tollgate_service::answer::Answer;
use tollgate_service::config::Loaded;
use tollgate_service::problem::Problem;
use tollgate_service::proto::{Descriptor, Entry};

/// 2026-01-01, a Thursday, at 00:00:10 UTC: ten seconds into a minute, an hour and a day.
pub const NOW: Duration = Duration::from_secs(1_767_225_610);

/// Makes limiters whose time is `unix`.
pub fn maker(unix: Duration) -> Maker {
    Maker { clock: TokioClock::at(UNIX_EPOCH + unix), ..Maker::default() }
}

pub fn sources(files: &[&str]) -> Vec<Arc<Source>> {
    let source =
        |(index, text): (usize, &&str)| Arc::new(Source { name: format!("{index}.yaml"), text: (*text).into() });
    files.iter().enumerate().map(source).collect()
}

pub fn load(files: &[&str], meters: &Meters) -> Result<Loaded, Vec<Problem>> {
    config::load(&sources(files), Options::default(), meters)
}

/// Reads a configuration of instances that share limits.
pub fn load_shared(file: &str, meters: &Meters) -> Result<Loaded, Vec<Problem>> {
    config::load(&sources(&[file]), Options { is_shared: true, ..Options::default() }, meters)
}

/// The service of this file, with limiters of this maker.
pub fn service_by(file: &str, manner: Manner, maker: Maker) -> Service {
    let meters = Arc::<Meters>::default();
    let options = Options { quota_mode: manner.quota, ..Options::default() };
    let loaded = match config::load(&sources(&[file]), options, &meters) {
        Ok(loaded) => loaded,
        Err(problems) => panic!("{}", problems.iter().map(ToString::to_string).collect::<String>()),
    };
    Service::new(loaded.rules, meters, manner, maker)
}

pub fn service_with(file: &str, manner: Manner) -> Service {
    service_by(file, manner, maker(NOW))
}

pub fn service(file: &str) -> Service {
    service_with(file, Manner::default())
}

pub fn request(text: &str) -> RateLimitRequest {
    let mut words = text.split(' ');
    let domain = words.next().unwrap().to_owned();
    let entry = |pair: &str| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        Entry { key: key.into(), value: value.into() }
    };
    let descriptor = |word: &str| Descriptor { entries: word.split(',').map(entry).collect(), ..Descriptor::default() };
    RateLimitRequest { domain, descriptors: words.map(descriptor).collect(), hits_addend: 0 }
}

pub async fn ask(service: &Service, text: &str) -> Answer {
    service.decide(&request(text)).await.unwrap()
}

/// Returns how many of `n` requests pass.
pub async fn passed(service: &Service, text: &str, n: usize) -> usize {
    let mut passed = 0;
    for _ in 0..n {
        passed += usize::from(ask(service, text).await.passes());
    }
    passed
}

/// Returns the codes of an answer: of the request, then of its descriptors.
pub fn codes(answer: &Answer) -> String {
    let letter = |code: i32| if code == Code::Ok as i32 { "ok" } else { "over" };
    let statuses = answer.response.statuses.iter().map(|status| letter(status.code));
    [letter(answer.response.overall_code), ":"].into_iter().chain(statuses).collect::<Vec<_>>().join(" ")
}

/// Returns the names of all metrics with hits, and their hits.
pub fn hits(service: &Service) -> Vec<String> {
    let read = |counter: &std::sync::atomic::AtomicU64| counter.load(std::sync::atomic::Ordering::Relaxed);
    let all = service.meters.all();
    let hit = all.iter().filter(|(_, meter)| read(&meter.total_hits) > 0);
    hit.map(|(name, meter)| format!("{} {}", name.join("."), read(&meter.total_hits))).collect()
}
