//! Copies bytes over real TCP connections that share 10 MB/s.
//!
//! ```text
//! cargo run --release --features io --example throttled_copy
//! ```

use std::error::Error;
use std::time::Instant;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy, repeat, sink};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tollgate::io::PaceIoExt;
use tollgate::{Limiter, Quota};

/// Bytes per second, of all connections together.
const RATE: u64 = 10_000_000;
/// What a task that runs late can catch up with (docs/guide/choosing.md).
const BURST: u64 = RATE / 20;
const CONNECTIONS: u64 = 4;
/// Of each connection: the first burst, and what the rate allows in two seconds.
const BYTES: u64 = (BURST + 2 * RATE) / CONNECTIONS;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let limiter = Limiter::new(Quota::per_second(RATE).burst(BURST))?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let (mut copies, began) = (JoinSet::new(), Instant::now());
    for number in 0..CONNECTIONS {
        let sender = TcpStream::connect(listener.local_addr()?).await?;
        let (mut receiver, _) = listener.accept().await?;
        // One end is enough: `receiver.pace_reads(&limiter)` slows a sender down that knows no limit.
        let (mut sender, mut nowhere) = (sender.pace_writes(&limiter), sink());
        copies.spawn(async move {
            let send = async {
                copy(&mut repeat(7).take(BYTES), &mut sender).await?;
                sender.shutdown().await
            };
            let ((), received) = tokio::try_join!(send, copy(&mut receiver, &mut nowhere))?;
            println!("{:5.2} s: connection {number}, {received} bytes", began.elapsed().as_secs_f64());
            Ok::<_, std::io::Error>(received)
        });
    }
    let mut received = 0;
    while let Some(copied) = copies.join_next().await {
        received += copied??;
    }
    let rate = (received - BURST) as f64 / began.elapsed().as_secs_f64();
    println!("{:.2} MB/s after the burst, {:.2} configured", rate / 1e6, RATE as f64 / 1e6);
    Ok(())
}
