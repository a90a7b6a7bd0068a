//! The demand of the classes of all nodes: the rules of every store that can share a quota among classes.

use super::{ClassDemand, ClassReport, ReplyKind, StoreError};
use std::collections::BTreeMap;
use std::fmt::Write;

/// The first line of a record: another encoding would have another one.
const FORMAT: &str = "tollgate classes 1";

/// How often nodes with reports that have ended are forgotten, in microseconds.
const SWEEP: i64 = 250_000;
/// The longest time for which a report counts, in microseconds.
const LONGEST: u64 = 60_000_000;
/// The sums of so many nodes are exact in doubles.
const MOST_MILLIS: u64 = 1 << 40;
/// No number of a record is larger.
const MOST: u64 = 1 << 53;

/// What one store knows of the demand of classes, and the rules by which it answers reports: a state machine without a
/// clock, a server or a network, as [`SharedBucket`](super::SharedBucket) is for requests.
///
/// It decides nothing: it adds up what nodes report, and each node computes its part of the quota from the sums. No token
/// depends on it, so a store may lose it, and keeps it apart from the bucket.
///
/// At most [`MOST_CLASSES`](Self::MOST_CLASSES) classes are known at a time. Further ones are left out of the sums; a store
/// may choose which.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SharedDemand {
    /// When nodes were last forgotten.
    swept: i64,
    sums: BTreeMap<u64, Sum>,
    nodes: BTreeMap<u128, Reported>,
}

/// The demand of a class on all nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum {
    demand: ClassDemand,
    /// How many rows of reports it is the sum of.
    rows: u64,
}

/// The last report of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Reported {
    until: i64,
    classes: Vec<ClassDemand>,
}

impl SharedDemand {
    /// The most classes that a store knows at a time.
    pub const MOST_CLASSES: usize = 128;

    /// Creates the demand of a store that has no record.
    pub fn new() -> Self {
        Self::default()
    }

    /// Replaces the last report of a node, and returns the demand of each class on all nodes together, in any order. `now`
    /// is in microseconds of the store's clock. A report without classes ends the one before.
    pub fn report(&mut self, report: &ClassReport, now: i64) -> Vec<ClassDemand> {
        if now >= self.swept.saturating_add(SWEEP) || now < self.swept {
            self.sweep(now);
        }
        self.withdraw(report.node);
        let mut classes = Vec::new();
        for row in &report.classes {
            let row = ClassDemand {
                heavy: row.heavy.min(1),
                light: row.light.min(1),
                millis: row.millis.min(MOST_MILLIS),
                ..*row
            };
            if self.sums.len() == Self::MOST_CLASSES && !self.sums.contains_key(&row.class) {
                continue;
            }
            let sum = self.sums.entry(row.class).or_default();
            let ClassDemand { heavy, light, millis, .. } = sum.demand;
            let (heavy, light) = (heavy.saturating_add(row.heavy), light.saturating_add(row.light));
            let millis = millis.saturating_add(row.millis);
            *sum = Sum { demand: ClassDemand { heavy, light, millis, ..row }, rows: sum.rows + 1 };
            classes.push(row);
        }
        if !classes.is_empty() {
            let until = now + report.ttl.min(LONGEST) as i64;
            self.nodes.insert(report.node, Reported { until, classes });
        }
        self.sums.values().map(|sum| sum.demand).collect()
    }

    /// Forgets the nodes with reports that have ended. If the clock has stepped back, a report counts for as long again at
    /// most.
    fn sweep(&mut self, now: i64) {
        let latest = now + LONGEST as i64;
        let is_over = |reported: &Reported| reported.until <= now || reported.until > latest;
        let gone: Vec<u128> = self.nodes.iter().filter(|(_, node)| is_over(node)).map(|(id, _)| *id).collect();
        gone.into_iter().for_each(|id| self.withdraw(id));
        self.swept = now;
    }

    fn withdraw(&mut self, node: u128) {
        for row in self.nodes.remove(&node).into_iter().flat_map(|reported| reported.classes) {
            let Some(sum) = self.sums.get_mut(&row.class) else { continue };
            sum.rows -= 1;
            sum.demand.heavy = sum.demand.heavy.saturating_sub(row.heavy);
            sum.demand.light = sum.demand.light.saturating_sub(row.light);
            sum.demand.millis = sum.demand.millis.saturating_sub(row.millis);
            if sum.rows == 0 {
                self.sums.remove(&row.class);
            }
        }
    }

    /// Writes a record: lines of text that end in a line feed.
    ///
    /// | line | contents |
    /// |---|---|
    /// | 1 | `tollgate classes 1`: the encoding |
    /// | 2 | when nodes were last forgotten |
    /// | 3 | the sums, as [`ClassDemand::to_text`] writes them |
    /// | each further one | the last report of a node: its number as 32 hexadecimal digits, until when it counts, its classes |
    pub fn to_bytes(&self) -> Vec<u8> {
        let sums: Vec<ClassDemand> = self.sums.values().map(|sum| sum.demand).collect();
        let mut text = format!("{FORMAT}\n{}\n{}\n", self.swept, ClassDemand::to_text(&sums));
        for (id, Reported { until, classes }) in &self.nodes {
            writeln!(text, "{id:032x} {until} {}", ClassDemand::to_text(classes)).expect("a string takes all text");
        }
        text.into_bytes()
    }

    /// Reads a record.
    ///
    /// # Errors
    ///
    /// [`StoreError::Reply`] of the kind [`Damaged`](ReplyKind::Damaged) if the record was not written by
    /// [`to_bytes`](Self::to_bytes). The store may begin with [`new`](Self::new) then: the nodes report again.
    pub fn from_bytes(record: &[u8]) -> Result<Self, StoreError> {
        read(record).ok_or_else(|| StoreError::Reply {
            kind: ReplyKind::Damaged,
            message: format!("the record of {} bytes is no demand in the encoding `{FORMAT}`", record.len()),
        })
    }
}

fn read(record: &[u8]) -> Option<SharedDemand> {
    let mut lines = std::str::from_utf8(record).ok()?.strip_suffix('\n')?.split('\n');
    if lines.next()? != FORMAT {
        return None;
    }
    let instant = |text: &str| text.parse().ok().filter(|at: &i64| at.unsigned_abs() <= MOST);
    let swept = instant(lines.next()?)?;
    let sums = ClassDemand::from_text(lines.next()?)?;
    let mut nodes = BTreeMap::new();
    for line in lines {
        let (id, rest) = line.split_at_checked(32)?;
        let (until, classes) = rest.strip_prefix(' ')?.split_once(' ')?;
        let reported = Reported { until: instant(until)?, classes: ClassDemand::from_text(classes)? };
        nodes.insert(u128::from_str_radix(id, 16).ok()?, reported);
    }
    // The sums are known from the reports, apart from which report was the last.
    let mut known = SharedDemand { swept, sums: BTreeMap::new(), nodes };
    for row in known.nodes.values().flat_map(|reported| &reported.classes) {
        let last = sums.iter().find(|sum| sum.class == row.class)?;
        let sum = known
            .sums
            .entry(row.class)
            .or_insert(Sum { demand: ClassDemand { heavy: 0, light: 0, millis: 0, ..*last }, rows: 0 });
        sum.rows += 1;
        sum.demand.heavy = sum.demand.heavy.checked_add(row.heavy)?;
        sum.demand.light = sum.demand.light.checked_add(row.light)?;
        sum.demand.millis = sum.demand.millis.checked_add(row.millis)?;
    }
    let are_sums = sums.len() == known.sums.len() && sums.iter().all(|sum| known.sums[&sum.class].demand == *sum);
    are_sums.then_some(known)
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    const NOW: i64 = 1_700_000_000_000_000;

    fn row(class: u64, heavy: u64, millis: u64) -> ClassDemand {
        ClassDemand::from_numbers([class, 0, 1, heavy, 0, millis])
    }

    fn report(node: u128, classes: &[ClassDemand]) -> ClassReport {
        ClassReport::new(node, 1_000_000, classes.to_vec())
    }

    #[test]
    fn reports_are_added_up_and_replaced() {
        let mut demand = SharedDemand::new();
        assert_eq!(demand.report(&report(1, &[row(7, 1, 0), row(8, 0, 5)]), NOW), [row(7, 1, 0), row(8, 0, 5)]);
        assert_eq!(demand.report(&report(2, &[row(7, 1, 0), row(8, 0, 6)]), NOW), [row(7, 2, 0), row(8, 0, 11)]);
        assert_eq!(demand.report(&report(1, &[row(8, 1, 0)]), NOW), [row(7, 1, 0), row(8, 1, 6)]);
        let heavier = ClassDemand { weight: 9, ..row(8, 0, 6) };
        assert_eq!(demand.report(&report(2, &[heavier]), NOW), [ClassDemand { heavy: 1, ..heavier }]);
        assert_eq!(demand.report(&report(2, &[]), NOW), [ClassDemand { weight: 9, ..row(8, 1, 0) }]);
        assert_eq!(demand.report(&report(1, &[]), NOW), []);
    }

    #[test]
    fn a_silent_node_is_forgotten_with_its_report() {
        let mut demand = SharedDemand::new();
        demand.report(&report(1, &[row(7, 1, 0)]), NOW);
        assert_eq!(demand.report(&report(2, &[]), NOW + 999_999), [row(7, 1, 0)]);
        assert_eq!(demand.report(&report(2, &[]), NOW + 1_249_999), []);
        // A clock that steps back by an hour lets no report count for longer than a minute.
        demand.report(&report(1, &[row(7, 1, 0)]), NOW);
        assert_eq!(demand.report(&report(2, &[]), NOW - 3_600_000_000), []);
    }

    #[test]
    fn a_bounded_number_of_classes_is_known() {
        let mut demand = SharedDemand::new();
        let many: Vec<ClassDemand> = (0..200).map(|class| row(class, 1, 0)).collect();
        assert_eq!(demand.report(&report(1, &many), NOW).len(), SharedDemand::MOST_CLASSES);
        assert_eq!(demand.report(&report(2, &many[100..]), NOW).len(), SharedDemand::MOST_CLASSES);
        assert_eq!(demand.report(&report(1, &[]), NOW).len(), SharedDemand::MOST_CLASSES - 100);
        assert_eq!(demand.report(&report(2, &[]), NOW), []);
    }

    #[test]
    fn a_record_is_read_back_as_it_was_written() {
        let mut demand = SharedDemand::new();
        for known in [false, true] {
            if known {
                demand.report(&report(1, &[row(7, 1, 0), row(8, 0, 5)]), NOW);
                demand.report(&report(2, &[ClassDemand { weight: 9, ..row(8, 1, 0) }]), NOW + 1);
                demand.report(&report(1, &[row(7, 1, 0), row(8, 0, 5)]), NOW + 2);
            }
            assert_eq!(SharedDemand::from_bytes(&demand.to_bytes()), Ok(demand.clone()));
        }
        let text = String::from_utf8(demand.to_bytes()).unwrap();
        for (from, to) in [("classes 1", "classes 2"), (" 1 0 0 5", " 1 0 1 5"), (",", ""), ("\n0", "\nx")] {
            assert!(text.contains(from), "{from} is not in {text}");
            let error = SharedDemand::from_bytes(text.replacen(from, to, 1).as_bytes()).unwrap_err();
            assert!(matches!(error, StoreError::Reply { kind: ReplyKind::Damaged, .. }), "{from}");
        }
        assert!(SharedDemand::from_bytes(b"").is_err());
    }
}
