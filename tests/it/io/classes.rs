//! Bytes that are paced by a class of a limiter.

use super::*;

use scripted::{Drain, Step};
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex, sink};
use tollgate::io::{PaceIoExt, PacedIo};

/// A thousand bytes each millisecond, `burst` of them at once, from an empty bucket.
fn divided(burst: u64) -> Limiter {
    let quota = Quota::new(1_000, MILLI).burst(burst).initial(0);
    Limiter::builder().quota(quota).classes().build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn each_direction_has_its_own_class_or_limiter() {
    let limiter = divided(1_600);
    let down = limiter.class("down", Share::weight(1)).unwrap();
    let up = thousand_per_milli(1_600);
    let (mut far, near) = duplex(1 << 20);
    let mut near: PacedIo<_, Class, Limiter> = PacedIo::new(near).reads(&down).writes(&up);
    far.write_all(&[7; 5_000]).await.unwrap();
    let start = Instant::now();
    near.read_exact(&mut [0; 5_000]).await.unwrap();
    assert_eq!((Instant::now() - start, paid(&limiter), paid(&up)), (5 * MILLI, 5_000, 0));
    near.write_all(&[7; 3_600]).await.unwrap();
    assert_eq!((paid(&limiter), paid(&up)), (5_000, 3_600));
}

#[tokio::test(start_paused = true)]
async fn a_chunk_is_a_16th_of_the_ceiling_if_that_is_smaller() {
    let limiter = divided(16_000);
    let ceiling = Quota::new(1_000, MILLI).burst(1_600);
    let class = limiter.class("a", Share::weight(1).ceiling(ceiling)).unwrap();
    tokio::time::advance(16 * MILLI).await;
    let mut writer = sink().pace_writes(&class);
    assert_eq!(writer.write(&[7; 100_000]).await.unwrap(), 100);
    let mut writer = sink().pace_writes(&limiter);
    assert_eq!(writer.write(&[7; 100_000]).await.unwrap(), 1_000);
}

/// Takes three bytes at most in each call.
fn sips() -> Drain {
    Drain { script: std::iter::repeat_n(Step::Bytes(3), 1_001).collect(), ..Drain::default() }
}

#[tokio::test(start_paused = true)]
async fn a_ceiling_is_charged_for_the_bytes_that_pass() {
    let limiter = divided(16_000);
    let ceiling = Quota::new(100, MILLI).burst(1_600);
    let class = limiter.class("a", Share::weight(1).ceiling(ceiling)).unwrap();
    tokio::time::advance(16 * MILLI).await;
    let start = Instant::now();
    for _ in 0..1_000 {
        // A new connection each time, which claims a chunk of 100 bytes and gives 97 back.
        assert_eq!(sips().pace_writes(&class).write(&[7; 100]).await.unwrap(), 3);
    }
    // 3,000 bytes: 1,600 from the burst, the others and one chunk at the rate.
    assert_eq!((Instant::now() - start, paid(&limiter)), (15 * MILLI, 3_000));
}
