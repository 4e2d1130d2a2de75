//! A command line: flags, options with values, and what is left.

/// The arguments of a program that were not looked at yet.
pub struct Arguments(Vec<String>);

impl Arguments {
    /// Those that this program was started with.
    pub fn of_process() -> Self {
        Self(std::env::args().skip(1).collect())
    }

    /// Those of a line, separated by spaces.
    pub fn of_line(line: &str) -> Self {
        Self(line.split_whitespace().map(str::to_owned).collect())
    }

    /// Whether the flag `name` is there.
    pub fn flag(&mut self, name: &str) -> bool {
        let before = self.0.len();
        self.0.retain(|argument| argument != name);
        self.0.len() < before
    }

    /// Whether the flags `--simulator` and `--no-simulator` are there, which every example has.
    pub fn simulator_flags(&mut self) -> (bool, bool) {
        (self.flag("--simulator"), self.flag("--no-simulator"))
    }

    /// The value of the option `name`, if it is there.
    ///
    /// # Errors
    /// The option is there without a value.
    pub fn value(&mut self, name: &str) -> Result<Option<String>, String> {
        let Some(place) = self.0.iter().position(|argument| argument == name) else {
            return Ok(None);
        };
        self.0.remove(place);
        if place == self.0.len() {
            return Err(format!("{name} needs a value"));
        }
        Ok(Some(self.0.remove(place)))
    }

    /// The value of the option `name`, a number from `least` to `most`, or `default`.
    ///
    /// # Errors
    /// The option is there without such a number.
    pub fn number(
        &mut self,
        name: &str,
        default: usize,
        least: usize,
        most: usize,
    ) -> Result<usize, String> {
        let Some(text) = self.value(name)? else {
            return Ok(default);
        };
        match text.parse() {
            Ok(number) if (least..=most).contains(&number) => Ok(number),
            _ => Err(format!(
                "{name} {text}: expected a number from {least} to {most}"
            )),
        }
    }

    /// The arguments that are left, which are no options.
    ///
    /// # Errors
    /// One of them looks like an option.
    pub fn rest(self) -> Result<Vec<String>, String> {
        match self.0.iter().find(|argument| argument.starts_with('-')) {
            Some(option) => Err(format!("unknown option {option}")),
            None => Ok(self.0),
        }
    }

    /// Nothing is left.
    ///
    /// # Errors
    /// Something is.
    pub fn end(self) -> Result<(), String> {
        match self.rest()?.first() {
            Some(argument) => Err(format!("what is {argument}?")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn each_argument_is_taken_once() {
        let mut arguments = Arguments::of_line("file --count 3 --flag --name x");
        assert!(arguments.flag("--flag") && !arguments.flag("--flag"));
        assert_eq!(arguments.number("--count", 1, 1, 9), Ok(3));
        assert_eq!(arguments.number("--count", 1, 1, 9), Ok(1));
        assert_eq!(arguments.value("--name"), Ok(Some("x".to_owned())));
        assert_eq!(arguments.rest(), Ok(vec!["file".to_owned()]));
    }

    #[test]
    fn mistakes_are_named() {
        let value = |line| Arguments::of_line(line).value("--name").unwrap_err();
        assert!(value("--name").contains("--name"));
        let number = |line| {
            Arguments::of_line(line)
                .number("--count", 1, 2, 5)
                .unwrap_err()
        };
        assert!(number("--count 6").contains("from 2 to 5"));
        assert!(number("--count x").contains("--count x"));
        assert!(
            Arguments::of_line("--wat")
                .rest()
                .unwrap_err()
                .contains("--wat")
        );
        assert!(Arguments::of_line("wat").end().unwrap_err().contains("wat"));
        assert!(Arguments::of_line("").end().is_ok());
    }
}
