//! The table `tls`, and the authorities of upstreams.

use std::path::PathBuf;
use std::sync::Arc;

use tokio_rustls::rustls::{RootCertStore, ServerConfig};
use toml::Spanned;

use super::super::certificate::{self, CertificateError};
use super::super::problem::{Problem, Source};

#[derive(Clone, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TlsTable {
    certificate: Spanned<PathBuf>,
    key: Spanned<PathBuf>,
}

impl TlsTable {
    /// The files that the table names.
    pub(super) fn files(&self) -> [&PathBuf; 2] {
        [self.certificate.as_ref(), self.key.as_ref()]
    }

    pub(super) fn check(&self, source: &Source<'_>) -> Result<Arc<ServerConfig>, Problem> {
        certificate::read(self.certificate.as_ref(), self.key.as_ref()).map_err(|wrong| match wrong {
            CertificateError::Certificate(what) => source.problem(Some(self.certificate.span()), what),
            CertificateError::Key(what) => source.problem(Some(self.key.span()), what),
        })
    }
}

/// Reads the authorities that may vouch for upstreams: those of a file, or those of the Web.
pub(super) fn check_roots(source: &Source<'_>, file: Option<&Spanned<PathBuf>>) -> Result<Arc<RootCertStore>, Problem> {
    let Some(file) = file else {
        return Ok(Arc::new(RootCertStore::from_iter(webpki_roots::TLS_SERVER_ROOTS.iter().cloned())));
    };
    let wrong = |what: String| source.problem(Some(file.span()), what);
    let mut roots = RootCertStore::empty();
    for authority in certificate::read_certificates(file.as_ref()).map_err(wrong)? {
        let added = roots.add(authority);
        added.map_err(|error| wrong(format!("{} has no valid certificate: {error}", file.as_ref().display())))?;
    }
    Ok(Arc::new(roots))
}
