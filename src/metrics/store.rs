//! The series of a distributed quota's store.

use super::names;
use super::series::Series;
use crate::distributed::{ReplyKind, StoreSnapshot};

pub(super) fn publish_store(series: &Series<'_>, store: &StoreSnapshot) {
    series.counter(names::STORE_REQUESTS, None, store.round_trips);
    for kind in ReplyKind::ALL {
        series.counter(names::STORE_ERRORS, Some(("kind", kind.name())), store.error_replies(kind));
    }
    series.seconds(names::STORE_ROUND_TRIP, store.round_trip);
    series.counter(names::STORE_LEASED, None, store.granted);
    series.counter(names::STORE_RETURNED, None, store.returned);
    series.gauge(names::STORE_ALLOWANCE, store.allowance as f64);
    series.gauge(names::STORE_NODES, store.nodes as f64);
    series.counter(names::STORE_OUTAGES, None, store.outages);
    series.gauge(names::STORE_OUT, f64::from(u8::from(store.is_out)));
    series.seconds(names::STORE_OUTAGE, store.outage);
    series.counter(names::STORE_LOSSES, None, store.losses);
    series.counter(names::STORE_EXCESS, None, store.excess_estimate);
}
