//! The series of a distributed quota's store.

use super::names;
use super::series::Series;
use crate::distributed::{Circuit, ReplyKind, StoreSnapshot};

/// The bounds of [`StoreSnapshot::ROUND_TRIPS`] in seconds, and of all.
const BOUNDS: [&str; StoreSnapshot::ROUND_TRIPS.len() + 1] =
    ["0.0005", "0.001", "0.0025", "0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "1", "+Inf"];

pub(super) fn publish_store(series: &Series<'_>, store: &StoreSnapshot, circuits: &[Circuit]) {
    series.counter(names::STORE_REQUESTS, None, store.round_trips);
    for kind in ReplyKind::all() {
        series.counter(names::STORE_ERRORS, Some(("kind", kind.name())), store.error_replies(kind));
    }
    let mut round_trips = 0;
    for (bound, count) in BOUNDS.into_iter().zip(store.round_trip_counts) {
        round_trips += count;
        series.counter(names::STORE_ROUND_TRIPS, Some(("le", bound)), round_trips);
    }
    series.seconds(names::STORE_ANSWER_AGE, store.answer_age.unwrap_or_default());
    series.counter(names::STORE_LEASED, None, store.granted);
    series.counter(names::STORE_RETURNED, None, store.returned);
    series.gauge(names::STORE_ALLOWANCE, store.allowance as f64);
    series.gauge(names::STORE_LEVEL, store.level as f64);
    series.seconds(names::STORE_NEXT_TOKEN, store.next_token);
    series.counter(names::STORE_SENT_AWAY, None, store.sent_away);
    series.gauge(names::STORE_PLACES, store.places as f64);
    series.gauge(names::STORE_NODES, store.nodes as f64);
    for (state, name) in Circuit::NAMED {
        let count = circuits.iter().filter(|circuit| **circuit == state).count();
        series.gauge_of(names::STORE_CIRCUITS, Some(("state", name.into())), count as f64);
    }
    series.gauge(names::STORE_QUOTA_VERSION, f64::from(store.quota_version));
    series.counter(names::STORE_OUTAGES, None, store.outages);
    series.gauge(names::STORE_OUT, f64::from(u8::from(store.is_out)));
    series.seconds(names::STORE_OUTAGE, store.outage);
    series.counter(names::STORE_LOSSES, None, store.losses);
    series.counter(names::STORE_EXCESS, None, store.excess_estimate);
}
