//! The table `tls`.

use std::path::PathBuf;
use std::sync::Arc;

use tokio_rustls::rustls::ServerConfig;
use toml::Spanned;

use super::super::certificate::{self, Wrong};
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
            Wrong::Certificate(what) => source.problem(Some(self.certificate.span()), what),
            Wrong::Key(what) => source.problem(Some(self.key.span()), what),
        })
    }
}
