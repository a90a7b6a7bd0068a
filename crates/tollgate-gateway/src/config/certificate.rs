//! The certificate of the gateway and its key, from PEM files.

use std::path::Path;
use std::sync::Arc;

use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig};

/// The protocols that are offered to clients, the preferred one first.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// What is wrong with a pair of files.
#[derive(Debug)]
pub(crate) enum CertificateError {
    /// The file of certificates.
    Certificate(String),
    /// The file of the key, or the key does not belong to the certificate.
    Key(String),
}

/// Reads a chain of certificates, of which the first is the gateway's own, and its key. Early data (0-RTT) stays off: it
/// can be replayed, and a replayed request would take tokens.
pub(crate) fn read(certificate: &Path, key: &Path) -> Result<Arc<ServerConfig>, CertificateError> {
    let chain = read_certificates(certificate).map_err(CertificateError::Certificate)?;
    let key_of = || PrivateKeyDer::from_pem_file(key).map_err(|error| unreadable(key, &error, "PRIVATE KEY"));
    let key_read = key_of().map_err(CertificateError::Key)?;
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().expect("the provider has them");
    let built = builder.with_no_client_auth().with_single_cert(chain, key_read);
    let mut config = built.map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => CertificateError::Key(format!(
            "the key in {} is not that of the certificate in {}: name the files of one pair",
            key.display(),
            certificate.display()
        )),
        rustls::Error::InvalidCertificate(_) => {
            CertificateError::Certificate(format!("{} has no valid certificate: {error}", certificate.display()))
        }
        error => CertificateError::Key(format!("{} has no key that can be used: {error}", key.display())),
    })?;
    config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).into();
    Ok(Arc::new(config))
}

/// Reads all certificates of a file, at least one.
pub(crate) fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let unreadable = |error| unreadable(path, &error, "CERTIFICATE");
    let all = CertificateDer::pem_file_iter(path).map_err(unreadable)?;
    let all = all.collect::<Result<Vec<_>, _>>().map_err(unreadable)?;
    if all.is_empty() { Err(unreadable(pem::Error::NoItemsFound)) } else { Ok(all) }
}

fn unreadable(path: &Path, error: &pem::Error, kind: &str) -> String {
    match error {
        pem::Error::Io(error) => format!("{} cannot be read: {error}", path.display()),
        pem::Error::NoItemsFound => {
            format!("{} has no {kind}: name a PEM file with a section `-----BEGIN {kind}-----`", path.display())
        }
        error => format!("{} is not a PEM file: {error:?}", path.display()),
    }
}
