use super::*;
use crate::distributed::{ClassClaims, LeaseRequest};
use crate::quota::Quota;

const NOW: i64 = 1_700_000_000_000_000;

fn bucket() -> SharedBucket {
    let terms = QuotaTerms::of(&Quota::per_second(10).burst(20)).unwrap().with_version(3);
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
                00000000000000000000000000000007 1 0 1700000002000001 6800000000 20 2 0 0 1 2\n";
    assert_eq!(std::str::from_utf8(&record), Ok(text));
    assert_eq!(SharedBucket::from_bytes(&record), Ok(bucket.clone()));
    let new = SharedBucket::new(QuotaTerms::of(&Quota::per_day(1)).unwrap(), NOW);
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
        record.ends_with(" 5 1 1700000000000002 1700000000395001 6 9 1699999999999999 1700000000800002\n"),
        "{record}"
    );
    assert_eq!(SharedBucket::from_bytes(record.as_bytes()), Ok(shared));
}

/// A record of such a bucket is no damaged one.
#[test]
fn a_node_is_remembered_for_centuries_at_most() {
    let terms = QuotaTerms::of(&Quota::per_second(10)).unwrap();
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
    let [wide, narrow] = [wide, narrow].map(|quota| QuotaTerms::of(&quota).unwrap());
    let mut bucket = SharedBucket::new(wide, NOW);
    let most = LeaseRequest { ttl: u64::MAX, ahead: 52_000, minimum: 52_000, ..LeaseRequest::new(1, 1, wide) };
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
