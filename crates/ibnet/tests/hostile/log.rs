//! What the transport logs: a listener tells of strangers nowhere else.

use std::fmt;
use std::sync::{Mutex, Once, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Begins to collect lines, and forgets those that there are.
pub(crate) fn begin() {
    install();
    take();
}

/// Begins to collect lines, or goes on with it. What a line takes is done from now on.
pub(crate) fn install() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| tracing::subscriber::set_global_default(Log).unwrap());
}

/// The lines since the last call.
pub(crate) fn take() -> Vec<String> {
    std::mem::take(&mut LINES.lock().unwrap_or_else(PoisonError::into_inner))
}

struct Log;

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && metadata.target().starts_with("ibnet")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        let mut lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
        lines.push(line.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?} {}", self.0);
        } else {
            self.0 += &format!("{}={value:?} ", field.name());
        }
    }
}
