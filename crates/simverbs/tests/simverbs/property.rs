//! Random traffic on random schedules: whatever happens, the same things must hold.
//!
//! A failure prints the command that runs its seed again, such as
//! `SIMVERBS_SEED=123 cargo test -p ibnet-simverbs --test simverbs property`.

use std::collections::BTreeMap;
use std::time::Duration;

use ibnet_simverbs::{DeviceSpec, Fabric, PortSpec, Random, Target, TraceEntry, When};
use ibnet_verbs::{RecvRequest, SendRequest, WcOpcode, WcStatus};

use crate::pairs::{End, Setup, open_all};

/// Each request has a place of its own in the memory of both ends, of this many bytes.
const PLACE: usize = 2048;
/// What may be posted in all, on one end.
const REQUESTS: u64 = 12;
/// Each end's memory: places of its own requests, of its peer's requests, and of receives.
const PEER_AT: usize = REQUESTS as usize * PLACE;
const RECEIVES_AT: usize = 2 * PEER_AT;

/// The seeds of a test, or the one that is to be repeated.
fn seeds(number: u64) -> Vec<u64> {
    match std::env::var("SIMVERBS_SEED") {
        Ok(seed) => match seed.parse() {
            Ok(seed) => vec![seed],
            Err(_) => panic!("SIMVERBS_SEED={seed}: expected a whole number"),
        },
        Err(_) => (0..number).collect(),
    }
}

/// Says which seed it was when a test panics.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The harness calls the thread of a test by the test's name.
            let thread = std::thread::current();
            let (seed, name) = (self.0, thread.name().unwrap_or_default());
            eprintln!("seed {seed} has failed; this runs it again:\n");
            eprintln!(
                "    SIMVERBS_SEED={seed} cargo test -p ibnet-simverbs --test simverbs {name}\n"
            );
        }
    }
}

/// One direction of a connection.
struct Flow {
    /// What was posted, in order.
    posted: Vec<Posted>,
    /// How many receives were posted for the peer's messages.
    receives: u64,
    /// Completions of its own sends: identifier and status.
    sent: Vec<(u64, WcStatus)>,
    /// Completions of the receives at the peer: identifier, status, immediate, length.
    received: Vec<(u64, WcStatus, Option<u32>, u32)>,
}

#[derive(Clone, Copy)]
struct Posted {
    kind: Kind,
    reports: bool,
    length: usize,
    /// Where its bytes end up: at the peer, or at this end if it is a read.
    target: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Write,
    WriteWithImmediate,
    Send,
    SendWithImmediate,
    Read,
}

impl Kind {
    fn consumes(self) -> bool {
        !matches!(self, Self::Write | Self::Read)
    }
}

fn byte(flow: usize, wr_id: u64) -> u8 {
    (1 + flow * 40 + wr_id as usize) as u8
}

struct World {
    random: Random,
    fabric: Fabric,
    /// The two ends of each connection; connection `i` has flows `2i` (from the first end to the
    /// second) and `2i + 1`.
    ends: Vec<[End; 2]>,
    flows: Vec<Flow>,
}

impl World {
    fn new(seed: u64, setup: &Setup) -> Self {
        let mut random = Random::new(seed);
        let devices = 1 + random.index(3);
        let builder =
            (0..devices).fold(Fabric::builder().stepped(seed).trace(), |builder, index| {
                let name = format!("sim{index}");
                builder.device(DeviceSpec::roce(name).ports([PortSpec::roce(), PortSpec::roce()]))
            });
        let fabric = builder.build().unwrap();
        let contexts = open_all(&fabric);
        let connections = 1 + random.index(3);
        let ends: Vec<[End; 2]> = (0..connections)
            .map(|_| {
                let ends = [(); 2].map(|()| {
                    let mut end = End::new(&contexts[random.index(devices)], setup);
                    end.port = 1 + random.index(2) as u8;
                    end
                });
                ends[0].connect_to(&ends[1], setup).unwrap();
                ends[1].connect_to(&ends[0], setup).unwrap();
                ends
            })
            .collect();
        let flows = (0..connections * 2).map(|_| Flow {
            posted: Vec::new(),
            receives: 0,
            sent: Vec::new(),
            received: Vec::new(),
        });
        let flows = flows.collect();
        Self {
            random,
            fabric,
            ends,
            flows,
        }
    }

    fn ends_of(&self, flow: usize) -> (&End, &End) {
        let ends = &self.ends[flow / 2];
        (&ends[flow % 2], &ends[1 - flow % 2])
    }

    fn post(&mut self, flow: usize) {
        let wr_id = self.flows[flow].posted.len() as u64;
        if wr_id == REQUESTS {
            return;
        }
        let kinds = [
            Kind::Write,
            Kind::WriteWithImmediate,
            Kind::Send,
            Kind::SendWithImmediate,
            Kind::Read,
        ];
        let kind = kinds[self.random.index(kinds.len())];
        // Receives have room for this much.
        let longest = if kind.consumes() { 1024 } else { PLACE - 64 };
        let length = match self.random.index(4) {
            0 => 0,
            1 => self.random.index(65),
            _ => self.random.index(longest),
        };
        let is_last = wr_id + 1 == REQUESTS;
        let reports = is_last || self.random.chance(2);
        let is_inline = kind != Kind::Read && length <= 64 && self.random.chance(2);
        let shift = self.random.index(64);
        let (own, peer) = self.ends_of(flow);
        let at = wr_id as usize * PLACE;
        let (local, there) = (at + shift % 7, PEER_AT + at + shift);
        let data = vec![byte(flow, wr_id); length];
        match kind {
            Kind::Read => peer.memory.write(there, &data),
            _ => own.memory.write(local, &data),
        }
        let sge = (length > 0).then(|| own.sge(local, length).unwrap());
        let remote = peer.remote(there);
        let immediate = wr_id as u32 ^ 0x8000_0000;
        let mut request = match kind {
            Kind::Write => SendRequest::write(wr_id, sge, remote),
            Kind::WriteWithImmediate => {
                SendRequest::write_with_immediate(wr_id, sge, remote, immediate)
            }
            Kind::Send => SendRequest::send(wr_id, sge),
            Kind::SendWithImmediate => SendRequest::send_with_immediate(wr_id, sge, immediate),
            Kind::Read => SendRequest::read(wr_id, sge, remote),
        };
        if reports {
            request = request.signaled();
        }
        if is_inline {
            request = request.inline();
        }
        own.send(&mut [request]).unwrap();
        if is_inline {
            // It was copied; and it is put back for the comparison at the end.
            own.memory.write(local, &vec![0xff; length]);
            own.memory.write(local, &data);
        }
        self.flows[flow].posted.push(Posted {
            kind,
            reports,
            length,
            target: if kind == Kind::Read { local } else { there },
        });
    }

    fn post_receive(&mut self, flow: usize) {
        let number = self.flows[flow].receives;
        if number == REQUESTS {
            return;
        }
        let (_, peer) = self.ends_of(flow);
        let sge = peer
            .sge(RECEIVES_AT + number as usize % 4 * 1024, 1024)
            .unwrap();
        // Marked, so that it is not taken for a send of the same queue.
        peer.receive(&mut [RecvRequest::new(1000 + number).with_sge(sge)])
            .unwrap();
        self.flows[flow].receives += 1;
    }

    fn poll(&mut self, connection: usize) {
        for side in 0..2 {
            for wc in self.ends[connection][side].poll() {
                let own = connection * 2 + side;
                let of_peer = connection * 2 + 1 - side;
                if wc.wr_id() < 1000 {
                    self.flows[own].sent.push((wc.wr_id(), wc.status()));
                    continue;
                }
                let length = if wc.is_success() { wc.byte_len() } else { 0 };
                let received = (wc.wr_id() - 1000, wc.status(), wc.immediate(), length);
                self.flows[of_peer].received.push(received);
                if wc.is_success() {
                    self.check_opcode(of_peer, wc.opcode());
                }
            }
        }
    }

    /// The opcode of the receive that came last is that of the message that consumed it.
    fn check_opcode(&self, flow: usize, opcode: WcOpcode) {
        let flow = &self.flows[flow];
        let mut consuming = flow.posted.iter().filter(|posted| posted.kind.consumes());
        let expected = match consuming.nth(flow.received.len() - 1).unwrap().kind {
            Kind::WriteWithImmediate => WcOpcode::RECV_RDMA_WITH_IMM,
            _ => WcOpcode::RECV,
        };
        assert_eq!(opcode, expected);
    }

    /// Posts, receives, polls and steps in random order, until everything was posted.
    fn play(&mut self, mut meanwhile: impl FnMut(&mut Self)) {
        let all = |flow: &Flow| flow.posted.len() as u64 == REQUESTS && flow.receives == REQUESTS;
        while !self.flows.iter().all(all) {
            let flow = self.random.index(self.flows.len());
            match self.random.index(6) {
                0 => self.post(flow),
                1 => self.post_receive(flow),
                2 => self.poll(flow / 2),
                3 => meanwhile(self),
                _ => {
                    self.fabric.step();
                }
            }
        }
    }

    /// What the receiver of a flow has got is what was sent, in order.
    fn check_received(&self, flow: usize) -> usize {
        let of_flow = &self.flows[flow];
        let consuming = of_flow.posted.iter().zip(0_u32..);
        let consuming: Vec<_> = consuming
            .filter(|(posted, _)| posted.kind.consumes())
            .collect();
        let good = of_flow
            .received
            .iter()
            .filter(|received| received.1 == WcStatus::SUCCESS);
        let good: Vec<_> = good.collect();
        for (index, (number, _, immediate, length)) in good.iter().enumerate() {
            let (posted, wr_id) = consuming[index];
            assert_eq!((*number, *length), (index as u64, posted.length as u32));
            let has_immediate = matches!(
                posted.kind,
                Kind::WriteWithImmediate | Kind::SendWithImmediate
            );
            assert_eq!(*immediate, has_immediate.then_some(wr_id ^ 0x8000_0000));
        }
        good.len()
    }

    /// Every byte of the requests that are known to be done is where it should be, and nothing
    /// around it was touched.
    fn check_bytes(&self, flow: usize, done: usize) {
        let (own, peer) = self.ends_of(flow);
        for (posted, wr_id) in self.flows[flow].posted[..done].iter().zip(0..) {
            let memory = match posted.kind {
                Kind::Write | Kind::WriteWithImmediate => &peer.memory,
                Kind::Read => &own.memory,
                // Receives use their places several times.
                Kind::Send | Kind::SendWithImmediate => continue,
            };
            let start = posted.target - posted.target % PLACE;
            let mut expected = vec![0; PLACE];
            let from = posted.target - start;
            expected[from..from + posted.length].fill(byte(flow, wr_id));
            let found = memory.read(start..start + PLACE);
            assert!(
                found == expected,
                "flow {flow}, request {wr_id}: wrong bytes"
            );
        }
    }

    fn finish(self) -> Vec<TraceEntry> {
        let Self { fabric, ends, .. } = self;
        drop(ends);
        assert!(
            fabric.live_objects().is_empty(),
            "{:?}",
            fabric.live_objects()
        );
        fabric.take_trace()
    }
}

/// Everything succeeds, in whatever order.
fn undisturbed(seed: u64) -> Vec<TraceEntry> {
    let _seed = Seed(seed);
    let mut world = World::new(seed, &Setup::default());
    let faults = world.fabric.faults();
    let mut armed = Vec::new();
    if world.random.chance(2) {
        armed.push(faults.tear_messages(Target::Any, When::ALWAYS));
    }
    if world.random.chance(2) {
        let delay = Duration::ZERO..=Duration::from_micros(40);
        armed.push(faults.delay_completions(Target::Any, delay));
    }
    if world.random.chance(2) {
        armed.push(faults.partial_polls(Target::Any, When::ALWAYS));
    }
    world.play(|_| ());
    world.fabric.advance(Duration::from_secs(1));
    for _ in 0..200 {
        (0..world.ends.len()).for_each(|connection| world.poll(connection));
    }
    for flow in 0..world.flows.len() {
        let of_flow = &world.flows[flow];
        let reporting = of_flow
            .posted
            .iter()
            .zip(0..)
            .filter(|(posted, _)| posted.reports);
        let expected: Vec<_> = reporting
            .map(|(_, wr_id)| (wr_id, WcStatus::SUCCESS))
            .collect();
        assert_eq!(of_flow.sent, expected);
        let consuming = of_flow
            .posted
            .iter()
            .filter(|posted| posted.kind.consumes())
            .count();
        assert_eq!(world.check_received(flow), consuming);
        world.check_bytes(flow, REQUESTS as usize);
    }
    // Armed faults struck whenever there was anything to strike.
    assert!(armed.iter().all(|fault| fault.struck() > 0));
    world.finish()
}

/// Links fail and queue pairs with them: what is reported is still true. Gives how many directions
/// broke, and how many messages were torn.
fn disturbed(seed: u64) -> (u64, u64, Vec<TraceEntry>) {
    let _seed = Seed(seed);
    let setup = Setup {
        retries: 1,
        timeout: 1,
        ..Setup::default()
    };
    let mut world = World::new(seed, &setup);
    let faults = world.fabric.faults();
    let tear = faults.tear_messages(Target::Any, When::ALWAYS);
    let devices = world.fabric.library().devices().unwrap();
    let names: Vec<_> = devices
        .iter()
        .map(|device| device.name().to_owned())
        .collect();
    drop(devices);
    world.play(|world| {
        let port = 1 + world.random.index(2) as u8;
        let name = &names[world.random.index(names.len())];
        let duration = Duration::from_micros(1 + world.random.below(30));
        let _cut = world.fabric.faults().cut_link(name, port, duration);
    });
    world.fabric.advance(Duration::from_secs(1));
    for [one, other] in &world.ends {
        one.qp.to_error().unwrap();
        other.qp.to_error().unwrap();
    }
    world.fabric.advance(Duration::from_secs(1));
    (0..world.ends.len()).for_each(|connection| world.poll(connection));
    let mut broken = 0;
    for flow in 0..world.flows.len() {
        let of_flow = &world.flows[flow];
        // Once something has failed, everything fails, in order, and reports.
        let successes = of_flow
            .sent
            .iter()
            .take_while(|sent| sent.1 == WcStatus::SUCCESS)
            .count();
        let rest = &of_flow.sent[successes..];
        let mut statuses = rest.iter().map(|sent| sent.1);
        if let Some(first) = statuses.next() {
            broken += u64::from(first == WcStatus::RETRY_EXC_ERR);
            let is_known = matches!(first, WcStatus::RETRY_EXC_ERR | WcStatus::WR_FLUSH_ERR);
            assert!(is_known, "{first}");
            assert!(statuses.all(|status| status == WcStatus::WR_FLUSH_ERR));
        }
        let ids: Vec<_> = rest.iter().map(|sent| sent.0).collect();
        let first = ids.first().copied().unwrap_or(REQUESTS);
        assert_eq!(ids, (first..REQUESTS).collect::<Vec<_>>());
        // Everything up to a success is done, whether it reported or not.
        let done = of_flow.sent[..successes]
            .last()
            .map_or(0, |sent| sent.0 as usize + 1);
        world.check_bytes(flow, done);
        let taken = world.check_received(flow);
        let least = of_flow.posted[..done]
            .iter()
            .filter(|posted| posted.kind.consumes())
            .count();
        assert!(taken >= least, "{taken} {least}");
        // Every receive came back once.
        let mut numbers = BTreeMap::new();
        for received in &of_flow.received {
            *numbers.entry(received.0).or_insert(0) += 1;
        }
        let once: Vec<_> = (0..REQUESTS).map(|number| (number, 1)).collect();
        assert_eq!(numbers.into_iter().collect::<Vec<_>>(), once);
    }
    (broken, tear.struck(), world.finish())
}

#[test]
fn property_all_is_well_on_a_whole_network() {
    for seed in seeds(300) {
        undisturbed(seed);
    }
}

#[test]
fn property_all_is_true_on_a_broken_network() {
    let seeds = seeds(300);
    let (mut broken, mut torn) = (0, 0);
    for &seed in &seeds {
        let (broken_now, torn_now, _) = disturbed(seed);
        broken += broken_now;
        torn += torn_now;
    }
    let is_worth_it = broken > 100 && torn > 100;
    assert!(
        is_worth_it || seeds.len() == 1,
        "only {broken} broke, and {torn} were torn"
    );
}

#[test]
fn property_the_same_seed_gives_the_same_run() {
    for seed in seeds(10) {
        let (first, second) = (undisturbed(seed), undisturbed(seed));
        assert!(first.len() > 100);
        assert_eq!(first, second);
        assert_ne!(first, undisturbed(seed + 1000));
        assert_eq!(disturbed(seed), disturbed(seed));
        for entry in first {
            assert!(!entry.to_string().is_empty());
        }
    }
}
