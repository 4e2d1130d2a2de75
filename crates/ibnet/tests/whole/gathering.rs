//! Small messages of a group, which are gathered and go together, through the raw layer.

use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};

use ibnet::raw::{RecvBuffer, RequestId};
use ibnet::{Observer, Piece, RecvConnection, Region, SendConnection, Wait};
use ibnet_simverbs::{DeviceSpec, Fabric};

use crate::rig::connection;

/// Bytes between the beginnings of two buffers.
const STRIDE: usize = 8192;

/// A fabric that only moves when it is told to, a connection on it, and memory at both ends.
struct Rig {
    // Before the memory.
    regions: [Region; 2],
    sending: SendConnection,
    receiving: RecvConnection,
    fabric: Fabric,
    source: Vec<u8>,
    target: Vec<u8>,
}

impl Rig {
    fn new() -> Self {
        let builder = Fabric::builder().stepped(1);
        let builder = builder.device(DeviceSpec::roce("s0"));
        let fabric = builder.device(DeviceSpec::roce("r0")).build().unwrap();
        let (sending, receiving) = connection(&fabric);
        let mut source: Vec<u8> = (0..8 * STRIDE).map(|at| (at / STRIDE) as u8 + 1).collect();
        let mut target = vec![0; 8 * STRIDE];
        let register = |registrar: ibnet::Registrar, memory: &mut Vec<u8>| {
            // SAFETY: the memory is kept beside the region, which is dropped first.
            unsafe { registrar.register(memory.as_mut_ptr(), memory.len()) }.unwrap()
        };
        let regions = [
            register(sending.registrar(), &mut source),
            register(receiving.registrar(), &mut target),
        ];
        Self {
            regions,
            sending,
            receiving,
            fabric,
            source,
            target,
        }
    }

    /// Announces a group of `count` buffers with tags 0, 1, …
    fn announce(&mut self, count: usize) -> RequestId {
        let target = self.target.as_mut_ptr();
        let buffers: Vec<_> = (0..count)
            .map(|index| RecvBuffer {
                data: target.wrapping_add(index * STRIDE),
                capacity: STRIDE,
                tag: index as i32,
                region: Some(&self.regions[1]),
            })
            .collect();
        // SAFETY: the memory outlives the connection.
        let request = unsafe { self.receiving.raw().irecv(&buffers) }
            .unwrap()
            .unwrap();
        self.fabric.run_until_idle();
        request
    }

    fn isend(&mut self, tag: usize, length: usize) -> Option<RequestId> {
        let data = self.source.as_ptr().wrapping_add((tag % 8) * STRIDE);
        // SAFETY: the memory outlives the connection.
        let sent = unsafe {
            self.sending
                .raw()
                .isend(data, length, tag as i32, Some(&self.regions[0]))
        };
        self.fabric.run_until_idle();
        sent.unwrap()
    }

    /// The buffers that something has landed in.
    fn landed(&self) -> Vec<usize> {
        let first_byte = |index: &usize| self.target[index * STRIDE] != 0;
        (0..8).filter(first_byte).collect()
    }
}

#[test]
fn a_group_goes_when_its_last_message_is_there() {
    let mut rig = Rig::new();
    let receive = rig.announce(8);
    // In any order of tags.
    let order = [3, 0, 7, 1, 2, 6, 4];
    let mut sends: Vec<_> = order.map(|tag| rig.isend(tag, 10 + tag).unwrap()).into();
    assert!(rig.landed().is_empty(), "the last one is missing");
    sends.push(rig.isend(5, 15).unwrap());
    assert_eq!(rig.landed(), [0, 1, 2, 3, 4, 5, 6, 7]);
    for (send, tag) in sends.into_iter().zip(order.into_iter().chain([5])) {
        assert_eq!(rig.sending.raw().test(send).unwrap(), Some(10 + tag));
    }
    let received = rig.receiving.raw().test(receive).unwrap().unwrap();
    assert_eq!(received.sizes(), [10, 11, 12, 13, 14, 15, 16, 17]);
    for index in 0..8 {
        let bytes = &rig.target[index * STRIDE..][..10 + index];
        assert!(bytes.iter().all(|byte| usize::from(*byte) == index + 1));
    }
}

#[test]
fn asking_for_one_sends_all_of_them() {
    let mut rig = Rig::new();
    let receive = rig.announce(8);
    let sends: Vec<_> = (0..3).map(|tag| rig.isend(tag, 1).unwrap()).collect();
    assert!(rig.landed().is_empty());
    assert_eq!(rig.sending.raw().test(sends[1]).unwrap(), None);
    rig.fabric.run_until_idle();
    assert_eq!(rig.landed(), [0, 1, 2]);
    for send in sends {
        assert_eq!(rig.sending.raw().test(send).unwrap(), Some(1));
    }
    // Those that follow are a chain of their own.
    for tag in 3..7 {
        rig.isend(tag, 1).unwrap();
    }
    assert_eq!(rig.landed(), [0, 1, 2]);
    rig.isend(7, 1).unwrap();
    assert_eq!(rig.landed(), [0, 1, 2, 3, 4, 5, 6, 7]);
    assert!(rig.receiving.raw().test(receive).unwrap().is_some());
}

#[test]
fn a_message_without_a_buffer_yet_lets_the_others_go() {
    // The receiver may wait for them before it announces more.
    let mut rig = Rig::new();
    rig.announce(4);
    rig.isend(0, 1).unwrap();
    rig.isend(2, 1).unwrap();
    assert!(rig.landed().is_empty());
    assert_eq!(rig.isend(77, 1), None);
    assert_eq!(rig.landed(), [0, 2]);
}

#[test]
fn a_large_message_waits_for_none_and_takes_the_others_along() {
    let mut rig = Rig::new();
    rig.announce(4);
    rig.isend(0, 1).unwrap();
    assert!(rig.landed().is_empty());
    rig.isend(1, 5000).unwrap();
    assert_eq!(rig.landed(), [0, 1]);
}

#[test]
fn a_single_message_waits_for_none() {
    let mut rig = Rig::new();
    for _ in 0..3 {
        rig.target.fill(0);
        rig.announce(1);
        rig.isend(0, 1).unwrap();
        assert_eq!(rig.landed(), [0]);
    }
}

/// Panics when it is told of the first piece.
struct Panics(bool);

impl Observer for Panics {
    fn started(&mut self, _: NonZeroUsize, _: &Piece) -> Option<NonZeroUsize> {
        assert!(std::mem::replace(&mut self.0, true), "part of the test");
        None
    }

    fn finished(&mut self, _: NonZeroUsize) {}
}

#[test]
fn no_memory_is_freed_under_a_write_when_an_observer_panics() {
    let mut rig = Rig::new();
    rig.sending.observe(Box::new(Panics(false)));
    rig.announce(2);
    let data = rig.source.as_ptr();
    let parent = NonZeroUsize::new(5);
    // SAFETY: the memory outlives the connection.
    let first = unsafe {
        rig.sending
            .raw()
            .isend_observed(data, 8, 0, Some(&rig.regions[0]), parent)
    };
    let first = first.unwrap().unwrap();
    // The other one of the group comes from the safe layer, and both go.
    let buffer = rig.sending.registrar().buffer(40).unwrap();
    let regions = rig.fabric.live_objects().mrs;
    let sent = catch_unwind(AssertUnwindSafe(|| {
        drop(rig.sending.send(buffer, 1).try_now())
    }));
    assert!(sent.is_err());
    assert_eq!(rig.fabric.live_objects().mrs, regions, "freed too soon");
    rig.fabric.run_until_idle();
    assert_eq!(rig.sending.raw().test(first).unwrap(), Some(8));
    assert_eq!(rig.landed()[..], [0]);
}

#[test]
fn what_is_gathered_goes_with_the_connection() {
    let mut rig = Rig::new();
    rig.announce(2);
    rig.isend(0, 1).unwrap();
    let Rig {
        sending,
        regions,
        fabric,
        target,
        ..
    } = rig;
    sending.close().unwrap();
    fabric.run_until_idle();
    assert_eq!(target[0], 0, "a closed connection sends nothing");
    drop(regions);
}
