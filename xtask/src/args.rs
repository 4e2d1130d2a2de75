//! Command-line options: declared as data, parsed strictly, printed as help.
//!
//! An option is either a switch (`--keep`) or takes one value (`--filter NAME` or
//! `--filter=NAME`). Anything that is not declared is an error that names it.

use std::str::FromStr;

use crate::failure::{Failure, Result, fail};

/// One option of a subcommand.
pub(crate) struct Flag {
    /// With its dashes: `--filter`.
    pub(crate) name: &'static str,
    /// What the value is called in the help, or `None` for a switch.
    pub(crate) value: Option<&'static str>,
    /// What it does, on one line.
    pub(crate) help: &'static str,
}

/// What a command line asks for.
pub(crate) enum Request {
    /// Run with these options.
    Run(Parsed),
    /// Print the help.
    Help,
}

/// The options that were given.
#[derive(Default)]
pub(crate) struct Parsed {
    /// Name and value; a switch has an empty value.
    given: Vec<(&'static str, String)>,
}

impl Parsed {
    /// Whether the option was given at all.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.value(name).is_some()
    }

    /// The option's value, if it was given.
    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        self.given
            .iter()
            .find(|(given, _)| *given == name)
            .map(|(_, value)| value.as_str())
    }

    /// The option's value as a number that is at least 1, if it was given.
    pub(crate) fn positive<T: FromStr + PartialOrd + From<u8>>(
        &self,
        name: &str,
    ) -> Result<Option<T>> {
        let Some(text) = self.value(name) else {
            return Ok(None);
        };
        match text.parse::<T>() {
            Ok(number) if number >= T::from(1) => Ok(Some(number)),
            _ => fail!("`{name} {text}`: the value must be a whole number of at least 1"),
        }
    }
}

/// Reads the arguments after the subcommand's name.
pub(crate) fn parse(
    subcommand: &str,
    flags: &[&'static [Flag]],
    arguments: &[String],
) -> Result<Request> {
    let mut parsed = Parsed::default();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        if matches!(argument.as_str(), "--help" | "-h") {
            return Ok(Request::Help);
        }
        let (name, attached) = match argument.split_once('=') {
            Some((name, value)) if name.starts_with("--") => (name, Some(value.to_owned())),
            _ => (argument.as_str(), None),
        };
        let Some(flag) = flags
            .iter()
            .copied()
            .flatten()
            .find(|flag| flag.name == name)
        else {
            return Err(unknown(subcommand, argument));
        };
        if parsed.has(flag.name) {
            fail!("`{name}` is given twice");
        }
        let value = match (flag.value, attached) {
            (None, None) => String::new(),
            (None, Some(_)) => fail!("`{name}` takes no value"),
            (Some(_), Some(value)) => value,
            (Some(kind), None) => match rest.next() {
                Some(value) => value.clone(),
                None => fail!("`{name}` needs a value: {name} {kind}"),
            },
        };
        parsed.given.push((flag.name, value));
    }
    Ok(Request::Run(parsed))
}

fn unknown(subcommand: &str, argument: &str) -> Failure {
    Failure::new(format!(
        "unknown argument `{argument}`; `cargo xtask {subcommand} --help` tells the options"
    ))
}

/// The text of `cargo xtask SUBCOMMAND --help`.
pub(crate) fn help(subcommand: &str, summary: &str, flags: &[&'static [Flag]]) -> String {
    let mut text = format!("{summary}\n\nusage: cargo xtask {subcommand}");
    let flags: Vec<&Flag> = flags.iter().copied().flatten().collect();
    if flags.is_empty() {
        text.push_str("\n\nIt has no options.\n");
        return text;
    }
    text.push_str(" [OPTIONS]\n\nOptions:\n");
    for flag in flags {
        let shape = match flag.value {
            Some(value) => format!("{} {value}", flag.name),
            None => flag.name.to_owned(),
        };
        text.push_str(&format!("  {shape:<30}{}\n", flag.help));
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const FLAGS: &[Flag] = &[
        Flag {
            name: "--filter",
            value: Some("NAME"),
            help: "Only some.",
        },
        Flag {
            name: "--keep",
            value: None,
            help: "Keep it.",
        },
        Flag {
            name: "--timeout",
            value: Some("SECONDS"),
            help: "How long.",
        },
    ];

    fn run(words: &[&str]) -> Result<Parsed> {
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        match parse("sub", &[FLAGS], &words)? {
            Request::Run(parsed) => Ok(parsed),
            Request::Help => fail!("help"),
        }
    }

    fn error(words: &[&str]) -> String {
        run(words).err().unwrap().to_string()
    }

    #[test]
    fn values_come_attached_or_as_the_next_word() {
        for words in [
            ["--filter=a=b", "--keep"].as_slice(),
            &["--filter", "a=b", "--keep"],
        ] {
            let parsed = run(words).unwrap();
            assert_eq!(parsed.value("--filter"), Some("a=b"));
            assert!(parsed.has("--keep"));
            assert!(!parsed.has("--timeout"));
        }
    }

    #[test]
    fn a_value_may_look_like_an_option() {
        assert_eq!(
            run(&["--filter", "--keep"]).unwrap().value("--filter"),
            Some("--keep")
        );
    }

    #[test]
    fn errors_name_the_argument() {
        assert!(error(&["--fliter", "x"]).contains("`--fliter`"));
        assert!(error(&["stray"]).contains("`stray`"));
        assert!(error(&["--keep=yes"]).contains("`--keep` takes no value"));
        assert!(error(&["--filter"]).contains("--filter NAME"));
        assert!(error(&["--keep", "--keep"]).contains("twice"));
    }

    #[test]
    fn numbers_are_checked() {
        assert_eq!(
            run(&["--timeout", "90"])
                .unwrap()
                .positive::<u64>("--timeout")
                .unwrap(),
            Some(90)
        );
        assert_eq!(
            run(&[]).unwrap().positive::<u64>("--timeout").unwrap(),
            None
        );
        for bad in ["0", "-3", "ten", "", "1.5"] {
            let parsed = run(&["--timeout", bad]).unwrap();
            assert!(parsed.positive::<u64>("--timeout").is_err(), "{bad}");
        }
    }

    #[test]
    fn help_lists_every_option_with_its_value() {
        let text = help("sub", "Does it.", &[FLAGS]);
        for part in [
            "Does it.",
            "cargo xtask sub [OPTIONS]",
            "--filter NAME",
            "--keep",
            "How long.",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(help("sub", "Does it.", &[]).contains("no options"));
    }
}
