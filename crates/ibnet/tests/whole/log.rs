//! What the transport logs in the thread of a test.

use std::fmt;
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Keeps the messages of a level and above, for `tracing::subscriber::with_default`.
#[derive(Clone)]
pub(crate) struct Log {
    least: Level,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Log {
    pub(crate) fn of(least: Level) -> Self {
        Self {
            least,
            lines: Arc::default(),
        }
    }

    /// What was logged so far, each line with its level.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.least
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        struct Message(String);
        impl Visit for Message {
            fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
                if field.name() == "message" {
                    self.0 += &format!("{value:?}");
                }
            }
        }
        let mut message = Message(format!("{} ", event.metadata().level()));
        event.record(&mut message);
        self.lines.lock().unwrap().push(message.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
