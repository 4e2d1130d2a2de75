//! Where the log goes: warnings to standard error, and counted, so that a scenario can assert how
//! many there were. `IBNET_TEST_LOG=info` or `debug` shows more.

use std::cell::Cell;
use std::fmt::{self, Write};
use std::sync::OnceLock;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

thread_local! {
    static WARNINGS: Cell<usize> = const { Cell::new(0) };
    static IS_EXPECTED: Cell<bool> = const { Cell::new(false) };
}

static LEVEL: OnceLock<Level> = OnceLock::new();

/// Warnings of this thread since it began.
pub(crate) fn warnings() -> usize {
    WARNINGS.get()
}

/// Does `work`, of which warnings are expected: they are counted and not shown.
pub(crate) fn expecting_warnings<T>(work: impl FnOnce() -> T) -> T {
    let before = IS_EXPECTED.replace(true);
    let outcome = work();
    IS_EXPECTED.set(before);
    outcome
}

pub(crate) fn install() {
    let level = match std::env::var("IBNET_TEST_LOG").as_deref() {
        Ok("debug") => Level::DEBUG,
        Ok("info") => Level::INFO,
        _ => Level::WARN,
    };
    let _ = LEVEL.set(level);
    // Only the first call of a process has an effect, which is all that is wanted.
    let _ = tracing::subscriber::set_global_default(Log);
}

struct Log;

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && metadata.level() <= LEVEL.get().unwrap_or(&Level::WARN)
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let level = *event.metadata().level();
        if level <= Level::WARN {
            WARNINGS.set(WARNINGS.get() + 1);
            if IS_EXPECTED.get() {
                return;
            }
        }
        let mut line = Line(String::new());
        event.record(&mut line);
        eprintln!("  {level} {}", line.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing into a string cannot fail.
        let _ = if field.name() == "message" {
            write!(self.0, "{value:?} ")
        } else {
            write!(self.0, "{}={value:?} ", field.name())
        };
    }
}
