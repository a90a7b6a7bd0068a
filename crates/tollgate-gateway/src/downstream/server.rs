//! A listener and its connections: a bounded number at a time, and a shutdown that serves every accepted connection.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};

use super::http_service::HttpService;
use super::open_files::FdReserve;
use super::session::Session;
use crate::telemetry::log;

/// How long connections are still accepted after the shutdown began, for those that are already on their way.
const ACCEPT_GRACE: Duration = Duration::from_millis(20);
/// The pause when a connection cannot be accepted, unless one of the server's own ends before.
const ACCEPT_RETRY: Duration = Duration::from_secs(1);

pub(crate) struct Server<M> {
    listener: TcpListener,
    make_session: M,
    permits: Arc<Semaphore>,
    reserve: Arc<FdReserve>,
    /// Notified when a connection has ended.
    ended: Arc<Notify>,
    /// Tells the connections to end. It is closed when all have ended.
    stop: watch::Sender<()>,
}

impl<M, S> Server<M>
where
    M: Fn(SocketAddr) -> Option<Session<S>>,
    S: HttpService,
{
    /// Binds the listener. `make_session` makes the session for the connection from an address, or refuses the connection. The
    /// server accepts some connections when no more files can be opened: as many as it has files in `reserve`.
    pub(crate) async fn bind(
        address: SocketAddr,
        make_session: M,
        max_connections: usize,
        reserve: usize,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await.map_err(|error| {
            io::Error::new(
                error.kind(),
                format!(
                    "cannot listen on {address}: {error}; choose another address, or stop the process that listens there"
                ),
            )
        })?;
        let permits = Arc::new(Semaphore::new(max_connections.min(Semaphore::MAX_PERMITS)));
        let reserve = Arc::new(FdReserve::new(reserve));
        Ok(Self { listener, make_session, permits, reserve, ended: Arc::default(), stop: watch::Sender::new(()) })
    }

    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop`. Then accepts only the connections that have arrived, and ends when every accepted request
    /// has its response.
    pub(crate) async fn run(self, stop: impl Future<Output = ()>) {
        let mut end = pin!(async {
            stop.await;
            tokio::time::sleep(ACCEPT_GRACE).await;
        });
        loop {
            let (permit, accepted) = tokio::select! {
                biased;
                () = &mut end => break,
                next = self.next() => next,
            };
            let Err(error) = accepted.map(|(stream, peer)| self.spawn(permit, stream, peer)) else { continue };
            log::CONNECTIONS.line(format_args!("cannot accept a connection: {error}"));
            if is_out_of_files(&error) && self.reserve.close_one() {
                continue;
            }
            // Files that other tasks close are usually reopened by those tasks. So wait until a connection of this
            // server ends, and retry once a second.
            tokio::select! {
                biased;
                () = &mut end => break,
                () = self.ended.notified() => {}
                () = tokio::time::sleep(ACCEPT_RETRY) => {}
            }
        }
        drop(self.listener);
        self.stop.send_replace(());
        self.stop.closed().await;
    }

    /// The next connection, when there is a permit for it.
    async fn next(&self) -> (OwnedSemaphorePermit, io::Result<(TcpStream, SocketAddr)>) {
        let permit = Arc::clone(&self.permits).acquire_owned().await.expect("the semaphore is never closed");
        (permit, self.listener.accept().await)
    }

    fn spawn(&self, permit: OwnedSemaphorePermit, stream: TcpStream, peer: SocketAddr) {
        let Some(session) = (self.make_session)(peer) else { return };
        let (stop, reserve, ended) = (self.stop.subscribe(), Arc::clone(&self.reserve), Arc::clone(&self.ended));
        tokio::spawn(async move {
            session.run(stream, peer, stop).await;
            reserve.refill();
            drop(permit);
            ended.notify_one();
        });
    }
}

fn is_out_of_files(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    errno.is_some_and(|errno| matches!(errno, Errno::MFILE | Errno::NFILE))
}
