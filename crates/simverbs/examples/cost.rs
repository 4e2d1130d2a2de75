//! What the simulator itself costs: nanoseconds per message of a free-running fabric.
//!
//! ```text
//! cargo run --release -p ibnet-simverbs --example cost
//! ```
//!
//! Measurements of what runs on the simulator should be read with these in mind.

use std::error::Error;
use std::time::{Duration, Instant};

use ibnet_simverbs::{DeviceSpec, Fabric};
use ibnet_verbs::{
    Access, AddressVector, CompletionQueue, Context, Destination, GidType, GlobalRoute,
    InitAttributes, MemoryRegion, Mtu, QueuePair, QueuePairOptions, ReadyToReceive, ReadyToSend,
    RecvRequest, RemoteAddress, SendRequest, Sge, Sysfs, WorkCompletion,
};

const LENGTH: usize = 4 << 20;

/// One end of a connection. The memory is leaked, so that it outlives all that use it.
struct End {
    qp: QueuePair,
    cq: CompletionQueue,
    region: MemoryRegion,
    gid: GlobalRoute,
}

impl End {
    fn new(context: &Context) -> Result<Self, Box<dyn Error>> {
        let pd = context.allocate_pd()?;
        let cq = context.create_cq(1024)?;
        let memory = vec![0_u64; LENGTH / 8].leak().as_mut_ptr().cast();
        // SAFETY: the memory is leaked, and used by the device only.
        let region =
            unsafe { pd.register(memory, LENGTH, Access::LOCAL_WRITE | Access::REMOTE_WRITE) }?;
        let qp = pd.create_qp(&QueuePairOptions {
            send_cq: &cq,
            recv_cq: &cq,
            max_send_wr: 256,
            max_recv_wr: 256,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline: 64,
            signal_all: false,
        })?;
        let entries = context.gid_table(1, &Sysfs::default())?;
        let mut usable = entries.iter().rev();
        let entry = usable.find(|entry| entry.gid_type == Some(GidType::RoceV2));
        let entry = entry.ok_or("no RoCE v2 address")?;
        let gid = GlobalRoute {
            dgid: entry.gid,
            sgid_index: u8::try_from(entry.index)?,
            hop_limit: 64,
            traffic_class: 0,
            flow_label: 0,
        };
        Ok(Self {
            qp,
            cq,
            region,
            gid,
        })
    }

    fn connect_to(&self, peer: &Self) -> Result<(), ibnet_verbs::Error> {
        self.qp.to_init(&InitAttributes {
            port: 1,
            pkey_index: 0,
            access: Access::REMOTE_WRITE,
        })?;
        self.qp.to_rtr(&ReadyToReceive {
            mtu: Mtu::MTU_1024,
            remote_qp: peer.qp.number(),
            remote_psn: 0,
            max_dest_rd_atomic: 1,
            min_rnr_timer: 1,
            address: AddressVector {
                port: 1,
                service_level: 0,
                destination: Destination::global(GlobalRoute {
                    dgid: peer.gid.dgid,
                    ..self.gid
                }),
            },
        })?;
        self.qp.to_rts(&ReadyToSend {
            psn: 0,
            timeout: 14,
            retry_count: 7,
            rnr_retry: 7,
            max_rd_atomic: 1,
        })
    }

    fn sge(&self, length: usize) -> Option<Sge> {
        Some(Sge {
            address: self.region.address(),
            length: length as u32,
            lkey: self.region.lkey(),
        })
    }

    fn remote(&self) -> RemoteAddress {
        RemoteAddress {
            address: self.region.address(),
            rkey: self.region.rkey(),
        }
    }

    fn send(&self, chain: &mut [SendRequest]) -> Result<(), ibnet_verbs::PostError> {
        // SAFETY: the memory is leaked, and not looked at.
        unsafe { self.qp.post_send(chain) }
    }

    fn poll(&self) -> Result<usize, ibnet_verbs::Error> {
        let mut batch = [WorkCompletion::default(); 16];
        Ok(self.cq.poll(&mut batch)?.len())
    }
}

fn report(what: &str, count: u32, spent: Duration) {
    println!(
        "{what:<52} {:>8.1} ns",
        spent.as_nanos() as f64 / f64::from(count)
    );
}

fn measure(
    what: &str,
    count: u32,
    mut one: impl FnMut() -> Result<(), Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    for _ in 0..count / 10 {
        one()?;
    }
    let start = Instant::now();
    for _ in 0..count {
        one()?;
    }
    report(what, count, start.elapsed());
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let fabric = Fabric::builder()
        .device(DeviceSpec::roce("sim0"))
        .device(DeviceSpec::roce("sim1"))
        .build()?;
    let devices = fabric.library().devices()?;
    let (a, b) = (
        End::new(&devices[0].open()?)?,
        End::new(&devices[1].open()?)?,
    );
    a.connect_to(&b)?;
    b.connect_to(&a)?;

    measure("poll of an empty queue", 10_000_000, || {
        a.poll()?;
        Ok(())
    })?;
    measure("write of 8 bytes, with its completion", 2_000_000, || {
        a.send(&mut [SendRequest::write(0, a.sge(8), b.remote()).signaled()])?;
        a.poll()?;
        Ok(())
    })?;
    measure("the same, inline", 2_000_000, || {
        a.send(&mut [SendRequest::write(0, a.sge(8), b.remote())
            .inline()
            .signaled()])?;
        a.poll()?;
        Ok(())
    })?;
    measure(
        "write with immediate, with both completions",
        2_000_000,
        || {
            // SAFETY: the request names no memory.
            unsafe { b.qp.post_recv(&mut [RecvRequest::new(0)]) }?;
            let write = SendRequest::write_with_immediate(0, a.sge(8), b.remote(), 1).signaled();
            a.send(&mut [write])?;
            a.poll()?;
            b.poll()?;
            Ok(())
        },
    )?;
    measure(
        "16 writes of 8 bytes in one call, one completion",
        200_000,
        || {
            let write = SendRequest::write(0, a.sge(8), b.remote());
            let mut chain = [write; 16];
            chain[15] = chain[15].signaled();
            a.send(&mut chain)?;
            a.poll()?;
            Ok(())
        },
    )?;
    for length in [4 << 10, 64 << 10, 1 << 20, LENGTH] {
        let count = u32::try_from((1_usize << 31) / length)?;
        measure(&format!("write of {} KiB", length >> 10), count, || {
            a.send(&mut [SendRequest::write(0, a.sge(length), b.remote()).signaled()])?;
            a.poll()?;
            Ok(())
        })?;
    }
    Ok(())
}
