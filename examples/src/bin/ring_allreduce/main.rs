//! A ring all-reduce of float32 by several processes, through NCCL's plugin interface.
//!
//! ```text
//! ring_allreduce [--ranks N] [--size BYTES|FROM:TO|A,B,…] [--iters N] [--warmup N] [--devices A,B,…]
//! ```
//!
//! The program starts itself once per rank. Each rank loads the plugin as NCCL does, with `dlopen`,
//! and uses nothing but the table of API version 12. What NCCL's bootstrap does, passing handles
//! between the ranks, goes through pipes of the launcher. The result is checked against the exact sum.
//!
//! - `options`: the command line, and how sizes are written;
//! - `launcher`: starts the ranks, watches them, prints the table (`report`);
//! - `rank`: one process of the ring; `ring`: the algorithm; `pattern`: what is summed;
//! - `plugin`: the plugin's table as Rust objects; `logger`: what it logs; `buffer`: shared memory;
//! - `wire`: what launcher and ranks say to each other.

mod buffer;
mod launcher;
mod logger;
mod options;
mod pattern;
mod plugin;
mod rank;
mod report;
mod ring;
mod wire;

use std::process::ExitCode;

use options::{Command, Options};

fn main() -> ExitCode {
    let outcome = match Options::parse(std::env::args().skip(1)) {
        Ok(Command::Help) => {
            println!("{}", options::HELP);
            return ExitCode::SUCCESS;
        }
        Ok(Command::Launch(options)) => launcher::run(&options),
        Ok(Command::Rank(rank, options)) => return rank::run(rank, &options),
        Err(problem) => {
            eprintln!("ring_allreduce: {problem}\n\n{}", options::HELP);
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ring_allreduce: {error}");
            ExitCode::FAILURE
        }
    }
}
