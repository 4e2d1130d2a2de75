//! From a text to the lines that NCCL's logger gets: each with the plugin's name, none too long.

use std::ffi::CString;

/// What each line starts with.
const PREFIX: &str = "NET/IBNET : ";
/// What a line starts with that continues the one before.
const CONTINUATION: &str = "NET/IBNET :   ";

/// Most bytes of one line. NCCL formats a line into 1024 bytes, of which its own prefix (host,
/// process, thread, device, function) takes a part, and cuts what does not fit.
const MAX_LINE: usize = 800;

/// The lines of one text.
pub(super) struct Lines<'a> {
    /// What is left, without the end of line that ended the last line.
    rest: Option<&'a str>,
    first: bool,
}

impl<'a> Lines<'a> {
    /// The lines of `text`: one for each line in it, more where one is too long.
    pub(super) fn of(text: &'a str) -> Self {
        Self {
            rest: Some(text.trim_end()),
            first: true,
        }
    }
}

impl Iterator for Lines<'_> {
    type Item = CString;

    fn next(&mut self) -> Option<CString> {
        let rest = self.rest?;
        let prefix = if self.first { PREFIX } else { CONTINUATION };
        self.first = false;
        let (line, rest) = split(rest, MAX_LINE - prefix.len());
        self.rest = rest;
        let mut bytes = format!("{prefix}{line}").into_bytes();
        // A C string ends at the first zero byte: show one as a question mark instead.
        for byte in &mut bytes {
            if *byte == 0 {
                *byte = b'?';
            }
        }
        CString::new(bytes).ok()
    }
}

/// Cuts a line of at most `limit` bytes from `text`: at the end of a line, else after a space, else
/// between characters.
fn split(text: &str, limit: usize) -> (&str, Option<&str>) {
    if let Some((line, rest)) = text.split_once('\n')
        && line.len() <= limit
    {
        return (line.trim_end(), Some(rest));
    }
    if text.len() <= limit {
        return (text, None);
    }
    let mut end = limit;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    // A word longer than half a line is cut rather than leaving the line almost empty.
    if let Some(space) = text[..end].rfind(' ')
        && space > limit / 2
    {
        end = space + 1;
    }
    (text[..end].trim_end(), Some(&text[end..]))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn lines(text: &str) -> Vec<String> {
        Lines::of(text)
            .map(|line| line.into_string().unwrap())
            .collect()
    }

    #[test]
    fn a_short_text_is_one_line() {
        assert_eq!(lines("no device found"), ["NET/IBNET : no device found"]);
        assert_eq!(
            lines("ends with a line end\n"),
            ["NET/IBNET : ends with a line end"]
        );
        assert_eq!(lines(""), ["NET/IBNET : "]);
    }

    #[test]
    fn line_ends_are_kept() {
        assert_eq!(
            lines("first\nsecond\r\n\nfourth"),
            [
                "NET/IBNET : first",
                "NET/IBNET :   second",
                "NET/IBNET :   ",
                "NET/IBNET :   fourth"
            ]
        );
    }

    #[test]
    fn a_long_text_is_split_between_words_and_nothing_is_lost() {
        let words: Vec<String> = (0..1000).map(|i| format!("word{i}")).collect();
        let text = words.join(" ");
        let lines = lines(&text);
        assert!(lines.len() > 5);
        let mut joined = Vec::new();
        for (i, line) in lines.iter().enumerate() {
            assert!(line.len() <= MAX_LINE);
            let prefix = if i == 0 { PREFIX } else { CONTINUATION };
            joined.extend(
                line.strip_prefix(prefix)
                    .unwrap()
                    .split(' ')
                    .map(str::to_owned),
            );
        }
        assert_eq!(joined, words);
    }

    #[test]
    fn one_endless_word_is_cut_between_characters() {
        let text = "ü".repeat(2000);
        let lines = lines(&text);
        let mut joined = String::new();
        for (i, line) in lines.iter().enumerate() {
            assert!(line.len() <= MAX_LINE);
            let prefix = if i == 0 { PREFIX } else { CONTINUATION };
            joined.push_str(line.strip_prefix(prefix).unwrap());
        }
        assert_eq!(joined, text);
    }

    #[test]
    fn a_long_line_before_a_line_end_is_split_too() {
        let text = format!("{}\nshort", "x".repeat(MAX_LINE));
        let lines = lines(&text);
        assert_eq!(lines.len(), 3);
        assert_eq!(lines[2], "NET/IBNET :   short");
    }

    #[test]
    fn a_zero_byte_does_not_cut_the_line() {
        assert_eq!(lines("a\0b"), ["NET/IBNET : a?b"]);
    }
}
