//! Correct stores pass, and what is wrong with others is named.

use std::collections::HashMap;
use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep};
use tollgate::distributed::{
    LeaseGrant, LeaseRequest, MemoryStore, QuotaTerms, SharedBucket, Store, StoreCounters, StoreError,
};
use tollgate_store_tests::{Failure, Part, check, check_at};

/// What a store does wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    /// Takes the granted tokens from the bucket twice.
    CountsTwice,
    /// Treats a repeated request as a new one.
    IgnoresNumbers,
    /// Answers requests that a later one has overtaken.
    AnswersOvertaken,
    /// Starts anew at 0 when it owes tokens.
    ForgetsDebt,
    /// Lets nodes keep tokens on top of the burst.
    ForgetsAllowances,
    /// Remembers nodes for ever.
    ForgetsNoNode,
    /// Forgets nodes at once.
    ForgetsNodes,
    /// Has space for the tokens that a node keeps before its lease has ended.
    MintsKeptTokens,
    /// Leaves the ends of leases where they are when its clock steps back.
    KeepsEnds,
    /// Looks for nodes that have ended from its first claim on, not from its first node on.
    LooksFromTheFirstClaim,
    /// Uses the time of the process that asks.
    TrustsClientClock,
    /// Does not let time go on after a step back until it has caught up.
    WaitsForTheClock,
    /// Its clock steps back by a second now and then.
    StepsBack,
    /// Its clock is fast by a tenth.
    IsFast,
    /// Mints nothing.
    StandsStill,
    /// Does not compare the record that it replaces with the one that it has read.
    LosesUpdates,
    /// Grants a part of what is needed at once.
    GrantsParts,
    /// Grants what is needed at once although it owes tokens.
    GrantsInDebt,
    /// Does not say how long a claim would wait.
    KnowsNoWait,
    /// Promises nothing anew that was returned before it came.
    ForgetsReturns,
    /// Keeps no places.
    ForgetsPlaces,
    /// Begins a new bucket for a new quota.
    RefillsByVersion,
    /// Refuses newer quotas.
    IgnoresVersions,
    /// Grants what nodes want by an older quota.
    GrantsByOldQuota,
    /// Keeps a cache of the nodes, also of those that the server has forgotten.
    CachesNodes,
    /// Has one bucket for all names.
    IgnoresNames,
    /// Counts in 16 bits.
    CountsInWords,
    /// Never answers.
    IsSilent,
    /// Promises more than any node asks for.
    PromisesTooMuch,
    /// Says that more tokens are queued than any store can owe.
    OwesTooMuch,
    /// Says that a token is due at once whenever it promises one.
    PhaseIsPeriod,
    /// Says that the next token was minted years ago.
    PhaseIsHuge,
    /// Forgets what the classes were given.
    ForgetsLeads,
}

/// What the network does to requests to the stores.
#[derive(Clone, Copy, Debug, Default)]
struct Network {
    /// The number of the request that takes long.
    stalls: Option<u64>,
    /// In how many stores the first answer is lost.
    loses: u64,
}

/// A server with stores that keep a record each, as docs/distributed.md describes them.
#[derive(Debug)]
struct Server {
    fault: Fault,
    records: Mutex<HashMap<String, Vec<u8>>>,
    cache: Mutex<HashMap<(String, u128), u64>>,
    began: Instant,
    network: Network,
    /// The number of requests to each store.
    asked: Mutex<HashMap<String, u64>>,
    /// The number of stores that were asked.
    stores: AtomicU64,
}

#[derive(Debug)]
struct RecordStore {
    server: Arc<Server>,
    name: String,
    skew: i64,
    tally: StoreCounters,
}

impl Store for RecordStore {
    fn ask(&self, ask: LeaseRequest) -> Pin<Box<dyn Future<Output = Result<LeaseGrant, StoreError>> + Send + '_>> {
        Box::pin(async move {
            if self.server.fault == Fault::IsSilent {
                pending::<()>().await;
            }
            let number =
                *self.server.asked.lock().unwrap().entry(self.name.clone()).and_modify(|n| *n += 1).or_insert(1);
            if self.server.network.stalls == Some(number) {
                sleep(Duration::from_millis(80)).await;
            }
            loop {
                let read = self.server.records.lock().unwrap().get(&self.name).cloned();
                let mut now = 1_700_000_000_000_000 + self.server.began.elapsed().as_micros() as i64;
                if self.server.fault == Fault::TrustsClientClock {
                    now += self.skew;
                }
                if self.server.fault == Fault::StepsBack {
                    now -= now / 1_000_000 % 2 * 1_000_000;
                }
                let (record, answer) = self.server.answer(&self.name, read.as_deref(), ask.clone(), now);
                // Other requests come here.
                yield_now().await;
                let mut records = self.server.records.lock().unwrap();
                if records.get(&self.name) == read.as_ref() || self.server.fault == Fault::LosesUpdates {
                    records.insert(self.name.clone(), record);
                    if self.server.loses_answer(number) {
                        return Err(StoreError::Unreachable("the answer is lost".to_owned()));
                    }
                    return answer;
                }
            }
        })
    }

    fn tally(&self) -> &StoreCounters {
        &self.tally
    }
}

/// Replaces numbers of the third line of a record.
fn edit(record: &[u8], change: impl FnOnce(&mut Vec<i64>)) -> Vec<u8> {
    let text = std::str::from_utf8(record).unwrap();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let mut numbers = lines[2].split(' ').map(|number| number.parse().unwrap()).collect();
    change(&mut numbers);
    lines[2] = numbers.iter().map(i64::to_string).collect::<Vec<_>>().join(" ");
    (lines.join("\n") + "\n").into_bytes()
}

/// Changes or drops the nodes of a record, each a line of words.
fn edit_nodes(record: &[u8], mut keep: impl FnMut(&mut Vec<String>) -> bool) -> Vec<u8> {
    let text = std::str::from_utf8(record).unwrap();
    let mut edited: String = text.lines().take(4).map(|line| format!("{line}\n")).collect();
    for line in text.lines().skip(4) {
        let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        if keep(&mut words) {
            edited += &(words.join(" ") + "\n");
        }
    }
    edited.into_bytes()
}

/// When a node of a record is forgotten.
fn until(words: &[String]) -> i64 {
    words[3].parse().unwrap()
}

/// The level in a record.
fn level(record: &[u8]) -> i64 {
    let mut level = 0;
    edit(record, |numbers| level = numbers[0]);
    level
}

impl Server {
    /// Whether the answer to the request with this number is lost.
    fn loses_answer(&self, number: u64) -> bool {
        number == 1 && self.stores.fetch_add(1, Relaxed) < self.network.loses
    }

    /// One transaction.
    fn answer(
        &self,
        name: &str,
        read: Option<&[u8]>,
        mut ask: LeaseRequest,
        mut now: i64,
    ) -> (Vec<u8>, Result<LeaseGrant, StoreError>) {
        let sent = ask.clone();
        let mut read = read.map(<[u8]>::to_vec);
        match (self.fault, &mut read) {
            (Fault::ForgetsDebt, Some(record)) => *record = edit(record, |numbers| numbers[0] = numbers[0].max(0)),
            (Fault::WaitsForTheClock, Some(record)) => {
                edit(record, |numbers| now = now.max(numbers[1]));
            }
            (Fault::ForgetsNodes, Some(record)) => *record = edit_nodes(record, |_| false),
            (Fault::MintsKeptTokens, Some(record)) => *record = edit_nodes(record, |words| until(words) > now),
            (Fault::KeepsEnds, Some(record)) => {
                let (mut stamp, mut swept) = (0, 0);
                edit(record, |numbers| (stamp, swept) = (numbers[1], numbers[3]));
                *record = edit_nodes(record, |words| {
                    if now < swept {
                        words[3] = (until(words) + stamp - now).to_string();
                    }
                    true
                });
            }
            (Fault::RefillsByVersion, Some(record)) => {
                let version = std::str::from_utf8(record).unwrap().lines().nth(1).unwrap().split(' ').nth(5);
                if version.map_or(0, |version| version.parse().unwrap()) < ask.terms.version() {
                    read = None;
                }
            }
            (Fault::IsFast, _) => now += (now - 1_700_000_000_000_000) / 10,
            (Fault::StandsStill, _) => now = 1_700_000_000_000_000,
            (Fault::ForgetsNoNode, _) => ask.ttl = 3_600_000_000,
            (Fault::GrantsParts, _) => ask.at_once = false,
            (Fault::IgnoresVersions, _) => ask.terms = ask.terms.with_version(0),
            (Fault::GrantsByOldQuota, Some(record)) => {
                let stored =
                    std::str::from_utf8(record).unwrap().lines().nth(1).and_then(QuotaTerms::from_text).unwrap();
                if ask.terms.version() < stored.version() {
                    ask.terms = stored;
                }
            }
            (Fault::CountsInWords, _) => ask.want &= u64::from(u16::MAX),
            _ => {}
        }
        let mut bucket = SharedBucket::open(read.as_deref(), &ask, now).unwrap();
        let before = level(&bucket.to_bytes());
        let mut answer = bucket.answer(&ask, now);
        let overtaken = matches!(&answer, Err(StoreError::Refused(why)) if why.contains("comes after"));
        let is_repeat = answer.as_ref().is_ok_and(|grant| grant.before == ask.number);
        if self.fault == Fault::IgnoresNumbers && is_repeat || self.fault == Fault::AnswersOvertaken && overtaken {
            // As if it came from another node, which is not remembered.
            ask.node |= 1 << 127;
            ask.leave = true;
            answer = bucket.answer(&ask, now);
        }
        let mut record = bucket.to_bytes();
        if let Ok(grant) = &mut answer {
            if self.fault == Fault::CountsTwice && before > level(&record) {
                record = edit(&record, |numbers| numbers[0] -= before - numbers[0]);
            }
            if self.fault == Fault::ForgetsAllowances {
                record = edit_nodes(&record, |words| {
                    words[2] = "0".to_owned();
                    true
                });
            }
            if self.fault == Fault::LooksFromTheFirstClaim
                && let Some(read) = read.filter(|read| read.iter().filter(|byte| **byte == b'\n').count() == 4)
            {
                let mut swept = 0;
                edit(&read, |numbers| swept = numbers[3]);
                record = edit(&record, |numbers| numbers[3] = swept);
            }
            if self.fault == Fault::CachesNodes {
                let cached = self.cache.lock().unwrap().insert((name.to_owned(), sent.node), sent.number);
                grant.before = cached.unwrap_or(grant.before);
            }
            match self.fault {
                Fault::GrantsInDebt if ask.at_once && before < 0 => grant.now = ask.want,
                Fault::KnowsNoWait => grant.wait = 0,
                Fault::ForgetsReturns => record = edit(&record, |numbers| numbers.truncate(15)),
                Fault::ForgetsLeads => {
                    let mut lines: Vec<String> =
                        std::str::from_utf8(&record).unwrap().lines().map(str::to_owned).collect();
                    let lead = |(at, word)| if at % 5 == 3 { "0" } else { word };
                    lines[3] = lines[3].split(' ').enumerate().map(lead).collect::<Vec<_>>().join(" ");
                    record = (lines.join("\n") + "\n").into_bytes();
                }
                Fault::ForgetsPlaces => {
                    record = edit_nodes(&record, |words| {
                        words.truncate(11);
                        true
                    });
                }
                _ => {}
            }
            if sent.terms != ask.terms && self.fault == Fault::GrantsByOldQuota {
                grant.terms = Some(ask.terms);
            }
            match self.fault {
                Fault::PromisesTooMuch => grant.promised = 1 << 60,
                Fault::OwesTooMuch => grant.queued_before = u64::MAX,
                Fault::PhaseIsPeriod => grant.phase = ask.terms.period(),
                Fault::PhaseIsHuge => grant.phase = 1 << 50,
                _ => {}
            }
        }
        (record, answer)
    }
}

struct Wrong(Arc<Server>);

impl Wrong {
    fn new(fault: Fault) -> Self {
        Self::under(fault, Network::default())
    }

    fn under(fault: Fault, network: Network) -> Self {
        Self(Arc::new(Server {
            fault,
            records: Mutex::default(),
            cache: Mutex::default(),
            began: Instant::now(),
            network,
            asked: Mutex::default(),
            stores: AtomicU64::new(0),
        }))
    }

    fn name(&self, name: &str) -> String {
        if self.0.fault == Fault::IgnoresNames { String::new() } else { name.to_owned() }
    }
}

impl Wrong {
    async fn check(&self) -> Result<(), Failure> {
        let open = async |name: &str, skew: i64| {
            let (server, name, tally) = (Arc::clone(&self.0), self.name(name), StoreCounters::default());
            Ok(Arc::new(RecordStore { server, name, skew, tally }) as Arc<dyn Store>)
        };
        check(open, SEEDS).await
    }

    async fn check_at(&self) -> Result<(), Failure> {
        let ask_at = async |name: &str, ask: LeaseRequest, micros: u64| {
            let name = self.name(name);
            let mut records = self.0.records.lock().unwrap();
            let (record, answer) = self.0.answer(&name, records.get(&name).map(Vec::as_slice), ask, micros as i64);
            records.insert(name, record);
            answer
        };
        check_at(ask_at, SEEDS).await
    }
}

/// The seeds of these tests.
const SEEDS: std::ops::Range<u64> = 0..9;

#[tokio::test(start_paused = true)]
async fn a_store_that_keeps_records_with_one_compare_and_swap_passes() {
    Wrong::new(Fault::None).check().await.unwrap();
    Wrong::new(Fault::None).check_at().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_store_in_memory_passes() {
    let server = MemoryStore::new();
    // Its clock is a little ahead of that of the test.
    server.set_latency(Duration::from_micros(300));
    check(async |name: &str, _| Ok(Arc::new(server.beside(name)) as Arc<dyn Store>), 0..60).await.unwrap();
    check_at(async |name: &str, ask, micros| server.beside(name).answer(&ask, micros), 0..60).await.unwrap();
}

/// The history starts again, more slowly.
#[tokio::test(start_paused = true)]
async fn a_store_that_stalls_once_in_each_history_passes() {
    for number in [3, 20, 40] {
        let network = Network { stalls: Some(number), ..Network::default() };
        Wrong::under(Fault::None, network).check().await.unwrap();
    }
}

/// A request that was sent twice has an answer that cannot be compared. The history starts again.
#[tokio::test(start_paused = true)]
async fn lost_answers_hide_no_wrong_history() {
    let under = async |fault, loses| Wrong::under(fault, Network { loses, ..Network::default() }).check().await;
    let part = async |fault, loses| under(fault, loses).await.unwrap_err().part;
    under(Fault::None, 1).await.unwrap();
    under(Fault::None, 9).await.unwrap();
    assert_eq!(part(Fault::CountsTwice, 9).await, Part::History);
    // Nothing was compared, so nothing is passed.
    assert_eq!(part(Fault::None, u64::MAX).await, Part::History);
}

#[tokio::test(start_paused = true)]
async fn each_wrong_store_is_named() {
    use Fault::*;
    use Part::{Concurrency, History, TimedHistory};
    use std::option::Option::None;
    let mut unnamed = Vec::new();
    // The part of `check` that names it, and whether `check_at` does.
    for (fault, part, is_named_at) in [
        (CountsTwice, Some(History), true),
        (IgnoresNumbers, Some(History), true),
        (AnswersOvertaken, Some(History), true),
        (ForgetsDebt, Some(History), true),
        (ForgetsAllowances, Some(History), true),
        (ForgetsNoNode, Some(History), true),
        (ForgetsNodes, Some(History), true),
        (MintsKeptTokens, Some(History), true),
        (KeepsEnds, None, true),
        (LooksFromTheFirstClaim, None, true),
        (TrustsClientClock, Some(History), false),
        (WaitsForTheClock, None, true),
        (StepsBack, Some(History), false),
        (IsFast, Some(History), true),
        (StandsStill, Some(History), true),
        (LosesUpdates, Some(Concurrency), false),
        (GrantsParts, Some(History), true),
        (GrantsInDebt, Some(History), true),
        (KnowsNoWait, Some(History), true),
        (ForgetsReturns, None, true),
        (ForgetsPlaces, Some(History), true),
        (RefillsByVersion, Some(History), true),
        (IgnoresVersions, Some(History), true),
        (GrantsByOldQuota, Some(History), true),
        (CachesNodes, Some(History), true),
        (IgnoresNames, Some(History), true),
        (CountsInWords, Some(History), true),
        (IsSilent, Some(History), false),
        (PhaseIsPeriod, Some(History), true),
        (PhaseIsHuge, Some(History), true),
        (OwesTooMuch, Some(History), true),
        (PromisesTooMuch, Some(History), true),
        (ForgetsLeads, None, true),
    ] {
        let results = [Wrong::new(fault).check().await, Wrong::new(fault).check_at().await];
        println!("{fault:?}: {results:#?}\n");
        let named = results.map(|result| result.err().map(|failure| failure.part));
        if named != [part, is_named_at.then_some(TimedHistory)] {
            unnamed.push((fault, named));
        }
    }
    assert!(unnamed.is_empty(), "{unnamed:#?}");
}
