//! The table `health`.

use axum::http::Uri;
use toml::Spanned;

use super::super::problem::{Problem, Source};
use super::checks::check_timeout;
use super::values::{Time, seconds, unlocated};
use crate::upstream::health::Health;

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HealthTable {
    path: Spanned<String>,
    #[serde(default = "seconds::<5>")]
    every: Spanned<Time>,
    #[serde(default = "seconds::<2>")]
    timeout: Spanned<Time>,
    #[serde(default = "default_failures")]
    failures: Spanned<u32>,
    #[serde(default = "default_successes")]
    successes: Spanned<u32>,
}

fn default_failures() -> Spanned<u32> {
    unlocated(3)
}

fn default_successes() -> Spanned<u32> {
    unlocated(2)
}

impl HealthTable {
    pub(super) fn check(self, source: &Source<'_>) -> Result<Health, Problem> {
        Ok(Health {
            path: check_path(source, &self.path)?,
            every: check_timeout(source, "health.every", &self.every)?,
            timeout: check_timeout(source, "health.timeout", &self.timeout)?,
            failures: check_count(source, "health.failures", &self.failures)?,
            successes: check_count(source, "health.successes", &self.successes)?,
        })
    }
}

fn check_path(source: &Source<'_>, path: &Spanned<String>) -> Result<Uri, Problem> {
    let text = path.as_ref();
    // A URI has no fragment here, and the parser would drop it.
    let parsed = if text.starts_with('/') && !text.contains('#') { text.parse().ok() } else { None };
    parsed.ok_or_else(|| {
        let what = format!("`{text}` is not a path: write one like \"/health\", with a slash first");
        source.problem(Some(path.span()), what)
    })
}

fn check_count(source: &Source<'_>, name: &str, count: &Spanned<u32>) -> Result<u32, Problem> {
    let what = || format!("`{name}` is 0, and without any check nothing is known: write at least 1");
    if *count.as_ref() == 0 { Err(source.problem(Some(count.span()), what())) } else { Ok(*count.as_ref()) }
}
