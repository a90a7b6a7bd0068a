//! The limit below which no clients can keep the targets if they learn from refusals only. The argument is in
//! `docs/decisions.md`, "Adaptive rates".

/// The least Jain index of the clients' rates, and the least share of the limit that they use.
const JAIN: f64 = 0.9;
const USED: f64 = 0.9;
/// The most requests that may be refused, as a share.
const REFUSED: f64 = 0.02;
/// After a limit R has halved: what may be sent (5 % above the half), and what the limit accepts, as shares of R.
const HALVED: f64 = 0.525;
const CARRIED: f64 = 0.5;
/// In a phase of 30 s after the halving, a doubled limit must be found within 10 s twice.
const PROBES: usize = 2;
/// A phase with the full limit and one with half of it accept as many requests as the full limit does in this many
/// seconds.
const SECONDS: f64 = 45.0;

/// Returns the lowest limit in requests per second at which `clients` may keep the targets.
pub fn lowest_limit(clients: usize) -> f64 {
    let refusals = informed(clients, HALVED) + PROBES * informed(clients, CARRIED);
    refusals as f64 * (1.0 - REFUSED) / (REFUSED * SECONDS)
}

/// Returns the fewest of `clients` that must be refused so that the others send no more than `left`, a share of the
/// limit.
pub fn informed(clients: usize, left: f64) -> usize {
    let is_enough = |refused: &usize| (1.0 - largest_share(*refused, clients)) * USED <= left;
    (0..=clients).find(is_enough).unwrap_or(clients)
}

/// Returns the largest share that `some` of `clients` can have of all rates, if the Jain index is no less than [`JAIN`]:
/// the `some` clients have one rate, and all others a lower one.
fn largest_share(some: usize, clients: usize) -> f64 {
    let (some, clients) = (some as f64, clients as f64);
    let variation = (1.0 / JAIN - 1.0).sqrt();
    ((some + variation * (some * (clients - some)).sqrt()) / clients).min(1.0)
}
