//! How observers name a class.

use std::any::Any;
use std::sync::{Arc, OnceLock};

/// How observers name a class that a user made.
#[derive(Debug)]
pub struct ClassLabel {
    /// The names of the classes around it and its own, with `/` between them.
    pub(crate) path: Arc<str>,
    /// What the limiter's observer keeps of the class; set by the first report about the class.
    pub(crate) observed: OnceLock<Box<dyn Any + Send + Sync>>,
}

impl ClassLabel {
    pub(crate) fn new(parent: Option<&Self>, name: &Arc<str>) -> Self {
        let path = parent.map_or_else(|| Arc::clone(name), |parent| format!("{}/{name}", parent.path).into());
        Self { path, observed: OnceLock::new() }
    }
}
