//! Where a rank sits, seen from the launcher: in a process or in a thread.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};

use ibnet_examples::die_with_parent;

use crate::line::{Channels, Event, Line};
use crate::options::Options;
use crate::plugin::Source;
use crate::rank;
use crate::wire::{FromRank, ToRank};

/// A rank that was started.
///
/// Dropping it ends a process. A thread cannot be ended: if it waits for something that never comes,
/// it does so until the program ends.
pub(crate) enum Seat {
    Process {
        child: Child,
        input: ChildStdin,
    },
    Thread {
        /// None once it was waited for.
        thread: Option<JoinHandle<()>>,
        input: Sender<ToRank>,
    },
}

impl Seat {
    /// Starts a rank: a process that loads the plugin, or a thread that uses the one that is linked in.
    pub(crate) fn start(
        rank: usize,
        options: &Options,
        plugin: &Source,
        events: Sender<(usize, Event)>,
    ) -> Result<Self, String> {
        let started = match plugin {
            Source::File(path) => {
                let mut command =
                    Command::new(std::env::current_exe().map_err(|error| error.to_string())?);
                command
                    .args(options.for_rank(rank))
                    .arg("--plugin")
                    .arg(path);
                process(rank, command, events)
            }
            Source::Linked => thread(rank, options, events),
        };
        started.map_err(|error| format!("cannot start rank {rank}: {error}"))
    }

    /// False if the rank does not listen any more.
    pub(crate) fn tell(&mut self, message: &ToRank) -> bool {
        match self {
            Self::Process { input, .. } => writeln!(input, "{}", message.to_line())
                .and_then(|()| input.flush())
                .is_ok(),
            Self::Thread { input, .. } => input.send(message.clone()).is_ok(),
        }
    }

    /// Waits for a rank that has ended or is about to. The error says how it ended, if not well.
    pub(crate) fn wait(&mut self) -> Result<(), String> {
        match self {
            Self::Process { child, .. } => match child.wait() {
                Ok(status) if status.success() => Ok(()),
                Ok(status) => Err(match status.signal() {
                    Some(signal) => format!("was killed by signal {signal}"),
                    None => format!("ended without a word ({status})"),
                }),
                Err(error) => Err(format!("is gone ({error})")),
            },
            Self::Thread { thread, .. } => match thread.take().map(JoinHandle::join) {
                Some(Err(_)) => Err("panicked".to_owned()),
                _ => Ok(()),
            },
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Self::Process { child, .. } = self {
            // An error says that it has ended already, which is what is wanted.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn process(
    rank: usize,
    mut command: Command,
    events: Sender<(usize, Event)>,
) -> std::io::Result<Seat> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    // A launcher that is killed takes its ranks along.
    die_with_parent(&mut command);
    let mut child = command.spawn()?;
    let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
        // Both were asked for above.
        unreachable!("a child with piped streams has them")
    };
    listen(rank, output, events);
    Ok(Seat::Process { child, input })
}

fn thread(rank: usize, options: &Options, events: Sender<(usize, Event)>) -> std::io::Result<Seat> {
    let (input, from_launcher) = mpsc::channel();
    let line = Line::Channels(Channels {
        rank,
        to_launcher: events,
        from_launcher,
    });
    let options = options.clone();
    let thread = thread::Builder::new()
        .name(format!("rank {rank}"))
        .spawn(move || rank::run_thread(rank, &options, &line))?;
    Ok(Seat::Thread {
        thread: Some(thread),
        input,
    })
}

/// Passes on what a rank says, on a thread of its own.
fn listen(rank: usize, output: ChildStdout, events: Sender<(usize, Event)>) {
    thread::spawn(move || {
        for line in BufReader::new(output).lines() {
            let Ok(line) = line else { break };
            let event = match FromRank::from_line(&line) {
                Some(message) => Event::Message(message),
                None => Event::Rubbish(line),
            };
            if events.send((rank, event)).is_err() {
                return;
            }
        }
        // Nobody may be left to hear it.
        let _ = events.send((rank, Event::End));
    });
}
