//! What launcher and ranks say to each other: one line of text per message, through pipes.

use std::fmt::Write;

/// From a rank to the launcher.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum FromRank {
    /// The rank has opened the plugin and uses this device.
    Device(String),
    /// The handle that the rank's left neighbour is to connect to.
    Handle(Vec<u8>),
    /// The rank waits for all others.
    Ready,
    /// Rounds of the current size that are done. Only from rank 0, and not for each.
    Progress(u32),
    /// A size is done: microseconds of a round on average, and elements that were wrong (none if it
    /// was not checked).
    Result {
        microseconds: f64,
        wrong: Option<u64>,
    },
    /// The rank has closed everything.
    Done,
    /// The rank gives up.
    Failed(String),
}

/// From the launcher to a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ToRank {
    /// The handle of the right neighbour.
    Peer(Vec<u8>),
    /// All others are ready too.
    Go,
}

impl FromRank {
    pub(crate) fn to_line(&self) -> String {
        match self {
            Self::Device(text) => format!("device {}", one_line(text)),
            Self::Handle(bytes) => format!("handle {}", hex(bytes)),
            Self::Ready => "ready".to_owned(),
            Self::Progress(rounds) => format!("progress {rounds}"),
            Self::Result {
                microseconds,
                wrong,
            } => match wrong {
                Some(wrong) => format!("result {microseconds} {wrong}"),
                None => format!("result {microseconds} unchecked"),
            },
            Self::Done => "done".to_owned(),
            Self::Failed(text) => format!("failed {}", one_line(text)),
        }
    }

    pub(crate) fn from_line(line: &str) -> Option<Self> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        Some(match word {
            "device" => Self::Device(rest.to_owned()),
            "handle" => Self::Handle(unhex(rest)?),
            "ready" => Self::Ready,
            "progress" => Self::Progress(rest.parse().ok()?),
            "result" => {
                let (microseconds, wrong) = rest.split_once(' ')?;
                let wrong = if wrong == "unchecked" {
                    None
                } else {
                    Some(wrong.parse().ok()?)
                };
                Self::Result {
                    microseconds: microseconds.parse().ok()?,
                    wrong,
                }
            }
            "done" => Self::Done,
            "failed" => Self::Failed(rest.to_owned()),
            _ => return None,
        })
    }
}

impl ToRank {
    pub(crate) fn to_line(&self) -> String {
        match self {
            Self::Peer(bytes) => format!("peer {}", hex(bytes)),
            Self::Go => "go".to_owned(),
        }
    }

    pub(crate) fn from_line(line: &str) -> Option<Self> {
        match line.split_once(' ').unwrap_or((line, "")) {
            ("peer", rest) => Some(Self::Peer(unhex(rest)?)),
            ("go", _) => Some(Self::Go),
            _ => None,
        }
    }
}

fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.is_ascii() || !text.len().is_multiple_of(2) {
        return None;
    }
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_the_pipe() {
        for message in [
            FromRank::Device("[0] mlx5_0".to_owned()),
            FromRank::Handle(vec![0, 255, 17]),
            FromRank::Ready,
            FromRank::Progress(7),
            FromRank::Result {
                microseconds: 12.5,
                wrong: Some(3),
            },
            FromRank::Result {
                microseconds: 0.1,
                wrong: None,
            },
            FromRank::Done,
            FromRank::Failed("no device".to_owned()),
        ] {
            assert_eq!(FromRank::from_line(&message.to_line()), Some(message));
        }
        for message in [ToRank::Peer(vec![1, 2, 3]), ToRank::Go] {
            assert_eq!(ToRank::from_line(&message.to_line()), Some(message));
        }
        let lines = FromRank::Failed("two\nlines".to_owned()).to_line();
        assert_eq!(lines, "failed two lines");
    }

    #[test]
    fn other_lines_are_no_messages() {
        for line in [
            "",
            "hello",
            "handle 0",
            "handle xx",
            "result 1",
            "progress x",
            "handle ää",
        ] {
            assert_eq!(FromRank::from_line(line), None, "{line}");
        }
        assert_eq!(ToRank::from_line("stop"), None);
    }
}
