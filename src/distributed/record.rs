//! The shared bucket as a record: lines of text, so that a person can read what a store keeps.

use super::bucket::{Class, Node, Place, Returned};
use super::{QuotaTerms, ReplyKind, SharedBucket, StoreError};

/// The first line of a record: another encoding would have another one.
const FORMAT: &str = "tollgate 1";

/// No number of a bucket is larger: instants, levels and debts are exact in doubles.
const MOST: i64 = 1 << 53;

/// No count of nodes is larger.
const MOST_NODES: i64 = 1 << 32;

impl SharedBucket {
    /// Writes the bucket as a record: lines of text that end in a line feed, with decimal numbers between single spaces.
    ///
    /// | line | contents |
    /// |---|---|
    /// | 1 | `tollgate 1`: the encoding |
    /// | 2 | the quota, as [`QuotaTerms`] prints it: amount, period, burst, initial tokens, 1 if stepped, version |
    /// | 3 | level, stamp, part, swept, epoch, busy, was, clock, placed, fill, last until, ends, last, credit, void, and from and to of each promise that was returned |
    /// | 4 | number, parent, weight, lead and seen of each class |
    /// | each further one | a node: its number as 32 hexadecimal digits; number of its last request, allowance, until, epoch, granted, promised, queued before, part, at, last, grace, and class, first, since and expected of each class that lacks tokens |
    ///
    /// Nodes are in the order of their numbers, so that equal buckets have equal records. The numbers are those of the
    /// hash that `tollgate-redis` keeps.
    pub fn to_bytes(&self) -> Vec<u8> {
        let Self { level, stamp, part, swept, epoch, busy, was, clock, placed, fill, .. } = *self;
        let Self { last_until, ends, last, credit, void, .. } = *self;
        let numbers =
            [level, stamp, part, swept, epoch, busy, was, clock, placed, fill, last_until, ends, last, credit, void];
        let mut text = format!("{FORMAT}\n{}\n{}", self.terms, joined(&numbers));
        self.returned.iter().for_each(|Returned { from, to }| text += &format!(" {from} {to}"));
        text += "\n";
        let of = |&Class { number, parent, weight, lead, seen }: &Class| joined(&[number, parent, weight, lead, seen]);
        text += &self.classes.iter().map(of).collect::<Vec<_>>().join(" ");
        text += "\n";
        let mut nodes: Vec<(&u128, &Node)> = self.nodes.iter().collect();
        nodes.sort_unstable_by_key(|(id, _)| **id);
        for (id, node) in nodes {
            let Node { number, allowance, until, epoch, granted, promised, queued_before, part, at, .. } = *node;
            let numbers = [allowance, until, epoch, granted, promised, queued_before, part, at, node.last, node.grace];
            text += &format!("{id:032x} {number} {}", joined(&numbers));
            for Place { class, first, since, expected } in &node.places {
                text += &format!(" {class} {first} {since} {expected}");
            }
            text += "\n";
        }
        text.into_bytes()
    }

    /// Reads a record.
    ///
    /// # Errors
    ///
    /// [`StoreError::Reply`] of the kind [`Damaged`](super::ReplyKind::Damaged) if the record was not written by
    /// [`to_bytes`](Self::to_bytes), or by an encoding that this release does not know.
    pub fn from_bytes(record: &[u8]) -> Result<Self, StoreError> {
        read(record).ok_or_else(|| StoreError::Reply {
            kind: ReplyKind::Damaged,
            message: format!("the record of {} bytes is no bucket in the encoding `{FORMAT}`", record.len()),
        })
    }
}

fn read(record: &[u8]) -> Option<SharedBucket> {
    let mut lines = std::str::from_utf8(record).ok()?.strip_suffix('\n')?.split('\n');
    if lines.next()? != FORMAT {
        return None;
    }
    let terms = QuotaTerms::from_text(lines.next()?)?;
    let line = lines.next()?;
    let end = line.match_indices(' ').nth(14).map_or(line.len(), |(end, _)| end);
    let mut bucket = SharedBucket { terms, ..SharedBucket::new(terms, 0) };
    let all: [i64; 15] = numbers(&line[..end])?;
    [bucket.level, bucket.stamp, bucket.part, bucket.swept, bucket.epoch, bucket.busy, bucket.was, ..] = all;
    [.., bucket.clock, bucket.placed, bucket.fill, bucket.last_until, bucket.ends, _, _, _] = all;
    [.., bucket.last, bucket.credit, bucket.void] = all;
    bucket.returned = groups(&line[end..])?.into_iter().map(|[from, to]| Returned { from, to }).collect();
    let line = lines.next()?;
    let line = if line.is_empty() { String::new() } else { format!(" {line}") };
    let of = |[number, parent, weight, lead, seen]: [i64; 5]| Class { number, parent, weight, lead, seen };
    bucket.classes = groups(&line)?.into_iter().map(of).collect();
    let is_class = |class: &Class| class.number >= 0 && class.parent >= 0 && class.weight > 0 && class.lead >= 0;
    if !bucket.classes.iter().all(is_class) || bucket.classes.first().is_some_and(|class| class.number != 0) {
        return None;
    }
    let is_progress = |part: i64| (0..terms.period as i64).contains(&part);
    for line in lines {
        let (id, rest) = line.split_at_checked(32)?;
        let (number, rest) = rest.strip_prefix(' ')?.split_once(' ')?;
        let end = rest.match_indices(' ').nth(9).map_or(rest.len(), |(end, _)| end);
        let [allowance, until, epoch, granted, promised, queued_before, part, at, last, grace] = numbers(&rest[..end])?;
        let of = |[class, first, since, expected]: [i64; 4]| Place { class, first, since, expected };
        let places: Vec<Place> = groups(&rest[end..])?.into_iter().map(of).collect();
        let number = number.parse().ok()?;
        let are_natural = places.iter().all(|place| place.class >= 0 && place.first >= 0);
        let node =
            Node { number, allowance, until, epoch, granted, promised, queued_before, part, at, last, grace, places };
        // After a change of the quota nothing is promised, and the progress may be that by the old one.
        if [allowance, granted, promised, queued_before, part, last, grace].iter().any(|count| *count < 0)
            || !are_natural
            || promised > 0 && !is_progress(part)
            || !(0..=bucket.clock).contains(&at)
            || bucket.nodes.insert(u128::from_str_radix(id, 16).ok()?, node).is_some()
        {
            return None;
        }
    }
    let mut held = bucket.nodes.values().map(|node| node.allowance);
    bucket.held = held.try_fold(0_i64, i64::checked_add).filter(|held| *held <= MOST)?;
    let SharedBucket { part, busy, was, clock, placed, fill, last, credit, void, .. } = bucket;
    // So many nodes that a product with microseconds does not overflow.
    if busy.max(was) > MOST_NODES {
        return None;
    }
    if !is_progress(part) || [busy, was, clock, placed, fill, last, credit, void].iter().any(|count| *count < 0) {
        return None;
    }
    Some(bucket)
}

/// Writes numbers with single spaces between.
fn joined(numbers: &[i64]) -> String {
    numbers.iter().map(i64::to_string).collect::<Vec<_>>().join(" ")
}

/// Reads groups of `N` numbers, each behind a space.
fn groups<const N: usize>(text: &str) -> Option<Vec<[i64; N]>> {
    let Some(text) = text.strip_prefix(' ') else { return text.is_empty().then(Vec::new) };
    let words: Vec<&str> = text.split(' ').collect();
    words.chunks(N).map(|group| numbers(&group.join(" "))).collect()
}

/// Reads exactly `N` numbers between single spaces.
fn numbers<const N: usize>(text: &str) -> Option<[i64; N]> {
    let mut numbers = [0; N];
    let mut words = text.split(' ');
    for number in &mut numbers {
        *number = words.next()?.parse().ok().filter(|number: &i64| number.unsigned_abs() <= MOST as u64)?;
    }
    words.next().is_none().then_some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distributed::{ClassClaims, LeaseRequest};
    use crate::quota::Quota;

    const NOW: i64 = 1_700_000_000_000_000;

    fn bucket() -> SharedBucket {
        let terms = QuotaTerms::of(&Quota::per_second(10).burst(20), 0).unwrap().with_version(3);
        let mut bucket = SharedBucket::new(terms, NOW);
        let mut ask = LeaseRequest::new(7, 1, terms);
        (ask.want, ask.useful) = (22, 1_000_000);
        bucket.answer(&ask, NOW + 1).unwrap();
        bucket
    }

    #[test]
    fn a_record_is_read_back_as_it_was_written() {
        let bucket = bucket();
        let record = bucket.to_bytes();
        let text = "tollgate 1\n1 100000 20 20 0 3\n\
                    -2 1700000000000001 0 1700000000000001 6800000000 1 0 1 0 0 1700000002000001 1700000002201001 2 0 0\n\n\
                    00000000000000000000000000000007 1 0 1700000002000001 6800000000 20 2 0 0 1 2 100000\n";
        assert_eq!(std::str::from_utf8(&record), Ok(text));
        assert_eq!(SharedBucket::from_bytes(&record), Ok(bucket.clone()));
        let new = SharedBucket::new(QuotaTerms::of(&Quota::per_day(1), 0).unwrap(), NOW);
        assert_eq!(SharedBucket::from_bytes(&new.to_bytes()), Ok(new));
        let period = [5, 1_000_000, 5, 5, 9, 0, NOW as u64, NOW as u64 + 9];
        let calendar = QuotaTerms::from_numbers(&period).unwrap();
        let mut of_calendar = SharedBucket::new(calendar, NOW);
        of_calendar.answer(&LeaseRequest::new(7, 1, calendar), NOW + 1).unwrap();
        assert_eq!(SharedBucket::from_bytes(&of_calendar.to_bytes()), Ok(of_calendar));
        // Both classes get places, and count as lacking tokens until then. As each asks for all that it lacks, nothing is promised to the other further than 5 ms ahead.
        let mut ask = LeaseRequest::new(8, 1, bucket.terms);
        let mut shared = bucket;
        let rows = [[5, 0, 4, 1, 1, 1, 0, 1_000_000], [6, 0, 1, 9, 9, 9, 3, 2_000_000]];
        ask.classes = rows.map(ClassClaims::from_numbers).to_vec();
        ask.want = 10;
        shared.answer(&ask, NOW + 2).unwrap();
        let record = String::from_utf8(shared.to_bytes()).unwrap();
        assert_eq!(record.lines().nth(3), Some("0 0 1 0 -2000000 5 0 4 0 295001 6 0 1 0 700002"));
        assert!(
            record.ends_with(" 100000 5 1 1700000000000002 1700000000295001 6 9 1699999999999999 1700000000700002\n"),
            "{record}"
        );
        assert_eq!(SharedBucket::from_bytes(record.as_bytes()), Ok(shared));
    }

    /// A record of such a bucket is no damaged one.
    #[test]
    fn a_node_is_remembered_for_centuries_at_most() {
        let terms = QuotaTerms::of(&Quota::per_second(10), 0).unwrap();
        for ttl in [1 << 52, 1 << 53, i64::MAX as u64, u64::MAX] {
            let mut bucket = SharedBucket::new(terms, NOW);
            for now in [NOW, NOW + 1, NOW + 3_600_000_000] {
                for node in [1, 2] {
                    let ask = LeaseRequest { ttl, ..LeaseRequest::new(node, now as u64, terms) };
                    bucket.answer(&ask, now).unwrap();
                }
                assert_eq!(bucket.nodes.len(), 2, "{ttl} at {now}");
                assert_eq!(SharedBucket::from_bytes(&bucket.to_bytes()), Ok(bucket.clone()), "{ttl}");
            }
        }
    }

    /// The node keeps as many tokens as take longest to mint, until the latest end that is recorded.
    #[test]
    fn the_end_of_a_bucket_can_be_recorded_whatever_quota_and_lease_it_has() {
        let [wide, narrow] = [Quota::per_day(2).burst(104_000), Quota::per_day(1).burst(52_000)];
        let [wide, narrow] = [wide, narrow].map(|quota| QuotaTerms::of(&quota, 0).unwrap());
        let mut bucket = SharedBucket::new(wide, NOW);
        let most = LeaseRequest {
            ttl: u64::MAX,
            ahead: 52_000,
            allowance: 52_000,
            minimum: 52_000,
            ..LeaseRequest::new(1, 1, wide)
        };
        assert_eq!(bucket.answer(&most, NOW).unwrap().allowance, 52_000);
        bucket.answer(&LeaseRequest::new(2, 1, narrow.with_version(1)), NOW + 1).unwrap();
        assert_eq!((bucket.held, bucket.terms.burst), (52_000, 52_000));
        assert_eq!(SharedBucket::from_bytes(&bucket.to_bytes()), Ok(bucket));
    }

    #[test]
    fn what_is_no_record_is_an_error_and_no_bucket() {
        let text = String::from_utf8(bucket().to_bytes()).unwrap();
        let mut wrong = vec![String::new(), text.trim_end().to_owned(), format!("{text}\n"), text.repeat(2)];
        wrong.push(text.replace("tollgate 1", "tollgate 2"));
        wrong.push(text.replace("1 100000 20 20 0 3", "0 100000 20 20 0 3"));
        wrong.push(text.replace("\n-2 ", "\n-9007199254740993 "));
        wrong.push(text.replace(" 1 0 17", " 1 -3 17"));
        wrong.push(text.replace("0000007 ", "000000g "));
        // More nodes than there can be.
        wrong.push(text.replace(" 6800000000 1 0 ", " 6800000000 4294967297 0 "));
        // Progress of a period or more, for the bucket and for a promise, and an answer that is yet to come.
        wrong.push(text.replace("1700000000000001 0 17", "1700000000000001 100000 17"));
        wrong.push(text.replace(" 20 2 0 0 1", " 20 2 0 100000 1"));
        wrong.push(text.replace(" 20 2 0 0 1", " 20 2 0 0 2"));
        wrong.push(text.replace(" 20 2 0 0 1", " 20 2 0 0 -1"));
        assert!(wrong.iter().all(|wrong| *wrong != text));
        // A record that was cut off.
        wrong.extend(
            (0..text.len())
                .map(|end| text[..end].to_owned())
                .filter(|cut| cut.lines().count() != 4 || !cut.ends_with('\n')),
        );
        for record in wrong {
            let error = SharedBucket::from_bytes(record.as_bytes()).unwrap_err();
            assert!(matches!(error, StoreError::Reply { kind: ReplyKind::Damaged, .. }), "{record:?}");
        }
    }
}
