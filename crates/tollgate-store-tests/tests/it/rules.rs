//! The rules with which stores are compared: `SharedBucket` itself, by known numbers.

use tollgate::Quota;
use tollgate::distributed::{LeaseRequest, QuotaTerms, SharedBucket};

const BEGIN: i64 = 1_700_000_000_000_000;
const HOUR: i64 = 3_600_000_000;

fn terms() -> QuotaTerms {
    QuotaTerms::of(&Quota::per_second(1_000).burst(1_000)).unwrap()
}

fn ask(node: u128, want: u64, ttl: u64) -> LeaseRequest {
    let mut ask = LeaseRequest::new(node, 1, terms());
    (ask.want, ask.ttl, ask.at_once, ask.leave) = (want, ttl, want > 0, true);
    ask
}

/// A bucket of 1,000 tokens, of which a node keeps 400 for 2 s.
fn kept() -> SharedBucket {
    let mut bucket = SharedBucket::new(terms(), BEGIN);
    let mut kept = LeaseRequest::new(1, 1, terms());
    (kept.ahead, kept.minimum, kept.ttl) = (400, 400, 2_000_000);
    let grant = bucket.answer(&kept, BEGIN).unwrap();
    assert_eq!((grant.now, grant.allowance), (400, 400));
    bucket
}

/// A node may use what it keeps until the end of its lease, so the bucket has no space for these tokens before.
#[test]
fn kept_tokens_are_minted_from_the_end_of_the_lease_on() {
    for (silence, remaining) in [(2_000, 600), (2_100, 700), (2_399, 999)] {
        let grant = kept().answer(&ask(2, 1_000, 2_000_000), BEGIN + silence * 1_000).unwrap();
        assert_eq!((grant.now, grant.remaining), (0, remaining), "after {silence} ms");
    }
}

/// A clock that steps back takes the ends of all leases with it, also if the next node to ask has a short lease.
#[test]
fn a_lease_lasts_as_long_if_the_clock_steps_back() {
    for (silence, remaining) in [(500, 600), (1_000, 600), (1_399, 999)] {
        let mut bucket = kept();
        let back = BEGIN + 1_000_000 - HOUR;
        bucket.answer(&ask(2, 0, 2_000_000), BEGIN + 1_000_000).unwrap();
        bucket.answer(&ask(3, 0, 1_000), back).unwrap();
        let grant = bucket.answer(&ask(4, 1_000, 2_000_000), back + silence * 1_000).unwrap();
        assert_eq!((grant.now, grant.remaining), (0, remaining), "after {silence} ms");
    }
}

/// A bucket that is full mints the next token from then on, also if tokens that it has not minted make it full: those that a
/// node returned while others were promised, and those that a node holds beyond its allowance.
#[test]
fn a_full_bucket_has_no_part_of_a_token() {
    for is_returned in [true, false] {
        let mut bucket = SharedBucket::new(terms(), BEGIN);
        let mut node = LeaseRequest::new(1, 1, terms());
        (node.want, node.ttl) = (if is_returned { 1_000 } else { 400 }, 10_000_000);
        assert_eq!(bucket.answer(&node, BEGIN).unwrap().now, node.want);
        (node.number, node.want) = (2, 0);
        let (now, rest) = if is_returned {
            let mut other = LeaseRequest::new(2, 1, terms());
            (other.want, other.useful) = (2, HOUR as u64);
            assert_eq!(bucket.answer(&other, BEGIN).unwrap().promised, 2);
            node.back = 1;
            bucket.answer(&node, BEGIN).unwrap();
            (BEGIN + 1_001_900, ask(3, 1_000, 1))
        } else {
            (node.want, node.held) = (600, 400);
            (BEGIN + 900, node)
        };
        let rest_given = bucket.answer(&rest, now).unwrap().now;
        let one = bucket.answer(&ask(4, 1, 1), now + 100).unwrap();
        assert_eq!((rest_given, one.now), (rest.want, 0), "is_returned: {is_returned}");
    }
}
