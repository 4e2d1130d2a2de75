//! The line between the launcher and a rank, at the rank's end: pipes of a process, or channels of a
//! thread.

use std::error::Error;
use std::io::{self, BufRead, Write};
use std::sync::mpsc::{Receiver, Sender};

use crate::wire::{FromRank, ToRank};

/// What the launcher hears of a rank.
pub(crate) enum Event {
    Message(FromRank),
    /// A line that is no message.
    Rubbish(String),
    /// The line is closed: the rank has ended, or is about to.
    End,
}

/// A rank's end of the line.
pub(crate) enum Line {
    /// The process's standard input and output.
    Pipes,
    Channels(Channels),
}

/// A thread's end of the line. The launcher hears when it is dropped.
pub(crate) struct Channels {
    pub(crate) rank: usize,
    pub(crate) to_launcher: Sender<(usize, Event)>,
    pub(crate) from_launcher: Receiver<ToRank>,
}

impl Line {
    /// Tells the launcher. An error says that it is gone.
    pub(crate) fn say(&self, message: &FromRank) -> io::Result<()> {
        match self {
            Self::Pipes => {
                let mut out = io::stdout().lock();
                writeln!(out, "{}", message.to_line())?;
                out.flush()
            }
            Self::Channels(channels) => {
                let event = Event::Message(message.clone());
                let sent = channels.to_launcher.send((channels.rank, event));
                sent.map_err(|_| io::ErrorKind::BrokenPipe.into())
            }
        }
    }

    /// The next message of the launcher, which has its own deadlines and ends this process if need be.
    pub(crate) fn hear(&self) -> Result<ToRank, Box<dyn Error>> {
        match self {
            Self::Pipes => {
                let mut line = String::new();
                if io::stdin().lock().read_line(&mut line)? == 0 {
                    return Err("the launcher is gone".into());
                }
                ToRank::from_line(line.trim_end())
                    .ok_or_else(|| format!("not a message: {line}").into())
            }
            Self::Channels(channels) => {
                let message = channels.from_launcher.recv();
                message.map_err(|_| "the launcher is gone".into())
            }
        }
    }
}

impl Drop for Channels {
    fn drop(&mut self) {
        // Nobody may be left to hear it.
        let _ = self.to_launcher.send((self.rank, Event::End));
    }
}
