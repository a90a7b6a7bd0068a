//! Edge cases: no data, stalls, empty buffers, several buffers, refusals, changes.

use super::*;

use scripted::Step::{Bytes, Pending};
use scripted::{Drain, Source, Step};
use std::future::poll_fn;
use std::io::{self, IoSlice};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::task::coop::{consume_budget, has_budget_remaining};
use tollgate::io::PaceIoExt;

fn source(script: impl IntoIterator<Item = Step>) -> Source {
    Source { script: script.into_iter().collect(), next: 0 }
}

fn drain(script: impl IntoIterator<Item = Step>) -> Drain {
    Drain { script: script.into_iter().collect(), ..Drain::default() }
}

#[test]
fn another_limiter_continues_with_the_bytes_read() {
    let ((limiter, clock), (other, _)) = (by_hand(160, 0), by_hand(160, 160));
    let mut paced = source([Bytes(15)]).pace_reads(&limiter);
    assert_pending!(spawn(paced.read(&mut [0; 100])).poll());
    tick_after(&clock, &limiter, 10 * MILLI);
    let mut buffer = [0; 4];
    assert_eq!(assert_ready_ok!(spawn(paced.read(&mut buffer)).poll()), 4);
    // Six more bytes were read and are paid for. The first limiter gets their tokens back.
    let mut paced = paced.reads(&other);
    let mut rest = Vec::new();
    while rest.len() < 11 {
        let got = assert_ready_ok!(spawn(paced.read(&mut buffer)).poll());
        rest.extend_from_slice(&buffer[..got]);
    }
    drop(paced);
    assert_eq!((rest, paid(&limiter), paid(&other)), ((4..15).collect(), 4, 11));
}

#[test]
fn a_chunk_costs_no_more_than_a_claim_may() {
    for chunk in [None, Some(40)] {
        let (limiter, clock) = built(Limiter::builder().quota(Quota::new(1, MILLI).burst(160).initial(0)).max_cost(4));
        let mut paced = drain([]).pace_writes(&limiter);
        if let Some(chunk) = chunk {
            paced = paced.chunk(chunk);
        }
        for _ in 0..3 {
            assert_pending!(spawn(paced.write(&[7; 8])).poll());
            tick_after(&clock, &limiter, 4 * MILLI);
            assert_eq!(assert_ready_ok!(spawn(paced.write(&[7; 8])).poll()), 4);
        }
        assert_eq!(limiter.snapshot().refused, 0, "no claim above `max_cost` was tried");
    }
}

#[test]
fn an_in_flight_cap_is_not_held_between_writes() {
    let (limiter, _clock) = built(Limiter::builder().quota(Quota::new(1, MILLI).burst(160)).max_in_flight(10));
    let mut paced = drain([Bytes(2), Bytes(9)]).pace_writes(&limiter);
    for (len, taken, granted) in [(9, 2, 2), (3, 3, 5), (20, 10, 15)] {
        assert_eq!(assert_ready_ok!(spawn(paced.write(&[7; 20][..len])).poll()), taken);
        assert_eq!((paid(&limiter), limiter.snapshot().in_flight), (granted, Some(0)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_writer_that_is_not_ready_holds_no_tokens_although_its_task_has_no_budget() {
    let (limiter, _clock) = by_hand(160, 160);
    let mut paced = drain([Bytes(1), Bytes(1), Pending, Pending]).pace_writes(&limiter);
    tokio::spawn(async move {
        for _ in 0..2 {
            paced.write_all(&[7]).await.unwrap();
        }
        while has_budget_remaining() {
            consume_budget().await;
        }
        // The script's writer does not take part in cooperative scheduling, and never wakes.
        poll_fn(|cx| Pin::new(&mut paced).poll_write(cx, &[7]).map(drop)).await;
    });
    tokio::time::sleep(MILLI).await;
    assert_eq!(paid(&limiter), 2);
}

#[test]
fn a_writer_that_takes_nothing_holds_no_tokens() {
    let (limiter, _clock) = by_hand(160, 160);
    let mut paced = drain([Bytes(1), Bytes(1), Bytes(0)]).pace_writes(&limiter);
    let error = assert_ready_err!(spawn(paced.write_all(&[7; 3])).poll());
    assert_eq!((error.kind(), paid(&limiter)), (io::ErrorKind::WriteZero, 2));
}

#[test]
fn a_write_that_waits_is_woken_although_its_task_also_flushes() {
    let (limiter, clock) = by_hand(160, 0);
    let mut paced = drain([]).pace_writes(&limiter);
    // As a TLS stream does: what it wrote before is flushed while the next write waits.
    let mut write = spawn(poll_fn(|cx| {
        let written = Pin::new(&mut paced).poll_write(cx, &[7; 5]);
        assert!(Pin::new(&mut paced).poll_flush(cx).is_ready());
        written
    }));
    assert_pending!(write.poll());
    tick_after(&clock, &limiter, 5 * MILLI);
    assert!(write.is_woken());
    assert_eq!(assert_ready_ok!(write.poll()), 5);
}

#[test]
fn empty_buffers_pass_at_once_and_cost_nothing() {
    let (limiter, _clock) = by_hand(160, 0);
    let mut paced = source([Bytes(5)]).pace_reads(&limiter);
    assert_eq!(assert_ready_ok!(spawn(paced.read(&mut [])).poll()), 0);
    assert_pending!(spawn(paced.read(&mut [0; 9])).poll());
    assert_eq!(assert_ready_ok!(spawn(paced.read(&mut [])).poll()), 0);
    let mut paced = Drain { vectored: true, ..drain([]) }.pace_writes(&limiter);
    assert_eq!(assert_ready_ok!(spawn(paced.write(&[])).poll()), 0);
    assert_eq!(assert_ready_ok!(spawn(paced.write_vectored(&[])).poll()), 0);
    assert_eq!(assert_ready_ok!(spawn(paced.write_vectored(&[IoSlice::new(&[]); 3])).poll()), 0);
    assert_eq!(limiter.snapshot().granted, 0);
}

#[test]
fn several_buffers_are_cut_where_the_chunk_ends() {
    let (limiter, _clock) = by_hand(160, 160);
    let bufs = [&[1; 4][..], &[], &[2; 4], &[3; 4]];
    let bufs = bufs.map(IoSlice::new);
    let mut paced = Drain { vectored: true, ..drain([]) }.pace_writes(&limiter);
    assert!(paced.is_write_vectored());
    assert_eq!(assert_ready_ok!(spawn(paced.write_vectored(&bufs)).poll()), 10);
    assert_eq!((paid(&limiter), &paced.get_ref().slices), (10, &vec![vec![4, 4, 2]]));
    assert_eq!(paced.get_ref().taken, [1, 1, 1, 1, 2, 2, 2, 2, 3, 3]);

    // More buffers than are passed on at once: the tokens of the rest are refunded.
    let many = [IoSlice::new(&[5]); 200];
    let mut paced = Drain { vectored: true, ..drain([]) }.pace_writes(&limiter).chunk(100);
    let took = assert_ready_ok!(spawn(paced.write_vectored(&many)).poll());
    assert!((1..100).contains(&took));
    drop(paced);
    assert_eq!(paid(&limiter), 10 + took as u64);

    // A writer without vectored writes is given one buffer at a time.
    let mut paced = drain([]).pace_writes(&limiter);
    assert!(!paced.is_write_vectored());
    assert_eq!(assert_ready_ok!(spawn(paced.write_vectored(&bufs[1..])).poll()), 4);
    assert_eq!(paced.get_ref().slices, [[4]]);
}

#[test]
fn a_refusal_is_an_error_with_its_cause_and_loses_no_byte() {
    let (limiter, _clock) = built(Limiter::builder().quota(Quota::new(1, MILLI).burst(160).initial(0)).max_waiting(0));
    let mut reader = source([Bytes(5)]).pace_reads(&limiter);
    let mut writer = drain([]).pace_writes(&limiter);
    let full = ConsumeError::QueueFull { waiting: 0 };
    let mut buffer = [0; 9];
    assert_eq!(assert_ready_err!(spawn(reader.read(&mut buffer)).poll()).downcast::<ConsumeError>().unwrap(), full);
    assert_eq!(assert_ready_err!(spawn(writer.write(&buffer)).poll()).downcast::<ConsumeError>().unwrap(), full);
    limiter.replenish(7);
    assert_eq!(assert_ready_ok!(spawn(reader.read(&mut buffer[..3])).poll()), 3);
    limiter.close();
    // This byte was paid for before.
    assert_eq!(assert_ready_ok!(spawn(reader.read(&mut buffer[3..])).poll()), 2);
    assert_eq!(buffer[..5], [0, 1, 2, 3, 4]);
    reader.get_mut().script = [Bytes(2)].into();
    for _ in 0..2 {
        let error = assert_ready_err!(spawn(reader.read(&mut buffer)).poll());
        assert_eq!(error.get_ref().unwrap().downcast_ref::<ConsumeError>(), Some(&ConsumeError::Closed));
        let error = assert_ready_err!(spawn(writer.write(&buffer)).poll());
        assert_eq!(error.get_ref().unwrap().downcast_ref::<ConsumeError>(), Some(&ConsumeError::Closed));
    }
    assert_eq!((reader.into_parts().1, paid(&limiter)), (vec![5, 6], 5));
}

#[test]
fn a_clock_that_panics_loses_no_byte() {
    let (time, broken) = (ManualClock::new(), Arc::new(AtomicBool::new(false)));
    let breaks = Arc::clone(&broken);
    let clock =
        ClockFn::manual(move || if breaks.load(Relaxed) { resume_unwind(Box::new("broken")) } else { time.now() });
    let limiter = Limiter::builder().quota(Quota::new(1, MILLI).burst(160)).clock(clock).build().unwrap();
    let mut paced = source([Bytes(5)]).pace_reads(&limiter);
    broken.store(true, Relaxed);
    catch_unwind(AssertUnwindSafe(|| spawn(paced.read(&mut [0; 9])).poll())).unwrap_err();
    broken.store(false, Relaxed);
    let mut buffer = [0; 9];
    assert_eq!(assert_ready_ok!(spawn(paced.read(&mut buffer)).poll()), 5);
    assert_eq!((&buffer[..5], paid(&limiter)), (&[0, 1, 2, 3, 4][..], 5));
}

#[test]
fn the_chunk_follows_the_quota_and_the_cap() {
    let (limiter, clock) = built(Limiter::builder().quota(Quota::new(1, MILLI).burst(1_600)).max_in_flight(50));
    let mut paced = drain([]).pace_writes(&limiter);
    let mut written = || assert_ready_ok!(spawn(paced.write(&[7; 1_000])).poll());
    assert_eq!(written(), 50);
    limiter.set_max_in_flight(20).unwrap();
    assert_eq!(written(), 20);
    limiter.set_max_in_flight(1_000).unwrap();
    limiter.set_quota(0, Quota::new(1, MILLI).burst(160)).unwrap();
    // No claim had to wait: the old chunk size delays none.
    assert_eq!(written(), 20);
    drop(limiter.try_acquire(140).unwrap());
    assert_pending!(spawn(paced.write(&[7; 1_000])).poll());
    tick_after(&clock, &limiter, 20 * MILLI);
    assert_eq!(assert_ready_ok!(spawn(paced.write(&[7; 1_000])).poll()), 20);
    clock.advance(100 * MILLI);
    assert_eq!(assert_ready_ok!(spawn(paced.write(&[7; 1_000])).poll()), 10);

    // A chunk size set by the user is used as it is, up to the cap.
    limiter.set_max_in_flight(8).unwrap();
    let mut paced = source([Bytes(100)]).pace_reads(&limiter).chunk(30);
    let mut buffer = [0; 100];
    assert_eq!(assert_ready_ok!(spawn(paced.read(&mut buffer)).poll()), 8);
    assert_eq!(assert_ready_ok!(spawn(paced.read(&mut buffer[8..])).poll()), 8);
    assert!((0..16).eq(buffer[..16].iter().copied()));
    assert_eq!(paced.into_parts().1.len(), 0, "no more was read than was paid for");
}

#[test]
fn a_wrapper_dropped_at_any_poll_loses_no_byte_and_no_token() {
    for dropped_at in 0..60 {
        let (limiter, clock) = by_hand(160, 12);
        let script = [Bytes(3), Pending, Bytes(14), Bytes(1), Pending, Bytes(9)];
        let mut reader = source(script).pace_reads(&limiter);
        let mut writer = drain([Bytes(3), Pending, Bytes(1), Bytes(40), Pending]).pace_writes(&limiter);
        let (mut got, mut sent) = (vec![], 0);
        for _ in 0..dropped_at {
            // A new future for each poll: none of them is polled twice.
            let mut buffer = [0; 5];
            if let Poll::Ready(Ok(n)) = spawn(reader.read(&mut buffer)).poll() {
                got.extend_from_slice(&buffer[..n]);
            }
            let bytes = (sent..sent + 7).collect::<Vec<u8>>();
            if let Poll::Ready(Ok(n)) = spawn(writer.write(&bytes)).poll() {
                sent += n as u8;
            }
            tick_after(&clock, &limiter, 3 * MILLI);
        }
        let (drain, _) = writer.into_parts();
        assert!(drain.taken.iter().copied().eq(0..sent), "dropped at {dropped_at}");
        let (source, aside) = reader.into_parts();
        assert_eq!(paid(&limiter), got.len() as u64 + u64::from(sent), "dropped at {dropped_at}");
        got.extend(aside);
        assert!(got.iter().copied().eq(0..source.next), "dropped at {dropped_at}");
        assert_eq!(limiter.snapshot().waiting_tasks, 0);
    }
}
