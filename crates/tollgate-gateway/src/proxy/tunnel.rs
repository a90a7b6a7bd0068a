//! A WebSocket: what a connection of HTTP/1.1 becomes when its client asks for it and the upstream agrees.
//!
//! Routes of the file allow it: what passes on a WebSocket is not limited. No other protocol is passed through. In particular not `h2c`, whose requests the gateway would not see.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::HttpBody;
use axum::http::header::{CONNECTION, CONTENT_LENGTH, UPGRADE};
use axum::http::{Extensions, HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf, split};
use tokio::time::Instant;

use crate::http::token_list::has_token;
use crate::telemetry::access_log::Entry;
use crate::upstream::backend::ActiveRequest;

const WEBSOCKET: HeaderValue = HeaderValue::from_static("websocket");
/// What is read at a time, in each direction.
const BUFFER: usize = 8 << 10;

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What a connection does after its last response.
#[derive(Clone, Default)]
pub(crate) struct PendingTunnel(Arc<Mutex<Option<Work>>>);

impl PendingTunnel {
    pub(crate) fn take(&self) -> Option<Work> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// A client asks for a WebSocket.
pub(crate) struct UpgradeRequest {
    client: OnUpgrade,
    pending_tunnel: PendingTunnel,
}

/// Both ends of a WebSocket.
#[derive(Clone)]
pub(crate) struct Tunnel {
    client: OnUpgrade,
    upstream: OnUpgrade,
    pending_tunnel: PendingTunnel,
    idle: Duration,
    /// Counts at the upstream to the end of the WebSocket.
    _active: Option<Arc<ActiveRequest>>,
}

impl UpgradeRequest {
    /// Returns what `request` asks for: a `GET` of HTTP/1.1 without a body that names exactly this protocol.
    pub(crate) fn of<B: HttpBody>(request: &mut Request<B>) -> Option<Self> {
        let pending_tunnel = request.extensions_mut().remove::<PendingTunnel>()?;
        let is_right = request.method() == Method::GET
            && request.version() == Version::HTTP_11
            && request.body().is_end_stream()
            && names_websocket(request.headers());
        is_right.then(|| Self { client: hyper::upgrade::on(request), pending_tunnel })
    }

    /// Makes a request with these extensions one that asks for no WebSocket: the upstream sees no `Upgrade`.
    pub(crate) fn forbid(extensions: &mut Extensions) {
        extensions.remove::<PendingTunnel>();
    }

    /// Writes the fields that the gateway removed with all others of the connection.
    pub(crate) fn write(headers: &mut HeaderMap) {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, WEBSOCKET);
    }

    /// Whether `response` agrees to what was asked for.
    pub(crate) fn is_accepted_by<B>(response: &Response<B>) -> bool {
        response.status() == StatusCode::SWITCHING_PROTOCOLS
            && response.version() == Version::HTTP_11
            && names_websocket(response.headers())
    }

    /// Makes the response for the client, with a [`Tunnel`] among its extensions.
    pub(crate) fn accept<B>(self, response: &mut Response<B>, idle: Duration, active: Option<ActiveRequest>) {
        let upstream = hyper::upgrade::on(&mut *response);
        Self::write(response.headers_mut());
        response.headers_mut().remove(CONTENT_LENGTH);
        let Self { client, pending_tunnel } = self;
        response.extensions_mut().insert(Tunnel {
            client,
            upstream,
            pending_tunnel,
            idle,
            _active: active.map(Arc::new),
        });
    }
}

fn names_websocket(headers: &HeaderMap) -> bool {
    let mut names = headers.get_all(UPGRADE).iter();
    let is_named = names.next().is_some_and(|name| name.as_bytes().eq_ignore_ascii_case(WEBSOCKET.as_bytes()));
    is_named && names.next().is_none() && has_token(headers, &CONNECTION, "upgrade")
}

impl Tunnel {
    /// Runs when the connection has sent the response. `pass` is held until its end, and `entry` is written then.
    pub(crate) fn begin(self, pass: impl Send + 'static, entry: Entry) {
        let pending_tunnel = self.pending_tunnel.clone();
        let work = async move {
            let mut line = Line { entry, sent: AtomicU64::new(0), is_complete: false };
            let is_complete = self.run(&line.sent).await;
            line.is_complete = is_complete;
            drop((line, pass));
        };
        *pending_tunnel.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::pin(work));
    }

    /// Counts the bytes for the client. Returns whether both ends finished.
    async fn run(self, sent: &AtomicU64) -> bool {
        let Ok((client, upstream)) = futures::future::try_join(self.client, self.upstream).await else { return false };
        let (from_client, to_client) = split(TokioIo::new(client));
        let (from_upstream, to_upstream) = split(TokioIo::new(upstream));
        let last_activity = Mutex::new(Instant::now());
        let received = AtomicU64::new(0);
        let up = copy(from_client, to_upstream, &last_activity, &received);
        let down = copy(from_upstream, to_client, &last_activity, sent);
        tokio::select! {
            // An I/O error on either side ends the tunnel.
            ended = futures::future::try_join(up, down) => ended.is_ok(),
            () = is_quiet(&last_activity, self.idle) => false,
        }
    }
}

/// The line of the access log, which is written however the WebSocket ends.
struct Line {
    entry: Entry,
    sent: AtomicU64,
    is_complete: bool,
}

impl Drop for Line {
    fn drop(&mut self) {
        self.entry.end(*self.sent.get_mut(), self.is_complete);
    }
}

async fn copy(
    mut from: ReadHalf<TokioIo<Upgraded>>,
    mut to: WriteHalf<TokioIo<Upgraded>>,
    last_activity: &Mutex<Instant>,
    copied: &AtomicU64,
) -> std::io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    loop {
        let count = from.read(&mut buffer).await?;
        *last_activity.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        if count == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..count]).await?;
        to.flush().await?;
        copied.fetch_add(count as u64, Ordering::Relaxed);
    }
}

/// Waits until nothing was heard from either end for `timeout`.
async fn is_quiet(last_activity: &Mutex<Instant>, timeout: Duration) {
    loop {
        let passed = last_activity.lock().unwrap_or_else(PoisonError::into_inner).elapsed();
        if passed >= timeout {
            return;
        }
        tokio::time::sleep(timeout - passed).await;
    }
}
