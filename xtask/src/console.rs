//! What comes over a console: shown, logged, cut into lines, and remembered for an error message.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Write;

use crate::failure::{Context, Result};

/// The line after which the console belongs to the job (see `guest/init.sh`).
const READY: &str = "ibnet-guest: ready";

/// How the kernel announces that it has given up.
const PANIC: &str = "Kernel panic";

/// How many of the last lines are remembered.
const TAIL: usize = 60;

/// A console that is being read.
pub(crate) struct Console<'a> {
    output: Box<dyn Write + 'a>,
    log: Option<File>,
    on_ready: Option<Box<dyn FnOnce() + 'a>>,
    on_line: &'a mut dyn FnMut(&str),
    line: Vec<u8>,
    tail: VecDeque<String>,
    panicked: bool,
}

impl<'a> Console<'a> {
    /// The console of a guest: everything goes to the log, and what comes after the guest is ready,
    /// when `on_ready` is called, is also copied to `output` and given to `on_line`.
    pub(crate) fn of_guest(
        output: impl Write + 'a,
        log: File,
        on_ready: impl FnOnce() + 'a,
        on_line: &'a mut dyn FnMut(&str),
    ) -> Self {
        let mut console = Self::of_job(output, on_line);
        console.log = Some(log);
        console.on_ready = Some(Box::new(on_ready));
        console
    }

    /// The output of a job on the host: copied to `output` from the beginning.
    pub(crate) fn of_job(output: impl Write + 'a, on_line: &'a mut dyn FnMut(&str)) -> Self {
        Self {
            output: Box::new(output),
            log: None,
            on_ready: None,
            on_line,
            line: Vec::new(),
            tail: VecDeque::new(),
            panicked: false,
        }
    }

    /// Takes the next piece.
    pub(crate) fn feed(&mut self, piece: &[u8]) -> Result<()> {
        if let Some(log) = &mut self.log {
            log.write_all(piece)
                .context(|| "cannot write the console's log".to_owned())?;
        }
        for part in piece.split_inclusive(|&byte| byte == b'\n') {
            let was_ready = self.is_ready();
            self.line.extend_from_slice(part);
            if part.ends_with(b"\n") {
                self.end_line();
            }
            if was_ready {
                self.output
                    .write_all(part)
                    .and_then(|()| self.output.flush())
                    .context(|| "cannot write to standard output".to_owned())?;
            }
        }
        Ok(())
    }

    /// Takes what there is of a last line without an end.
    pub(crate) fn finish(&mut self) {
        if !self.line.is_empty() {
            self.end_line();
        }
    }

    /// Whether the job has begun.
    pub(crate) fn is_ready(&self) -> bool {
        self.on_ready.is_none()
    }

    /// Whether the kernel has given up.
    pub(crate) fn has_panicked(&self) -> bool {
        self.panicked
    }

    /// The last lines, joined.
    pub(crate) fn tail(&self) -> String {
        self.tail
            .iter()
            .map(|line| format!("  | {line}\n"))
            .collect()
    }

    fn end_line(&mut self) {
        let bytes = std::mem::take(&mut self.line);
        let text = String::from_utf8_lossy(&bytes);
        let line = text.trim_end_matches(['\r', '\n']);
        self.panicked |= line.contains(PANIC);
        if self.tail.len() == TAIL {
            self.tail.pop_front();
        }
        self.tail.push_back(line.to_owned());
        match self.on_ready.take() {
            None => (self.on_line)(line),
            Some(on_ready) if line == READY => on_ready(),
            waiting => self.on_ready = waiting,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use std::cell::Cell;
    use std::fs;

    #[test]
    fn lines_count_once_the_guest_is_ready() {
        let file = std::env::temp_dir().join(format!("xtask-console-{}", std::process::id()));
        let ready = Cell::new(0);
        let mut shown = Vec::new();
        let mut lines = Vec::new();
        let mut on_line = |line: &str| lines.push(line.to_owned());
        let log = File::create(&file).unwrap();
        let mut console =
            Console::of_guest(&mut shown, log, || ready.set(ready.get() + 1), &mut on_line);
        console.feed(b"booting\r\nibnet-guest: re").unwrap();
        assert!(!console.is_ready());
        console.feed(b"ady\r\none\r").unwrap();
        assert!(console.is_ready());
        console.feed(b"\ntwo\nibnet-guest: ready\nthr").unwrap();
        console.feed(b"ee").unwrap();
        console.finish();
        assert_eq!(console.tail().lines().next(), Some("  | booting"));
        assert!(!console.has_panicked());
        drop(console);
        assert_eq!(ready.get(), 1);
        assert_eq!(
            String::from_utf8(shown).unwrap(),
            "one\r\ntwo\nibnet-guest: ready\nthree"
        );
        assert_eq!(lines, ["one", "two", "ibnet-guest: ready", "three"]);
        let log = fs::read(&file).unwrap();
        assert!(log.starts_with(b"booting\r\n") && log.ends_with(b"ready\nthree"));
        fs::remove_file(file).unwrap();
    }

    #[test]
    fn a_panic_is_noticed_and_the_tail_is_bounded() {
        let (mut shown, mut on_line) = (Vec::new(), |_: &str| ());
        let mut console = Console::of_job(&mut shown, &mut on_line);
        console
            .feed(b"[    1.0] Kernel panic - not syncing: sysrq\n")
            .unwrap();
        for number in 0..TAIL {
            console.feed(format!("{number}\n").as_bytes()).unwrap();
        }
        assert!(console.has_panicked());
        let tail = console.tail();
        assert_eq!(tail.lines().count(), TAIL);
        assert!(tail.starts_with("  | 0\n"));
    }
}
