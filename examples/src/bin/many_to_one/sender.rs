//! One of the many: a connection, and messages that tell whose and which they are.

use std::collections::VecDeque;
use std::time::Duration;

use ibnet::{ConnectOptions, Handle, Transport, Wait};

use crate::Outcome;
use crate::options::Options;

/// Messages under way of one sender.
const WINDOW: usize = 4;

/// When the receiver has failed nothing accepts: that is no reason to wait for ever.
const PATIENCE: Duration = Duration::from_secs(60);

/// What each message begins with: the number of its sender and its own.
pub(crate) fn stamp(sender: u32, message: u32) -> [u8; 8] {
    (u64::from(sender) << 32 | u64::from(message)).to_le_bytes()
}

pub(crate) fn send(
    transport: &Transport,
    device: usize,
    handle: &Handle,
    number: usize,
    options: &Options,
) -> Outcome<()> {
    // There are more senders than processors: each sleeps until a buffer is announced to it.
    let sleeping = ConnectOptions::default().notify(true);
    let mut connecting = transport.connect(device, handle, sleeping)?;
    let Some(mut sending) = connecting.wait_for(PATIENCE)? else {
        return Err("the receiver does not accept".into());
    };
    let mut under_way = VecDeque::new();
    for message in 0..options.messages {
        let mut buffer = if under_way.len() < WINDOW {
            sending.registrar().buffer(options.size)?
        } else {
            let oldest = under_way.pop_front().ok_or("nothing is under way")?;
            sending.finish(oldest).wait()?
        };
        let stamp = stamp(number as u32, message as u32);
        buffer[..stamp.len()].copy_from_slice(&stamp);
        under_way.push_back(sending.send(buffer, 0).wait()?);
    }
    for ticket in under_way {
        sending.finish(ticket).wait()?;
    }
    Ok(sending.close()?)
}
