//! Sending and receiving by the raw layer: the caller's memory, registered once, and the caller's
//! word that it stays.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::time::Instant;

use ibnet::raw::{RecvBuffer, RequestId};
use ibnet::{RecvConnection, Region, SendConnection};

use crate::Outcome;
use crate::counter::{Carried, Counter};
use crate::options::Options;

/// What a transfer has shown.
pub(crate) struct Transferred {
    pub(crate) by_device: Vec<Carried>,
    pub(crate) megabytes_per_second: f64,
}

/// Messages under way.
const WINDOW: usize = 4;

/// Under what the observer hears of the messages.
const PARENT: NonZeroUsize = NonZeroUsize::MIN;

/// Sends all messages and checks them. Both ends are on this thread: neither call ever waits.
pub(crate) fn transfer(
    mut sending: SendConnection,
    mut receiving: RecvConnection,
    options: &Options,
) -> Outcome<Transferred> {
    let counter = Counter::default();
    sending.observe(Box::new(counter.clone()));
    let mut source: Vec<u8> = (0..options.size).map(|at| (at % 251) as u8).collect();
    let mut target = vec![0_u8; options.size * WINDOW];
    let to_send = sending.registrar();
    // SAFETY: the region ends before the memory that it is of: see the end of this function.
    let to_send = unsafe { to_send.register(source.as_mut_ptr(), source.len()) }?;
    let to_receive = receiving.registrar();
    // SAFETY: as above.
    let to_receive = unsafe { to_receive.register(target.as_mut_ptr(), target.len()) }?;

    let memory = Memory {
        source: source.as_ptr(),
        to_send: &to_send,
        target: target.as_mut_ptr(),
        to_receive: &to_receive,
    };
    // SAFETY: whatever comes of it, the connections are closed before the registrations end and
    // before anybody looks at the memory.
    let taken = unsafe { exchange(&mut sending, &mut receiving, &memory, options) };
    let closed = [sending.close(), receiving.close()];
    drop((to_send, to_receive));

    let seconds = taken?.max(1e-9);
    closed.into_iter().collect::<Result<(), _>>()?;
    let mut copies = target.chunks(options.size).take(options.messages);
    if !copies.all(|copy| copy == source) {
        return Err("what has arrived is not what was sent".into());
    }
    Ok(Transferred {
        by_device: counter.by_device(),
        megabytes_per_second: (options.size * options.messages) as f64 / seconds / 1e6,
    })
}

/// What is sent, and room for what is received: a place for each message under way.
struct Memory<'a> {
    source: *const u8,
    to_send: &'a Region,
    target: *mut u8,
    to_receive: &'a Region,
}

/// Seconds that it took.
///
/// # Safety
/// The memory and its registrations are valid, and nobody touches them, until both connections are
/// closed.
unsafe fn exchange(
    sending: &mut SendConnection,
    receiving: &mut RecvConnection,
    memory: &Memory<'_>,
    options: &Options,
) -> Outcome<f64> {
    let start = Instant::now();
    let (mut announced, mut sent) = (0, 0);
    let mut receives: VecDeque<RequestId> = VecDeque::new();
    let mut sends: VecDeque<RequestId> = VecDeque::new();
    let mut arrived = 0;
    while arrived < options.messages || !sends.is_empty() {
        if announced < options.messages && receives.len() < WINDOW {
            let place = announced % WINDOW * options.size;
            let buffer = RecvBuffer {
                data: memory.target.wrapping_add(place),
                capacity: options.size,
                tag: 0,
                region: Some(memory.to_receive),
            };
            // SAFETY: passed on to the caller; each place is announced again only after its message
            // has arrived.
            if let Some(request) = unsafe { receiving.raw().irecv(&[buffer]) }? {
                receives.push_back(request);
                announced += 1;
            }
        }
        if sent < options.messages {
            // SAFETY: passed on to the caller.
            let request = unsafe {
                sending.raw().isend_observed(
                    memory.source,
                    options.size,
                    0,
                    Some(memory.to_send),
                    Some(PARENT),
                )
            }?;
            if let Some(request) = request {
                sends.push_back(request);
                sent += 1;
            }
        }
        if let Some(oldest) = sends.front()
            && sending.raw().test(*oldest)?.is_some()
        {
            sends.pop_front();
        }
        if let Some(oldest) = receives.front()
            && let Some(received) = receiving.raw().test(*oldest)?
        {
            receives.pop_front();
            arrived += 1;
            if received.sizes() != [options.size as u32] {
                return Err(format!("{:?} bytes arrived", received.sizes()).into());
            }
        }
    }
    Ok(start.elapsed().as_secs_f64())
}
