//! Spans of waits, events of refusals, nothing for grants without waiting; and subscribers that do no harm.

mod hostile;
mod store;
mod texts;

use crate::fixture::*;
use std::sync::LazyLock;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Dispatch, Event, Metadata, Subscriber};

/// Keeps a subscriber that no thread uses. While there is only one subscriber, `tracing` asks that of the current thread whether
/// anything listens to an event that is new, and remembers the answer for all threads: a test in a thread without a subscriber
/// would take the events from the test that has one.
fn keep_a_subscriber() {
    static KEPT: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(RecordingSubscriber::default()));
    LazyLock::force(&KEPT);
}

/// A subscriber that records each callback as a line of text.
#[derive(Clone, Default)]
pub(crate) struct RecordingSubscriber {
    lines: Arc<Mutex<Vec<String>>>,
    spans: Arc<AtomicU64>,
    entered: Arc<Mutex<Vec<u64>>>,
}

impl RecordingSubscriber {
    /// Runs `act` with this as the thread's subscriber, and returns the recorded lines.
    pub(crate) fn listen<T>(&self, act: impl FnOnce() -> T) -> T {
        keep_a_subscriber();
        tracing::subscriber::with_default(self.clone(), act)
    }

    /// A subscriber, which is the thread's until the guard is dropped.
    fn here() -> (Self, DefaultGuard) {
        let subscriber = Self::default();
        keep_a_subscriber();
        (subscriber.clone(), tracing::subscriber::set_default(subscriber))
    }

    /// Takes the lines recorded since the last call.
    pub(crate) fn read(&self) -> Vec<String> {
        std::mem::take(&mut self.lines.lock().unwrap())
    }

    fn write(&self, line: String) {
        self.lines.lock().unwrap().push(line);
    }

    fn innermost(&self) -> u64 {
        self.entered.lock().unwrap().last().copied().unwrap_or(0)
    }
}

/// Fields by name, as text, and the message after them. The namespace `rate_limit` is left out: `.cost=3`.
#[derive(Default)]
struct Fields(BTreeMap<&'static str, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }
}

impl Fields {
    fn of(record: impl FnOnce(&mut Self)) -> String {
        let mut fields = Self::default();
        record(&mut fields);
        let message = fields.0.remove_entry("message");
        fields
            .0
            .into_iter()
            .chain(message)
            .map(|(name, value)| format!(" {}={value}", name.strip_prefix("rate_limit").unwrap_or(name)))
            .collect()
    }
}

impl Subscriber for RecordingSubscriber {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // tokio has spans of its own.
        ["tollgate", "tracing"].contains(&metadata.target())
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let id = self.spans.fetch_add(1, Ordering::Relaxed) + 1;
        let (level, name) = (span.metadata().level(), span.metadata().name());
        let within = self.innermost();
        self.write(format!("{level} span {id} in {within}: {name}{}", Fields::of(|fields| span.record(fields))));
        Id::from_u64(id)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        self.write(format!("span {}:{}", span.into_u64(), Fields::of(|fields| values.record(fields))));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let (level, within) = (event.metadata().level(), self.innermost());
        self.write(format!("{level} event in {within}:{}", Fields::of(|fields| event.record(fields))));
    }

    fn enter(&self, span: &Id) {
        self.entered.lock().unwrap().push(span.into_u64());
    }

    fn exit(&self, span: &Id) {
        assert_eq!(self.entered.lock().unwrap().pop(), Some(span.into_u64()));
    }

    fn try_close(&self, span: Id) -> bool {
        self.write(format!("span {} closed", span.into_u64()));
        true
    }
}
