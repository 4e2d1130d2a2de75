//! Real layouts of GID tables, each with the expected verdict on every entry.
//!
//! A case in `tests/tables/*.txt` reads as what the crate prints. The reader ignores the
//! verdicts, so that the entries are read, judged and printed again, and must come out as they are
//! in the file:
//!
//! ```text
//! ## the name of the case
//! set NCCL_IB_GID_INDEX=3                 (any number of settings)
//! mlx5_0:1 Ethernet                       (one port or more)
//! 3: RoCEv2 10.1.2.3 on eth2: chosen
//! error the cause                         (behind a port without a choice)
//! ```
#![allow(clippy::unwrap_used)]

#[path = "../examples/verdicts/settings.rs"]
mod settings;
#[path = "../examples/verdicts/text/mod.rs"]
mod text;

use std::fmt::Write;

use ibnet_gid::{Policy, select};

use settings::Settings;
use text::PortTable;

struct Case {
    name: &'static str,
    settings: Settings,
    /// What is to come out.
    text: String,
    ports: Vec<PortTable>,
}

fn cases(file: &'static str) -> Vec<Case> {
    let mut cases = file.split("## ");
    assert_eq!(
        cases.next().unwrap().trim(),
        "",
        "nothing before the first case"
    );
    cases.map(case).collect()
}

fn case(text: &'static str) -> Case {
    let (name, text) = text.split_once('\n').unwrap();
    let mut settings = Settings::default();
    let mut expected = String::new();
    let mut table = String::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if let Some(setting) = line.strip_prefix("set ") {
            settings.set(setting).unwrap();
            continue;
        }
        writeln!(expected, "{line}").unwrap();
        if !line.starts_with("error ") {
            writeln!(table, "{line}").unwrap();
        }
    }
    Case {
        name,
        settings,
        text: expected,
        ports: text::parse(&table).unwrap_or_else(|error| panic!("{name}: {error}")),
    }
}

/// What is printed for a port.
fn judged(port: &PortTable, policy: &Policy) -> String {
    let mut text = port.title() + "\n";
    let verdicts = match select(&port.entries, port.link_layer, policy) {
        Ok(selection) => {
            let chosen: Vec<_> = selection
                .verdicts
                .iter()
                .filter(|verdict| verdict.is_chosen())
                .collect();
            assert_eq!(chosen.len(), 1);
            assert_eq!(chosen[0].entry, selection.entry);
            Ok(selection.verdicts)
        }
        Err(error) => Err((error.cause.to_string(), error.verdicts)),
    };
    let (cause, verdicts) = match verdicts {
        Ok(verdicts) => (None, verdicts),
        Err((cause, verdicts)) => (Some(cause), verdicts),
    };
    for verdict in &verdicts {
        writeln!(text, "{verdict}").unwrap();
    }
    if let Some(cause) = cause {
        writeln!(text, "error {cause}").unwrap();
    }
    text
}

/// Judges every port of every case. Returns how many tables there were.
fn check(file: &'static str) -> usize {
    let mut tables = 0;
    let mut wrong = String::new();
    for case in cases(file) {
        let judge = |port: &PortTable| judged(port, &case.settings.policy(port.port.as_ref()));
        let text: String = case.ports.iter().map(judge).collect();
        if text != case.text {
            write!(
                wrong,
                "\n## {}\nexpected:\n{}got:\n{text}",
                case.name, case.text
            )
            .unwrap();
        }
        tables += case.ports.len();
    }
    assert!(wrong.is_empty(), "{wrong}");
    tables
}

macro_rules! files {
    ($($name:ident)*) => {
        const FILES: &[&str] = &[$(include_str!(concat!("tables/", stringify!($name), ".txt"))),*];
        $(
            #[test]
            fn $name() {
                check(include_str!(concat!("tables/", stringify!($name), ".txt")));
            }
        )*
    };
}

files! { adapters stacked containers machines infiniband settings_of_users damaged }

#[test]
fn there_are_as_many_tables_as_promised() {
    let tables: usize = FILES.iter().map(|file| check(file)).sum();
    assert!(tables >= 60, "{tables}");
    println!("{tables} tables");
}

#[test]
fn a_wrong_verdict_is_noticed() {
    let wrong = "## wrong\nmlx5_0:1 Ethernet\n0: RoCEv2 10.1.2.3: as good, higher index\n";
    let case = case(wrong.strip_prefix("## ").unwrap());
    assert_ne!(judged(&case.ports[0], &Policy::default()), case.text);
}
