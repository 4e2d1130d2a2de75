//! What the transport logs, in the thread of a test or in the whole process.

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

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

    /// That of the whole process, which begins with the first call.
    pub(crate) fn of_process() -> &'static Self {
        static LOG: OnceLock<Log> = OnceLock::new();
        LOG.get_or_init(|| {
            let log = Self::of(Level::TRACE);
            tracing::subscriber::set_global_default(log.clone()).unwrap();
            log
        })
    }

    /// What was logged so far, each line with its level, the message and the fields.
    pub(crate) fn lines(&self) -> Vec<String> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.clone()
    }

    /// The same, and forgets it.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.lines.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let is_ours = metadata.is_event() && metadata.target().starts_with("ibnet");
        is_ours && *metadata.level() <= self.least
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        let line = format!(
            "{} {}{}",
            event.metadata().level(),
            line.message,
            line.fields
        );
        self.lines
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(line);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.message = format!("{value:?}");
        } else {
            self.fields += &format!(" {}={value:?}", field.name());
        }
    }
}
