//! The conformance kit passes correct stores, and names what is wrong with others.

use std::collections::HashMap;
use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep};
use tollgate::distributed::conformance::{Case, Report, Subject, run};
use tollgate::distributed::{
    ClassReport, LeaseGrant, LeaseRequest, MemoryStore, QuotaTerms, Reporting, SharedBucket, SharedDemand, Store,
    StoreCounters, StoreError,
};

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
    /// Uses the time of the process that asks.
    TrustsClientClock,
    /// Does not let time go on after a step back until it has caught up.
    WaitsForTheClock,
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
    /// Does not count the nodes that wait for tokens.
    CountsNoWaiters,
    /// Begins a new bucket for a new quota.
    RefillsByVersion,
    /// Refuses newer quotas.
    IgnoresVersions,
    /// Grants what nodes want by an older quota.
    GrantsByOldQuota,
    /// Keeps a cache of the nodes, which a flush of the server does not reach.
    CachesNodes,
    /// Has one bucket for all names.
    IgnoresNames,
    /// Counts in 32 bits.
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
    /// Adds the reports of a node up.
    AddsReports,
    /// Counts reports for ever.
    KeepsReports,
    /// Answers with what the node itself has reported.
    EchoesReports,
}

/// What the network does to requests to the stores of one case.
#[derive(Clone, Copy, Debug, Default)]
struct Network {
    /// The number of the request that takes long, longer than the store needs to pay off its debt.
    stalls: Option<u64>,
    /// In how many stores the first answer is lost.
    loses: u64,
}

/// A server with stores that keep a record each, as docs/distributed.md describes them.
#[derive(Debug)]
struct Server {
    fault: Fault,
    records: Mutex<HashMap<String, Vec<u8>>>,
    demand: Mutex<HashMap<String, Vec<u8>>>,
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
                sleep(Duration::from_millis(300)).await;
            }
            loop {
                let read = self.server.records.lock().unwrap().get(&self.name).cloned();
                let mut now = 1_700_000_000_000_000 + self.server.began.elapsed().as_micros() as i64;
                if self.server.fault == Fault::TrustsClientClock {
                    now += self.skew;
                }
                let (record, answer) = self.server.answer(&self.name, read.as_deref(), ask, now);
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

    fn shares_classes(&self) -> bool {
        true
    }

    fn report(&self, mut report: ClassReport) -> Reporting<'_> {
        Box::pin(async move {
            loop {
                let read = self.server.demand.lock().unwrap().get(&self.name).cloned();
                let now = 1_700_000_000_000_000 + self.server.began.elapsed().as_micros() as i64;
                let mut demand = read.as_deref().map_or(Ok(SharedDemand::new()), SharedDemand::from_bytes)?;
                match self.server.fault {
                    // As if each report came from another node.
                    Fault::AddsReports => report.node += (read.as_ref().map_or(0, Vec::len) as u128) << 64,
                    Fault::KeepsReports => report.ttl = 60_000_000,
                    _ => {}
                }
                let mut answer = demand.report(&report, now);
                if self.server.fault == Fault::EchoesReports {
                    answer = report.classes.clone();
                }
                // Other reports come here.
                yield_now().await;
                let mut records = self.server.demand.lock().unwrap();
                if records.get(&self.name) == read.as_ref() || self.server.fault == Fault::LosesUpdates {
                    records.insert(self.name.clone(), demand.to_bytes());
                    return Ok(answer);
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
        let sent = ask;
        let mut read = read.map(<[u8]>::to_vec);
        match (self.fault, &mut read) {
            (Fault::ForgetsDebt, Some(record)) => *record = edit(record, |numbers| numbers[0] = numbers[0].max(0)),
            (Fault::WaitsForTheClock, Some(record)) => {
                edit(record, |numbers| now = now.max(numbers[1]));
            }
            (Fault::ForgetsNodes, Some(record)) => {
                let text = String::from_utf8(record.clone()).unwrap();
                *record = text.lines().take(3).map(|line| format!("{line}\n")).collect::<String>().into_bytes();
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
            (Fault::CountsInWords, _) => ask.want &= u64::from(u32::MAX),
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
                let node = format!("{:032x}", ask.node);
                let text = String::from_utf8(record).unwrap();
                let zeroed = text.lines().map(|line| match line.strip_prefix(&node) {
                    Some(_) => {
                        let mut words: Vec<&str> = line.split(' ').collect();
                        words[2] = "0";
                        words.join(" ") + "\n"
                    }
                    None => format!("{line}\n"),
                });
                record = zeroed.collect::<String>().into_bytes();
            }
            if self.fault == Fault::CachesNodes {
                let cached = self.cache.lock().unwrap().insert((name.to_owned(), sent.node), sent.number);
                grant.before = cached.unwrap_or(grant.before);
            }
            match self.fault {
                Fault::GrantsInDebt if ask.at_once && before < 0 => grant.now = ask.want,
                Fault::CountsNoWaiters => grant.busy = 1,
                _ => {}
            }
            if sent.terms != ask.terms && self.fault == Fault::GrantsByOldQuota {
                grant.terms = Some(ask.terms);
            }
            // Only with quotas that mint while a case runs: others would be named by cases that know each number.
            match self.fault {
                _ if ask.terms.period() > 1_000_000 => {}
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
            demand: Mutex::default(),
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

impl Subject for Wrong {
    async fn client(&self, name: &str, skew: i64) -> Result<Arc<dyn Store>, StoreError> {
        let (server, name, tally) = (Arc::clone(&self.0), self.name(name), StoreCounters::default());
        Ok(Arc::new(RecordStore { server, name, skew, tally }))
    }

    async fn flush(&self, name: &str) -> bool {
        self.0.records.lock().unwrap().remove(&self.name(name));
        true
    }

    async fn ask_at(&self, name: &str, ask: LeaseRequest, micros: u64) -> Option<Result<LeaseGrant, StoreError>> {
        let name = self.name(name);
        let mut records = self.0.records.lock().unwrap();
        let (record, answer) = self.0.answer(&name, records.get(&name).map(Vec::as_slice), ask, micros as i64);
        records.insert(name, record);
        Some(answer)
    }
}

fn failed(report: &Report) -> Vec<Case> {
    report.failures.iter().map(|(case, _)| *case).collect()
}

#[tokio::test(start_paused = true)]
async fn a_store_that_keeps_records_with_one_compare_and_swap_passes() {
    let report = run(Case::ALL, &Wrong::new(Fault::None)).await;
    assert_eq!((report.passed.len(), report.skipped.len()), (Case::ALL.len(), 0), "{report}");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_stalls_once_passes() {
    for number in [2, 20, 40] {
        let network = Network { stalls: Some(number), ..Network::default() };
        let report = run([Case::Law], &Wrong::under(Fault::None, network)).await;
        assert_eq!(report.passed, [Case::Law], "request {number} stalls: {report}");
    }
}

/// A request that was sent twice has an answer that cannot be compared. The history starts again.
#[tokio::test(start_paused = true)]
async fn lost_answers_hide_no_wrong_history() {
    let history =
        async |fault, loses| run([Case::History], &Wrong::under(fault, Network { loses, ..Network::default() })).await;
    assert_eq!(history(Fault::None, 0).await.passed, [Case::History]);
    assert_eq!(history(Fault::None, 1).await.passed, [Case::History]);
    assert_eq!(failed(&history(Fault::CountsTwice, 0).await), [Case::History]);
    assert_eq!(failed(&history(Fault::CountsTwice, 1).await), [Case::History]);
    // Nothing was compared, so nothing was passed.
    assert_eq!(history(Fault::None, u64::MAX).await.skipped, [Case::History]);
}

#[tokio::test(start_paused = true)]
async fn the_store_in_memory_passes() {
    struct Memory(MemoryStore);
    impl Subject for Memory {
        async fn client(&self, name: &str, _skew: i64) -> Result<Arc<dyn Store>, StoreError> {
            Ok(Arc::new(self.0.beside(name)))
        }
        async fn flush(&self, _name: &str) -> bool {
            self.0.forget();
            true
        }
        async fn ask_at(&self, name: &str, ask: LeaseRequest, micros: u64) -> Option<Result<LeaseGrant, StoreError>> {
            Some(self.0.beside(name).answer(&ask, micros))
        }
    }
    let report = run(Case::ALL, &Memory(MemoryStore::new())).await;
    assert_eq!((report.passed.len(), report.skipped.len()), (Case::ALL.len(), 0), "{report}");
}

#[tokio::test(start_paused = true)]
async fn a_closure_is_a_subject_without_the_cases_that_need_the_server() {
    let all = MemoryStore::new();
    let report = run(Case::ALL, &|name: String| {
        let store: Arc<dyn Store> = Arc::new(all.beside(&name));
        async move { Ok(store) }
    })
    .await;
    assert_eq!(report.skipped, [Case::Clock, Case::Flush, Case::TimedHistory], "{report}");
    assert!(report.failures.is_empty(), "{report}");
}

#[tokio::test(start_paused = true)]
async fn each_wrong_store_is_named() {
    for (fault, cases) in [
        (Fault::CountsTwice, &[Case::Law, Case::Debt, Case::Repeats][..]),
        (Fault::IgnoresNumbers, &[Case::Repeats, Case::Concurrency]),
        (Fault::AnswersOvertaken, &[Case::Repeats]),
        (Fault::ForgetsDebt, &[Case::Law, Case::Debt, Case::Versions]),
        (Fault::ForgetsAllowances, &[Case::Allowances, Case::Leases]),
        (Fault::ForgetsNoNode, &[Case::Leases]),
        (Fault::ForgetsNodes, &[Case::Repeats, Case::Leases]),
        (Fault::TrustsClientClock, &[Case::ClientClock]),
        (Fault::WaitsForTheClock, &[Case::Clock]),
        (Fault::IsFast, &[Case::Law, Case::Debt]),
        (Fault::StandsStill, &[Case::Law, Case::Debt, Case::Clock]),
        (Fault::LosesUpdates, &[Case::Concurrency, Case::Classes]),
        (Fault::AddsReports, &[Case::Classes]),
        (Fault::KeepsReports, &[Case::Classes]),
        (Fault::EchoesReports, &[Case::Classes]),
        (Fault::GrantsParts, &[Case::AtOnce]),
        (Fault::GrantsInDebt, &[Case::Debt]),
        (Fault::CountsNoWaiters, &[Case::Debt]),
        (Fault::RefillsByVersion, &[Case::Versions]),
        (Fault::IgnoresVersions, &[Case::Versions]),
        (Fault::GrantsByOldQuota, &[Case::Versions, Case::History]),
        (Fault::CachesNodes, &[Case::Flush]),
        (Fault::IgnoresNames, &[Case::Names]),
        (Fault::CountsInWords, &[Case::Debt]),
        (Fault::IsSilent, &Case::ALL[..2]),
    ] {
        let report = run(Case::ALL, &Wrong::new(fault)).await;
        let failed = failed(&report);
        println!("{fault:?}:\n{report}\n");
        assert!(cases.iter().all(|case| failed.contains(case)), "{fault:?} must fail {cases:?}:\n{report}");
    }
    // Without a hook for the time, the answers to requests in real time show most of it.
    let blind = Wrong::new(Fault::LosesUpdates);
    let report = run(Case::ALL, &|name: String| {
        let store = blind.0.clone();
        async move { Wrong(store).client(&name, 0).await }
    })
    .await;
    assert_eq!(failed(&report), [Case::Concurrency, Case::Classes], "{report}");
}

/// A case ends in a failure, and in no panic, whatever numbers a store answers.
#[tokio::test(start_paused = true)]
async fn numbers_that_no_store_can_mean_are_named() {
    let mut unnamed = Vec::new();
    for fault in [Fault::PhaseIsPeriod, Fault::PhaseIsHuge, Fault::OwesTooMuch, Fault::PromisesTooMuch] {
        for case in Case::ALL {
            let outcome = tokio::spawn(async move { run([case], &Wrong::new(fault)).await }).await;
            println!("{fault:?}: {outcome:?}");
            let is_named = outcome.as_ref().is_ok_and(|report| !report.failures.is_empty());
            if outcome.is_err() || matches!(case, Case::Law | Case::Debt) && !is_named {
                unnamed.push((fault, case));
            }
        }
    }
    assert!(unnamed.is_empty(), "{unnamed:?}");
}
