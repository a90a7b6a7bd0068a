//! HTTP/2 connections written by hand, for messages that no library would send.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::tls::Pair;

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

pub(crate) struct Frames(TlsStream<TcpStream>);

/// How the gateway answers a request.
#[derive(Debug, PartialEq)]
pub(crate) enum Answer {
    /// With a status of three digits, which is what HPACK makes of it.
    Status(String),
    /// It resets the stream, or ends the connection.
    Reset,
}

impl Frames {
    pub(crate) async fn connect(pair: &Pair, address: SocketAddr) -> Self {
        let mut frames = Self(pair.connect(address, &["h2"]).await.unwrap());
        frames.0.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        frames.send(SETTINGS, 0, 0, &[]).await;
        frames
    }

    /// Sends a frame. Returns false if the connection is closed.
    pub(crate) async fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> bool {
        let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
        frame.extend([kind, flags]);
        frame.extend(stream.to_be_bytes());
        frame.extend(payload);
        self.0.write_all(&frame).await.is_ok() && self.0.flush().await.is_ok()
    }

    /// Waits for the answer on this stream.
    pub(crate) async fn answer(&mut self, stream: u32) -> Answer {
        loop {
            let mut head = [0; 9];
            if self.0.read_exact(&mut head).await.is_err() {
                return Answer::Reset;
            }
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
            let mut payload = vec![0; length];
            if self.0.read_exact(&mut payload).await.is_err() {
                return Answer::Reset;
            }
            let of = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
            match head[3] {
                GOAWAY => return Answer::Reset,
                RESET if of == stream => return Answer::Reset,
                HEADERS if of == stream => return Answer::Status(status(&payload)),
                _ => {}
            }
        }
    }
}

/// The status stands first: an index of HPACK's static table, or a literal of three digits, perhaps in Huffman's code.
fn status(block: &[u8]) -> String {
    match block[0] {
        0x88 => "200",
        0x8c => "400",
        0x8d => "404",
        0x8e => "500",
        _ => "other",
    }
    .to_owned()
}

/// A block of header fields, each a literal.
pub(crate) fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            assert!(text.len() < 127);
            block.push(text.len() as u8);
            block.extend(text.as_bytes());
        }
    }
    block
}
