//! Announcements as the peer writes them, byte by byte into the ring, against a model that reads
//! the ring as the table in `ring` describes it.

use ibnet_verbs::ProtectionDomain;

use super::input::Input;
use crate::connection::cts_queue::CtsQueue;
use crate::memory::cts_ring::CtsRing;
use crate::wire::cts::{ENTRIES, slot};

/// The model.
struct Model {
    ring: Vec<u8>,
    entry_bytes: usize,
    first: u64,
    /// 0: the group has not been seen.
    length: u64,
    taken: Vec<u64>,
}

impl Model {
    fn bytes<const N: usize>(&self, id: u64, offset: usize) -> [u8; N] {
        let start = (id % ENTRIES) as usize * self.entry_bytes + offset;
        self.ring[start..start + N].try_into().unwrap()
    }

    fn is_ready(&self, id: u64) -> bool {
        u64::from_le_bytes(self.bytes(id, self.entry_bytes - 8)) == id
    }

    fn u32(&self, id: u64, offset: usize) -> u32 {
        u32::from_le_bytes(self.bytes(id, offset))
    }

    /// Id, address, capacity of the free buffer for `tag`; `Err` if what is announced cannot be.
    fn find(&mut self, tag: u32) -> Result<Option<(u64, u64, u32)>, ()> {
        if self.length == 0 {
            if !self.is_ready(self.first) {
                return Ok(None);
            }
            let [group] = self.bytes(self.first, 16);
            self.length = u64::from(group);
            if !(1..=8).contains(&group) {
                return Err(());
            }
        }
        for position in 0..self.length {
            let id = self.first.wrapping_add(position);
            if self.taken.contains(&id) || !self.is_ready(id) {
                continue;
            }
            let [group, at] = self.bytes(id, 16);
            let capacity = self.u32(id, 8);
            if u64::from(group) != self.length || u64::from(at) != position || capacity >> 31 != 0 {
                return Err(());
            }
            if self.u32(id, 12) == tag {
                return Ok(Some((id, u64::from_le_bytes(self.bytes(id, 0)), capacity)));
            }
        }
        Ok(None)
    }

    fn take(&mut self, id: u64) {
        self.taken.push(id);
        if self.taken.len() as u64 == self.length {
            self.first = self.first.wrapping_add(self.length);
            self.length = 0;
            self.taken.clear();
        }
    }
}

/// First entry (8 bytes), whether entries have 64 bytes; then operations:
///
/// | first byte, modulo 4 | arguments |
/// |---|---|
/// | 0 | word of the ring (2), value (8): anything is written anywhere |
/// | 1 | ahead, group, position, tag, capacity (4), address (8): a whole entry |
/// | 2 | tag: a message is sent |
/// | 3 | tag: it is looked at where a message would go |
pub fn matching(data: &[u8]) {
    let mut input = Input::new(data);
    let first = input.u64();
    let entry_bytes = if input.u8() % 2 == 1 { 64 } else { 32 };
    let nowhere = std::iter::empty::<&ProtectionDomain>();
    let ring = CtsRing::new(nowhere, entry_bytes, first).unwrap();
    let mut model = Model {
        ring: vec![0; ENTRIES as usize * entry_bytes],
        entry_bytes,
        first,
        length: 0,
        taken: Vec::new(),
    };
    for ahead in 0..ENTRIES {
        let id = first.wrapping_add(ahead);
        let ready = (slot(id) + 1) * entry_bytes - 8;
        model.ring[ready..ready + 8].copy_from_slice(&id.wrapping_sub(ENTRIES).to_le_bytes());
    }
    let mut matching = CtsQueue::new(ring, first);
    while !input.is_empty() {
        match input.u8() % 4 {
            0 => {
                let word = usize::from(input.u16()) % (model.ring.len() / 8);
                write(&matching, &mut model, word * 8, input.u64());
            }
            1 => {
                let id = model.first.wrapping_add(input.u8().into());
                let (group, position, tag) = (input.u8(), input.u8(), input.u8());
                let (capacity, address) = (input.u32(), input.u64());
                let start = slot(id) * entry_bytes;
                let words = [
                    address,
                    u64::from(capacity) | u64::from(tag) << 32,
                    u64::from(group) | u64::from(position) << 8,
                ];
                for (index, word) in words.into_iter().enumerate() {
                    write(&matching, &mut model, start + index * 8, word);
                }
                write(&matching, &mut model, start + entry_bytes - 8, id);
            }
            operation => {
                let tag = input.u8().into();
                let found = matching.find(tag);
                let seen = found.as_ref().map_err(drop).map(|found| {
                    let found = found.as_ref()?;
                    Some((found.id, found.entry.address, found.entry.capacity))
                });
                assert_eq!(seen, model.find(tag));
                let Ok(Some(found)) = found else {
                    if found.is_err() {
                        // The connection ends here.
                        return;
                    }
                    continue;
                };
                for device in 0..if entry_bytes == 32 { 1 } else { 8 } {
                    let key = model.u32(found.id, 20 + device * 4);
                    assert_eq!(matching.rkey(found.id, device), key);
                }
                if operation == 2 {
                    matching.take(&found);
                    model.take(found.id);
                }
            }
        }
    }
}

/// What the peer's device does.
fn write(matching: &CtsQueue, model: &mut Model, offset: usize, value: u64) {
    matching.ring().area().write_u64(offset, value);
    model.ring[offset..offset + 8].copy_from_slice(&value.to_le_bytes());
}
