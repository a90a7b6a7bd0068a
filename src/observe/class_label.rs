//! How observers name a class.

#[cfg(feature = "metrics")]
use crate::metrics::ClassCounts;
use std::sync::Arc;
#[cfg(feature = "metrics")]
use std::sync::OnceLock;

/// How observers name a class that a user made.
#[derive(Debug)]
pub struct ClassLabel {
    /// The names of the classes around it and its own, with `/` between them.
    pub(crate) path: Arc<str>,
    /// The counts that the limiter's meter keeps of the class; set by the first report about the class.
    #[cfg(feature = "metrics")]
    pub(crate) counts: OnceLock<Arc<ClassCounts>>,
}

impl ClassLabel {
    pub(crate) fn new(parent: Option<&Self>, name: &Arc<str>) -> Self {
        let path = parent.map_or_else(|| Arc::clone(name), |parent| format!("{}/{name}", parent.path).into());
        Self {
            path,
            #[cfg(feature = "metrics")]
            counts: OnceLock::new(),
        }
    }
}
