//! Runs a program whose output is shown while it runs, with limits on its silence and its time.

use std::io::Read;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::failure::{Context, Result, fail};
use crate::process::{capture, command, describe};

/// How often a program without output is looked at.
const TICK: Duration = Duration::from_millis(100);

/// How long output may still come after the program itself has ended: what it left in the pipe, or
/// a child of its own that holds the pipe open.
const AFTER_END: Duration = Duration::from_secs(2);

/// How long a program that is to be stopped may take to clean up.
const GRACE: Duration = Duration::from_secs(5);

/// When a program is given up.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Limits {
    /// After so long without any output.
    pub(crate) silence: Option<Duration>,
    /// After so long altogether.
    pub(crate) total: Option<Duration>,
}

/// How a program ended.
#[derive(Debug)]
pub(crate) enum End {
    /// By itself.
    Exited(ExitStatus),
    /// It printed nothing for so long, and was killed.
    Silent(Duration),
    /// It ran for so long, and was killed.
    TooLong(Duration),
}

/// Runs the program; `sink` gets its standard output in pieces as they come, which need not end
/// with a line.
pub(crate) fn run(
    program: &mut Command,
    limits: Limits,
    sink: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> Result<End> {
    program.stdout(Stdio::piped());
    let mut child = program
        .spawn()
        .context(|| format!("cannot run `{}`", describe(program)))?;
    let Some(output) = child.stdout.take() else {
        fail!("`{}` has no standard output", describe(program));
    };
    let (sender, pieces) = channel();
    // The thread ends by itself once the pipe is closed or nobody listens any more.
    thread::spawn(move || forward(output, &sender));
    let end = follow(&mut child, &pieces, limits, sink);
    if !matches!(end, Ok(End::Exited(_))) {
        stop(&mut child);
    }
    end
}

/// Waits for a program that uses the terminal directly, and kills it after `limit`.
pub(crate) fn wait(program: &mut Command, limit: Option<Duration>) -> Result<End> {
    let began = Instant::now();
    let mut child = program
        .spawn()
        .context(|| format!("cannot run `{}`", describe(program)))?;
    loop {
        if let Some(status) = child.try_wait().context(|| "cannot wait".to_owned())? {
            return Ok(End::Exited(status));
        }
        if let Some(limit) = limit.filter(|limit| began.elapsed() >= *limit) {
            stop(&mut child);
            return Ok(End::TooLong(limit));
        }
        thread::sleep(TICK);
    }
}

/// Ends a program: asks it to clean up and go, and kills it when it does not.
fn stop(child: &mut Child) {
    // The shell's own `kill`: the program of that name is not on every machine.
    let script = format!("kill {}", child.id());
    let asked = command("sh").and_then(|mut shell| capture(shell.arg("-c").arg(script)));
    let began = Instant::now();
    while asked.is_ok() && began.elapsed() < GRACE {
        if matches!(child.try_wait(), Ok(Some(_))) {
            return;
        }
        thread::sleep(TICK);
    }
    // Killing fails only for a program that has ended in the meantime.
    let _ = child.kill();
    let _ = child.wait();
}

fn forward(mut output: ChildStdout, sender: &Sender<Vec<u8>>) {
    let mut buffer = [0; 16 * 1024];
    while let Ok(length @ 1..) = output.read(&mut buffer) {
        if sender.send(buffer[..length].to_vec()).is_err() {
            return;
        }
    }
}

fn follow(
    child: &mut Child,
    pieces: &Receiver<Vec<u8>>,
    limits: Limits,
    sink: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> Result<End> {
    let began = Instant::now();
    let mut last_output = began;
    let mut ended: Option<(ExitStatus, Instant)> = None;
    let mut closed = false;
    loop {
        if closed {
            thread::sleep(TICK);
        } else {
            match pieces.recv_timeout(TICK) {
                Ok(piece) => {
                    sink(&piece)?;
                    last_output = Instant::now();
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => closed = true,
            }
        }
        if ended.is_none() {
            let status = child
                .try_wait()
                .context(|| "cannot wait for a program".to_owned())?;
            ended = status.map(|status| (status, Instant::now()));
        }
        if let Some((status, when)) = ended {
            if closed || when.elapsed() >= AFTER_END {
                return Ok(End::Exited(status));
            }
            continue;
        }
        if let Some(limit) = limits
            .silence
            .filter(|limit| last_output.elapsed() >= *limit)
        {
            return Ok(End::Silent(limit));
        }
        if let Some(limit) = limits.total.filter(|limit| began.elapsed() >= *limit) {
            return Ok(End::TooLong(limit));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn shell(script: &str, limits: Limits) -> (End, String) {
        let mut text = Vec::new();
        let end = run(
            command("sh").unwrap().args(["-c", script]),
            limits,
            &mut |piece| {
                text.extend_from_slice(piece);
                Ok(())
            },
        );
        (end.unwrap(), String::from_utf8(text).unwrap())
    }

    fn seconds(seconds: f64) -> Option<Duration> {
        Some(Duration::from_secs_f64(seconds))
    }

    #[test]
    fn output_and_status_arrive_whole() {
        let (end, text) = shell("seq 1 20000; exit 7", Limits::default());
        assert!(matches!(end, End::Exited(status) if status.code() == Some(7)));
        assert!(text.starts_with("1\n2\n") && text.ends_with("\n20000\n"));
    }

    #[test]
    fn a_silent_program_is_killed() {
        let limits = Limits {
            silence: seconds(0.3),
            total: None,
        };
        let (end, text) = shell("echo one; exec sleep 60", limits);
        assert!(matches!(end, End::Silent(_)));
        assert_eq!(text, "one\n");
    }

    #[test]
    fn a_chatty_program_is_killed_when_its_time_is_up() {
        let limits = Limits {
            silence: seconds(20.0),
            total: seconds(0.5),
        };
        let (end, text) = shell("while :; do echo more; sleep 0.05; done", limits);
        assert!(matches!(end, End::TooLong(_)));
        assert!(text.starts_with("more\n"));
    }

    #[test]
    fn a_program_that_is_stopped_can_clean_up() {
        let limits = Limits {
            silence: seconds(0.5),
            total: None,
        };
        let file = std::env::temp_dir().join(format!("xtask-stream-{}", std::process::id()));
        let script = format!(
            "trap 'touch {0}; exit 1' TERM; sleep 60 & echo started; wait",
            file.display()
        );
        let (end, text) = shell(&script, limits);
        assert!(matches!(end, End::Silent(_)));
        assert_eq!(text, "started\n");
        std::fs::remove_file(file).unwrap();
    }

    #[test]
    fn a_child_that_keeps_the_pipe_open_does_not_hold_up_the_end() {
        let began = Instant::now();
        let (end, _) = shell("sleep 30 & exit 0", Limits::default());
        assert!(matches!(end, End::Exited(status) if status.success()));
        assert!(began.elapsed() < Duration::from_secs(20));
    }

    #[test]
    fn a_failing_sink_ends_the_program() {
        let mut shell = command("sh").unwrap();
        let end = run(
            shell.args(["-c", "echo x; exec sleep 60"]),
            Limits::default(),
            &mut |_| fail!("full"),
        );
        assert_eq!(end.unwrap_err().to_string(), "full");
    }

    #[test]
    fn waiting_has_a_limit_too() {
        let mut sleep = command("sleep").unwrap();
        let end = wait(sleep.arg("60"), seconds(0.2)).unwrap();
        assert!(matches!(end, End::TooLong(_)));
    }
}
