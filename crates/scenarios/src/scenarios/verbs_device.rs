//! The `verbs` crate on a real device, without the transport.

use std::time::{Duration, Instant};

use verbs::{
    Access, AddressVector, CompletionQueue, Context, Destination, GlobalRoute, InitAttributes,
    Library, Mtu, PortState, ProtectionDomain, QueuePair, QueuePairOptions, QueuePairState,
    ReadyToReceive, ReadyToSend, RecvRequest, RemoteAddress, SendRequest, Sge, WcOpcode, WcStatus,
    WorkCompletion,
};

use super::solo;
use crate::cast::{Cast, ensure};
use crate::play::{Failure, Scenario};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        solo("verbs/device-and-port", &[device_and_port]),
        solo("verbs/write-read-send-loopback", &[operations]),
        solo("verbs/chains-inline-and-signalling", &[chains]),
        solo("verbs/errors-flush-the-queue", &[flush]),
        solo("verbs/wrong-transitions-are-explained", &[transitions]),
        solo("verbs/queue-limits-are-counted", &[limits]),
        solo("verbs/nothing-is-left", &[nothing_left]),
    ]
}

fn open(cast: &Cast) -> Result<Context, Failure> {
    let library = Library::load()?;
    let devices = library.devices()?;
    let device = devices
        .iter()
        .find(|device| device.name() == cast.device())
        .ok_or_else(|| format!("there is no device {}", cast.device()))?;
    Ok(device.open()?)
}

fn device_and_port(cast: &mut Cast) -> Result<(), Failure> {
    let context = open(cast)?;
    ensure(context.device_name() == cast.device(), || {
        "another device was opened".to_owned()
    })?;
    let attributes = context.attributes()?;
    ensure(
        attributes.max_qp > 0 && attributes.max_cqe > 0 && attributes.max_mr > 0,
        || format!("impossible limits: {attributes:?}"),
    )?;
    let port = context.port(1)?;
    ensure(port.state == PortState::ACTIVE, || {
        format!("port 1 is {}", port.state)
    })?;
    ensure(
        port.active_mtu.bytes().is_some() && port.max_message_size >= 1 << 20,
        || format!("impossible port: {port:?}"),
    )?;
    ensure(context.port(200).is_err(), || "port 200 exists".to_owned())?;

    let entries = context.gid_entries(1)?;
    ensure(!entries.is_empty(), || "the GID table is empty".to_owned())?;
    for entry in &entries {
        let single = context.gid(1, entry.index)?;
        ensure(single == entry.gid, || {
            format!("entry {} differs: {single}", entry.index)
        })?;
    }
    let pkey = context.pkey(1, 0)?;
    ensure(context.pkey_index(1, pkey)? == 0, || {
        "P_Key 0 is not at its index".to_owned()
    })?;
    ensure(context.next_event()?.is_none(), || {
        "an event from nowhere".to_owned()
    })?;
    let speed = context.port_speed(1)?.or_else(|| port.speed());
    ensure(speed.is_some_and(|speed| speed > 0), || {
        format!("speed {speed:?}")
    })
}

/// A queue pair connected to itself, with memory.
struct Loop {
    // Teardown order: queue pair, completion queue, registration, memory.
    queue_pair: QueuePair,
    cq: CompletionQueue,
    region: verbs::MemoryRegion,
    memory: Box<[u8]>,
}

const HALF: usize = 4096;

impl Loop {
    fn new(context: &Context, send_wr: u32, recv_wr: u32) -> Result<Self, Failure> {
        let pd = context.allocate_pd()?;
        let cq = context.create_cq(send_wr + recv_wr)?;
        let queue_pair = create(&pd, &cq, send_wr, recv_wr)?;
        let mut memory = vec![0_u8; 2 * HALF].into_boxed_slice();
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        // SAFETY: the memory is a field of the same value, dropped after the registration.
        let region = unsafe { pd.register(memory.as_mut_ptr(), memory.len(), access) }?;
        queue_pair.to_init(&init(access))?;
        queue_pair.to_rtr(&ready_to_receive(context, queue_pair.number())?)?;
        queue_pair.to_rts(&ready_to_send())?;
        Ok(Self {
            queue_pair,
            cq,
            region,
            memory,
        })
    }

    fn local(&self, offset: usize, length: usize) -> Option<Sge> {
        let address = self.region.address() + offset as u64;
        Some(Sge {
            address,
            length: length as u32,
            lkey: self.region.lkey(),
        })
    }

    fn remote(&self, offset: usize) -> RemoteAddress {
        let address = self.region.address() + offset as u64;
        RemoteAddress {
            address,
            rkey: self.region.rkey(),
        }
    }

    fn post(&self, chain: &mut [SendRequest]) -> Result<(), verbs::PostError> {
        // SAFETY: every request uses this value's own memory, which outlives the queue pair and is
        // only looked at after the completions.
        unsafe { self.queue_pair.post_send(chain) }
    }

    fn post_receives(&self, chain: &mut [RecvRequest]) -> Result<(), verbs::PostError> {
        // SAFETY: as in `post`.
        unsafe { self.queue_pair.post_recv(chain) }
    }

    /// Waits for `count` completions.
    fn completions(&self, count: usize) -> Result<Vec<WorkCompletion>, Failure> {
        let deadline = Instant::now() + Duration::from_secs(20);
        let mut batch = [WorkCompletion::default(); 4];
        let mut all = Vec::new();
        while all.len() < count {
            all.extend_from_slice(self.cq.poll(&mut batch)?);
            ensure(Instant::now() < deadline, || {
                format!("{} completions instead of {count}", all.len())
            })?;
        }
        Ok(all)
    }
}

fn create(
    pd: &ProtectionDomain,
    cq: &CompletionQueue,
    send_wr: u32,
    recv_wr: u32,
) -> Result<QueuePair, verbs::Error> {
    pd.create_qp(&QueuePairOptions {
        send_cq: cq,
        recv_cq: cq,
        max_send_wr: send_wr,
        max_recv_wr: recv_wr,
        max_send_sge: 1,
        max_recv_sge: 1,
        max_inline: 64,
        signal_all: false,
    })
}

fn init(access: Access) -> InitAttributes {
    InitAttributes {
        port: 1,
        pkey_index: 0,
        access,
    }
}

fn ready_to_receive(context: &Context, remote_qp: u32) -> Result<ReadyToReceive, Failure> {
    let port = context.port(1)?;
    let entries = context.gid_entries(1)?;
    let selection = gid::select(&entries, port.link_layer, &gid::Policy::default())?;
    let route = GlobalRoute {
        dgid: selection.entry.gid,
        sgid_index: selection.entry.index as u8,
        hop_limit: 64,
        traffic_class: 0,
        flow_label: 0,
    };
    let destination = if port.link_layer == verbs::LinkLayer::InfiniBand {
        Destination::infiniband(port.lid, None)
    } else {
        Destination::Global(route)
    };
    Ok(ReadyToReceive {
        mtu: Mtu::MTU_1024,
        remote_qp,
        remote_psn: 77,
        max_dest_rd_atomic: 1,
        min_rnr_timer: 12,
        address: AddressVector {
            port: 1,
            service_level: 0,
            destination,
        },
    })
}

fn ready_to_send() -> ReadyToSend {
    ReadyToSend {
        psn: 77,
        timeout: 14,
        retry_count: 7,
        rnr_retry: 7,
        max_rd_atomic: 1,
    }
}

fn operations(cast: &mut Cast) -> Result<(), Failure> {
    let context = open(cast)?;
    let mut pair = Loop::new(&context, 16, 16)?;
    pair.memory[..HALF].fill(7);

    // Write: the other half of the memory is the "remote" one.
    pair.post(&mut [SendRequest::write(1, pair.local(0, 1000), pair.remote(HALF)).signaled()])?;
    let done = pair.completions(1)?;
    ensure(done[0].is_success() && done[0].wr_id() == 1, || {
        format!("{:?}", done[0].status())
    })?;
    ensure(done[0].opcode() == WcOpcode::RDMA_WRITE, || {
        format!("{:?}", done[0].opcode())
    })?;
    let arrived = &pair.memory[HALF..];
    ensure(
        arrived[..1000].iter().all(|byte| *byte == 7) && arrived[1000] == 0,
        || "the write landed elsewhere".to_owned(),
    )?;

    // Write with immediate: takes a receive, and brings its 32 bits in host order.
    pair.post_receives(&mut [RecvRequest::new(50)])?;
    let immediate = 0x0102_0304;
    let request =
        SendRequest::write_with_immediate(2, pair.local(0, 300), pair.remote(HALF), immediate);
    pair.post(&mut [request.signaled()])?;
    let done = pair.completions(2)?;
    let received = done
        .iter()
        .find(|completion| completion.opcode() == WcOpcode::RECV_RDMA_WITH_IMM)
        .ok_or("no completion of the receive")?;
    ensure(
        received.wr_id() == 50
            && received.immediate() == Some(immediate)
            && received.byte_len() == 300,
        || format!("{:?} {}", received.immediate(), received.byte_len()),
    )?;

    // Read.
    pair.memory[HALF..HALF + 10].copy_from_slice(b"0123456789");
    pair.post(&mut [SendRequest::read(3, pair.local(0, 10), pair.remote(HALF)).signaled()])?;
    ensure(
        pair.completions(1)?[0].opcode() == WcOpcode::RDMA_READ,
        || "not a read".to_owned(),
    )?;
    ensure(pair.memory[..10] == *b"0123456789", || {
        "the read brought other data".to_owned()
    })?;

    // Send into a posted buffer; without an immediate there is none.
    let sge = pair.local(HALF, 100).ok_or("no memory")?;
    pair.post_receives(&mut [RecvRequest::new(60).with_sge(sge)])?;
    pair.post(&mut [SendRequest::send(4, pair.local(0, 10)).signaled()])?;
    let done = pair.completions(2)?;
    let received = done
        .iter()
        .find(|completion| completion.wr_id() == 60)
        .ok_or("nothing received")?;
    ensure(
        received.byte_len() == 10 && received.immediate().is_none(),
        || format!("{} bytes, {:?}", received.byte_len(), received.immediate()),
    )
}

fn chains(cast: &mut Cast) -> Result<(), Failure> {
    let context = open(cast)?;
    let mut pair = Loop::new(&context, 64, 4)?;
    for (index, byte) in pair.memory[..32].iter_mut().enumerate() {
        *byte = index as u8 + 1;
    }
    // 32 writes of one byte in one call, of which the last alone reports.
    let mut chain: Vec<SendRequest> = (0..32)
        .map(|n| {
            let write =
                SendRequest::write(n as u64, pair.local(n, 1), pair.remote(HALF + 31 - n)).inline();
            if n == 31 { write.signaled() } else { write }
        })
        .collect();
    pair.post(&mut chain)?;
    // Inline data was copied by the post, so this must not matter.
    pair.memory[..32].fill(0xee);
    let done = pair.completions(1)?;
    ensure(done[0].wr_id() == 31, || {
        format!("request {} reported", done[0].wr_id())
    })?;
    let expected: Vec<u8> = (1..=32).rev().collect();
    ensure(pair.memory[HALF..HALF + 32] == expected, || {
        "inline data was not copied".to_owned()
    })?;
    std::thread::sleep(Duration::from_millis(20));
    let mut batch = [WorkCompletion::default(); 4];
    ensure(pair.cq.poll(&mut batch)?.is_empty(), || {
        "an unsignalled request reported".to_owned()
    })
}

fn flush(cast: &mut Cast) -> Result<(), Failure> {
    let context = open(cast)?;
    let pair = Loop::new(&context, 16, 16)?;
    pair.post_receives(&mut [RecvRequest::new(100), RecvRequest::new(101)])?;
    let wrong = RemoteAddress {
        address: pair.region.address(),
        rkey: !pair.region.rkey(),
    };
    let mut chain = [
        SendRequest::write(1, pair.local(0, 8), wrong).signaled(),
        SendRequest::write(2, pair.local(0, 8), pair.remote(HALF)).signaled(),
    ];
    pair.post(&mut chain)?;
    let done = pair.completions(4)?;
    let status = |id| {
        done.iter()
            .find(|completion| completion.wr_id() == id)
            .map(WorkCompletion::status)
            .ok_or_else(|| format!("request {id} vanished"))
    };
    ensure(status(1)? == WcStatus::REM_ACCESS_ERR, || {
        format!("{}", done[0].status())
    })?;
    for flushed in [2, 100, 101] {
        let status = status(flushed)?;
        ensure(status == WcStatus::WR_FLUSH_ERR, || {
            format!("request {flushed}: {status}")
        })?;
    }
    let state = pair.queue_pair.state()?;
    ensure(state == QueuePairState::ERR, || {
        format!("the queue pair is {state}")
    })
}

fn transitions(cast: &mut Cast) -> Result<(), Failure> {
    let context = open(cast)?;
    let pd = context.allocate_pd()?;
    let cq = context.create_cq(16)?;
    let queue_pair = create(&pd, &cq, 4, 4)?;
    ensure(queue_pair.state()? == QueuePairState::RESET, || {
        "not in RESET".to_owned()
    })?;

    let rtr = ready_to_receive(&context, queue_pair.number())?;
    let early = queue_pair
        .to_rtr(&rtr)
        .err()
        .ok_or("RESET to RTR was allowed")?;
    let text = early.to_string();
    ensure(text.contains("RTR") && text.contains(cast.device()), || {
        text.clone()
    })?;

    queue_pair.to_init(&init(Access::REMOTE_WRITE))?;
    ensure(queue_pair.state()? == QueuePairState::INIT, || {
        "not in INIT".to_owned()
    })?;
    queue_pair.to_rtr(&rtr)?;
    queue_pair.to_rts(&ready_to_send())?;
    let attributes = queue_pair.query()?;
    ensure(attributes.state == QueuePairState::RTS, || {
        format!("{attributes:?}")
    })?;
    queue_pair.to_error()?;
    ensure(queue_pair.state()? == QueuePairState::ERR, || {
        "not in ERR".to_owned()
    })?;
    queue_pair.to_reset()?;
    // And once more through the whole circle.
    queue_pair.to_init(&init(Access::REMOTE_WRITE))?;
    queue_pair.to_rtr(&rtr)?;
    queue_pair.to_rts(&ready_to_send())?;
    // Soft-RoCE has no ECE: that is `None`, not an error.
    let _ = queue_pair.ece()?;
    Ok(())
}

fn limits(cast: &mut Cast) -> Result<(), Failure> {
    let context = open(cast)?;
    let pair = Loop::new(&context, 8, 8)?;
    let room = pair.queue_pair.capabilities().max_recv_wr as usize;
    // A driver may round the queue up, but not without end.
    let mut chain = vec![RecvRequest::new(0); 4 * room + 100];
    let refused = pair
        .post_receives(&mut chain)
        .err()
        .ok_or("no limit to receives")?;
    ensure((room..chain.len()).contains(&refused.accepted), || {
        format!(
            "{} receives accepted, with room for {room}",
            refused.accepted
        )
    })?;
    // What was accepted is there: moving to ERR flushes exactly so many.
    pair.queue_pair.to_error()?;
    let flushed = pair.completions(refused.accepted.min(16))?;
    ensure(
        flushed
            .iter()
            .all(|completion| completion.status() == WcStatus::WR_FLUSH_ERR),
        || "a receive was not flushed".to_owned(),
    )
}

fn nothing_left(cast: &mut Cast) -> Result<(), Failure> {
    let context = open(cast)?;
    let before = cast.resources()?;
    for _ in 0..50 {
        let pair = Loop::new(&context, 16, 16)?;
        pair.post_receives(&mut [RecvRequest::new(1)])?;
    }
    // In the wrong order, too: the children keep their parents.
    let pd = context.allocate_pd()?;
    let cq = context.create_cq(16)?;
    let queue_pair = create(&pd, &cq, 4, 4)?;
    drop((cq, pd));
    ensure(queue_pair.state()? == QueuePairState::RESET, || {
        "the parents are gone".to_owned()
    })?;
    drop(queue_pair);
    cast.expect_resources(&before)
}
