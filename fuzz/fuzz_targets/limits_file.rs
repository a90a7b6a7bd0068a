#![no_main]
//! A file of the rate limit service, and requests: both are read, checked and decided without a panic, and a rule never
//! grants more than its burst, or its number in a window, at one instant.

use libfuzzer_sys::fuzz_target;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};
use tollgate::clock::TokioClock;
use tollgate_service::bucket::Maker;
use tollgate_service::config::{self, Options};
use tollgate_service::meter::Meters;
use tollgate_service::metrics;
use tollgate_service::problem::Source;
use tollgate_service::proto::{Descriptor, Entry, RateLimitRequest};
use tollgate_service::service::{Manner, Service};

fuzz_target!(|data: (String, Vec<(u8, String)>)| {
    let (text, asked) = data;
    let meters = Arc::<Meters>::default();
    let loaded = match config::load(&[Arc::new(Source { name: "x".into(), text })], Options::default(), &meters) {
        Ok(loaded) => loaded,
        Err(problems) => {
            // Each problem prints, wherever it is.
            problems.iter().for_each(|problem| assert!(!problem.to_string().is_empty()));
            return;
        }
    };
    let most = loaded.rules.all.iter().flat_map(|rule| &rule.terms.limits);
    let most = most.map(|limit| u64::from(limit.capacity())).max();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let clock = TokioClock::at(UNIX_EPOCH + Duration::from_secs(1_767_225_610));
        let domains: Vec<String> = loaded.rules.domains.keys().cloned().collect();
        let service = Service::new(loaded.rules, meters, Manner::default(), Maker { clock, ..Maker::default() });
        for (number, value) in &asked {
            let Some(domain) = domains.get(usize::from(*number) % domains.len().max(1)) else { return };
            let pair = |text: &str| {
                let (key, value) = text.split_once('=').unwrap_or((text, ""));
                Entry { key: key.into(), value: value.into() }
            };
            let descriptor = |text: &str| Descriptor { entries: text.split(',').map(pair).collect(), ..Descriptor::default() };
            let descriptors = value.split(' ').map(descriptor).collect();
            let request = RateLimitRequest { domain: domain.clone(), descriptors, hits_addend: (*number).into() };
            if let Ok(answer) = service.decide(&request).await {
                assert_eq!(answer.response.statuses.len(), request.descriptors.len());
                let limited = answer.response.statuses.iter().filter(|status| status.current_limit.is_some());
                assert!(limited.into_iter().all(|status| Some(u64::from(status.limit_remaining)) <= most));
            }
        }
        assert!(metrics::text(&service).ends_with("# EOF\n"));
    });
});
