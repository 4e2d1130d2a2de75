//! A run: both ends in one thread, and a random choice of what happens next.

use ibnet::raw::{RecvBuffer, RequestId};
use ibnet::{Error, RecvConnection, Region, SendConnection};
use ibnet_simverbs::{Fabric, Random};

use crate::plan::Plan;
use crate::world::World;

/// What was not written.
const UNTOUCHED: u8 = 0xc7;
/// What the application writes over a buffer that was handed back: a late write shows.
const TAKEN: u8 = 0x11;

/// How a run ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    AllDone,
    /// The connection has failed on both ends; the first error in words.
    Broken(String),
}

/// A run in progress. The order of the fields is the order of teardown.
pub(crate) struct Run {
    sending: Option<SendConnection>,
    receiving: Option<RecvConnection>,
    source_region: Region,
    target_region: Region,
    source: Box<[u8]>,
    target: Box<[u8]>,
    /// What the target must look like.
    expected: Vec<u8>,
    plan: Plan,
    /// Groups whose receives are posted.
    posted: usize,
    /// The next message to send: group, position in its order.
    next: (usize, usize),
    sends: Vec<(RequestId, usize, usize)>,
    receives: Vec<(RequestId, usize)>,
    random: Random,
    fabric: Fabric,
    errors: [Option<Error>; 2],
    /// Things that happen before an end leaves by itself, and which.
    leaves: Option<(u64, usize)>,
}

impl Run {
    pub(crate) fn new(world: &World, seed: u64) -> Self {
        Self::on(world, world.connect().unwrap(), seed)
    }

    /// `None` if the devices are too small for a connection.
    pub(crate) fn try_new(world: &World, seed: u64) -> Option<Self> {
        match world.connect() {
            Ok(ends) => Some(Self::on(world, ends, seed)),
            Err(error) => {
                let text = error.to_string();
                assert!(text.contains("max_cqe"), "{text}");
                None
            }
        }
    }

    fn on(world: &World, ends: (SendConnection, RecvConnection), seed: u64) -> Self {
        let mut random = Random::new(!seed);
        let plan = Plan::new(&mut random);
        let (sending, receiving) = ends;
        // One byte more, so that a run of empty messages has memory, too.
        let mut source = vec![0; plan.source_bytes + 1].into_boxed_slice();
        source.fill_with(|| random.next_u32() as u8);
        let mut target = vec![UNTOUCHED; plan.target_bytes + 1].into_boxed_slice();
        // SAFETY: the regions are fields before the memory, so they are dropped before it.
        let (source_region, target_region) = unsafe {
            (
                sending
                    .registrar()
                    .register(source.as_mut_ptr(), source.len())
                    .unwrap(),
                receiving
                    .registrar()
                    .register(target.as_mut_ptr(), target.len())
                    .unwrap(),
            )
        };
        Self {
            sending: Some(sending),
            receiving: Some(receiving),
            source_region,
            target_region,
            expected: target.to_vec(),
            source,
            target,
            plan,
            posted: 0,
            next: (0, 0),
            sends: Vec::new(),
            receives: Vec::new(),
            random,
            fabric: world.fabric.clone(),
            errors: [None, None],
            leaves: None,
        }
    }

    /// Has one of the ends leave in the middle of the run.
    pub(crate) fn let_one_leave(&mut self) {
        let after = self.random.below(600);
        self.leaves = Some((after, self.random.index(2)));
    }

    /// Does one random thing after the other until all is done or broken.
    pub(crate) fn play(&mut self) -> End {
        // Real time passes only when the connection is failing, while both ends wait for news.
        let limit = std::time::Instant::now() + std::time::Duration::from_secs(30);
        for step in 0.. {
            if let Some((after, end)) = self.leaves
                && after == step
            {
                self.broken(end, Error::InvalidArgument("it has left".to_owned()));
            }
            let outcome = match self.random.below(8) {
                0 => self.post_receive(),
                1 | 2 => self.send(),
                3 => self.test_send(),
                4 => self.test_receive(),
                _ => {
                    for _ in 0..self.random.below(20) {
                        self.fabric.step();
                    }
                    Ok(())
                }
            };
            if let Err((end, error)) = outcome {
                self.broken(end, error);
            }
            if let Some(first) = self.errors.iter().flatten().next()
                && self.has_ended(0)
                && self.has_ended(1)
            {
                return End::Broken(first.to_string());
            }
            if self.is_done() {
                return End::AllDone;
            }
            assert!(
                std::time::Instant::now() < limit,
                "the run hangs: {}",
                self.state()
            );
        }
        unreachable!("the numbers do not end")
    }

    /// One end has failed: it leaves, and the other must learn of it.
    fn broken(&mut self, end: usize, error: Error) {
        if self.errors[end].is_some() {
            return;
        }
        self.errors[end] = Some(error);
        match end {
            0 => drop(self.sending.take()),
            _ => drop(self.receiving.take()),
        }
    }

    /// Whether an end has failed, or has nothing more to do that could fail.
    fn has_ended(&self, end: usize) -> bool {
        let groups = self.plan.groups.len();
        let is_idle = match end {
            0 => self.sends.is_empty() && self.next.0 == groups,
            _ => self.receives.is_empty() && self.posted == groups,
        };
        is_idle || self.errors[end].is_some()
    }

    fn is_done(&self) -> bool {
        self.posted == self.plan.groups.len()
            && self.next.0 == self.plan.groups.len()
            && self.sends.is_empty()
            && self.receives.is_empty()
    }

    fn post_receive(&mut self) -> Result<(), (usize, Error)> {
        let (Some(group), Some(receiving)) =
            (self.plan.groups.get(self.posted), self.receiving.as_mut())
        else {
            return Ok(());
        };
        let target = self.target.as_mut_ptr();
        let buffers: Vec<RecvBuffer<'_>> = group
            .messages
            .iter()
            .map(|message| RecvBuffer {
                data: target.wrapping_add(message.target),
                capacity: message.capacity,
                tag: message.tag,
                region: Some(&self.target_region),
            })
            .collect();
        // SAFETY: the target is only looked at where a request is done, and freed after the
        // connections.
        match unsafe { receiving.raw().irecv(&buffers) } {
            Ok(Some(request)) => {
                self.receives.push((request, self.posted));
                self.posted += 1;
                Ok(())
            }
            Ok(None) => Ok(()),
            Err(error) => Err((1, error)),
        }
    }

    fn send(&mut self) -> Result<(), (usize, Error)> {
        let (number, place) = self.next;
        let (Some(group), Some(sending)) = (self.plan.groups.get(number), self.sending.as_mut())
        else {
            return Ok(());
        };
        let member = group.order[place];
        let message = &group.messages[member];
        let data = self.source.as_ptr().wrapping_add(message.source);
        let region = (message.length > 0).then_some(&self.source_region);
        // SAFETY: the source is only written where a request is done, and freed after the
        // connections.
        match unsafe {
            sending
                .raw()
                .isend(data, message.length, message.tag, region)
        } {
            Ok(Some(request)) => {
                self.sends.push((request, number, member));
                let is_last = place + 1 == group.order.len();
                self.next = if is_last {
                    (number + 1, 0)
                } else {
                    (number, place + 1)
                };
                Ok(())
            }
            Ok(None) => Ok(()),
            Err(error) => Err((0, error)),
        }
    }

    fn test_send(&mut self) -> Result<(), (usize, Error)> {
        let Some(sending) = self.sending.as_mut() else {
            return Ok(());
        };
        if self.sends.is_empty() {
            // As the application does that only waits: it goes on trying to send.
            return Ok(());
        }
        let index = self.random.index(self.sends.len());
        let (request, group, member) = self.sends[index];
        match sending.raw().test(request) {
            Ok(None) => return Ok(()),
            Err(error) => return Err((0, error)),
            Ok(Some(size)) => {
                let message = &self.plan.groups[group].messages[member];
                assert_eq!(size, message.size(), "a send tells another size");
            }
        }
        assert!(
            matches!(sending.raw().test(request), Err(Error::StaleRequest { .. })),
            "a request was done twice"
        );
        self.sends.swap_remove(index);
        self.check_that_it_is_there(group, member);
        // The buffer is the application's again: its content no longer matters.
        let message = &self.plan.groups[group].messages[member];
        let kept = self.source[message.source..message.source + message.length].to_vec();
        self.source[message.source..message.source + message.length].fill(!0);
        self.remember(group, member, &kept);
        Ok(())
    }

    /// A send that is done has put its data where it belongs, whatever became of the receiver.
    fn check_that_it_is_there(&self, group: usize, member: usize) {
        let message = &self.plan.groups[group].messages[member];
        let size = message.size();
        let arrived = &self.target[message.target..message.target + size];
        let source = &self.source[message.source..message.source + size];
        let is_taken = || arrived.iter().all(|byte| *byte == TAKEN);
        assert!(
            arrived == source || is_taken(),
            "a send is done and its data has not arrived"
        );
    }

    /// What was in the source, for the comparison when the message has been received.
    fn remember(&mut self, group: usize, member: usize, bytes: &[u8]) {
        let message = &self.plan.groups[group].messages[member];
        let (target, size) = (message.target, message.size());
        // Not yet taken: the expected image gets the data now.
        if self.expected[target..target + size]
            .iter()
            .all(|byte| *byte == UNTOUCHED)
        {
            self.expected[target..target + size].copy_from_slice(&bytes[..size]);
        }
    }

    fn test_receive(&mut self) -> Result<(), (usize, Error)> {
        let Some(receiving) = self.receiving.as_mut() else {
            return Ok(());
        };
        if self.receives.is_empty() {
            // SAFETY: no memory.
            return match unsafe { receiving.raw().irecv(&[]) } {
                Err(error) if !matches!(error, Error::InvalidArgument(_)) => Err((1, error)),
                _ => Ok(()),
            };
        }
        let index = self.random.index(self.receives.len());
        let (request, number) = self.receives[index];
        let received = match receiving.raw().test(request) {
            Ok(None) => return Ok(()),
            Ok(Some(received)) => received,
            Err(error) => return Err((1, error)),
        };
        assert!(
            matches!(
                receiving.raw().test(request),
                Err(Error::StaleRequest { .. })
            ),
            "a request was done twice"
        );
        self.receives.swap_remove(index);
        let group = &self.plan.groups[number];
        assert_eq!(received.sizes().len(), group.messages.len());
        for (message, size) in group.messages.iter().zip(received.sizes()) {
            assert_eq!(
                *size as usize,
                message.size(),
                "a receive tells another size"
            );
            let target = message.target..message.target + message.size();
            let source = &self.source[message.source..message.source + message.size()];
            let arrived = &self.target[target.clone()];
            let expected = &self.expected[target.clone()];
            // The sender's buffer may have been given back and overwritten already.
            assert!(arrived == source || arrived == expected, "wrong data");
            self.target[target.clone()].fill(TAKEN);
            self.expected[target].fill(TAKEN);
        }
        Ok(())
    }

    /// Everything is where it belongs, and nothing else was written.
    pub(crate) fn check_memory(&self) {
        self.fabric.run_until_idle();
        let wrong = (0..self.target.len()).find(|at| self.target[*at] != self.expected[*at]);
        assert_eq!(
            wrong, None,
            "memory was written after its request was done, or beside it"
        );
    }

    /// After a failure: outside the buffers of unfinished requests nothing was written.
    pub(crate) fn check_what_arrived(&self) {
        let mut may_differ = vec![false; self.target.len()];
        for (number, group) in self.plan.groups.iter().enumerate() {
            let is_open = number >= self.posted
                || self
                    .receives
                    .iter()
                    .any(|(_, unfinished)| *unfinished == number);
            for message in group.messages.iter().filter(|_| is_open) {
                may_differ[message.target..message.target + message.capacity].fill(true);
            }
        }
        let wrong = (0..self.target.len())
            .find(|at| !may_differ[*at] && self.target[*at] != self.expected[*at]);
        assert_eq!(
            wrong, None,
            "memory was written that no unfinished request owns"
        );
    }

    /// Closes what is open, in random order.
    pub(crate) fn close(mut self) {
        if self.random.chance(2) {
            drop(self.receiving.take());
        }
        if let Some(sending) = self.sending.take() {
            sending.close().unwrap();
        }
        if let Some(receiving) = self.receiving.take() {
            receiving.close().unwrap();
        }
    }

    /// What happened on the fabric, in order.
    pub(crate) fn history(&self) -> Vec<String> {
        self.fabric
            .take_trace()
            .iter()
            .map(|entry| format!("{entry:?}"))
            .collect()
    }

    fn state(&mut self) -> String {
        format!(
            "{} of {} groups posted, next message {:?}, {} sends and {} receives outstanding, \
             errors {:?}; {:?}; {:?}",
            self.posted,
            self.plan.groups.len(),
            self.next,
            self.sends.len(),
            self.receives.len(),
            self.errors,
            self.sending.as_mut().map(|end| format!("{:?}", end.raw())),
            self.receiving
                .as_mut()
                .map(|end| format!("{:?}", end.raw()))
        )
    }
}
