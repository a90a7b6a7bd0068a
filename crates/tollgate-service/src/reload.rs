//! A changed configuration takes effect while the service runs; a bad one changes nothing.

use crate::config::{self, Loaded, Options};
use crate::files;
use crate::health::Health;
use crate::meter::add;
use crate::problem::{Problem, Source};
use crate::rule::{Level, Rule};
use crate::rules::Rules;
use crate::service::Service;
use arc_swap::ArcSwap;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How often the files are compared with what was read. By contents, because a link that is swapped, as Kubernetes does,
/// changes no file.
const EACH: Duration = Duration::from_secs(1);

/// The files of the configuration, and what was made of them.
#[derive(Debug)]
pub struct Reloader {
    service: Arc<Service>,
    health: Health,
    paths: Vec<PathBuf>,
    options: Options,
    needs_rules: bool,
    /// The files as they were read last.
    sources: Mutex<Vec<Arc<Source>>>,
    /// What is wrong with them. The page reads it without a lock: a large file takes seconds to read.
    problems: ArcSwap<Vec<Problem>>,
}

impl Reloader {
    /// Creates a reloader for a service whose rules were made of these sources.
    pub fn new(
        service: Arc<Service>,
        health: Health,
        paths: Vec<PathBuf>,
        options: Options,
        needs_rules: bool,
        sources: Vec<Arc<Source>>,
    ) -> Self {
        add(&service.totals.loads, 1);
        health.lack_rules(needs_rules && service.rules.load().domains.is_empty());
        let (sources, problems) = (Mutex::new(sources), ArcSwap::default());
        Self { service, health, paths, options, needs_rules, sources, problems }
    }

    /// Looks at the files each second, for ever.
    pub async fn run(self: Arc<Self>) {
        loop {
            tokio::time::sleep(EACH).await;
            let reloader = Arc::clone(&self);
            // Files may be large, and on a slow disk.
            if tokio::task::spawn_blocking(move || reloader.look()).await.is_err() {
                tracing::error!("the configuration could not be read because of a defect in this program");
            }
        }
    }

    /// Looks at the files, and takes them over if they have changed and have no problem.
    pub fn look(&self) {
        let read = files::read(&self.paths);
        let mut known = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        let loaded = match read {
            Ok(sources) if sources == *known => return,
            Ok(sources) => {
                let loaded = config::load(&sources, self.options, &self.service.meters);
                *known = sources;
                loaded
            }
            Err(problems) if problems == **self.problems.load() => return,
            Err(problems) => {
                // The same contents count again when they are back.
                known.clear();
                Err(problems)
            }
        };
        match loaded {
            Ok(Loaded { rules, notes }) => {
                self.problems.store(Arc::default());
                self.service.totals.problems.store(0, Ordering::Relaxed);
                notes.iter().for_each(|note| tracing::info!("{}", note.line()));
                tracing::info!(domains = rules.domains.len(), rules = rules.all.len(), "the configuration has changed");
                self.take_over(rules);
            }
            Err(problems) => {
                add(&self.service.totals.load_errors, 1);
                self.service.totals.problems.store(problems.len() as u64, Ordering::Relaxed);
                for problem in &problems {
                    tracing::error!("the configuration stays as it was: {}", problem.line());
                }
                self.problems.store(Arc::new(problems));
            }
        }
    }

    /// Returns what is wrong with the files as they are now.
    pub fn problems(&self) -> Arc<Vec<Problem>> {
        self.problems.load_full()
    }

    fn take_over(&self, rules: Rules) {
        let earlier = self.service.rules.load_full();
        let id = |rule: &Arc<Rule>| -> (Arc<str>, Vec<Level>) { (Arc::clone(&rule.domain), rule.levels.clone()) };
        let known: HashMap<_, _> = earlier.all.iter().map(|rule| (id(rule), rule)).collect();
        for rule in &rules.all {
            if let Some(same) = known.get(&id(rule)) {
                rule.adopt(same, &self.service.maker);
            }
        }
        self.health.lack_rules(self.needs_rules && rules.domains.is_empty());
        self.service.rules.store(Arc::new(rules));
        add(&self.service.totals.loads, 1);
    }
}
