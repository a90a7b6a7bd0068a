//! The shared bucket as a record: lines of text, so that a person can read what a store keeps.

use super::bucket::{Class, Node, Place, Returned};
use super::{QuotaTerms, ReplyKind, SharedBucket, StoreError};

/// The first line of a record: another encoding would have another one.
const FORMAT: &str = "tollgate 1";

/// No number of a bucket is larger: instants, levels and debts are exact in doubles.
const MOST: i64 = 1 << 53;

/// No count of nodes is larger: a product with microseconds does not overflow.
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
    /// | each further one | a node: its number as 32 hexadecimal digits; number of its last request, allowance, until, epoch, granted, promised, queued before, part, at, last, and class, first, since and until of each class that lacks tokens |
    ///
    /// Nodes are in the order of their numbers, so that equal buckets have equal records. The numbers are those of the
    /// hash that `tollgate-redis` keeps.
    pub fn to_bytes(&self) -> Vec<u8> {
        let Self { level, stamp, part, swept, epoch, busy, was, clock, placed, fill, .. } = *self;
        let Self { last_until, ends, last, credit, void, .. } = *self;
        let numbers =
            [level, stamp, part, swept, epoch, busy, was, clock, placed, fill, last_until, ends, last, credit, void];
        let returned = self.returned.iter().flat_map(|&Returned { from, to }| [from, to]);
        let of = |&Class { number, parent, weight, lead, seen }: &Class| [number, parent, weight, lead, seen];
        let bucket = joined(numbers.into_iter().chain(returned));
        let mut text = format!("{FORMAT}\n{}\n{bucket}\n{}\n", self.terms, joined(self.classes.iter().flat_map(of)));
        let mut nodes: Vec<(&u128, &Node)> = self.nodes.iter().collect();
        nodes.sort_unstable_by_key(|(id, _)| **id);
        for (id, node) in nodes {
            let Node { number, allowance, until, epoch, granted, promised, queued_before, part, at, last, .. } = *node;
            let numbers = [allowance, until, epoch, granted, promised, queued_before, part, at, last];
            let places =
                node.places.iter().flat_map(|&Place { class, first, since, until }| [class, first, since, until]);
            text += &format!("{id:032x} {number} {}\n", joined(numbers.into_iter().chain(places)));
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
    let (all, returned): ([i64; 15], _) = numbers(lines.next()?)?;
    let mut bucket = SharedBucket { terms, ..SharedBucket::new(terms, 0) };
    [bucket.level, bucket.stamp, bucket.part, bucket.swept, bucket.epoch, bucket.busy, bucket.was, ..] = all;
    [.., bucket.clock, bucket.placed, bucket.fill, bucket.last_until, bucket.ends, _, _, _] = all;
    [.., bucket.last, bucket.credit, bucket.void] = all;
    bucket.returned = returned.into_iter().map(|[from, to]| Returned { from, to }).collect();
    let classes = Some(lines.next()?).filter(|line| !line.is_empty());
    let ([], classes) = classes.map_or(Some(([], Vec::new())), numbers)?;
    let of = |[number, parent, weight, lead, seen]: [i64; 5]| Class { number, parent, weight, lead, seen };
    bucket.classes = classes.into_iter().map(of).collect();
    let is_class = |class: &Class| class.number >= 0 && class.parent >= 0 && class.weight > 0 && class.lead >= 0;
    if !bucket.classes.iter().all(is_class) || bucket.classes.first().is_some_and(|class| class.number != 0) {
        return None;
    }
    let is_progress = |part: i64| (0..terms.period as i64).contains(&part);
    for line in lines {
        let (id, rest) = line.split_at_checked(32)?;
        let (number, rest) = rest.strip_prefix(' ')?.split_once(' ')?;
        let ([allowance, until, epoch, granted, promised, queued_before, part, at, last], places) = numbers(rest)?;
        let of = |[class, first, since, until]: [i64; 4]| Place { class, first, since, until };
        let places: Vec<Place> = places.into_iter().map(of).collect();
        let number = number.parse().ok()?;
        let are_natural = places.iter().all(|place| place.class >= 0 && place.first >= 0);
        let node = Node { number, allowance, until, epoch, granted, promised, queued_before, part, at, last, places };
        // After a change of the quota nothing is promised, and the progress may be that by the old one.
        if [allowance, granted, promised, queued_before, part, last].iter().any(|count| *count < 0)
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
    let are_natural = [busy, was, clock, placed, fill, last, credit, void].iter().all(|count| *count >= 0);
    (are_natural && is_progress(part) && busy.max(was) <= MOST_NODES).then_some(bucket)
}

/// Writes numbers with single spaces between.
fn joined(numbers: impl Iterator<Item = i64>) -> String {
    numbers.map(|number| number.to_string()).collect::<Vec<_>>().join(" ")
}

/// Reads numbers between single spaces: `N`, and groups of `M`.
fn numbers<const N: usize, const M: usize>(text: &str) -> Option<([i64; N], Vec<[i64; M]>)> {
    let number = |word: &str| word.parse().ok().filter(|number: &i64| number.unsigned_abs() <= MOST as u64);
    let all = text.split(' ').map(number).collect::<Option<Vec<i64>>>()?;
    let (first, rest) = all.split_first_chunk()?;
    let groups = rest.chunks(M).map(|group| group.try_into().ok()).collect::<Option<_>>()?;
    Some((*first, groups))
}

#[cfg(test)]
mod tests;
