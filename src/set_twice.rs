//! The check of all builders that a setting with one value is not set twice.

use crate::error::ConfigError;

/// Remembers the first setting of a builder that was made twice.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SetTwice(Option<&'static str>);

impl SetTwice {
    /// Sets a field that can have one value.
    pub(crate) fn set<T>(&mut self, setting: &'static str, field: &mut Option<T>, value: T) {
        if field.replace(value).is_some() {
            self.0.get_or_insert(setting);
        }
    }

    pub(crate) fn check(self) -> Result<(), ConfigError> {
        self.0.map_or(Ok(()), |setting| Err(ConfigError::SetTwice { setting }))
    }
}
