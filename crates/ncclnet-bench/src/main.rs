//! `ncclnet-bench`: measures any network with NCCL's plugin interface on host memory, without a GPU.
//!
//! NCCL and RCCL talk to networks through a table of functions. This program loads such a table, from a
//! plugin or out of NCCL's own library, and measures what NCCL would do with it: messages, groups of
//! them, connections, registrations. Several networks are measured in turn, so that their figures can
//! be compared.
//!
//! - [`net`]: the interface, in all its versions;
//! - [`worker`]: a process that drives one network; [`protocol`]: how it is told what to do;
//! - [`controller`]: what is measured, in which order;
//! - [`report`], [`stats`]: what comes of it.
//!
//! `docs/performance.md` tells how it is used and what it has found.

mod args;
mod controller;
mod net;
mod protocol;
mod report;
mod stats;
mod worker;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use args::{Output, Request};
use controller::Failure;
use report::{FORMAT, Report};

/// What the line of JSON on standard output begins with.
const JSON_MARK: &str = "ncclnet-bench-json: ";

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let request = match args::parse(arguments.clone()) {
        Ok(request) => request,
        Err(error) => {
            eprintln!("ncclnet-bench: {error}");
            return ExitCode::from(2);
        }
    };
    match perform(request, &arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("ncclnet-bench: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn perform(request: Request, arguments: &[std::ffi::OsString]) -> Result<(), Failure> {
    let text = |error: std::io::Error| Failure(error.to_string());
    match request {
        Request::Help => say(args::HELP)?,
        Request::Run { plan, output } => {
            let words = arguments
                .iter()
                .map(|word| word.to_string_lossy().into_owned());
            let command = std::iter::once("ncclnet-bench".to_owned())
                .chain(words)
                .collect();
            let run = controller::run(&plan, command)?;
            let is_empty = run.figures.is_empty();
            let report = Report {
                format: FORMAT,
                date: report::today(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                runs: vec![run],
            };
            show(&report, &output)?;
            if is_empty {
                return Err(Failure("nothing was measured".to_owned()));
            }
        }
        Request::Listen {
            address,
            sources,
            yields,
        } => controller::listen(&address, &sources, yields)?,
        Request::Worker { source, yields } => worker::serve(&source, yields).map_err(text)?,
        Request::Report { files, output } => show(&merged(&files)?, &output)?,
        Request::Shrink { from, to } => net::shrink(&from, &to).map_err(Failure)?,
    }
    Ok(())
}

/// The runs of several files as one report, with the date and version of the first.
fn merged(files: &[PathBuf]) -> Result<Report, Failure> {
    let mut all: Option<Report> = None;
    for file in files {
        let fail = |what: String| Failure(format!("{}: {what}", file.display()));
        let text = fs::read_to_string(file).map_err(|error| fail(error.to_string()))?;
        let report: Report =
            serde_json::from_str(&text).map_err(|error| fail(error.to_string()))?;
        if report.format != FORMAT {
            return Err(fail(format!(
                "format {} is not known, only {FORMAT}",
                report.format
            )));
        }
        match &mut all {
            Some(all) => all.runs.extend(report.runs),
            None => all = Some(report),
        }
    }
    all.ok_or_else(|| Failure("no results".to_owned()))
}

/// Prints the tables, and writes what else is wanted.
fn show(report: &Report, output: &Output) -> Result<(), Failure> {
    let tables: Vec<String> = report.runs.iter().map(report::table).collect();
    let text = format!(
        "{}, ncclnet-bench {}\n\n{}",
        report.date,
        report.version,
        tables.join("\n")
    );
    say(&format!("{text}\n"))?;
    let json = |pretty: bool| {
        let json = if pretty {
            serde_json::to_string_pretty(report)
        } else {
            serde_json::to_string(report)
        };
        json.map_err(|error| Failure(format!("cannot write the results as JSON: {error}")))
    };
    match output.json.as_deref() {
        Some(path) if path == Path::new("-") => say(&format!("{JSON_MARK}{}\n", json(false)?))?,
        Some(path) => write(path, &json(true)?)?,
        None => {}
    }
    let Some(folder) = &output.folder else {
        return Ok(());
    };
    fs::create_dir_all(folder)
        .map_err(|error| Failure(format!("cannot make {}: {error}", folder.display())))?;
    write(&folder.join("results.json"), &json(true)?)?;
    write(&folder.join("results.md"), &text)?;
    for (index, run) in report.runs.iter().enumerate() {
        for (name, picture) in report::plots(run) {
            // Runs have plots of the same names.
            let file = folder.join(format!("{}-{name}.svg", index + 1));
            write(&file, &picture)?;
        }
    }
    Ok(())
}

/// Writes to standard output. That it is not read any more is no failure.
fn say(text: &str) -> Result<(), Failure> {
    let mut output = std::io::stdout().lock();
    match output
        .write_all(text.as_bytes())
        .and_then(|()| output.flush())
    {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure(format!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(path, text)
        .map_err(|error| Failure(format!("cannot write {}: {error}", path.display())))
}
