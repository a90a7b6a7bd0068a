//! The names and descriptions of the series, and the values that several of them share.

use super::instrument::{Instrument, InstrumentKind};
use metrics::{KeyName, Level, Metadata, SharedString, with_recorder};

pub(super) const METADATA: Metadata<'static> = Metadata::new("tollgate", Level::INFO, Some(module_path!()));

/// The name shared by everything that has no series of its own because there would be too many.
pub(super) const OTHERS: &str = "(others)";

/// How a wait ends: it is granted, refused, or ended by the caller.
pub(super) const RESULTS: [&str; 3] = ["allow", "deny", "left"];

/// `CONSTANT: Kind "name of the series" = "name in OpenTelemetry" in "unit", "description";`
macro_rules! instruments {
    ($($constant:ident: $kind:ident $name:literal = $otel_name:literal in $unit:literal, $description:literal;)*) => {
        $(
            #[allow(dead_code, reason = "some series belong to optional features")]
            pub(super) const $constant: &str = $name;
        )*

        /// All series that the meters of this crate publish, in all features.
        pub const INSTRUMENTS: &[Instrument] = &[$(Instrument {
            name: $name,
            otel_name: $otel_name,
            kind: InstrumentKind::$kind,
            unit: $unit,
            description: $description,
        },)*];
    };
}

instruments! {
    ACQUIRE: Counter "rate_limit_acquire_total" = "rate_limit.acquire" in "{token}",
        "Tokens granted (allow), and tokens asked for by calls refused (deny).";
    REFUSALS: Counter "rate_limit_refusals_total" = "rate_limit.refusals" in "{call}",
        "Calls refused, by reason.";
    QUOTA_REFUSALS: Counter "rate_limit_quota_refusals_total" = "rate_limit.quota.refusals" in "{call}",
        "Calls refused by each quota, for limiters with several quotas.";
    REFUNDED: Counter "rate_limit_refunded_total" = "rate_limit.refunded" in "{token}",
        "Tokens granted that came back unused.";
    DURATION: Histogram "rate_limit_acquire_duration_seconds" = "rate_limit.acquire.duration" in "s",
        "Time in the queue, of calls that had to wait, by how it ended.";
    TOKENS: Gauge "rate_limit_tokens" = "rate_limit.tokens" in "{token}",
        "Tokens in the bucket; of several quotas, in the emptiest.";
    QUOTA_TOKENS: Gauge "rate_limit_quota_tokens" = "rate_limit.quota.tokens" in "{token}",
        "Tokens in the bucket of each quota, for limiters with several quotas.";
    DEBT: UpDownCounter "rate_limit_debt_tokens" = "rate_limit.debt_tokens" in "{token}",
        "Tokens owed by grants that were settled above what they had.";
    WAITING: UpDownCounter "rate_limit_waiting" = "rate_limit.waiting" in "{call}",
        "Callers in the queue.";
    WAITING_TOKENS: UpDownCounter "rate_limit_waiting_tokens" = "rate_limit.waiting_tokens" in "{token}",
        "Tokens the callers in the queue wait for.";
    IN_FLIGHT: UpDownCounter "rate_limit_in_flight_tokens" = "rate_limit.in_flight_tokens" in "{token}",
        "Tokens granted and not yet released.";
    PAUSED: Gauge "rate_limit_paused_seconds" = "rate_limit.paused" in "s",
        "How long the pause still lasts.";
    LATENESS: Gauge "rate_limit_lateness_seconds" = "rate_limit.lateness" in "s",
        "The longest time from an instant of the schedule to its delivery, so far.";
    WOULD_WAIT: Histogram "rate_limit_would_wait_seconds" = "rate_limit.would_wait" in "s",
        "Time that calls would have waited, but for a dry run.";
    WOULD_REFUSE: Counter "rate_limit_would_refuse_total" = "rate_limit.would_refuse" in "{call}",
        "Calls that would have been refused, but for a dry run, by reason.";
    QUOTA_WOULD_REFUSE: Counter "rate_limit_quota_would_refuse_total" = "rate_limit.quota.would_refuse" in "{call}",
        "Calls that each quota would have refused, but for a dry run.";
    KEYS: UpDownCounter "rate_limit_keys" = "rate_limit.keys" in "{key}",
        "Keys in memory.";
    KEYS_WAITING: UpDownCounter "rate_limit_keys_waiting" = "rate_limit.keys_waiting" in "{key}",
        "Keys with at least one waiting caller.";
    KEY_REFUSALS: Gauge "rate_limit_key_refusals" = "rate_limit.key.refusals" in "{call}",
        "Refusals of the keys refused most, at least.";
    KEY_TOKENS: Gauge "rate_limit_key_tokens" = "rate_limit.key.tokens" in "{token}",
        "Tokens in the buckets of the keys refused most.";
    CLASS_SERVED: Counter "rate_limit_class_served_total" = "rate_limit.class.served" in "{token}",
        "Tokens that a class was served by the scheduler.";
    CLASS_REFUSALS: Counter "rate_limit_class_refusals_total" = "rate_limit.class.refusals" in "{call}",
        "Calls refused in a class.";
    CLASS_WAITING: UpDownCounter "rate_limit_class_waiting" = "rate_limit.class.waiting" in "{call}",
        "Callers in the queue of a class.";
    CLASS_WAITING_TOKENS: UpDownCounter "rate_limit_class_waiting_tokens"
        = "rate_limit.class.waiting_tokens" in "{token}",
        "Tokens the callers in the queue of a class wait for.";
    CLASS_DURATION: Histogram "rate_limit_class_acquire_duration_seconds" = "rate_limit.class.acquire.duration" in "s",
        "Time in the queue of a class, by how it ended.";
    STORE_REQUESTS: Counter "rate_limit_store_requests_total" = "rate_limit.store.requests" in "{request}",
        "Requests that the store of a distributed quota has answered.";
    STORE_ERRORS: Counter "rate_limit_store_errors_total" = "rate_limit.store.errors" in "{error}",
        "Error replies of the store's server, by kind.";
    STORE_ROUND_TRIPS: Counter "rate_limit_store_round_trips_total" = "rate_limit.store.round_trips" in "{request}",
        "Requests that were answered within `le` seconds.";
    STORE_ANSWER_AGE: Gauge "rate_limit_store_answer_age_seconds" = "rate_limit.store.answer_age" in "s",
        "The time since the last answer.";
    STORE_LEASED: Counter "rate_limit_store_leased_tokens_total" = "rate_limit.store.leased_tokens" in "{token}",
        "Tokens that the store has promised to this process.";
    STORE_RETURNED: Counter "rate_limit_store_returned_tokens_total" = "rate_limit.store.returned_tokens" in "{token}",
        "Tokens returned to the store.";
    STORE_ALLOWANCE: Gauge "rate_limit_store_allowance_tokens" = "rate_limit.store.allowance_tokens" in "{token}",
        "Tokens that the limiter may keep unused.";
    STORE_LEVEL: Gauge "rate_limit_store_level_tokens" = "rate_limit.store.level_tokens" in "{token}",
        "Tokens in the store; below 0, tokens that it has promised and not minted yet.";
    STORE_NEXT_TOKEN: Gauge "rate_limit_store_next_token_seconds" = "rate_limit.store.next_token" in "s",
        "The time until the store has a token that it has not promised.";
    STORE_SENT_AWAY: Counter "rate_limit_store_sent_away_total" = "rate_limit.store.sent_away" in "{request}",
        "Requests for waiters that got no tokens.";
    STORE_PLACES: UpDownCounter "rate_limit_store_places" = "rate_limit.store.places" in "{place}",
        "Limiters for whose waiters the store may hold tokens back from others, by its last answer.";
    STORE_NODES: Gauge "rate_limit_store_nodes" = "rate_limit.store.nodes" in "{node}",
        "Limiters of all processes that asked the store in the last two seconds.";
    STORE_CIRCUITS: UpDownCounter "rate_limit_store_circuits" = "rate_limit.store.circuits" in "{server}",
        "Servers of the store, by the state of their circuit breakers.";
    STORE_QUOTA_VERSION: Gauge "rate_limit_store_quota_version" = "rate_limit.store.quota_version" in "{version}",
        "The version of the quota in force.";
    STORE_OUT: UpDownCounter "rate_limit_store_out" = "rate_limit.store.out" in "{outage}",
        "1 during an outage: the store cannot be reached, or answers with errors.";
    STORE_OUTAGES: Counter "rate_limit_store_outages_total" = "rate_limit.store.outages" in "{outage}",
        "How many outages limiters have met.";
    STORE_OUTAGE: Gauge "rate_limit_store_outage_seconds" = "rate_limit.store.outage" in "s",
        "For how long limiters were in an outage, all outages together.";
    STORE_LOSSES: Counter "rate_limit_store_losses_total" = "rate_limit.store.losses" in "{loss}",
        "How many times a limiter found that the store had lost its state.";
    STORE_EXCESS: Counter "rate_limit_store_excess_tokens_total" = "rate_limit.store.excess_tokens" in "{token}",
        "Tokens by which lost state may have exceeded the quota.";
    ADAPTIVE_RATE: Gauge "rate_limit_adaptive_rate_per_second" = "rate_limit.adaptive.rate" in "{token}/s",
        "The learned rate.";
    ADAPTIVE_ANSWERS: Counter "rate_limit_adaptive_answers_total" = "rate_limit.adaptive.answers" in "{answer}",
        "Answers of the server to requests under an adaptive rate.";
    ADAPTIVE_CHANGES: Counter "rate_limit_adaptive_changes_total" = "rate_limit.adaptive.changes" in "{change}",
        "Changes of an adaptive rate, by reason.";
}

/// Passes the description of each series to the recorder. Call it once, after the recorder was installed.
pub fn describe() {
    for instrument in INSTRUMENTS {
        let (name, unit) = (KeyName::from_const_str(instrument.name), Some(instrument.facade_unit()));
        let description = SharedString::const_str(instrument.description);
        with_recorder(|recorder| match instrument.kind {
            InstrumentKind::Counter => recorder.describe_counter(name, unit, description),
            InstrumentKind::UpDownCounter | InstrumentKind::Gauge => recorder.describe_gauge(name, unit, description),
            InstrumentKind::Histogram => recorder.describe_histogram(name, unit, description),
        });
    }
}
