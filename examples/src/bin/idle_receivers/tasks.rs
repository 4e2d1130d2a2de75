//! The tasks: connecting, and for each connection one that receives and one that sends.

use std::collections::VecDeque;

use ibnet::{ConnectOptions, ListenOptions, RecvConnection, SendConnection, Transport};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::Outcome;
use crate::options::Options;

/// Connections in the making: a listener has room for 256 clients that it is not done with.
const AT_ONCE: usize = 64;

/// Makes all connections, from device `from` to device `to`, many at once: one task accepts
/// them, the others connect.
pub(crate) async fn connect_all(
    transport: &Transport,
    [from, to]: [usize; 2],
    options: &Options,
) -> Outcome<Vec<(SendConnection, RecvConnection)>> {
    let mut listener = transport.listen_with(to, ListenOptions::default().notify(true))?;
    let handle = listener.handle();
    let connections = options.connections;
    let accepting = tokio::spawn(async move {
        let mut accepted = Vec::new();
        for _ in 0..connections {
            accepted.push(listener.accept().await?);
        }
        Outcome::Ok(accepted)
    });
    let mut connecting = JoinSet::new();
    let mut sending = Vec::new();
    for _ in 0..connections {
        if connecting.len() == AT_ONCE
            && let Some(connected) = connecting.join_next().await
        {
            sending.push(connected??);
        }
        let options = ConnectOptions::default().notify(true);
        // A connection in the making is a future itself.
        connecting.spawn(transport.connect(from, &handle, options)?);
    }
    while let Some(connected) = connecting.join_next().await {
        sending.push(connected??);
    }
    // Which sender has which receiver nobody knows: each message tells its sender.
    Ok(sending.into_iter().zip(accepting.await??).collect())
}

/// Receives all messages of one connection, two receives ahead; the number of messages.
pub(crate) async fn receive(
    mut receiving: RecvConnection,
    number: usize,
    messages: u32,
) -> Outcome<u32> {
    let wrong = |what: &str| format!("receiver {number}: {what}");
    let mut posted = VecDeque::new();
    for _ in 0..messages.min(2) {
        let buffer = receiving.registrar().buffer(64)?;
        posted.push_back(receiving.recv(buffer, 0).await?);
    }
    for expected in 0..messages {
        let oldest = posted
            .pop_front()
            .ok_or_else(|| wrong("nothing is posted"))?;
        let mut message = receiving.finish(oldest).await?;
        if message[..] != expected.to_le_bytes() {
            return Err(wrong(&format!("message {expected} is {message:?}")).into());
        }
        // None too many: the peer leaves after its last message, and refuses what comes then.
        if messages - expected > 2 {
            message.set_length(64);
            posted.push_back(receiving.recv(message, 0).await?);
        }
    }
    receiving.close()?;
    Ok(messages)
}

/// Sends all messages of one connection, once they may begin. They count once, at the receiver.
pub(crate) async fn send(
    mut sending: SendConnection,
    number: usize,
    messages: u32,
    mut may_begin: watch::Receiver<bool>,
) -> Outcome<u32> {
    may_begin.wait_for(|may| *may).await?;
    let mut buffer = sending.registrar().buffer(size_of::<u32>())?;
    for message in 0..messages {
        buffer.copy_from_slice(&message.to_le_bytes());
        let ticket = sending.send(buffer, 0).await?;
        buffer = sending
            .finish(ticket)
            .await
            .map_err(|error| format!("sender {number}: {error}"))?;
    }
    Ok(0)
}
