//! The warnings of the crates, on standard error: the least that a subscriber of `tracing` can be.

use std::fmt::{self, Write};

use tracing_core::dispatcher::{self, Dispatch};
use tracing_core::field::{Field, Visit};
use tracing_core::span::{Attributes, Id, Record};
use tracing_core::{Event, Level, LevelFilter, Metadata, Subscriber};

use crate::complain;

/// Shows warnings from now on.
pub fn show_warnings() {
    // An error says that they are shown already.
    let _ = dispatcher::set_global_default(Dispatch::new(Warnings));
}

/// Shows the warnings of `work` in this thread, and leaves the place of the subscriber to others.
pub fn showing_warnings<T>(work: impl FnOnce() -> T) -> T {
    dispatcher::with_default(&Dispatch::new(Warnings), work)
}

struct Warnings;

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= Level::WARN
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::WARN)
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        complain!("{}:{}", event.metadata().level(), line.0);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        // No span is enabled.
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The message, which comes first, and the other fields by their names.
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string fails only if the value's own formatting does.
        let _ = match field.name() {
            "message" => write!(self.0, " {value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}
