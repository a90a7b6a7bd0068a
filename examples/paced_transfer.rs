//! Paces the events of a stream, and the bytes of an upload.
//!
//! ```text
//! cargo run --features stream,io --example paced_transfer
//! ```
//!
//! The example `throttled_copy` measures the rate of real TCP connections.

use futures::{StreamExt, stream};
use std::error::Error;
use std::time::Instant;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tollgate::io::PaceIoExt;
use tollgate::stream::PaceStreamExt;
use tollgate::{Limiter, Quota};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let began = Instant::now();

    // Each event costs its length. The burst is what a task that runs late can catch up with (docs/guide/choosing.md).
    let letters = Limiter::new(Quota::per_second(50).burst(10))?;
    let events = stream::iter(["one", "two", "three", "four", "five", "six"]);
    let mut events = events.pace_by(&letters, |event| event.len() as u64);
    while let Some(event) = events.next().await {
        println!("{:5.2} s: {}", began.elapsed().as_secs_f64(), event?);
    }

    // All uploads share a million bytes per second. Clone the limiter for each connection.
    let bandwidth = Limiter::new(Quota::per_second(1_000_000).burst(100_000))?;
    let (socket, mut server) = duplex(64 * 1024); // stands for a TcpStream
    let mut upload = socket.pace_writes(&bandwidth);
    let (mut received, body) = (Vec::new(), vec![0; 600_000]);
    let send = async {
        upload.write_all(&body).await?;
        upload.shutdown().await
    };
    let (sent, got) = tokio::join!(send, server.read_to_end(&mut received));
    sent?;
    println!("{:5.2} s: {} bytes uploaded", began.elapsed().as_secs_f64(), got?);
    Ok(())
}
