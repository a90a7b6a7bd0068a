//! Connections written by hand, for messages that no HTTP library would send.

use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

pub(crate) struct Raw(TcpStream);

impl From<TcpStream> for Raw {
    fn from(stream: TcpStream) -> Self {
        Self(stream)
    }
}

impl Raw {
    pub(crate) async fn to(address: SocketAddr) -> Self {
        Self(TcpStream::connect(address).await.unwrap())
    }

    /// A connection on which this was sent.
    pub(crate) async fn sent(address: SocketAddr, text: impl AsRef<[u8]>) -> Self {
        let mut raw = Self::to(address).await;
        raw.send(text).await;
        raw
    }

    /// False if the connection is closed.
    pub(crate) async fn try_send(&mut self, text: impl AsRef<[u8]>) -> bool {
        self.0.write_all(text.as_ref()).await.is_ok()
    }

    pub(crate) async fn send(&mut self, text: impl AsRef<[u8]>) {
        self.0.write_all(text.as_ref()).await.unwrap();
    }

    /// Reads one head, with the empty line after it. Shorter if the connection ends.
    pub(crate) async fn head(&mut self) -> String {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            match self.0.read_u8().await {
                Ok(byte) => head.push(byte),
                Err(_) => break,
            }
        }
        String::from_utf8(head).unwrap()
    }

    /// Reads exactly this many bytes.
    pub(crate) async fn bytes(&mut self, count: usize) -> String {
        let mut bytes = vec![0; count];
        self.0.read_exact(&mut bytes).await.unwrap();
        String::from_utf8(bytes).unwrap()
    }

    /// Reads to the end of the connection what need not be text.
    pub(crate) async fn bytes_to_end(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        // A connection that is reset has ended too.
        let _ = self.0.read_to_end(&mut rest).await;
        rest
    }

    /// Reads to the end of the connection.
    pub(crate) async fn rest(&mut self) -> String {
        String::from_utf8(self.bytes_to_end().await).unwrap()
    }
}

/// An upstream that answers by hand.
pub(crate) struct RawUpstream(TcpListener);

impl RawUpstream {
    pub(crate) async fn start() -> (Self, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        (Self(listener), address)
    }

    /// The next connection from the gateway.
    pub(crate) async fn accept(&self) -> Raw {
        Raw(self.0.accept().await.unwrap().0)
    }
}

/// An upstream that answers each request with `response` on a connection of its own. Returns the heads that it read.
pub(crate) async fn responding(response: &'static str) -> (SocketAddr, std::sync::Arc<std::sync::Mutex<Vec<String>>>) {
    let (upstream, address) = RawUpstream::start().await;
    let heads = std::sync::Arc::<std::sync::Mutex<Vec<String>>>::default();
    let seen = std::sync::Arc::clone(&heads);
    tokio::spawn(async move {
        loop {
            let mut raw = upstream.accept().await;
            let head = raw.head().await;
            seen.lock().unwrap().push(head);
            raw.send(response).await;
        }
    });
    (address, heads)
}
