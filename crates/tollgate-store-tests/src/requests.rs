//! Random requests of nodes, as correct nodes send them and as no correct node does.

use super::clock::Clock;
use fastrand::Rng;
use tollgate::distributed::{ClassClaims, LeaseGrant, LeaseRequest, QuotaTerms, StoreError};

const NODES: usize = 5;

/// The requests of five nodes, some repeated, overtaken or senseless. In each third history most requests are claims
/// `at_once` of callers that the store forgets with the request.
pub(crate) struct Requests {
    pub(crate) random: Rng,
    clock: Clock,
    /// The quotas, the one of most nodes first.
    quotas: Vec<QuotaTerms>,
    version: u32,
    callers: u128,
    numbers: [u64; NODES],
    last: [Option<LeaseRequest>; NODES],
    /// The nodes want few tokens of ten a second, and return promised ones.
    are_hasty: bool,
    /// The nodes have classes.
    have_classes: bool,
    /// Of how many requests one is of a node.
    one_of_node_in: u32,
}

impl Requests {
    pub(crate) fn new(seed: u64, clock: Clock) -> Self {
        let mut quotas = clock.quotas();
        let are_hasty = seed % 9 == 4 && matches!(clock, Clock::Chosen);
        let first = if are_hasty { 0 } else { (seed % quotas.len() as u64) as usize };
        quotas.rotate_left(first);
        Self {
            random: Rng::with_seed(seed),
            clock,
            quotas,
            version: 0,
            callers: 0,
            numbers: [0; NODES],
            last: [const { None }; NODES],
            are_hasty,
            have_classes: seed % 4 == 1 && matches!(clock, Clock::Chosen),
            one_of_node_in: if seed % 3 == 0 { 8 } else { 1 },
        }
    }

    /// Requests for no tokens with which a history by the store's own clock begins. The store remembers the node of the first
    /// one for an hour, and looks for ended nodes at the second one.
    pub(crate) fn first(&self) -> [LeaseRequest; 2] {
        let mut both = [99, 98].map(|node| LeaseRequest::new(node, 1, self.quotas[0]));
        both[0].ttl = 3_600_000_000;
        (both[1].ttl, both[1].leave) = (1, true);
        both
    }

    /// The next request to a store whose last promised token has this number.
    pub(crate) fn next(&mut self, last: u64) -> LeaseRequest {
        let random = &mut self.random;
        if random.u32(..self.one_of_node_in) > 0 {
            self.callers += 1;
            let mut ask = LeaseRequest::new(100 + self.callers, 1, self.quotas[0]);
            ask.want = random.u64(..self.quotas[0].burst().min(4) + 2);
            (ask.leave, ask.at_once, ask.ttl) = (true, true, self.clock.ttl(random));
            return ask;
        }
        let node = random.usize(..NODES);
        if let Some(last) = self.last[node].clone().filter(|_| random.u32(..6) == 0) {
            return last;
        }
        self.numbers[node] += 1;
        let number = if random.u32(..15) == 0 { self.numbers[node] / 2 } else { self.numbers[node] };
        if random.u32(..25) == 0 {
            self.version += 1;
            let chosen = random.usize(..self.quotas.len());
            self.quotas.swap(0, chosen);
            self.quotas[0] = self.quotas[0].with_version(self.version);
        }
        let terms = match random.u32(..30) {
            // The version is the same, and the quota mostly another one.
            0 => self.quotas[self.quotas.len() - 1].with_version(self.version),
            1..4 => self.quotas[0].with_version(self.version / 2),
            _ => self.quotas[0],
        };
        let most = match random.u32(..100) {
            0..2 => 1 << 49,
            2..50 => (2 * terms.burst()).min(1 << 49),
            _ => 5,
        };
        let mut some = |odds: u32| if random.u32(..odds) == 0 { random.u64(..=most) } else { 0 };
        let mut ask = LeaseRequest::new(1 + node as u128, number, terms);
        (ask.want, ask.ahead, ask.banked) = (some(2), some(2), some(4));
        (ask.minimum, ask.held, ask.back) = (some(2).min(some(6)), some(3), some(4));
        (ask.leave, ask.at_once) = (random.u32(..12) == 0, random.u32(..4) == 0);
        ask.first = if random.u32(..20) == 0 { random.u64(..=most) } else { random.u64(..=ask.want) };
        [ask.age, ask.useful, ask.rtt] = self.clock.times(random, node);
        ask.ttl = self.clock.ttl(random);
        let mut returns = Rng::with_seed(random.get_seed());
        if returns.bool() {
            ask.unused = returns.u64(..=most) >> returns.u32(..8);
            ask.last = if returns.u32(..20) == 0 { returns.u64(..1 << 49) } else { last };
            ask.rest = if returns.u32(..4) == 0 { 0 } else { 1 << 40 };
        }
        if self.are_hasty {
            (ask.want, ask.first, ask.useful, ask.rtt) = (returns.u64(..4), returns.u64(..2), 1 << 40, 400_000);
            (ask.back, ask.ahead, ask.minimum, ask.at_once, ask.leave) = (0, 0, 0, false, false);
            (ask.unused, ask.last, ask.rest) = (returns.u64(..3), last.saturating_sub(returns.u64(..12)), 1 << 40);
        }
        if self.have_classes && !ask.at_once && !ask.leave && random.u32(..6) > 0 {
            ask.classes = classes(random, &ask, most);
            ask.want = ask.classes.iter().map(|row| row.want).sum();
        }
        self.last[node] = Some(ask.clone());
        ask
    }
}

/// The claims of some of many classes, of which some are in others, and of claims outside of all classes. Of a class, all nodes
/// have the same weight most of the time.
fn classes(random: &mut Rng, ask: &LeaseRequest, most: u64) -> Vec<ClassClaims> {
    let all = if random.u32(..30) == 0 { 160 } else { 6 };
    let rows = (0..all).filter_map(|class| {
        if random.bool() {
            return None;
        }
        let weight = if random.u32(..20) == 0 { random.u64(..1 << 21) } else { 1 + class % 3 };
        let [mut want, mut first, age] = [random.u64(..=most), 0, ask.age >> random.u32(..20)];
        let lack = if random.u32(..4) == 0 { 0 } else { want + random.u64(..3) * random.u64(..=most) };
        match random.u32(..4) {
            0 => want = 0,
            1 => (want, first) = (want.min(5), 1),
            _ => first = random.u64(..=want),
        }
        Some(ClassClaims::from_numbers([class, class / 2, weight, want, first, lack, age, ask.useful]))
    });
    rows.collect()
}

/// A request as text: what is not 0 of it.
pub(crate) fn asked(ask: &LeaseRequest) -> String {
    brief(&format!("{ask:?}").replace(&format!("{:?}", ask.terms), &format!("`{}`", ask.terms)))
}

/// An answer as text. Stores need not give the same reason of a refusal.
pub(crate) fn answered(answer: &Result<LeaseGrant, StoreError>) -> String {
    match answer {
        Ok(grant) => brief(&format!("{grant:?}")),
        Err(StoreError::Refused(_)) => "refused".to_owned(),
        Err(error) => format!("error: {error}"),
    }
}

fn brief(debug: &str) -> String {
    let inner = debug.split_once("{ ").and_then(|(_, fields)| fields.strip_suffix(" }")).unwrap_or(debug);
    let is_nothing = |field: &&str| [": 0", ": false", ": None"].iter().any(|nothing| field.ends_with(nothing));
    let fields: Vec<&str> = inner.split(", ").filter(|field| !is_nothing(field)).collect();
    fields.join(", ")
}
