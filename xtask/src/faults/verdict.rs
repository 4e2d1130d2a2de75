//! What a run says of one test.

use std::fmt;

use crate::stream::End;

/// How a test ended.
#[derive(Debug, PartialEq)]
pub(super) enum Verdict {
    /// It passed.
    Green,
    /// It failed, and said this.
    Red(String),
    /// It was not run to an end of its own: does not compile, is not there, hangs or crashes.
    NotRun(String),
}

impl Verdict {
    /// From what its program printed. A test of this name may be there for several places: one that
    /// fails is enough.
    pub(super) fn of(name: &str, end: &End, output: &str) -> Self {
        let status = match end {
            End::Exited(status) => status,
            End::Silent(limit) | End::TooLong(limit) => {
                return Self::NotRun(format!("hangs: {} s", limit.as_secs()));
            }
        };
        let results: Vec<&str> = output
            .lines()
            .filter_map(|line| result(name, line))
            .collect();
        if let Some(result) = results.iter().find(|result| result.starts_with("FAILED")) {
            let said = result.strip_prefix("FAILED: ");
            return Self::Red(said.map_or_else(|| message(output), str::to_owned));
        }
        if !status.success() {
            return Self::NotRun(format!("ends with {status} and names no failed test"));
        }
        if results.is_empty() {
            return Self::NotRun("there is no test of this name in the program".to_owned());
        }
        Self::Green
    }

    /// In one word.
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Green => "green",
            Self::Red(_) => "red",
            Self::NotRun(_) => "not run",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Green => formatter.write_str(self.word()),
            Self::Red(why) | Self::NotRun(why) => {
                let line = why.lines().next().unwrap_or_default();
                write!(formatter, "{}: {line}", self.word())
            }
        }
    }
}

/// What a line `test MODULE::NAME ... RESULT` or `test NAME on DEVICES ... RESULT` says of the test.
fn result<'a>(name: &str, line: &'a str) -> Option<&'a str> {
    let (test, result) = line.strip_prefix("test ")?.split_once(" ... ")?;
    let test = test.split(' ').next()?;
    (test.rsplit("::").next() == Some(name)).then_some(result)
}

/// The first words of a panic: the line after the one that says where.
fn message(output: &str) -> String {
    let mut lines = output
        .lines()
        .skip_while(|line| !line.contains("panicked at"));
    let place = lines.next().unwrap_or_default();
    let place = place
        .split_once("panicked at ")
        .map_or("", |(_, place)| place);
    let mut words = format!("{place} {}", lines.next().unwrap_or_default());
    if let Some((end, _)) = words.char_indices().nth(160) {
        words.truncate(end);
    }
    words
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use super::*;

    fn of(name: &str, code: i32, output: &str) -> Verdict {
        Verdict::of(name, &End::Exited(ExitStatus::from_raw(code << 8)), output)
    }

    #[test]
    fn a_failed_test_is_red_with_its_message() {
        let output = "running 2 tests\ntest a::it_is ... FAILED\ntest a::it_is_so ... ok\n\n\
                      thread 'a::it_is' (7) panicked at tests/x.rs:3:5:\nleft: 1\n";
        let red = Verdict::Red("tests/x.rs:3:5: left: 1".to_owned());
        assert_eq!(of("it_is", 101, output), red);
        let scenarios = "test data/one on a-b ... ok (0.1 s)\ntest data/one on a ... FAILED: why\n";
        assert_eq!(of("data/one", 1, scenarios), Verdict::Red("why".to_owned()));
    }

    #[test]
    fn only_a_test_that_ran_is_green_or_red() {
        assert_eq!(of("it_is", 0, "test it_is ... ok\n"), Verdict::Green);
        let is_not_run = |verdict| matches!(verdict, Verdict::NotRun(_));
        assert!(is_not_run(of("it_is", 0, "test it_is_so ... ok\n")));
        // Another test has failed, or the program has crashed.
        assert!(is_not_run(of("it_is", 101, "test it_is_so ... FAILED\n")));
        assert!(is_not_run(of("it_is", 101, "test it_is ... ok\n")));
        let end = End::Exited(ExitStatus::from_raw(11));
        assert!(is_not_run(Verdict::of("it_is", &end, "running 1 test\n")));
        let end = End::TooLong(std::time::Duration::from_secs(9));
        assert!(is_not_run(Verdict::of("it_is", &end, "")));
    }
}
