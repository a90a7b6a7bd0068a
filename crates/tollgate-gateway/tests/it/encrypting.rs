//! TLS between clients and the gateway.

use super::app::config::Config;
use super::fixture::{TestGateway, Upstream, change, file};
use super::process::Process;
use super::raw::{Raw, responding};
use super::tls::Pair;

use std::path::Path;

const LIMITS: &str = "quota = \"100000/s\"\nmax_wait = \"1s\"\n[keys]\nheader = \"x-api-key\"\nquota = \"100000/s\"\n";
const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
const REQUEST: &str = "GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";

#[tokio::test]
async fn a_request_over_tls_is_forwarded_and_the_upstream_learns_the_scheme() {
    let (address, heads) = responding(OK).await;
    let pair = Pair::new();
    let fixture = TestGateway::before(Upstream::default(), address, &format!("{LIMITS}{}", pair.table())).await;
    let seen = pair.answer(fixture.address, REQUEST).await.unwrap();
    assert!(seen.starts_with("HTTP/1.1 200 ") && seen.ends_with("ok"), "{seen}");
    let head = heads.lock().unwrap()[0].clone();
    assert!(head.contains("\r\nx-forwarded-proto: https\r\n"), "{head}");
}

#[tokio::test]
async fn protocols_are_negotiated() {
    let pair = Pair::new();
    let fixture = TestGateway::new(&format!("{LIMITS}{}", pair.table())).await;
    for (offered, chosen) in
        [(&["http/1.1", "h2"][..], Some(&b"h2"[..])), (&["http/1.1"], Some(b"http/1.1")), (&[], None)]
    {
        let stream = pair.connect(fixture.address, offered).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), chosen, "{offered:?}");
    }
    assert!(pair.connect(fixture.address, &["spdy/3"]).await.is_err());
}

#[tokio::test]
async fn a_client_that_speaks_no_tls_gets_no_answer() {
    let pair = Pair::new();
    let fixture = TestGateway::new(&format!("{LIMITS}{}", pair.table())).await;
    let seen = Raw::sent(fixture.address, REQUEST).await.bytes_to_end().await;
    assert!(!seen.windows(4).any(|part| part == b"HTTP"), "{seen:?}");
    assert_eq!(fixture.upstream.count(), 0);
}

#[tokio::test]
async fn the_handshake_is_part_of_the_header_timeout() {
    let pair = Pair::new();
    let fixture = TestGateway::by_the_clock(&format!("header_timeout = \"100ms\"\n{LIMITS}{}", pair.table())).await;
    // It ends, whatever was sent of the handshake.
    for part in [&b""[..], b"\x16\x03\x01\x01\x00\x01"] {
        assert_eq!(Raw::sent(fixture.address, part).await.rest().await, "");
    }
}

#[tokio::test]
async fn a_renewed_certificate_is_used_and_a_wrong_one_is_not() {
    let (_upstream, address) = Upstream::start().await;
    let (old, new, other) = (Pair::new(), Pair::new(), Pair::new());
    let process = Process::start("renewed", address, &format!("{LIMITS}{}", old.table()));
    assert!(old.answer(process.address, REQUEST).await.unwrap().starts_with("HTTP/1.1 200 "));
    // A certificate without its key.
    std::fs::copy(&new.certificate, &old.certificate).unwrap();
    let said = process.says("is not that of the certificate in", 1).await;
    assert!(said.contains(", line "), "{said}");
    process.says("the limits are unchanged", 1).await;
    assert!(old.answer(process.address, REQUEST).await.unwrap().starts_with("HTTP/1.1 200 "));
    std::fs::copy(&new.key, &old.key).unwrap();
    process.says("applied the limits", 1).await;
    assert!(new.answer(process.address, REQUEST).await.unwrap().starts_with("HTTP/1.1 200 "));
    assert!(old.answer(process.address, REQUEST).await.is_err());
    // On SIGHUP at once. `applied` is said once more for the pair that the watch has taken, or sees later.
    std::fs::copy(&other.certificate, &old.certificate).unwrap();
    std::fs::copy(&other.key, &old.key).unwrap();
    process.signal("HUP");
    process.says("applied the limits", 2).await;
    assert!(other.answer(process.address, REQUEST).await.unwrap().starts_with("HTTP/1.1 200 "));
}

/// The port that spoke TLS would answer in plain text, and keys would pass the network unencrypted.
#[tokio::test]
async fn a_file_without_its_table_does_not_end_tls_and_one_with_it_does_not_begin_it() {
    let pair = Pair::new();
    let encrypted = format!("{LIMITS}{}", pair.table());
    let fixture = TestGateway::new(&encrypted).await;
    let said = change(&fixture, LIMITS).unwrap_err();
    assert!(
        said.ends_with("`[tls]` is read at the start only: restart the gateway, or restore the old value"),
        "{said}"
    );
    assert!(pair.answer(fixture.address, REQUEST).await.unwrap().starts_with("HTTP/1.1 200 "));
    change(&fixture, &encrypted).unwrap();
    let plain = TestGateway::new(LIMITS).await;
    let said = change(&plain, &encrypted).unwrap_err();
    assert!(said.contains("line 9: `[tls]` is read at the start only"), "{said}");
    assert!(Raw::sent(plain.address, REQUEST).await.rest().await.starts_with("HTTP/1.1 200 "));
}

#[test]
fn a_wrong_pair_is_reported_with_its_line() {
    let (pair, other) = (Pair::new(), Pair::new());
    let said = |certificate: &Path, key: &Path| {
        let table = format!("[tls]\ncertificate = {certificate:?}\nkey = {key:?}\n");
        let text = file("127.0.0.1:1".parse().unwrap(), &format!("{LIMITS}{table}"));
        let line = text.lines().count();
        let problem = Config::parse(Path::new("gateway.toml"), &text).err()?;
        Some((line - problem.line.unwrap(), format!("{problem:#}")))
    };
    let none = Path::new("/nowhere/at.pem");
    assert_eq!(said(&pair.certificate, &pair.key), None);
    for (certificate, key, above_end, expected) in [
        (none, &*pair.key, 1, "/nowhere/at.pem cannot be read"),
        (&*pair.certificate, none, 0, "/nowhere/at.pem cannot be read"),
        (&*pair.certificate, &*other.key, 0, "name the files of one pair"),
        (&*pair.key, &*pair.key, 1, "-----BEGIN CERTIFICATE-----"),
        (&*pair.certificate, &*pair.certificate, 0, "-----BEGIN PRIVATE KEY-----"),
    ] {
        let (line, said) = said(certificate, key).unwrap();
        assert_eq!(line, above_end, "{said}");
        assert!(said.contains(expected) && said.contains("^^^"), "{said}");
    }
}
