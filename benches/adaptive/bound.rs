//! Below which limit no clients that learn from refusals only can keep the targets. The argument is in
//! `docs/decisions.md`, "Adaptive rates".

/// The least Jain index of the clients' rates, and the least share of the limit that they use.
const JAIN: f64 = 0.9;
const USED: f64 = 0.9;
/// The most requests that may be refused, as a share.
const REFUSED: f64 = 0.02;
/// What may be sent after a limit R has halved, as a share of R: 5 % above the half. And what the halved limit can carry.
const HALVED: f64 = 0.525;
const CARRIED: f64 = 0.5;
/// In a phase of 30 s after the halving, a doubled limit must be found within 10 s twice.
const PROBES: usize = 2;
/// Both phases together carry so many seconds of the full limit.
const SECONDS: f64 = 45.0;

/// Returns the lowest limit in requests per second at which `clients` may keep the targets.
pub fn lowest_limit(clients: usize) -> f64 {
    let refusals = informed(clients, HALVED) + PROBES * informed(clients, CARRIED);
    refusals as f64 * (1.0 - REFUSED) / (REFUSED * SECONDS)
}

/// Returns how many of `clients` must be refused at least, so that the others send no more than `left` of the limit.
pub fn informed(clients: usize, left: f64) -> usize {
    let is_enough = |refused: &usize| (1.0 - largest_share(*refused, clients)) * USED <= left;
    (0..=clients).find(is_enough).unwrap_or(clients)
}

/// Returns the largest share that `some` of `clients` can have of all rates, if the Jain index is no less than [`JAIN`]:
/// all of these have one rate, and all others a lower one.
fn largest_share(some: usize, clients: usize) -> f64 {
    let (some, clients) = (some as f64, clients as f64);
    let variation = (1.0 / JAIN - 1.0).sqrt();
    ((some + variation * (some * (clients - some)).sqrt()) / clients).min(1.0)
}
