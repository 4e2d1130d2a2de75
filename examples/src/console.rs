//! What a program says: results to standard output, everything else to standard error.
//!
//! `println!` panics where nobody reads any more, as in `ping_pong | head`. These end the program
//! quietly instead, or go on where only what is beside the results is lost.

use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

/// The status of a program that a closed pipe has ended: what shells make of SIGPIPE.
const ENDED_BY_PIPE: i32 = 128 + libc::SIGPIPE;

/// Writes a line to standard output, as `println!` does, and ends the program if nobody reads it.
#[macro_export]
macro_rules! say {
    ($($text:tt)*) => {
        $crate::print_line(format_args!($($text)*))
    };
}

/// Writes a line to standard error, as `eprintln!` does, if anybody reads it.
#[macro_export]
macro_rules! complain {
    ($($text:tt)*) => {
        $crate::print_error(format_args!($($text)*))
    };
}

/// What [`say!`] does.
pub fn print_line(text: Arguments<'_>) {
    let mut output = io::stdout().lock();
    if let Err(error) = writeln!(output, "{text}").and_then(|()| output.flush()) {
        if error.kind() != ErrorKind::BrokenPipe {
            complain!("standard output: {error}");
            std::process::exit(1);
        }
        std::process::exit(ENDED_BY_PIPE);
    }
}

/// What [`complain!`] does.
pub fn print_error(text: Arguments<'_>) {
    // There is no place left to say that this has failed.
    let _ = writeln!(io::stderr(), "{text}");
}

/// The end of a program whose command line means nothing.
pub fn refuse(program: &str, problem: &str, help: &str) -> ExitCode {
    complain!("{program}: {problem}\n\n{help}");
    ExitCode::from(2)
}

/// The options of the program `program`, or its end: the help is wanted, or the command line means
/// nothing.
///
/// # Errors
/// What to end with.
pub fn options_of<O>(
    program: &str,
    help: &str,
    parse: impl FnOnce(crate::Arguments) -> Result<Option<O>, String>,
) -> Result<O, ExitCode> {
    match parse(crate::Arguments::of_process()) {
        Ok(Some(options)) => Ok(options),
        Ok(None) => {
            say!("{help}");
            Err(ExitCode::SUCCESS)
        }
        Err(problem) => Err(refuse(program, &problem, help)),
    }
}

/// The end of the program `program`, which says why it has failed.
pub fn conclude<E: std::fmt::Display>(program: &str, outcome: Result<(), E>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain!("{program}: {error}");
            ExitCode::FAILURE
        }
    }
}
