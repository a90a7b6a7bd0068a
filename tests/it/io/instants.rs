//! Exact rates under paused time, through tokio's own pipes and helpers.

use super::*;

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy, copy_bidirectional, duplex, repeat, sink, split};
use tollgate::io::PaceIoExt;

/// Rounded up to whole milliseconds, the resolution of tokio's timers.
fn millis(bytes: u64) -> Duration {
    Duration::from_millis(bytes.div_ceil(1_000))
}

#[tokio::test(start_paused = true)]
async fn a_copy_through_a_paced_writer_or_reader_takes_its_bytes_over_the_rate() {
    let limiter = thousand_per_milli(10_000);
    let start = Instant::now();
    let mut paced = sink().pace_writes(&limiter);
    assert_eq!(copy(&mut repeat(7).take(1_000_000), &mut paced).await.unwrap(), 1_000_000);
    assert_eq!(Instant::now() - start, millis(1_000_000 - 10_000));
    // And through a paced reader.
    let other = thousand_per_milli(10_000);
    let (start, mut paced) = (Instant::now(), repeat(7).take(1_000_000).pace_reads(&other));
    assert_eq!(copy(&mut paced, &mut sink()).await.unwrap(), 1_000_000);
    assert_eq!(Instant::now() - start, millis(1_000_000 - 10_000));
    assert_eq!((paid(&limiter), paid(&other)), (1_000_000, 1_000_000));
}

#[tokio::test(start_paused = true)]
async fn two_hundred_connections_get_the_same_whatever_sizes_they_transfer() {
    let limiter = Limiter::new(Quota::new(20_000, MILLI).burst(64 << 10).initial(0)).unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..200 {
        let limiter = limiter.clone();
        tasks.spawn(async move {
            let mut buffer = vec![7; [64, 1 << 10, 10_000, 64 << 10, 256 << 10][task / 2 % 5]];
            let (mut reader, mut writer) = (repeat(7).pace_reads(&limiter), sink().pace_writes(&limiter));
            let mut bytes = 0;
            let end = Instant::now() + Duration::from_secs(2);
            while Instant::now() < end {
                bytes += match task % 2 {
                    0 => reader.read(&mut buffer).await.unwrap(),
                    _ => writer.write(&buffer).await.unwrap(),
                };
            }
            bytes
        });
    }
    let bytes = tasks.join_all().await;
    let fair = 2 * 20_000_000 / 200;
    assert!(bytes.iter().all(|bytes| bytes.abs_diff(fair) <= fair / 10), "{fair} each: {bytes:?}");
}

#[tokio::test(start_paused = true)]
async fn a_writer_that_gives_way_to_other_tasks_keeps_its_chunk() {
    let limiter = thousand_per_milli(160_000);
    let mut paced = sink().pace_writes(&limiter);
    // Tokio makes a task give way after 128 writes.
    for _ in 0..1_000 {
        paced.write_all(&[7]).await.unwrap();
    }
    let seen = limiter.snapshot();
    assert_eq!((seen.granted, seen.refunded), (10_001, 0));
}

#[tokio::test(start_paused = true)]
async fn a_small_writer_beside_a_large_one_waits_for_a_chunk_and_not_for_a_buffer() {
    let limiter = thousand_per_milli(16_000);
    let large = limiter.clone();
    let large = tokio::spawn(async move { sink().pace_writes(&large).write_all(&vec![7; 1_000_000]).await.unwrap() });
    let mut small = sink().pace_writes(&limiter);
    tokio::time::sleep(100 * MILLI).await;
    for _ in 0..100 {
        let start = Instant::now();
        small.write_all(&[7; 100]).await.unwrap();
        assert!(Instant::now() - start <= 2 * MILLI);
    }
    large.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn both_directions_of_a_pair_keep_their_own_rates() {
    let (down, up) = (thousand_per_milli(1_000), Limiter::new(Quota::new(100, MILLI).burst(100)).unwrap());
    let start = Instant::now();
    let (mut here, near) = duplex(1 << 20);
    let (far, mut there) = duplex(1 << 20);
    let relay = tokio::spawn(async move {
        let mut far = far.pace_reads(&down).pace_writes(&up);
        copy_bidirectional(&mut { near }, &mut far).await.unwrap()
    });
    here.write_all(&[1; 50_000]).await.unwrap();
    here.shutdown().await.unwrap();
    there.write_all(&[2; 300_000]).await.unwrap();
    there.shutdown().await.unwrap();
    let (mut up, mut down) = (vec![], vec![]);
    let (uploaded, downloaded) = tokio::join!(
        async {
            there.read_to_end(&mut up).await.unwrap();
            Instant::now() - start
        },
        async {
            here.read_to_end(&mut down).await.unwrap();
            Instant::now() - start
        }
    );
    assert_eq!((up, down), (vec![1; 50_000], vec![2; 300_000]));
    // In each direction the last chunk is claimed as a whole.
    assert_eq!((downloaded, uploaded), (300 * MILLI, 500 * MILLI));
    assert_eq!(relay.await.unwrap(), (50_000, 300_000));
}

#[tokio::test(start_paused = true)]
async fn halves_of_a_split_connection_wait_each_for_themselves() {
    let limiter = thousand_per_milli(1_000);
    let start = Instant::now();
    let (here, there) = duplex(1 << 20);
    let (mut reader, mut writer) = split(here.pace_bytes(&limiter));
    let (mut back, mut forth) = split(there);
    forth.write_all(&[1; 50_000]).await.unwrap();
    let write = tokio::spawn(async move {
        writer.write_all(&[2; 50_000]).await.unwrap();
        writer.shutdown().await.unwrap();
    });
    let mut got = vec![0; 50_000];
    reader.read_exact(&mut got).await.unwrap();
    write.await.unwrap();
    // In each direction the last chunk is claimed as a whole.
    assert_eq!(Instant::now() - start, 100 * MILLI);
    let mut sent = vec![];
    back.read_to_end(&mut sent).await.unwrap();
    assert_eq!((got, sent), (vec![1; 50_000], vec![2; 50_000]));
}
