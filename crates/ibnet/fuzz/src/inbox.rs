//! Immediates and byte counts into the receiver's account, against a model that counts in wide
//! numbers and searches.

use super::input::Input;
use crate::connection::recv_window::{Arrived, RecvWindow};
use crate::wire::cts;
use crate::wire::immediate::{Immediate, SizeTold, generation};

/// The model: everything announced since the oldest open entry, in order.
struct Model {
    next: u64,
    most: u64,
    entries: Vec<Entry>,
}

struct Entry {
    id: u64,
    is_open: bool,
    request: u16,
    position: u8,
    capacity: u32,
    parts: u64,
    bytes: u64,
}

impl Model {
    fn has_room(&self, buffers: u64) -> bool {
        self.entries.len() as u64 + buffers <= self.most
    }

    fn open(&mut self, request: u16, position: u8, capacity: u32) {
        self.entries.push(Entry {
            id: self.next,
            is_open: true,
            request,
            position,
            capacity,
            parts: 0,
            bytes: 0,
        });
        self.next = self.next.wrapping_add(1);
    }

    /// As the table of `immediate` says; `Err` if the sender broke the protocol.
    fn take(&mut self, bits: u32, bytes: u32, in_table: u32) -> Result<Option<Arrived>, ()> {
        let (slot, told, generation) = (bits & 0xff, (bits >> 8) & 3, bits >> 17);
        let parts = u64::from((bits >> 10) & 0x7f) + 1;
        let is_it = |entry: &&mut Entry| {
            entry.is_open
                && entry.id % 256 == u64::from(slot)
                && (entry.id / 256) % (1 << 15) == u64::from(generation)
        };
        let entry = self.entries.iter_mut().find(is_it).ok_or(())?;
        entry.parts += 1;
        entry.bytes += u64::from(bytes);
        if entry.parts < parts {
            return Ok(None);
        }
        let size = match told {
            0 => entry.bytes,
            1 => entry.capacity.into(),
            _ => in_table.into(),
        };
        let is_too_long = told == 3;
        if entry.parts > parts || (size > entry.capacity.into()) != is_too_long {
            return Err(());
        }
        entry.is_open = false;
        let arrived = Arrived {
            slot: (entry.id % 256) as u8,
            request: entry.request,
            position: entry.position,
            size: size as u32,
            too_long_for: is_too_long.then_some(entry.capacity),
        };
        let open = self.entries.iter().position(|entry| entry.is_open);
        self.entries.drain(..open.unwrap_or(self.entries.len()));
        Ok(Some(arrived))
    }
}

/// The first entry (8 bytes) and the most that may be open (1 byte, less one); then operations:
///
/// | first byte, modulo 4 | arguments |
/// |---|---|
/// | 0 | buffers less one, capacity (4): announces a group |
/// | 1 | immediate (4), bytes (4), size in the table (4): any part |
/// | 2, 3 | which of the open entries, how the size is told, parts less one, bytes (4), table (4): a part that is expected |
pub fn inbox(data: &[u8]) {
    let mut input = Input::new(data);
    let first = input.u64();
    let most = u64::from(input.u8()) + 1;
    let mut inbox = RecvWindow::new(first, most);
    let mut model = Model {
        next: first,
        most,
        entries: Vec::new(),
    };
    let mut request = 0;
    while !input.is_empty() {
        let bits = match input.u8() % 4 {
            0 => {
                let buffers = 1 + input.below(8) as u8;
                let capacity = input.u32().min(cts::MAX_CAPACITY);
                let has_room = inbox.has_room(buffers.into());
                assert_eq!(has_room, model.has_room(buffers.into()));
                for position in (0..buffers).filter(|_| has_room) {
                    inbox.open(request, position, capacity);
                    model.open(request, position, capacity);
                }
                request = request.wrapping_add(1);
                assert_eq!(inbox.next(), model.next);
                continue;
            }
            1 => input.u32(),
            _ => {
                let which = usize::from(input.u8()) % model.entries.len().max(1);
                let told = input.u8();
                let parts = input.u8() % 128 + 1;
                let id = model.entries.get(which).map_or(first, |entry| entry.id);
                let size_told = match told % 4 {
                    0 => SizeTold::BySum,
                    1 => SizeTold::AsAnnounced,
                    2 => SizeTold::InTable,
                    _ => SizeTold::TooLong,
                };
                let slot = cts::slot(id) as u8;
                let generation = generation(id);
                Immediate {
                    slot,
                    size_told,
                    parts,
                    generation,
                }
                .encode()
            }
        };
        let (bytes, in_table) = (input.u32(), input.u32());
        let taken = inbox.take(Some(bits), bytes, |slot| {
            assert_eq!(slot, (bits & 0xff) as usize);
            in_table
        });
        let expected = model.take(bits, bytes, in_table);
        assert_eq!(
            taken.as_ref().map_err(drop),
            expected.as_ref().map_err(drop)
        );
        if taken.is_err() {
            // The connection ends here.
            return;
        }
    }
}
