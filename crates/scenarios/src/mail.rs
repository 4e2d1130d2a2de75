//! How the roles of a scenario talk to each other. Between processes it is lines on standard input
//! and output, which the runner relays; everything else that a role prints is shown as it is.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::{BufRead, Write};

use crate::play::Failure;

/// A line from a role to the runner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FromRole {
    /// Bytes for another role.
    Mail { to: usize, bytes: Vec<u8> },
    /// The runner shall kill another role's process, as the scenario demands.
    Kill { victim: usize },
    /// The role cannot be played here, and why.
    Skip { why: String },
    /// Not for the runner.
    Other(String),
}

const MAIL: &str = "@mail ";
const KILL: &str = "@kill ";
const SKIP: &str = "@skip ";

impl FromRole {
    pub(crate) fn parse(line: &str) -> Self {
        if let Some((to, hex)) = line
            .strip_prefix(MAIL)
            .and_then(|rest| rest.split_once(' '))
            && let (Ok(to), Some(bytes)) = (to.parse(), from_hex(hex))
        {
            return Self::Mail { to, bytes };
        }
        if let Some(victim) = line.strip_prefix(KILL).and_then(|rest| rest.parse().ok()) {
            return Self::Kill { victim };
        }
        if let Some(why) = line.strip_prefix(SKIP) {
            return Self::Skip {
                why: why.to_owned(),
            };
        }
        Self::Other(line.to_owned())
    }

    pub(crate) fn line(&self) -> String {
        match self {
            Self::Mail { to, bytes } => format!("{MAIL}{to} {}", to_hex(bytes)),
            Self::Kill { victim } => format!("{KILL}{victim}"),
            Self::Skip { why } => format!("{SKIP}{why}"),
            Self::Other(line) => line.clone(),
        }
    }
}

/// The line in which the runner delivers mail.
pub(crate) fn delivery(from: usize, bytes: &[u8]) -> String {
    format!("{from} {}", to_hex(bytes))
}

/// How a role's lines and letters get to where they belong.
pub(crate) trait Post: Send {
    /// Hands a line to the runner of the play.
    fn tell_runner(&self, line: &FromRole) -> Result<(), Failure>;

    /// Waits for the next letter: from whom, and what it says.
    fn next_letter(&mut self) -> Result<(usize, Vec<u8>), Failure>;
}

/// A role's letter box.
pub(crate) struct Mail {
    post: Box<dyn Post>,
    /// Letters that have come, but from others than were waited for.
    waiting: VecDeque<(usize, Vec<u8>)>,
}

impl Mail {
    pub(crate) fn new(post: impl Post + 'static) -> Self {
        Self {
            post: Box::new(post),
            waiting: VecDeque::new(),
        }
    }

    pub(crate) fn tell_runner(&self, line: &FromRole) -> Result<(), Failure> {
        self.post.tell_runner(line)
    }

    /// Waits for the next bytes from `from`. The runner ends the play if they never come.
    pub(crate) fn receive(&mut self, from: usize) -> Result<Vec<u8>, Failure> {
        if let Some(index) = self.waiting.iter().position(|(sender, _)| *sender == from)
            && let Some((_, bytes)) = self.waiting.remove(index)
        {
            return Ok(bytes);
        }
        loop {
            let (sender, bytes) = self.post.next_letter()?;
            if sender == from {
                return Ok(bytes);
            }
            self.waiting.push_back((sender, bytes));
        }
    }
}

/// The post of a process: lines on its standard input and output.
pub(crate) struct Pipes;

impl Post for Pipes {
    fn tell_runner(&self, line: &FromRole) -> Result<(), Failure> {
        let mut output = std::io::stdout().lock();
        writeln!(output, "{}", line.line())?;
        Ok(output.flush()?)
    }

    fn next_letter(&mut self) -> Result<(usize, Vec<u8>), Failure> {
        let mut line = String::new();
        if std::io::stdin().lock().read_line(&mut line)? == 0 {
            return Err("the runner left while mail was due".into());
        }
        line.trim_end()
            .split_once(' ')
            .and_then(|(sender, hex)| Some((sender.parse().ok()?, from_hex(hex)?)))
            .ok_or_else(|| format!("a delivery that does not parse: {line}").into())
    }
}

fn to_hex(bytes: &[u8]) -> String {
    // A leading letter keeps empty mail apart from a missing field.
    bytes.iter().fold("x".to_owned(), |mut text, byte| {
        // Writing into a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.strip_prefix('x')?;
    if digits.len() % 2 != 0 {
        return None;
    }
    (0..digits.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_survive() {
        for line in [
            FromRole::Mail {
                to: 3,
                bytes: vec![0, 255, 16],
            },
            FromRole::Mail {
                to: 0,
                bytes: Vec::new(),
            },
            FromRole::Kill { victim: 1 },
            FromRole::Skip {
                why: "no tool".to_owned(),
            },
            FromRole::Other("just text".to_owned()),
            FromRole::Other("@mail nonsense".to_owned()),
        ] {
            assert_eq!(FromRole::parse(&line.line()), line);
        }
    }
}
