//! [`Table`]: the verdicts in columns, for people. One line each, as logs have it, is what
//! [`Verdict`] and [`Selection`] print.

use std::fmt;

use crate::Entry;
use crate::refusal::NoGid;
use crate::select::Selection;
use crate::text::{Address, Remarks, TypeName};
use crate::verdict::Verdict;

/// Verdicts in columns, with a head and the chosen entry marked by a star.
///
/// ```text
///   index  type    address      interface  verdict
///       1  RoCEv1  10.1.2.3     eth2       older version
/// *     3  RoCEv2  10.1.2.3     eth2       chosen
///       4  RoCEv2  2001:db8::7  eth2       IPv6
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Table<'a>(&'a [Verdict]);

impl Selection {
    /// The verdicts in columns.
    pub fn table(&self) -> Table<'_> {
        Table(&self.verdicts)
    }
}

impl NoGid {
    /// The verdicts in columns.
    pub fn table(&self) -> Table<'_> {
        Table(&self.verdicts)
    }
}

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = ["index", "type", "address", "interface", "verdict"].map(str::to_owned);
        let rows: Vec<_> = self.0.iter().map(cells).collect();
        let width = |column: usize| {
            let all = rows.iter().chain([&head]);
            all.map(|cells| cells[column].chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths = [0, 1, 2, 3].map(width);
        let [index, of_type, address, interface] = widths;
        let stars = self.0.iter().map(|verdict| match verdict.is_chosen() {
            true => '*',
            false => ' ',
        });
        for (number, (star, cells)) in [' ']
            .into_iter()
            .chain(stars)
            .zip([&head].into_iter().chain(&rows))
            .enumerate()
        {
            if number > 0 {
                writeln!(f)?;
            }
            let [a, b, c, d, verdict] = cells;
            write!(
                f,
                "{star} {a:>index$}  {b:<of_type$}  {c:<address$}  {d:<interface$}  {verdict}"
            )?;
        }
        Ok(())
    }
}

fn cells(verdict: &Verdict) -> [String; 5] {
    let entry: &Entry = &verdict.entry;
    let (of_type, address) = match entry.gid.is_zero() {
        true => Default::default(),
        false => (
            TypeName(entry.gid_type).to_string(),
            Address(entry.gid).to_string(),
        ),
    };
    [
        entry.index.to_string(),
        of_type,
        address,
        entry
            .netdev
            .as_ref()
            .map(|netdev| format!("{netdev}{}", Remarks(netdev)))
            .unwrap_or_default(),
        verdict.judgement().to_string(),
    ]
}

impl fmt::Display for Selection {
    /// One line for each entry.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, verdict) in self.verdicts.iter().enumerate() {
            if number > 0 {
                writeln!(f)?;
            }
            write!(f, "{verdict}")?;
        }
        Ok(())
    }
}
