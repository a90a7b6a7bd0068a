//! The names and descriptions of the series, and the values that several of them share.

use metrics::{Level, Metadata, Unit, describe_counter, describe_gauge, describe_histogram};

pub(super) const METADATA: Metadata<'static> = Metadata::new("tollgate", Level::INFO, Some(module_path!()));

/// The name shared by everything that has no series of its own because there would be too many.
pub(super) const OTHERS: &str = "(others)";

/// How a wait ends: it is granted, refused, or ended by the caller.
pub(super) const RESULTS: [&str; 3] = ["allow", "deny", "left"];

pub(super) const ACQUIRE: &str = "rate_limit_acquire_total";
pub(super) const TOKENS: &str = "rate_limit_tokens";
pub(super) const DURATION: &str = "rate_limit_acquire_duration_seconds";
pub(super) const REFUSALS: &str = "rate_limit_refusals_total";
pub(super) const REFUNDED: &str = "rate_limit_refunded_total";
pub(super) const QUOTA_REFUSALS: &str = "rate_limit_quota_refusals_total";
pub(super) const QUOTA_TOKENS: &str = "rate_limit_quota_tokens";
pub(super) const DEBT: &str = "rate_limit_debt_tokens";
pub(super) const WAITING: &str = "rate_limit_waiting";
pub(super) const WAITING_TOKENS: &str = "rate_limit_waiting_tokens";
pub(super) const IN_FLIGHT: &str = "rate_limit_in_flight_tokens";
pub(super) const PAUSED: &str = "rate_limit_paused_seconds";
pub(super) const LATENESS: &str = "rate_limit_lateness_seconds";
pub(super) const WOULD_WAIT: &str = "rate_limit_would_wait_seconds";
pub(super) const WOULD_REFUSE: &str = "rate_limit_would_refuse_total";
pub(super) const QUOTA_WOULD_REFUSE: &str = "rate_limit_quota_would_refuse_total";
pub(super) const ADAPTIVE_RATE: &str = "rate_limit_adaptive_rate";
pub(super) const ADAPTIVE_ANSWERS: &str = "rate_limit_adaptive_answers_total";
pub(super) const ADAPTIVE_CHANGES: &str = "rate_limit_adaptive_changes_total";
pub(super) const CLASS_SERVED: &str = "rate_limit_class_served_total";
pub(super) const CLASS_REFUSALS: &str = "rate_limit_class_refusals_total";
pub(super) const CLASS_WAITING: &str = "rate_limit_class_waiting";
pub(super) const CLASS_WAITING_TOKENS: &str = "rate_limit_class_waiting_tokens";
pub(super) const CLASS_DURATION: &str = "rate_limit_class_acquire_duration_seconds";
#[cfg(feature = "keyed")]
pub(super) const KEYS: &str = "rate_limit_keys";
#[cfg(feature = "keyed")]
pub(super) const KEYS_WAITING: &str = "rate_limit_keys_waiting";
#[cfg(feature = "keyed")]
pub(super) const KEY_REFUSALS: &str = "rate_limit_key_refusals";
#[cfg(feature = "keyed")]
pub(super) const KEY_TOKENS: &str = "rate_limit_key_tokens";

#[cfg(feature = "distributed")]
pub(super) use of_stores::*;

#[cfg(feature = "distributed")]
mod of_stores {
    pub(in super::super) const STORE_REQUESTS: &str = "rate_limit_store_requests_total";
    pub(in super::super) const STORE_ERRORS: &str = "rate_limit_store_errors_total";
    pub(in super::super) const STORE_ROUND_TRIP: &str = "rate_limit_store_round_trip_seconds";
    pub(in super::super) const STORE_LEASED: &str = "rate_limit_store_leased_tokens_total";
    pub(in super::super) const STORE_RETURNED: &str = "rate_limit_store_returned_tokens_total";
    pub(in super::super) const STORE_ALLOWANCE: &str = "rate_limit_store_allowance_tokens";
    pub(in super::super) const STORE_NODES: &str = "rate_limit_store_nodes";
    pub(in super::super) const STORE_OUTAGES: &str = "rate_limit_store_outages_total";
    pub(in super::super) const STORE_OUT: &str = "rate_limit_store_out";
    pub(in super::super) const STORE_OUTAGE: &str = "rate_limit_store_outage_seconds";
    pub(in super::super) const STORE_LOSSES: &str = "rate_limit_store_losses_total";
    pub(in super::super) const STORE_EXCESS: &str = "rate_limit_store_excess_tokens_total";
}

/// Passes the description of each series to the recorder. Call it once, after the recorder was installed.
pub fn describe() {
    describe_counter!(ACQUIRE, Unit::Count, "Tokens granted (allow), and tokens asked for by calls refused (deny).");
    describe_counter!(REFUSALS, Unit::Count, "Calls refused, by reason.");
    describe_counter!(QUOTA_REFUSALS, Unit::Count, "Calls refused by each quota, for limiters with several quotas.");
    describe_counter!(REFUNDED, Unit::Count, "Tokens granted that came back unused.");
    describe_histogram!(DURATION, Unit::Seconds, "Time in the queue, of calls that had to wait, by how it ended.");
    describe_gauge!(TOKENS, Unit::Count, "Tokens in the bucket; of several quotas, in the emptiest.");
    describe_gauge!(QUOTA_TOKENS, Unit::Count, "Tokens in the bucket of each quota, for limiters with several quotas.");
    describe_gauge!(DEBT, Unit::Count, "Tokens owed by grants that were settled above what they had.");
    describe_gauge!(WAITING, Unit::Count, "Callers in the queue.");
    describe_gauge!(WAITING_TOKENS, Unit::Count, "Tokens the callers in the queue wait for.");
    describe_gauge!(IN_FLIGHT, Unit::Count, "Tokens granted and not yet released.");
    describe_gauge!(PAUSED, Unit::Seconds, "How long the pause still lasts.");
    describe_gauge!(
        LATENESS,
        Unit::Seconds,
        "The longest time from an instant of the schedule to its delivery, so far."
    );
    describe_histogram!(WOULD_WAIT, Unit::Seconds, "Time that calls would have waited, but for a dry run.");
    describe_counter!(WOULD_REFUSE, Unit::Count, "Calls that would have been refused, but for a dry run, by reason.");
    describe_counter!(QUOTA_WOULD_REFUSE, Unit::Count, "Calls that each quota would have refused, but for a dry run.");
    describe_gauge!(ADAPTIVE_RATE, Unit::CountPerSecond, "The learned rate, in tokens per second.");
    describe_counter!(ADAPTIVE_ANSWERS, Unit::Count, "Answers of the server to requests under an adaptive rate.");
    describe_counter!(ADAPTIVE_CHANGES, Unit::Count, "Changes of an adaptive rate, by reason.");
    describe_counter!(CLASS_SERVED, Unit::Count, "Tokens that a class was served by the scheduler.");
    describe_counter!(CLASS_REFUSALS, Unit::Count, "Calls refused in a class.");
    describe_gauge!(CLASS_WAITING, Unit::Count, "Callers in the queue of a class.");
    describe_gauge!(CLASS_WAITING_TOKENS, Unit::Count, "Tokens the callers in the queue of a class wait for.");
    describe_histogram!(CLASS_DURATION, Unit::Seconds, "Time in the queue of a class, by how it ended.");
    #[cfg(feature = "distributed")]
    {
        describe_counter!(STORE_REQUESTS, Unit::Count, "Requests that the store of a distributed quota has answered.");
        describe_counter!(STORE_ERRORS, Unit::Count, "Error replies of the store's server, by kind.");
        describe_gauge!(STORE_ROUND_TRIP, Unit::Seconds, "The time from the last request to its answer.");
        describe_counter!(STORE_LEASED, Unit::Count, "Tokens that the store has promised to this process.");
        describe_counter!(STORE_RETURNED, Unit::Count, "Tokens returned to the store.");
        describe_gauge!(STORE_ALLOWANCE, Unit::Count, "Tokens that the limiter may keep unused.");
        describe_gauge!(STORE_NODES, Unit::Count, "Limiters that share the store, on all machines.");
        describe_counter!(STORE_OUTAGES, Unit::Count, "How many times a limiter could not reach the store.");
        describe_gauge!(STORE_OUT, Unit::Count, "1 while the store cannot be reached.");
        describe_gauge!(
            STORE_OUTAGE,
            Unit::Seconds,
            "For how long the store could not be reached, all outages together."
        );
        describe_counter!(
            STORE_LOSSES,
            Unit::Count,
            "How many times a limiter found that the store had lost its state."
        );
        describe_counter!(STORE_EXCESS, Unit::Count, "Tokens by which lost state may have exceeded the quota.");
    }
    #[cfg(feature = "keyed")]
    {
        describe_gauge!(KEYS, Unit::Count, "Keys in memory.");
        describe_gauge!(KEYS_WAITING, Unit::Count, "Keys with at least one waiting caller.");
        describe_gauge!(KEY_REFUSALS, Unit::Count, "Refusals of the keys refused most, at least.");
        describe_gauge!(KEY_TOKENS, Unit::Count, "Tokens in the buckets of the keys refused most.");
    }
}
