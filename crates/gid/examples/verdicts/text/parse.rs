//! Reading tables from text. Any text is either understood or refused with the line and the part
//! that was not; none makes it panic.

use std::error::Error;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use ibnet_verbs::{Gid, GidType, LinkLayer, Netdev, NetdevKind};

use super::devinfo::{self, Devinfo};
use super::sysfs::{self, File};
use super::{DOWN, ETHERNET, INFINIBAND, KINDS, PortTable};
use ibnet_gid::Entry;

/// A line that is no part of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InvalidLine {
    /// Its number, from 1.
    pub(crate) line: usize,
    /// The part that was not understood; empty if something is missing.
    pub(crate) token: String,
    /// What should be in its place.
    pub(crate) expected: &'static str,
}

impl fmt::Display for InvalidLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            line,
            token,
            expected,
        } = self;
        write!(f, "line {line}: {token:?}: expected {expected}")
    }
}

impl Error for InvalidLine {}

/// What was not understood, and what was expected.
pub(super) type Refused<'a> = (&'a str, &'static str);

/// Some programs begin a text with it.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// Reads the tables of one or more ports.
///
/// A line is an entry, in one of these forms, of which the first is how verdicts are printed (what
/// follows the colon is ignored, apart from `unreadable`), and the others are those of `show_gids` of
/// NVIDIA's drivers, of `ibv_devinfo -v`, and of the files in sysfs as `grep . PATH/gids/*
/// PATH/gid_attrs/*/*` and `head` list them:
///
/// ```text
/// 3: RoCEv2 10.1.2.3 on eth2: chosen
/// 4 RoCEv2 2001:db8::7 on eth2.100 (vlan, down)
/// 5: unreadable: Invalid argument (os error 22)
/// mlx5_0  1  3  0000:0000:0000:0000:0000:ffff:0a01:0203  10.1.2.3  v2  eth2
///     GID[  3]:   ::ffff:10.1.2.3, RoCE v2
/// /sys/class/infiniband/mlx5_0/ports/1/gids/3:0000:0000:0000:0000:0000:ffff:0a01:0203
/// ```
///
/// Types are `RoCEv1`, `RoCEv2`, `InfiniBand` (short: `v1`, `v2`, `IB`), `type-unknown` and
/// `type-9`. An interface may be `bond`, `slave` (of a bond), `vlan`, `tunnel`, and `down`; if nothing
/// is said, it is up, and a VLAN if its name is that of one (`eth2.100`), else an ordinary one.
///
/// A line `mlx5_0:1 Ethernet` or `mlx5_0:1 InfiniBand` begins the table of a port. Empty lines, a
/// byte order mark, what follows a `#`, the head and foot of `show_gids`, and what else `ibv_devinfo`
/// says of a device are ignored. Where the text calls both InfiniBand and RoCE version 1 `v1` and
/// does not name the link layer, a port is InfiniBand if nothing of it is on an interface, of version
/// 2 or an IPv4 address.
///
/// # Errors
/// [`InvalidLine`] for the first line that is none of these.
pub(crate) fn parse(text: &str) -> Result<Vec<PortTable>, InvalidLine> {
    let mut tables = Tables::default();
    let is_blank = |c: char| c.is_whitespace() || c == BYTE_ORDER_MARK;
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default();
        let line = line.trim_matches(is_blank);
        tables.add(line).map_err(|(token, expected)| InvalidLine {
            line: number + 1,
            token: token.to_owned(),
            expected,
        })?;
    }
    Ok(tables.finish())
}

/// The tables so far, each with the link layer that the text says.
#[derive(Default)]
struct Tables {
    drafts: Vec<Draft>,
    /// The place of the one that lines without a port belong to.
    current: usize,
    devinfo: Devinfo,
    /// The file of sysfs whose content the next line is.
    awaited: Option<File>,
}

#[derive(Default)]
pub(super) struct Draft {
    pub(super) port: Option<(String, u8)>,
    pub(super) link_layer: Option<LinkLayer>,
    pub(super) entries: Vec<Entry>,
    /// Version 1 may also be InfiniBand.
    pub(super) is_coarse: bool,
}

impl Tables {
    fn add<'a>(&mut self, line: &'a str) -> Result<(), Refused<'a>> {
        match self.devinfo.line(line)? {
            devinfo::Line::NotOfIt => {}
            devinfo::Line::Ignored => return Ok(()),
            devinfo::Line::Port(port) => {
                self.at(port);
                return Ok(());
            }
            devinfo::Line::LinkLayer(link_layer) => {
                self.current().link_layer = Some(link_layer);
                return Ok(());
            }
            devinfo::Line::Entry(entry) => {
                self.current().entries.push(entry);
                return Ok(());
            }
        }
        match (self.awaited.take(), sysfs::line(line)?) {
            (file, None) if line.is_empty() => self.awaited = file,
            (Some(file), None) => return file.add_to(self.of(&file), line),
            (_, Some((file, Some(content)))) => return file.add_to(self.of(&file), content),
            (_, Some((file, None))) => {
                self.awaited = Some(file);
                return Ok(());
            }
            (None, None) => {}
        }
        let tokens: Vec<&str> = line.split_whitespace().collect();
        match tokens[..] {
            [] => {}
            // Reading the type of an empty entry fails.
            ["grep:" | "head:" | "tail:" | "cat:", ..] => {}
            // The head and foot of show_gids.
            ["DEV", "PORT", "INDEX", ..] => {}
            [only] if only.starts_with("n_gids_found=") => {}
            [..] if line.chars().all(|c| c == '-' || c.is_whitespace()) => {}
            [first, ..] if first.starts_with(|c: char| c.is_ascii_digit()) => {
                let entry = entry(line)?;
                self.current().entries.push(entry);
            }
            [place, link_layer] => {
                let (name, port) = place.split_once(':').ok_or((place, "device:port"))?;
                let link_layer = link_layer_named(link_layer)?;
                self.at(Some((name.to_owned(), port_number(port)?)))
                    .link_layer = Some(link_layer);
            }
            [name, port, index, gid, ref rest @ ..] => {
                let port = port_number(port)?;
                let entry = shown_entry(index, gid, rest)?;
                let draft = self.at(Some((name.to_owned(), port)));
                draft.entries.push(entry);
                draft.is_coarse = true;
            }
            [first, ..] => return Err((first, "an index, or device:port and a link layer")),
        }
        Ok(())
    }

    /// The table that lines without a port belong to.
    fn current(&mut self) -> &mut Draft {
        match self.drafts.is_empty() {
            true => self.at(None),
            false => &mut self.drafts[self.current],
        }
    }

    /// The table that a file of sysfs tells of.
    fn of(&mut self, file: &File) -> &mut Draft {
        match &file.port {
            Some(port) => self.at(Some(port.clone())),
            None => self.current(),
        }
    }

    /// The table of a port, which becomes the current one.
    fn at(&mut self, port: Option<(String, u8)>) -> &mut Draft {
        let place = self.drafts.iter().position(|draft| draft.port == port);
        self.current = place.unwrap_or(self.drafts.len());
        if place.is_none() {
            self.drafts.push(Draft {
                port,
                ..Draft::default()
            });
        }
        &mut self.drafts[self.current]
    }

    fn finish(self) -> Vec<PortTable> {
        self.drafts.into_iter().map(Draft::finish).collect()
    }
}

impl Draft {
    fn finish(mut self) -> PortTable {
        let link_layer = self.link_layer.unwrap_or_else(|| self.guess());
        if self.is_coarse && link_layer == LinkLayer::InfiniBand {
            let types = self.entries.iter_mut().map(|entry| &mut entry.gid_type);
            for version_1 in types.filter(|it| **it == Some(GidType::RoceV1)) {
                *version_1 = Some(GidType::InfiniBand);
            }
        }
        PortTable {
            port: self.port,
            link_layer,
            entries: self.entries,
        }
    }

    /// The link layer, by the entries.
    fn guess(&self) -> LinkLayer {
        let may_be_infiniband = |entry: &Entry| match entry.gid_type {
            Some(GidType::InfiniBand) => true,
            Some(GidType::RoceV1) if self.is_coarse => {
                entry.netdev.is_none() && entry.gid.ipv4_mapped().is_none()
            }
            _ => false,
        };
        let mut readable = self.entries.iter().filter(|entry| !entry.gid.is_zero());
        match readable.clone().next().is_some() && readable.all(may_be_infiniband) {
            true => LinkLayer::InfiniBand,
            false => LinkLayer::Ethernet,
        }
    }
}

/// An entry as verdicts have it: `INDEX[:] TYPE ADDRESS [on INTERFACE [(REMARKS)]][: VERDICT]`.
fn entry(line: &str) -> Result<Entry, Refused<'_>> {
    let mut rest = Rest(line);
    let index = index_number(rest.word().trim_end_matches(':'))?;
    if let Some(reason) = rest.unreadable() {
        return Ok(Entry::unreadable(index, reason));
    }
    let gid_type = gid_type(rest.word())?;
    let address = rest.word();
    let (address, mut is_end) = match address.strip_suffix(':') {
        // An address may itself end in two colons.
        Some(cut) if !address.ends_with("::") || address.ends_with(":::") => (cut, true),
        _ => (address, false),
    };
    let mut entry = Entry {
        index,
        gid: gid(address)?,
        gid_type,
        netdev: None,
        unreadable: None,
    };
    if !is_end && rest.peek() == "on" {
        rest.word();
        let (name, end) = cut_colon(rest.word());
        is_end = end;
        let (number, number_end) = cut_colon(rest.peek());
        let mut found = match number.parse() {
            // How an interface without a name is printed.
            Ok(number) if name == "interface" && !is_end => {
                rest.word();
                is_end = number_end;
                Netdev::numbered(number)
            }
            _ => netdev(name)?,
        };
        if !is_end && rest.peek().starts_with('(') {
            is_end = remark(&mut found, &mut rest)?;
        }
        entry.netdev = Some(found);
    }
    if is_end {
        entry.unreadable = rest.unreadable().map(str::to_owned);
    } else if !rest.peek().is_empty() {
        return Err((
            rest.peek(),
            "\"on\" and an interface, a colon, or the end of the line",
        ));
    }
    Ok(entry)
}

/// What is left of a line.
#[derive(Clone, Copy)]
struct Rest<'a>(&'a str);

impl<'a> Rest<'a> {
    /// Takes the next word; empty at the end.
    fn word(&mut self) -> &'a str {
        let word = self.peek();
        self.0 = self.0.trim_start().get(word.len()..).unwrap_or_default();
        word
    }

    fn peek(&self) -> &'a str {
        self.0.split_whitespace().next().unwrap_or_default()
    }

    /// The reason, if what is left says that the entry is unreadable.
    fn unreadable(&self) -> Option<&'a str> {
        let rest = self.0.trim_start().strip_prefix("unreadable")?;
        let reason = rest.strip_prefix(':').unwrap_or(rest).trim();
        Some(reason)
    }
}

fn cut_colon(word: &str) -> (&str, bool) {
    match word.strip_suffix(':') {
        Some(cut) => (cut, true),
        None => (word, false),
    }
}

/// Reads `(vlan, down)`. True if a colon follows.
fn remark<'a>(netdev: &mut Netdev, rest: &mut Rest<'a>) -> Result<bool, Refused<'a>> {
    const EXPECTED: &str = "bond, slave, vlan, tunnel, down, or a closing bracket";
    let line = rest.0.trim_start();
    let Some((inside, behind)) = line.strip_prefix('(').and_then(|line| line.split_once(')'))
    else {
        return Err((rest.peek(), EXPECTED));
    };
    for word in inside.split(',').map(str::trim) {
        match KINDS.iter().find(|(name, _)| *name == word) {
            Some((_, kind)) => netdev.kind = Some(*kind),
            None if word == DOWN => netdev.up = Some(false),
            None => return Err((word, EXPECTED)),
        }
    }
    let (behind, is_end) = match behind.strip_prefix(':') {
        Some(behind) => (behind, true),
        None => (behind, false),
    };
    *rest = Rest(behind);
    Ok(is_end)
}

/// An entry as `show_gids` has it: index, GID, then the IPv4 address in it, the version, and the
/// interface, each if there is one.
fn shown_entry<'a>(
    index: &'a str,
    address: &'a str,
    rest: &[&'a str],
) -> Result<Entry, Refused<'a>> {
    let rest = match rest {
        [v4, rest @ ..] if v4.parse::<Ipv4Addr>().is_ok() => rest,
        rest => rest,
    };
    let (version, interface) = match rest {
        [version] => (version, None),
        [version, interface] => (version, Some(netdev(interface)?)),
        [] => return Err(("", "v1 or v2")),
        [_, _, more, ..] => return Err((more, "nothing after the interface")),
    };
    Ok(Entry {
        index: index_number(index)?,
        gid: gid(address)?,
        gid_type: gid_type(version)?,
        netdev: interface,
        unreadable: None,
    })
}

/// An interface as the text names it. Nothing said means that it is up.
pub(super) fn netdev(name: &str) -> Result<Netdev, Refused<'_>> {
    if !Netdev::is_name(name) {
        return Err((name, "the name of a network interface"));
    }
    Ok(Netdev {
        kind: is_name_of_vlan(name).then_some(NetdevKind::Vlan),
        ..Netdev::named(name)
    })
}

/// How VLANs are named where nothing else is asked for: the parent's name, a dot, and the VLAN's
/// number, 1 to 4094.
fn is_name_of_vlan(name: &str) -> bool {
    name.rsplit_once('.').is_some_and(|(parent, number)| {
        let digits = number.bytes().all(|c| c.is_ascii_digit());
        let number = number.parse::<u16>().unwrap_or(0);
        !parent.is_empty() && digits && (1..=4094).contains(&number)
    })
}

pub(super) fn index_number(token: &str) -> Result<u32, Refused<'_>> {
    token.parse().map_err(|_| (token, "an index"))
}

pub(super) fn port_number(token: &str) -> Result<u8, Refused<'_>> {
    match token.parse() {
        Ok(0) | Err(_) => Err((token, "a port number from 1 to 255")),
        Ok(port) => Ok(port),
    }
}

pub(super) fn link_layer_named(token: &str) -> Result<LinkLayer, Refused<'_>> {
    match token {
        ETHERNET => Ok(LinkLayer::Ethernet),
        INFINIBAND => Ok(LinkLayer::InfiniBand),
        _ => Err((token, "Ethernet or InfiniBand")),
    }
}

fn gid_type(token: &str) -> Result<Option<GidType>, Refused<'_>> {
    let refused = (
        token,
        "a type: RoCEv1, RoCEv2, InfiniBand, type-unknown or type-9",
    );
    match token {
        "RoCEv1" | "v1" => Ok(Some(GidType::RoceV1)),
        "RoCEv2" | "v2" => Ok(Some(GidType::RoceV2)),
        "InfiniBand" | "IB" => Ok(Some(GidType::InfiniBand)),
        "type-unknown" => Ok(None),
        _ => {
            let number = token.strip_prefix("type-").ok_or(refused)?;
            let number = number.parse().map_err(|_| refused)?;
            Ok(Some(GidType::from_raw(number)))
        }
    }
}

pub(super) fn gid(token: &str) -> Result<Gid, Refused<'_>> {
    match token.parse() {
        Ok(IpAddr::V4(v4)) => Ok(Gid::from(v4.to_ipv6_mapped())),
        Ok(IpAddr::V6(v6)) => Ok(Gid::from(v6)),
        Err(_) => Err((token, "an IP address or a GID")),
    }
}
