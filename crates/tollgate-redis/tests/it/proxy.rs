//! A proxy between a node and its server, on loopback: it delays, cuts the connection at the worst moment, or changes
//! the target.

use std::net;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep_until};

/// How an answer begins: thirteen numbers, or the five of a claim at once.
const ANSWERS: [&[u8]; 2] = [b"$104\r\n", b"$40\r\n"];

#[derive(Default)]
pub struct Proxy {
    /// The delay in each direction, in milliseconds.
    pub latency: AtomicU64,
    /// Each message may take up to so many milliseconds longer.
    pub jitter: AtomicU64,
    /// If set, the next answer is dropped and its connection closed.
    pub cuts: AtomicBool,
    pub cut: AtomicU64,
    /// The target of new connections.
    pub port: AtomicU16,
    /// The number of connections.
    pub connections: AtomicU64,
}

/// Machines that are gone: they accept connections, and do not answer. With their URLs.
pub fn mutes<const COUNT: usize>() -> ([net::TcpListener; COUNT], [String; COUNT]) {
    let mutes = [(); COUNT].map(|()| net::TcpListener::bind("127.0.0.1:0").unwrap());
    let urls = mutes.each_ref().map(|mute| format!("redis://{}/", mute.local_addr().unwrap()));
    (mutes, urls)
}

impl Proxy {
    /// A proxy in front of the server at `port`, with its URL.
    pub async fn before(port: u16) -> (Arc<Self>, String) {
        let proxy = Arc::new(Self { port: port.into(), ..Self::default() });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("redis://{}/", listener.local_addr().unwrap());
        let all = Arc::clone(&proxy);
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                all.connections.fetch_add(1, Ordering::AcqRel);
                let port = all.port.load(Ordering::Acquire);
                let Ok(far) = TcpStream::connect(("127.0.0.1", port)).await else { continue };
                near.set_nodelay(true).unwrap();
                far.set_nodelay(true).unwrap();
                let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
                tokio::spawn(Arc::clone(&all).pass(near_in, far_out, false));
                tokio::spawn(Arc::clone(&all).pass(far_in, near_out, true));
            }
        });
        (proxy, url)
    }

    async fn pass(self: Arc<Self>, mut from: OwnedReadHalf, mut to: OwnedWriteHalf, is_answer: bool) {
        let (send, mut receive) = tokio::sync::mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
        let writing = tokio::spawn(async move {
            while let Some((at, bytes)) = receive.recv().await {
                sleep_until(at).await;
                if to.write_all(&bytes).await.is_err() {
                    break;
                }
            }
        });
        let mut buffer = vec![0; 1 << 16];
        while let Ok(length @ 1..) = from.read(&mut buffer).await {
            // The client's own setup commands have other answers.
            let is_answer = is_answer && ANSWERS.iter().any(|begin| buffer.starts_with(begin));
            if is_answer && self.cuts.swap(false, Ordering::AcqRel) {
                self.cut.fetch_add(1, Ordering::AcqRel);
                break;
            }
            let jitter = fastrand::f64() * self.jitter.load(Ordering::Acquire) as f64 / 1e3;
            let latency = Duration::from_millis(self.latency.load(Ordering::Acquire));
            let at = Instant::now() + latency + Duration::from_secs_f64(jitter);
            if send.send((at, buffer[..length].to_vec())).is_err() {
                break;
            }
        }
        drop(send);
        _ = writing.await;
    }
}
