//! The limit below which no clients can keep the targets if they learn from refusals only.
//!
//! A client learns from its own refusals only. So `n` clients cannot keep the targets of this program (a limit R that
//! halves and doubles every 30 s) at every R:
//!
//! 1. Their shares are fair whenever the limit changes: a Jain index of the rates of at least 0.9. Then `m` of `n`
//!    clients have at most the share `s(m) = m/n + sqrt((1/0.9 - 1) m (n - m)) / n` of all rates.
//! 2. All clients send 0.9 R together when the limit halves, because no client knows when that is. A client that is not
//!    refused in the next second keeps its rate. These clients may send no more than 0.525 R. So at least `a` clients
//!    are refused, the smallest `m` with `0.9 (1 - s(m)) <= 0.525`.
//! 3. In the rest of the phase the limit could double at any time. Then all clients would send 0.9 R within 10 s, and a
//!    client that is not refused does that also if the limit has not doubled. The limit stays halved for 29 s more, in
//!    which that happens twice. Each time at least `b` clients are refused, the smallest `m` with
//!    `0.9 (1 - s(m)) <= 0.5`.
//! 4. Both phases carry 45 R requests, so at most `45 R x 0.02 / 0.98` may be refused. Hence `R >= 49/45 (a + 2 b)`.
//!
//! The bound is not tight: it counts neither chance meetings nor the refusals by which the other clients learn their
//! new share. Clients with a common timetable communicate, so they count as one client.

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
