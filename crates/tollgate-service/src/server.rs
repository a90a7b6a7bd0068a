//! The ports, from the first request to the last.

use crate::grpc::{self, GrpcServer};
use crate::health::Health;
use crate::http::{Shared, routes};
use crate::service::Service;
use axum::serve::ListenerExt;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tonic::service::Routes;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic_health::ServingStatus;
use tonic_health::server::health_reporter;
use tonic_reflection::server::v1::{ServerReflection, ServerReflectionServer};

/// The most streams of one connection. Envoy has a connection for each of its threads, and requests that wait are streams.
const MOST_STREAMS: u32 = 10_000;
/// Connections whose peer is gone are found by this.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// The ports of a service that listens.
#[derive(Debug)]
pub struct Ports {
    grpc: TcpListener,
    http: TcpListener,
}

impl Ports {
    /// Listens on both ports.
    ///
    /// # Errors
    ///
    /// Returns one line that says which port, why not, and what to do.
    pub async fn bind(grpc: SocketAddr, http: SocketAddr) -> Result<Self, String> {
        Ok(Self { grpc: listen(grpc, "GRPC_PORT").await?, http: listen(http, "PORT").await? })
    }

    /// Returns the addresses for gRPC and HTTP.
    ///
    /// # Errors
    ///
    /// Returns what the operating system says.
    pub fn addresses(&self) -> std::io::Result<(SocketAddr, SocketAddr)> {
        Ok((self.grpc.local_addr()?, self.http.local_addr()?))
    }

    /// Serves until `end` is true, and then until all requests have ended, at most for `drain`.
    pub async fn serve(self, service: Arc<Service>, health: Health, end: watch::Receiver<bool>, drain: Duration) {
        let (reporter, health_server) = health_reporter();
        let follow = follow_health(reporter, health.clone());
        let ended = |mut end: watch::Receiver<bool>| async move {
            // An error is an end too: the sender is gone.
            let _ = end.wait_for(|is_end| *is_end).await;
        };
        let others = Routes::new(health_server).add_service(schema());
        let services = GrpcServer::new(Arc::clone(&service), others);
        let incoming = TcpIncoming::from(self.grpc).with_nodelay(Some(true));
        let grpc = Server::builder()
            .max_concurrent_streams(MOST_STREAMS)
            // A proxy whose requests time out gives them all up at once. By default, 21 that this service has not read yet
            // end the connection, and with it all others.
            .http2_max_pending_accept_reset_streams(Some(MOST_STREAMS as usize))
            .http2_keepalive_interval(Some(KEEPALIVE))
            .serve_with_incoming_shutdown(services, incoming, ended(end.clone()));
        let http = self.http.tap_io(|stream| {
            // Without it an answer may wait for the acknowledgement of the one before.
            let _ = stream.set_nodelay(true);
        });
        let app =
            routes(Shared { service, health: health.clone() }).into_make_service_with_connect_info::<SocketAddr>();
        let http = axum::serve(http, app).with_graceful_shutdown(ended(end.clone()));
        let both = async {
            let (grpc, http) = tokio::join!(grpc, http);
            if let Err(error) = grpc {
                tracing::error!("the gRPC port failed: {error}");
            }
            if let Err(error) = http {
                tracing::error!("the HTTP port failed: {error}");
            }
        };
        let too_late = async {
            ended(end).await;
            tokio::time::sleep(drain).await;
        };
        tokio::select! {
            () = both => {}
            () = too_late => tracing::warn!("some requests had not ended after {drain:?}"),
            () = follow => {}
        }
    }
}

/// Tells clients such as `grpcurl` which services and messages there are.
fn schema() -> ServerReflectionServer<impl ServerReflection> {
    let builder = tonic_reflection::server::Builder::configure();
    let builder = builder.register_encoded_file_descriptor_set(include_bytes!("proto.bin"));
    let builder = builder.register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET);
    builder.build_v1().expect("a test reads the schema")
}

/// Tells clients of `grpc.health.v1` what the HTTP port says, within a second. It never ends.
async fn follow_health(reporter: tonic_health::server::HealthReporter, health: Health) {
    let mut was_healthy = None;
    loop {
        let is_healthy = health.problem().is_none();
        if was_healthy != Some(is_healthy) {
            let status = if is_healthy { ServingStatus::Serving } else { ServingStatus::NotServing };
            // The last is the name of the reference.
            for name in ["", grpc::NAME, "ratelimit"] {
                reporter.set_service_status(name, status).await;
            }
            was_healthy = Some(is_healthy);
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Listens on a port that a setting names.
///
/// # Errors
///
/// Returns one line that says which port, why not, and what to do.
pub async fn listen(address: SocketAddr, setting: &str) -> Result<TcpListener, String> {
    TcpListener::bind(address).await.map_err(|error| match error.kind() {
        ErrorKind::AddrInUse => format!("{address} is in use: end the other program, or set {setting} to another port"),
        ErrorKind::PermissionDenied => {
            format!("{address} needs rights that this user lacks: set {setting} to a port from 1024 on")
        }
        ErrorKind::AddrNotAvailable => format!("{address} is no address of this machine: set the host of {setting}"),
        _ => format!("cannot listen on {address} ({setting}): {error}"),
    })
}
