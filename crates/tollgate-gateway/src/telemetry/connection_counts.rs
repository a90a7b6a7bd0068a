//! Counts of connections and streams that were refused or failed.

use metrics::{Unit, counter, describe_counter};

pub(crate) fn describe() {
    describe_counter!("gateway_connections_refused_total", Unit::Count, "Connections above those of one address.");
    describe_counter!("gateway_handshakes_failed_total", Unit::Count, "TLS handshakes of clients that failed.");
    describe_counter!("gateway_streams_refused_total", Unit::Count, "Requests of HTTP/2 for which there was no place.");
    describe_counter!(
        "gateway_connections_flooded_total",
        Unit::Count,
        "HTTP/2 connections whose client reset most requests."
    );
}

/// Counts a connection that was closed because its address has too many.
pub(crate) fn refused_connection() {
    counter!("gateway_connections_refused_total").increment(1);
}

/// Counts a TLS handshake of a client that failed.
pub(crate) fn failed_handshake() {
    counter!("gateway_handshakes_failed_total").increment(1);
}

/// Counts a request of HTTP/2 for which there was no place.
pub(crate) fn refused_stream() {
    counter!("gateway_streams_refused_total").increment(1);
}

/// Counts an HTTP/2 connection that was closed because its client reset most of its requests.
pub(crate) fn flooded_connection() {
    counter!("gateway_connections_flooded_total").increment(1);
}
