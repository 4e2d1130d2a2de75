//! Faults of other transports that leave everything working, at least for a while: what was set on a
//! device, who waits for whom, and what a call takes.

use std::cell::{Cell, RefCell};
use std::os::raw::{c_int, c_uint, c_void};
use std::sync::{OnceLock, mpsc};

use ibnet::raw::RecvBuffer;
use ibnet::{Config, RecvConnection, SendConnection, Transport, Wait};
use ibnet_simverbs::{DeviceSpec, Fabric, GidSlot, PortSpec, Verb, When};
use ibnet_verbs::sys::{ibv_mr, ibv_pd, ibv_qp};
use ibnet_verbs::{Functions, Library, QueuePairState};

use crate::rig::{
    End, PATIENCE, build, connection, ends, eventually, fabric, filled, join, message, roce,
    try_join,
};

/// GIDs of two ports, and whether they are of different subnets.
const SUBNETS: &[(u64, u64, bool)] = &[
    (0xfe80_0000_0000_0000, 0xfe80_0000_0000_0000, false),
    (0xfec0_0000_0000_0001, 0xfec0_0000_0000_0002, true),
    // The last 16 bits are equal.
    (0xfe80_0000_0000_0000, 0xfec0_0000_0000_0000, true),
    (0xfec0_0000_0011_0007, 0xfec0_0000_0022_0007, true),
    (0xfec0_0001_0000_0007, 0xfec0_0002_0000_0007, true),
];

#[test]
fn a_port_of_another_subnet_gets_a_global_route() {
    // Pitfall 31: the whole prefix counts.
    for &(here, there, crosses) in SUBNETS {
        let device = |name: &str, prefix, guid| {
            let port = PortSpec::infiniband().gids([GidSlot::infiniband(prefix, guid)]);
            DeviceSpec::infiniband(name).ports([port])
        };
        let fabric = build([device("s0", here, 1), device("r0", there, 2)]);
        let (_sending, _receiving) = connection(&fabric);
        for device in ["s0", "r0"] {
            // The one after it, for flushing, is connected to itself.
            let queue_pair = fabric.hca(device).unwrap().queue_pairs()[0];
            let address = queue_pair.attributes.address;
            let has_route = address.destination.route.is_some();
            assert_eq!(has_route, crosses, "{here:x} {there:x} {address:?}");
        }
    }
}

#[test]
fn every_pair_of_devices_is_named_whole_and_once() {
    // Pitfall 52: eight devices with names as long as the kernel allows.
    let long = |side: &str, index: usize| format!("{side}{index}{}", "x".repeat(61));
    let all = |side: &'static str| (0..8).map(move |index| DeviceSpec::roce(long(side, index)));
    let fabric = build(all("s").chain(all("r")));
    let (sender, receiver) = ends(&fabric, |config| config.queue_pairs = 2);
    let (sending, receiving) = join(&sender, &receiver);
    for (text, own, peers) in [
        (sending.description(), "s", "r"),
        (receiving.description(), "r", "s"),
    ] {
        let pairs: Vec<&str> = text
            .split(", ")
            .filter(|part| part.contains(" to "))
            .collect();
        assert_eq!(pairs.len(), 8, "{text}");
        for (index, pair) in pairs.iter().enumerate() {
            let (ours, theirs) = pair.split_once(" to ").unwrap();
            let is_named =
                |end: &str, side| end.starts_with(&format!("{}:1 GID ", long(side, index)));
            assert!(is_named(ours, own) && is_named(theirs, peers), "{pair}");
        }
    }
}

const NOTHING: [RecvBuffer<'static>; 1] = [RecvBuffer {
    data: std::ptr::null_mut(),
    capacity: 0,
    tag: 0,
    region: None,
}];

/// One device at each end, where nothing moves but when it is told to.
fn stepped() -> Fabric {
    let devices = roce("s", 1).chain(roce("r", 1));
    let builder = Fabric::builder().stepped(1);
    let builder = devices.fold(builder, ibnet_simverbs::FabricBuilder::device);
    builder.build().unwrap()
}

#[test]
fn the_sender_leaves_the_ring_alone() {
    // Pitfall 75: where an entry was, the one of 256 messages later may be already.
    let fabric = stepped();
    let (mut sending, mut receiving) = connection(&fabric);
    let receive = |receiving: &mut RecvConnection| {
        eventually("room for a receive", || {
            fabric.run_until_idle();
            // SAFETY: empty messages have no memory.
            unsafe { receiving.raw().irecv(&NOTHING) }.unwrap()
        })
    };
    let send = |sending: &mut SendConnection| {
        fabric.run_until_idle();
        // SAFETY: as above.
        let sent = unsafe { sending.raw().isend(std::ptr::null(), 0, 0, None) }.unwrap();
        let sent = sent.expect("it is announced");
        eventually("the send", || {
            fabric.run_until_idle();
            sending.raw().test(sent).unwrap()
        });
    };
    let first = receive(&mut receiving);
    send(&mut sending);
    eventually("the first", || receiving.raw().test(first).unwrap());
    // As many as there is room for: the last lies where the first did.
    for _ in 0..256 {
        receive(&mut receiving);
    }
    for _ in 0..256 {
        send(&mut sending);
    }
}

#[test]
fn a_test_takes_one_batch_for_whichever_requests_it_is() {
    // Pitfall 86: neither for its own request alone, nor as long as there is anything to take.
    const COUNT: usize = 60;
    let fabric = stepped();
    let (mut sending, mut receiving) = connection(&fabric);
    let receives: Vec<_> = (0..COUNT)
        // SAFETY: there is no memory.
        .map(|_| unsafe { receiving.raw().irecv(&NOTHING) }.unwrap().unwrap())
        .collect();
    fabric.run_until_idle();
    for _ in 0..COUNT {
        drop(sending.send(filled(&sending, 0, 0), 0).wait().unwrap());
    }
    fabric.run_until_idle();
    // All have arrived. The first call does not go through all of them for the sake of the last.
    let last = receives[COUNT - 1];
    assert!(receiving.raw().test(last).unwrap().is_none());
    let mut calls = 1;
    while receiving.raw().test(last).unwrap().is_none() {
        calls += 1;
        assert!(calls < COUNT, "one at a time");
    }
    // What it took for the others is known, without a look at the device.
    let fault = fabric
        .faults()
        .fail_call(Verb::PollCq, "r0", When::ALWAYS, 5);
    for receive in &receives[..COUNT - 1] {
        assert!(receiving.raw().test(*receive).unwrap().is_some());
    }
    assert_eq!(fault.struck(), 0);
}

/// The end on the one device whose name begins with `side`.
fn open(library: &Library, side: &str) -> End {
    let mut config = Config::default();
    config.hca = side.parse().unwrap();
    config.interfaces = "=lo".parse().unwrap();
    End {
        transport: Transport::with_library(library.clone(), config).unwrap(),
        device: 0,
    }
}

/// The simulator's functions, before others are put in front of them. (Those that list the devices are
/// of one fabric.)
static ORIGINAL: OnceLock<Functions> = OnceLock::new();

thread_local! {
    /// Where the next registration of this thread waits for leave to go on.
    static GATE: Cell<Option<Gate>> = const { Cell::new(None) };
    /// What this thread has given back: of which protection domain, and whether it was memory.
    static GIVEN_BACK: RefCell<Vec<(usize, bool)>> = const { RefCell::new(Vec::new()) };
}

/// Tells that the registration has begun, and waits for leave.
struct Gate {
    begun: mpsc::Sender<()>,
    leave: mpsc::Receiver<()>,
}

unsafe extern "C" fn slow_reg_mr(
    pd: *mut ibv_pd,
    address: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> *mut ibv_mr {
    if let Some(gate) = GATE.take() {
        gate.begun.send(()).unwrap();
        // A device that does not give it has said so.
        let _ = gate.leave.recv_timeout(PATIENCE);
    }
    let original = ORIGINAL.get().unwrap().reg_mr_iova2.unwrap();
    // SAFETY: passed on to the caller.
    unsafe { original(pd, address, length, iova, access) }
}

#[test]
fn a_registration_holds_up_no_other() {
    // Pitfall 62: registering gigabytes takes seconds.
    let fabric = fabric(1, 1);
    let library = fabric.library();
    ORIGINAL.get_or_init(|| *library.functions());
    let functions = Functions {
        reg_mr_iova2: Some(slow_reg_mr),
        ..*library.functions()
    };
    // SAFETY: the functions are the simulator's, which one of them takes its time to call.
    let library = unsafe { Library::from_functions(functions) };
    let (sender, receiver) = (open(&library, "s"), open(&library, "r"));
    let (mut sending, mut receiving) = join(&sender, &receiver);
    let (begun, wait) = mpsc::channel();
    let (give, leave) = mpsc::channel();
    let registrar = sending.registrar();
    std::thread::scope(|scope| {
        let slow = scope.spawn(move || {
            GATE.set(Some(Gate { begun, leave }));
            registrar.buffer(1 << 20).map(drop)
        });
        wait.recv_timeout(PATIENCE).unwrap();
        // Others register, deregister, send, and connect.
        message(&mut sending, &mut receiving, 5000, 5000);
        let (_sending, _receiving) = join(&sender, &receiver);
        assert_eq!(sender.transport.devices().len(), 1);
        assert!(!slow.is_finished(), "it was waited for");
        give.send(()).unwrap();
        slow.join().unwrap().unwrap();
    });
}

unsafe extern "C" fn noted_destroy_qp(qp: *mut ibv_qp) -> c_int {
    // SAFETY: the caller's queue pair lives.
    let domain = unsafe { (*qp).pd } as usize;
    GIVEN_BACK.with_borrow_mut(|given_back| given_back.push((domain, false)));
    // SAFETY: passed on to the caller.
    unsafe { (ORIGINAL.get().unwrap().destroy_qp)(qp) }
}

unsafe extern "C" fn noted_dereg_mr(mr: *mut ibv_mr) -> c_int {
    // SAFETY: the caller's region lives.
    let domain = unsafe { (*mr).pd } as usize;
    GIVEN_BACK.with_borrow_mut(|given_back| given_back.push((domain, true)));
    // SAFETY: passed on to the caller.
    unsafe { (ORIGINAL.get().unwrap().dereg_mr)(mr) }
}

#[test]
fn memory_goes_after_the_queue_pairs_that_write_it() {
    // Pitfalls 34 and 99: at the end of a connection and of an attempt, whichever end is to blame.
    let fabric = fabric(1, 1);
    let library = fabric.library();
    ORIGINAL.get_or_init(|| *library.functions());
    let functions = Functions {
        destroy_qp: noted_destroy_qp,
        dereg_mr: noted_dereg_mr,
        ..*library.functions()
    };
    // SAFETY: the functions are the simulator's, some with a note taken.
    let library = unsafe { Library::from_functions(functions) };
    let (sender, receiver) = (open(&library, "s"), open(&library, "r"));
    let states = [
        QueuePairState::INIT,
        QueuePairState::RTR,
        QueuePairState::RTS,
    ];
    let steps = states
        .iter()
        .flat_map(|state| [("s0", *state), ("r0", *state)]);
    for step in steps.map(Some).chain([None]) {
        let fault = step.map(|(device, state)| {
            let verb = Verb::ModifyQpTo(state);
            fabric.faults().fail_call(verb, device, When::Nth(1), 5)
        });
        drop(try_join(&sender, &receiver));
        assert!(fault.is_none_or(|fault| fault.struck() == 1));
        let given_back = GIVEN_BACK.take();
        let (queue_pairs, memory): (Vec<_>, Vec<_>) = given_back
            .iter()
            .enumerate()
            .partition(|(_, (_, is_memory))| !is_memory);
        assert!(!queue_pairs.is_empty() && !memory.is_empty(), "{step:?}");
        for (place, (domain, _)) in queue_pairs {
            let mut earlier = memory.iter().filter(|(before, _)| *before < place);
            let is_late = earlier.any(|(_, (other, _))| other == domain);
            assert!(!is_late, "{step:?}: {given_back:?}");
        }
    }
}
