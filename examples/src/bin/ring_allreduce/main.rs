//! A ring all-reduce of float32 by several ranks, through NCCL's plugin interface.
//!
//! ```text
//! ring_allreduce [--ranks N] [--size BYTES|FROM:TO|A,B,…] [--iters N] [--devices A,B,…] [--simulator]
//! ```
//!
//! On the machine's RDMA devices the program starts itself once per rank, and each rank loads the plugin
//! as NCCL does, with `dlopen`. Where there is no device it simulates two, which belong to the process:
//! the ranks are then threads, and the plugin is the one that is linked in. Either way a rank uses
//! nothing but the table of API version 12. What NCCL's bootstrap does, passing handles between the
//! ranks, goes through pipes or channels of the launcher. The result is checked against the exact sum.
//!
//! - `options`: the command line, and how sizes are written;
//! - `launcher`: chooses devices, has the ranks work, prints the table (`report`);
//! - `ranks`: starts and watches them; `seat`: the process or thread of one;
//! - `rank`: one rank of the ring; `ring`: the algorithm; `pattern`: what is summed;
//! - `plugin`: the plugin's table as Rust objects; `logger`: what it logs; `buffer`: shared memory;
//! - `wire`: what launcher and ranks say to each other; `line`: how it gets there.

mod buffer;
mod launcher;
mod line;
mod logger;
mod options;
mod pattern;
mod plugin;
mod rank;
mod ranks;
mod report;
mod ring;
mod seat;
mod wire;

use std::process::ExitCode;

use ibnet_examples::{conclude, refuse, say};
use options::{Command, Options};

fn main() -> ExitCode {
    let outcome = match Options::parse(std::env::args().skip(1)) {
        Ok(Command::Help) => {
            say!("{}", options::HELP);
            return ExitCode::SUCCESS;
        }
        Ok(Command::Launch(options)) => launcher::run(&options),
        Ok(Command::Rank(rank, options)) => return rank::run_process(rank, &options),
        Err(problem) => {
            return refuse("ring_allreduce", &problem, options::HELP);
        }
    };
    conclude("ring_allreduce", outcome)
}
