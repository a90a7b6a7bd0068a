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
    /// | each further one | a node: its number as 32 hexadecimal digits; number of its last request, allowance, until, epoch, granted, promised, queued before, part, at, last, and class, first, since and until of each class that lacks tokens |
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
            let numbers = [allowance, until, epoch, granted, promised, queued_before, part, at, node.last];
            text += &format!("{id:032x} {number} {}", joined(&numbers));
            for Place { class, first, since, until } in &node.places {
                text += &format!(" {class} {first} {since} {until}");
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
        let end = rest.match_indices(' ').nth(8).map_or(rest.len(), |(end, _)| end);
        let [allowance, until, epoch, granted, promised, queued_before, part, at, last] = numbers(&rest[..end])?;
        let of = |[class, first, since, until]: [i64; 4]| Place { class, first, since, until };
        let places: Vec<Place> = groups(&rest[end..])?.into_iter().map(of).collect();
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
mod tests;
