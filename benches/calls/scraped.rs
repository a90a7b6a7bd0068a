//! Limiters with a meter, one of which is scraped as often as by three thousand Prometheus servers.

use crate::{Contender, ample, built, calls, empty, try_acquire};
use metrics_exporter_prometheus::PrometheusBuilder;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tollgate::metrics::Meter;

pub fn contenders() -> [Contender; 3] {
    let prometheus = PrometheusBuilder::new().install_recorder().expect("no other recorder is installed");
    let metered = |case, what: &'static str, builder: tollgate::Builder, scrapes: bool| {
        let limiter = built(builder);
        let meter = Arc::new(Meter::new(what, &limiter).expect("its first meter"));
        if scrapes {
            let (meter, prometheus) = (Arc::clone(&meter), prometheus.clone());
            thread::spawn(move || {
                loop {
                    thread::sleep(Duration::from_millis(5));
                    meter.publish();
                    std::hint::black_box(prometheus.render());
                }
            });
        }
        calls(case, what, limiter, move |limiter| {
            // It lives as long as the limiter.
            let _ = &meter;
            try_acquire(limiter);
        })
    };
    [
        metered("granted", "`try_acquire`, with a meter", ample(), false),
        metered("granted", "`try_acquire`, scraped 200 times/s", ample(), true),
        metered("refused", "`try_acquire`, with a meter", empty(), false),
    ]
}
