//! Prints which GID would be chosen from a table given as text, and what is thought of the others.
//!
//! ```console
//! $ show_gids | cargo run -p ibnet-gid --example verdicts -- -
//! $ cargo run -p ibnet-gid --example verdicts -- crates/gid/examples/vlan.txt
//! $ cargo run -p ibnet-gid --example verdicts -- crates/gid/examples/vlan.txt netdev=ens1f0.100
//! ```
//!
//! The text has a line for each entry, in any of the forms that `text::parse` describes.

mod settings;
mod text;

use std::error::Error;
use std::io::Read;
use std::process::ExitCode;

use ibnet_gid::Verdict;
use settings::Settings;
use text::PortTable;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.as_slice() {
        [file, settings @ ..] if file == "-" || !file.starts_with('-') => {
            match run(file, settings) {
                Ok(true) => ExitCode::SUCCESS,
                Ok(false) => ExitCode::FAILURE,
                Err(error) => {
                    eprintln!("{error}");
                    ExitCode::FAILURE
                }
            }
        }
        _ => {
            let names = settings::NAMES;
            eprintln!("usage: verdicts FILE [SETTING…]   (- for standard input)\n\n{names}");
            ExitCode::from(2)
        }
    }
}

/// True if every port has a GID that can be used.
fn run(file: &str, given: &[String]) -> Result<bool, Box<dyn Error>> {
    let mut settings = Settings::default();
    for setting in given {
        settings
            .set(setting)
            .map_err(|error| format!("{setting}: {error}"))?;
    }
    let tables = text::parse(&read(file).map_err(|error| format!("{file}: {error}"))?)
        .map_err(|error| format!("{file}: {error}"))?;
    if tables.is_empty() {
        return Err(format!("{file}: there is no table in it").into());
    }
    let mut all = true;
    for table in &tables {
        all &= show(table, &settings);
    }
    Ok(all)
}

fn read(file: &str) -> std::io::Result<String> {
    if file != "-" {
        return std::fs::read_to_string(file);
    }
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    Ok(text)
}

fn show(table: &PortTable, settings: &Settings) -> bool {
    let title = table.title();
    let policy = settings.policy(table.port.as_ref());
    match ibnet_gid::select(&table.entries, table.link_layer, &policy) {
        Ok(selection) => {
            let index = selection.entry.index;
            println!("{title}: GID {index}");
            let ties: Vec<_> = selection
                .ties()
                .map(|entry| entry.index.to_string())
                .collect();
            if !ties.is_empty() {
                println!(
                    "or {}, which is as good: both are possible, and the text does not tell which \
                     address is the host's own; NCCL_IB_ADDR_RANGE chooses",
                    ties.join(", ")
                );
            }
            println!("{selection}\n");
            true
        }
        Err(error) => {
            println!("{title}: no GID: {}", error.cause);
            let lines: Vec<_> = error.verdicts.iter().map(Verdict::to_string).collect();
            println!("{}\n", lines.join("\n"));
            false
        }
    }
}
