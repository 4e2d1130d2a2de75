//! What is to be sent: groups of messages, and where they lie in memory.

use ibnet_simverbs::Random;

/// One message.
pub(crate) struct Message {
    pub(crate) tag: i32,
    /// Bytes that the sender has.
    pub(crate) length: usize,
    /// Bytes that the receiver has room for.
    pub(crate) capacity: usize,
    /// Where the sender's bytes lie.
    pub(crate) source: usize,
    /// Where the receiver's room lies.
    pub(crate) target: usize,
}

impl Message {
    /// Bytes that arrive.
    pub(crate) fn size(&self) -> usize {
        self.length.min(self.capacity)
    }
}

/// One grouped receive, and the order in which the sender sends what belongs to it.
pub(crate) struct Group {
    pub(crate) messages: Vec<Message>,
    pub(crate) order: Vec<usize>,
}

/// Everything that is sent in a run.
pub(crate) struct Plan {
    pub(crate) groups: Vec<Group>,
    /// Bytes of memory that each end needs.
    pub(crate) source_bytes: usize,
    pub(crate) target_bytes: usize,
}

impl Plan {
    pub(crate) fn new(random: &mut Random) -> Self {
        let mut plan = Self {
            groups: Vec::new(),
            source_bytes: 0,
            target_bytes: 0,
        };
        let groups = random.range(1..60);
        // Most runs are of small messages, some of large ones.
        let largest = [8, 300, 5_000, 40_000][random.index(4)];
        for _ in 0..groups {
            let members = 1 + random.index(8);
            let messages: Vec<Message> = (0..members)
                .map(|member| plan.message(random, member, largest))
                .collect();
            let mut order: Vec<usize> = (0..members).collect();
            random.shuffle(&mut order);
            plan.groups.push(Group { messages, order });
        }
        plan
    }

    fn message(&mut self, random: &mut Random, member: usize, largest: u64) -> Message {
        let length = if random.chance(8) {
            0
        } else {
            random.below(largest) as usize
        };
        let capacity = match random.below(4) {
            0 => length,
            1 => length + random.below(200) as usize,
            2 => length.saturating_sub(random.below(50) as usize), // cut
            _ => largest as usize,
        };
        let source = self.source_bytes + random.index(70);
        let target = self.target_bytes + random.index(70);
        self.source_bytes = source + length;
        // A gap that must not be written.
        self.target_bytes = target + capacity + 64;
        // Tags differ within a group and repeat across groups.
        Message {
            tag: member as i32 * 3 - 4,
            length,
            capacity,
            source,
            target,
        }
    }
}
