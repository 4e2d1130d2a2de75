//! The files of a port in sysfs, as `grep`, `head` and `tail` list several at once:
//! `PATH:CONTENT`, or `==> PATH <==` and the content in the next line.

use ibnet_verbs::Gid;

use super::kernels_type;
use super::parse::{Draft, Refused, gid, index_number, link_layer_named, netdev, port_number};
use ibnet_gid::Entry;

/// A file that tells something about a table of GIDs.
pub(super) struct File {
    /// As far as the path says.
    pub(super) port: Option<(String, u8)>,
    what: What,
}

enum What {
    LinkLayer,
    Gid(u32),
    Type(u32),
    Netdev(u32),
}

/// A folder in `ports/NUMBER` with a file for each index, and what these tell.
type Folder = (&'static str, fn(u32) -> What);

const FOLDERS: [Folder; 3] = [
    ("gid_attrs/types/", What::Type),
    ("gid_attrs/ndevs/", What::Netdev),
    ("gids/", What::Gid),
];

/// A file and its content, if it is in the same line. None if the line is no such thing.
pub(super) fn line(line: &str) -> Result<Option<(File, Option<&str>)>, Refused<'_>> {
    if let Some(path) = line
        .strip_prefix("==> ")
        .and_then(|path| path.strip_suffix(" <=="))
    {
        return match path_end(path)? {
            Some((file, "")) => Ok(Some((file, None))),
            _ => Err((path, "the path of a file of a port's GIDs")),
        };
    }
    Ok(path_end(line)?.and_then(|(file, rest)| {
        let content = rest.strip_prefix(':')?;
        Some((file, Some(content.trim())))
    }))
}

/// The file whose path a line begins with, and what follows.
fn path_end(line: &str) -> Result<Option<(File, &str)>, Refused<'_>> {
    const LINK_LAYER: &str = "link_layer";
    let word = line.split_whitespace().next().unwrap_or_default();
    for (folder, what) in FOLDERS {
        if let Some(place) = word.find(folder) {
            let (path, rest) = line.split_at(place + folder.len());
            let digits = rest.find(|c: char| !c.is_ascii_digit());
            let (index, rest) = rest.split_at(digits.unwrap_or(rest.len()));
            let what = what(index_number(index)?);
            let port = port(path)?;
            return Ok(Some((File { port, what }, rest)));
        }
    }
    match word.find(LINK_LAYER) {
        Some(place) if place == 0 || word[..place].ends_with('/') => {
            let (path, rest) = line.split_at(place + LINK_LAYER.len());
            let file = File {
                port: port(path)?,
                what: What::LinkLayer,
            };
            Ok(Some((file, rest)))
        }
        _ => Ok(None),
    }
}

/// `…/mlx5_0/ports/1/…`
fn port(path: &str) -> Result<Option<(String, u8)>, Refused<'_>> {
    let Some((before, behind)) = path.split_once("/ports/") else {
        return Ok(None);
    };
    let device = before.rsplit('/').next().unwrap_or_default();
    let number = behind.split('/').next().unwrap_or_default();
    Ok(Some((device.to_owned(), port_number(number)?)))
}

impl File {
    /// Adds what the file says.
    pub(super) fn add_to<'a>(
        &self,
        draft: &mut Draft,
        content: &'a str,
    ) -> Result<(), Refused<'a>> {
        match self.what {
            What::LinkLayer => draft.link_layer = Some(link_layer_named(content)?),
            What::Gid(index) => {
                // The kernel lists the empty ones, too.
                let gid = gid(content)?;
                if !gid.is_zero() {
                    entry(draft, index).gid = gid;
                }
            }
            What::Type(index) => {
                entry(draft, index).gid_type = kernels_type(content);
                draft.is_coarse = true;
            }
            What::Netdev(index) => entry(draft, index).netdev = Some(netdev(content)?),
        }
        Ok(())
    }
}

/// The entry of this index, which is made if it is new.
fn entry(draft: &mut Draft, index: u32) -> &mut Entry {
    let place = draft.entries.iter().position(|entry| entry.index == index);
    let place = place.unwrap_or_else(|| {
        draft.entries.push(Entry {
            index,
            gid: Gid([0; 16]),
            gid_type: None,
            netdev: None,
            unreadable: None,
        });
        draft.entries.len() - 1
    });
    &mut draft.entries[place]
}
