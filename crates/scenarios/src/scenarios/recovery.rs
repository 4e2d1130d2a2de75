//! Links that go down and addresses that go while messages are under way: with `recovery_timeout` the programs at both
//! ends notice nothing but a pause.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use ibnet::{ConnectOptions, RecvConnection, SendConnection, Transport, Wait};

use super::own_link::OwnLink;
use super::solo;
use crate::cast::{Cast, ensure};
use crate::play::{Failure, Scenario};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![Scenario {
        needs_processes: Some("the kernel's links go down"),
        ..solo("recovery/a-link-flap-is-a-pause", &[flaps])
    }]
}

const ADDRESS: &str = "198.18.94.1/24";
const MESSAGE: usize = 64 << 10;

fn flaps(cast: &mut Cast) -> Result<(), Failure> {
    let link = match OwnLink::create("flap") {
        Ok(link) => link,
        Err(error) => return Err(cast.skip(&format!("no Soft-RoCE device of its own: {error}"))),
    };
    link.address("add", ADDRESS)?;
    let transport = cast.transport_with(|config| {
        config.hca = format!("={}", link.device).parse().unwrap_or_default();
        config.recovery_timeout = Duration::from_secs(60);
    })?;
    let (mut sending, mut receiving) = connect(&transport)?;
    let is_over = AtomicBool::new(false);
    let faults = || -> Result<(), Failure> {
        for seconds in [1, 1, 3] {
            thread::sleep(Duration::from_millis(500));
            link.set("down")?;
            thread::sleep(Duration::from_secs(seconds));
            link.set("up")?;
            thread::sleep(Duration::from_secs(2));
        }
        // An address that comes again has another place in the table.
        link.address("del", ADDRESS)?;
        thread::sleep(Duration::from_secs(1));
        link.address("add", ADDRESS)?;
        thread::sleep(Duration::from_secs(3));
        Ok(())
    };
    let (sent, received, faults) = thread::scope(|scope| {
        let sender =
            scope.spawn(|| send(&mut sending, &is_over).map_err(|error| error.to_string()));
        let receiver = scope.spawn(|| receive(&mut receiving).map_err(|error| error.to_string()));
        let faults = faults();
        is_over.store(true, Ordering::Relaxed);
        (sender.join(), receiver.join(), faults)
    });
    faults?;
    let panicked = |_| Failure::from("an end has panicked");
    let (sent, received) = (sent.map_err(panicked)??, received.map_err(panicked)??);
    ensure(sent == received && sent > 100, || {
        format!("{sent} messages sent, {received} received")
    })?;
    let state = format!("{:?}", sending.raw());
    ensure(!state.contains("epoch 0"), || {
        format!("no path has failed in all this: {state}")
    })?;
    sending.close()?;
    Ok(receiving.close()?)
}

fn connect(transport: &Transport) -> Result<(SendConnection, RecvConnection), Failure> {
    let mut listener = transport.listen(0)?;
    let mut connecting = transport.connect(0, &listener.handle(), ConnectOptions::default())?;
    let (mut sending, mut receiving) = (None, None);
    loop {
        if sending.is_none() {
            sending = connecting.try_now()?;
        }
        if receiving.is_none() {
            receiving = listener.accept().try_now()?;
        }
        if sending.is_some() && receiving.is_some() {
            break;
        }
    }
    Ok((
        sending.ok_or("both ends are there")?,
        receiving.ok_or("both ends are there")?,
    ))
}

/// What byte `at` of message `number` is.
fn byte(number: u64, at: usize) -> u8 {
    (number as usize).wrapping_mul(31).wrapping_add(at) as u8
}

/// Sends until it is over, and an empty message then; how many were sent.
fn send(sending: &mut SendConnection, is_over: &AtomicBool) -> Result<u64, Failure> {
    let mut buffer = sending.registrar().buffer(MESSAGE)?;
    let mut number = 0;
    while !is_over.load(Ordering::Relaxed) {
        for (at, place) in buffer.iter_mut().enumerate() {
            *place = byte(number, at);
        }
        let ticket = sending.send(buffer, 0).wait()?;
        buffer = sending.finish(ticket).wait()?;
        number += 1;
    }
    let ticket = sending.send(sending.registrar().buffer(1)?, 0).wait()?;
    sending.finish(ticket).wait()?;
    Ok(number)
}

/// Receives until a short message comes; how many came before it.
fn receive(receiving: &mut RecvConnection) -> Result<u64, Failure> {
    let mut number = 0;
    loop {
        let buffer = receiving.registrar().buffer(MESSAGE)?;
        let ticket = receiving.recv(buffer, 0).wait()?;
        let message = receiving.finish(ticket).wait()?;
        if message.len() < MESSAGE {
            return Ok(number);
        }
        let wrong = (0..MESSAGE).find(|at| message[*at] != byte(number, *at));
        ensure(wrong.is_none(), || {
            format!("message {number} is wrong at byte {wrong:?}")
        })?;
        number += 1;
    }
}
