//! The access log: a line for each request. Requests never wait for it: lines that find the queue full are dropped and
//! counted.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use axum::body::Body;
use axum::http::{Method, Request};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::access_lines::{Lines, Message};
use super::access_writer::Writer;
use super::record::{Record, RequestLine, ResponseEnd};
use crate::config::log_destination::Destination;

/// How many lines may wait for the writer.
const MAX_LINES: usize = 8_192;
/// How long the shutdown waits for the writer.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// A handle of the log; without a queue nothing is logged.
#[derive(Clone, Default)]
pub(crate) struct AccessLog(Arc<Shared>);

#[derive(Default)]
struct Shared {
    queue: Option<SyncSender<Message>>,
    has_query: bool,
    reopen: Arc<AtomicBool>,
    lines: Lines,
}

impl AccessLog {
    /// Opens the log, and starts the thread that writes it.
    pub(crate) fn start(destination: Option<&Destination>, has_query: bool) -> io::Result<Self> {
        let Some(destination) = destination else { return Ok(Self::default()) };
        let (log, messages) = Self::with_queue(MAX_LINES, has_query);
        let writer = Writer::open(destination, log.lines(), Arc::clone(&log.0.reopen))?;
        std::thread::Builder::new().name("access-log".to_owned()).spawn(move || writer.run(&messages))?;
        Ok(log)
    }

    fn with_queue(most: usize, has_query: bool) -> (Self, Receiver<Message>) {
        let (queue, messages) = sync_channel(most);
        (Self(Arc::new(Shared { queue: Some(queue), has_query, ..Shared::default() })), messages)
    }

    pub(crate) fn lines(&self) -> Lines {
        self.0.lines.clone()
    }

    /// Opens the file again at each SIGHUP. Runs until it is dropped; from the call on the signal is caught.
    pub(crate) fn reopening(&self) -> io::Result<impl Future<Output = ()> + Send + use<>> {
        let (log, mut hang_up) = (self.clone(), signal(SignalKind::hangup())?);
        Ok(async move {
            while hang_up.recv().await.is_some() {
                log.0.reopen.store(true, Ordering::Release);
                // If the queue is full, the writer is awake and looks itself.
                let _ = log.0.queue.as_ref().map(|queue| queue.try_send(Message::Wake));
            }
        })
    }

    /// Begins the line of `request`. `shown` is the query without the key.
    pub(crate) fn open(&self, request: &Request<Body>, shown: impl FnOnce(&str) -> String) -> Entry {
        let open = self.0.queue.as_ref().map(|_| {
            let query = request.uri().query().filter(|_| self.0.has_query).map(shown);
            let target = RequestLine::new(request.method(), request.uri(), query.as_deref());
            Box::new(Open { target, began: Instant::now(), log: self.clone() })
        });
        Entry { record: Record::default(), open }
    }

    fn send(&self, message: Message) {
        let sent = self.0.queue.as_ref().map(|queue| queue.try_send(message));
        if matches!(sent, Some(Err(_))) {
            self.0.lines.drop_one();
        }
    }

    /// Waits until all lines are written, for a second at most.
    pub(crate) async fn flush(&self) {
        let Some(queue) = &self.0.queue else { return };
        let flushed = async {
            let (done, is_done) = oneshot::channel();
            let mut message = Message::Flush(done);
            while let Err(TrySendError::Full(back)) = queue.try_send(message) {
                message = back;
                tokio::time::sleep(FLUSH_TIMEOUT / 100).await;
            }
            // Dropped without an answer if the thread has ended.
            let _ = is_done.await;
        };
        let _ = tokio::time::timeout(FLUSH_TIMEOUT, flushed).await;
    }
}

/// A request's line, which is written when the entry is dropped: at the end of the response, or when its client left.
#[derive(Default)]
pub(crate) struct Entry {
    pub(crate) record: Record,
    /// `None` if nothing is logged.
    open: Option<Box<Open>>,
}

struct Open {
    target: RequestLine,
    began: Instant,
    log: AccessLog,
}

impl Entry {
    pub(crate) fn is_logged(&self) -> bool {
        self.open.is_some()
    }

    pub(crate) fn end(&mut self, bytes: u64, is_complete: bool) {
        let Some(open) = self.open.take() else { return };
        let Open { target, began, log } = *open;
        // The response to `HEAD` has no body, whatever it would be.
        let is_complete = is_complete || (target.method == Method::HEAD && self.record.status.is_some());
        let end = ResponseEnd { took: began.elapsed(), bytes, is_complete };
        log.send(Message::Line(Box::new((target, self.record, end))));
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.end(0, false);
    }
}

#[test]
fn lines_that_find_the_queue_full_are_dropped_and_counted() {
    let (log, messages) = AccessLog::with_queue(3, false);
    let request = Request::new(Body::empty());
    (0..10).for_each(|_| drop(log.open(&request, str::to_owned)));
    assert_eq!((messages.try_iter().count(), log.lines().dropped()), (3, 7));
    drop(log.open(&request, str::to_owned));
    assert_eq!((messages.try_iter().count(), log.lines().dropped()), (1, 7));
}
