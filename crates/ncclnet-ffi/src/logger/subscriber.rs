//! The `tracing` subscriber: turns events into lines. Spans are not used and not recorded.

use std::ffi::{CString, c_int};
use std::fmt::{self, Write};

use tracing_core::field::{Field, Visit};
use tracing_core::span::{Attributes, Id, Record};
use tracing_core::subscriber::Interest;
use tracing_core::{Event, Level, LevelFilter, Metadata, Subscriber};

use super::lines::Lines;
use super::subsystem;
use super::variables::name_variables;
use crate::abi::{LOG_INFO, LOG_TRACE, LOG_WARN, SUBSYS_ALL};

/// Forwards every event down to [`Level::DEBUG`] to the installed logger.
pub(super) struct Forwarder;

impl Forwarder {
    /// The lowest level that is formatted at all.
    fn filter() -> LevelFilter {
        if super::is_installed() {
            LevelFilter::DEBUG
        } else {
            LevelFilter::OFF
        }
    }
}

impl Subscriber for Forwarder {
    /// Asked once per event in the source, and again when a logger comes or goes.
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.enabled(metadata) {
            Interest::always()
        } else {
            Interest::never()
        }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= Self::filter()
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(Self::filter())
    }

    fn event(&self, event: &Event<'_>) {
        let metadata = event.metadata();
        let (level, flags) = match *metadata.level() {
            Level::ERROR | Level::WARN => (LOG_WARN, SUBSYS_ALL),
            Level::INFO => (LOG_INFO, subsystem::of(metadata.target())),
            _ => (LOG_TRACE, subsystem::of(metadata.target())),
        };
        // NCCL prints this with warnings: the file, as its own warnings do; else the module.
        let origin = match level {
            LOG_WARN => metadata.file().unwrap_or_else(|| metadata.target()),
            _ => metadata.target(),
        };
        let origin = CString::new(origin).unwrap_or_default();
        let line = metadata
            .line()
            .and_then(|line| c_int::try_from(line).ok())
            .unwrap_or(0);

        let mut text = Text::default();
        event.record(&mut text);
        for part in Lines::of(&name_variables(&text.finish())) {
            super::send(level, flags, &origin, line, &part);
        }
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        // No span is enabled; `tracing` wants an id that is not zero all the same.
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Collects an event: its message, then `name=value` for each other field.
#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Text {
    fn finish(mut self) -> String {
        if self.message.is_empty() {
            return self.fields.trim_start().to_owned();
        }
        self.message.push_str(&self.fields);
        self.message
    }
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string fails only if the value's own formatting does: then it is cut short.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.record_debug(field, &format_args!("{value}"));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex, PoisonError};

    use tracing_core::dispatcher::{Dispatch, with_default};

    use super::*;

    /// Records what `Text` makes of events.
    struct Recorder(Arc<Mutex<Vec<String>>>);

    impl Subscriber for Recorder {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }
        fn event(&self, event: &Event<'_>) {
            let mut text = Text::default();
            event.record(&mut text);
            self.0
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(text.finish());
        }
        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }
        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    #[test]
    fn an_event_becomes_message_and_fields() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        with_default(&Dispatch::new(Recorder(Arc::clone(&seen))), || {
            let (device, port) = ("mlx5_0", 1);
            tracing::info!(device, port, state = ?Some(3), "port {} is up", port);
            tracing::info!(device);
            let error = std::io::Error::other("no memory");
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "registration failed"
            );
        });
        let seen = seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
        assert_eq!(
            seen,
            [
                "port 1 is up device=mlx5_0 port=1 state=Some(3)",
                "device=mlx5_0",
                "registration failed error=no memory",
            ]
        );
    }

    #[test]
    fn without_a_logger_nothing_is_enabled() {
        // No test of this crate's unit tests installs a logger.
        assert_eq!(Forwarder.max_level_hint(), Some(LevelFilter::OFF));
    }
}
