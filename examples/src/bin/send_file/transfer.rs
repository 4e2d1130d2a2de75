//! A file on its way: first a header with its size, then the chunks in order, then the checksum. Each
//! of the three kinds of message has a tag of its own.
//!
//! Both ends have several chunks under way, so that reading, sending, receiving and writing happen at
//! the same time.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use ibnet::{Buffer, RecvConnection, SendConnection, Wait};
use ibnet_examples::say;

use crate::Outcome;
use crate::checksum::Checksum;
use crate::progress::Progress;

const HEADER: i32 = 0;
const CHUNK: i32 = 1;
const CHECKSUM: i32 = 2;

/// Size of the file and of its chunks.
const HEADER_BYTES: usize = 16;

/// Chunks under way.
const WINDOW: usize = 8;

/// A chunk that the sender wants and the receiver has memory for.
const LARGEST_CHUNK: u64 = 64 << 20;

/// A file to send.
pub(crate) struct Source {
    file: File,
    path: String,
}

impl Source {
    pub(crate) fn open(path: &str) -> Outcome<Self> {
        let file = File::open(path).map_err(|error| format!("{path}: {error}"))?;
        let path = path.to_owned();
        Ok(Self { file, path })
    }
}

/// Sends a file in chunks of `chunk` bytes.
pub(crate) fn send(sending: &mut SendConnection, source: Source, chunk: usize) -> Outcome<()> {
    let Source { mut file, path } = source;
    let size = file.metadata()?.len();
    let mut header = sending.registrar().buffer(HEADER_BYTES)?;
    header[..8].copy_from_slice(&size.to_le_bytes());
    header[8..].copy_from_slice(&(chunk as u64).to_le_bytes());
    let ticket = sending.send(header, HEADER).wait()?;
    sending.finish(ticket).wait()?;

    let mut checksum = Checksum::new();
    let mut progress = Progress::new("sent", size);
    let mut under_way = VecDeque::new();
    let mut left = size;
    while left > 0 {
        let mut buffer = if under_way.len() < WINDOW {
            sending.registrar().buffer(chunk)?
        } else {
            finish_oldest(sending, &mut under_way, &mut progress)?
        };
        buffer.set_length(chunk.min(usize::try_from(left).unwrap_or(chunk)));
        file.read_exact(&mut buffer)
            .map_err(|error| format!("{path} changes while it is sent: {error}"))?;
        checksum.add(&buffer);
        left -= buffer.len() as u64;
        under_way.push_back(sending.send(buffer, CHUNK).wait()?);
    }
    while !under_way.is_empty() {
        finish_oldest(sending, &mut under_way, &mut progress)?;
    }
    let mut last = sending.registrar().buffer(size_of::<u32>())?;
    last.copy_from_slice(&checksum.sum().to_le_bytes());
    let ticket = sending.send(last, CHECKSUM).wait()?;
    sending.finish(ticket).wait()?;
    say!("sent: checksum {:08x}", checksum.sum());
    Ok(())
}

fn finish_oldest(
    sending: &mut SendConnection,
    under_way: &mut VecDeque<ibnet::SendTicket>,
    progress: &mut Progress,
) -> Outcome<Buffer> {
    let oldest = under_way.pop_front().ok_or("nothing is under way")?;
    let buffer = sending.finish(oldest).wait()?;
    progress.add(buffer.len() as u64);
    Ok(buffer)
}

/// Receives a file into `path`, where nothing is left unless it is whole.
pub(crate) fn receive(receiving: &mut RecvConnection, path: &str) -> Outcome<()> {
    let ticket = receiving
        .recv(receiving.registrar().buffer(HEADER_BYTES)?, HEADER)
        .wait()?;
    let header = receiving.finish(ticket).wait()?;
    let (size, chunk) = parse(&header)?;

    let mut copy = Copy::create(path)?;
    let mut checksum = Checksum::new();
    let mut progress = Progress::new("received", size);
    let mut announced = VecDeque::new();
    let mut to_announce = size.div_ceil(chunk as u64);
    let mut spare = Vec::new();
    let mut left = size;
    loop {
        while to_announce > 0 && announced.len() < WINDOW {
            let mut buffer = match spare.pop() {
                Some(buffer) => buffer,
                None => receiving.registrar().buffer(chunk)?,
            };
            buffer.set_length(chunk);
            announced.push_back(receiving.recv(buffer, CHUNK).wait()?);
            to_announce -= 1;
        }
        let Some(oldest) = announced.pop_front() else {
            break;
        };
        let buffer = receiving.finish(oldest).wait()?;
        if buffer.len() as u64 != left.min(chunk as u64) {
            return Err(format!("a chunk of {} bytes with {left} left", buffer.len()).into());
        }
        left -= buffer.len() as u64;
        checksum.add(&buffer);
        copy.file.write_all(&buffer)?;
        progress.add(buffer.len() as u64);
        spare.push(buffer);
    }
    let ticket = receiving
        .recv(receiving.registrar().buffer(size_of::<u32>())?, CHECKSUM)
        .wait()?;
    let last = receiving.finish(ticket).wait()?;
    if last[..] != checksum.sum().to_le_bytes() {
        return Err(format!(
            "the copy has the checksum {:08x}, and that is not the file's: it was damaged on its way",
            checksum.sum()
        )
        .into());
    }
    copy.keep()?;
    say!("received: checksum {:08x}, right", checksum.sum());
    Ok(())
}

/// Size of the file and of its chunks. The peer may be anybody: both are believed only in bounds.
fn parse(header: &[u8]) -> Outcome<(u64, usize)> {
    let word = |at: usize| {
        let bytes = header.get(at..at + 8)?;
        bytes.try_into().ok().map(u64::from_le_bytes)
    };
    match (word(0), word(8)) {
        (Some(size), Some(chunk)) if (1..=LARGEST_CHUNK).contains(&chunk) => {
            Ok((size, chunk as usize))
        }
        _ => Err("the peer sends something other than a file".into()),
    }
}

/// A file in the making, beside its place; gone unless it is kept.
struct Copy {
    file: File,
    part: PathBuf,
    place: PathBuf,
}

impl Copy {
    fn create(path: &str) -> Outcome<Self> {
        let part = PathBuf::from(format!("{path}.part"));
        let file = File::create(&part).map_err(|error| format!("{}: {error}", part.display()))?;
        Ok(Self {
            file,
            part,
            place: Path::new(path).to_owned(),
        })
    }

    fn keep(&mut self) -> Outcome<()> {
        self.file.sync_all()?;
        Ok(fs::rename(&self.part, &self.place)?)
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        // It is not there if the copy was kept.
        let _ = fs::remove_file(&self.part);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn headers_are_believed_in_bounds() {
        let header = |size: u64, chunk: u64| [size.to_le_bytes(), chunk.to_le_bytes()].concat();
        assert_eq!(parse(&header(7, 4096)).unwrap(), (7, 4096));
        for bytes in [
            header(7, 0),
            header(7, LARGEST_CHUNK + 1),
            header(7, u64::MAX),
            vec![1; 15],
            vec![],
        ] {
            assert!(parse(&bytes).is_err());
        }
    }
}
