//! Connecting: reuse, strangers, handles, and nothing left behind.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use ibnet::{ConnectOptions, Error, Handle, Listener, RecvConnection, Wait};

use super::{duet, solo};
use crate::cast::{Cast, ensure};
use crate::play::{Failure, Scenario, Scene};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        duet(
            "connecting/100-rounds-leave-nothing",
            &[rounds_receiver, rounds_sender],
        ),
        duet(
            "connecting/one-listener-ten-connections",
            &[ten_receiver, ten_sender],
        ),
        duet(
            "connecting/strangers-do-no-harm",
            &[besieged_receiver, besieging_sender],
        ),
        duet(
            "connecting/failed-attempts-leave-nothing",
            &[deserted_receiver, deserting_sender],
        ),
        solo("connecting/bad-handles", &[bad_handles]),
        solo("connecting/no-such-device", &[no_such_device]),
        solo("connecting/no-answer", &[no_answer]),
        solo(
            "connecting/silent-clients-are-hung-up-on",
            &[silent_clients],
        ),
        Scenario {
            scene: Scene::OneDevice,
            ..duet(
                "connecting/refused-by-a-closed-listener",
                &[closed_receiver, closed_sender],
            )
        },
    ]
}

const ROUNDS: usize = 100;

fn rounds_receiver(cast: &mut Cast) -> Result<(), Failure> {
    let transport = cast.transport()?;
    let before = cast.baseline(1)?;
    if !before.has_objects() {
        eprintln!("  note: no `rdma` tool, so queue pairs and regions are not counted");
    }
    for round in 0..ROUNDS {
        let mut receiving = cast.accept_from(1, &transport)?;
        let ticket = receiving
            .recv(receiving.registrar().buffer(100)?, 0)
            .wait()?;
        let message = receiving.finish(ticket).wait()?;
        ensure(message[..] == [round as u8; 10], || {
            format!("{:?}", &message[..])
        })?;
        receiving.close()?;
    }
    cast.meet(1)?;
    cast.expect_resources(&before)
}

fn rounds_sender(cast: &mut Cast) -> Result<(), Failure> {
    let transport = cast.transport()?;
    let before = cast.baseline(0)?;
    for round in 0..ROUNDS {
        let mut sending = cast.connect_to(0, &transport)?;
        let mut buffer = sending.registrar().buffer(10)?;
        buffer.fill(round as u8);
        let ticket = sending.send(buffer, 0).wait()?;
        sending.finish(ticket).wait()?;
        sending.close()?;
    }
    cast.meet(0)?;
    cast.expect_resources(&before)
}

fn ten_receiver(cast: &mut Cast) -> Result<(), Failure> {
    let transport = cast.transport()?;
    let mut listener = transport.listen(0)?;
    cast.publish(1, &listener)?;
    let mut connections = Vec::new();
    for _ in 0..10 {
        connections.push(listener.accept().wait()?);
    }
    drop(listener);
    // Announced on all of them first: the clients may send in another order than they came in.
    let mut tickets = Vec::new();
    for receiving in &mut connections {
        tickets.push(receiving.recv(receiving.registrar().buffer(1)?, 0).wait()?);
    }
    // The message says which client it is.
    let mut seen = [false; 10];
    for (receiving, ticket) in connections.iter_mut().zip(tickets) {
        let client = usize::from(receiving.finish(ticket).wait()?[0]);
        ensure(!std::mem::replace(&mut seen[client], true), || {
            format!("client {client} twice")
        })?;
    }
    ensure(seen == [true; 10], || format!("{seen:?}"))
}

fn ten_sender(cast: &mut Cast) -> Result<(), Failure> {
    let transport = cast.transport()?;
    let handle = cast.learn(0)?;
    let mut attempts = Vec::new();
    for _ in 0..10 {
        attempts.push(Some(transport.connect(
            0,
            &handle,
            ConnectOptions::default(),
        )?));
    }
    // All ten are in the middle of their handshakes at once.
    let mut connections = Vec::new();
    while connections.len() < 10 {
        for attempt in &mut attempts {
            if let Some(connecting) = attempt
                && let Some(connection) = connecting.try_now()?
            {
                connections.push(connection);
                *attempt = None;
            }
        }
    }
    for (number, sending) in connections.iter_mut().enumerate() {
        let mut buffer = sending.registrar().buffer(1)?;
        buffer[0] = number as u8;
        let ticket = sending.send(buffer, 0).wait()?;
        sending.finish(ticket).wait()?;
    }
    Ok(())
}

/// A listener that strangers call on, with an honest client at the end.
fn besieged_receiver(cast: &mut Cast) -> Result<(), Failure> {
    let transport = cast.transport()?;
    let before = cast.baseline(1)?;
    let mut listener = transport.listen(0)?;
    cast.publish(1, &listener)?;
    let mut receiving = listener.accept().wait()?;
    let ticket = receiving.recv(receiving.registrar().buffer(5)?, 0).wait()?;
    ensure(receiving.finish(ticket).wait()?[..] == *b"hello", || {
        "other data".to_owned()
    })?;
    receiving.close()?;
    drop(listener);
    cast.meet(1)?;
    cast.expect_resources(&before)
}

fn besieging_sender(cast: &mut Cast) -> Result<(), Failure> {
    let transport = cast.transport()?;
    cast.baseline(0)?;
    let handle = cast.learn(0)?;
    let address = handle.address();
    // Kept open: the listener must not wait for them.
    let mut open = Vec::new();
    // Says nothing at all.
    open.push(TcpStream::connect(address)?);
    for rubbish in [
        b"GET / HTTP/1.0\r\n\r\n".to_vec(),
        vec![0xff; 10_000],
        vec![0; 10_000],
        // A length that is never filled, with the right version.
        [&64_000_u32.to_be_bytes()[..], &[0, 1], &[7; 100]].concat(),
        // Half a header.
        vec![0, 0],
    ] {
        let mut stream = TcpStream::connect(address)?;
        // The listener may hang up at any byte.
        let _ = stream.write_all(&rubbish);
        open.push(stream);
    }
    // Knows the protocol, but not the secret.
    let mut bytes = handle.to_bytes();
    bytes[30] ^= 1;
    let mut imposter =
        transport.connect(0, &Handle::from_bytes(&bytes)?, ConnectOptions::default())?;
    let first_answer = imposter.try_now();

    let mut sending = transport
        .connect(0, &handle, ConnectOptions::default())?
        .wait()?;
    let mut buffer = sending.registrar().buffer(5)?;
    buffer.copy_from_slice(b"hello");
    let ticket = sending.send(buffer, 0).wait()?;
    sending.finish(ticket).wait()?;

    // The client that spoke nonsense has been hung up on; the imposter learns no reason.
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut answer = first_answer;
    let refusal = loop {
        match answer {
            Ok(Some(_)) => return Err("a wrong cookie was accepted".into()),
            Ok(None) if Instant::now() > deadline => return Err("the imposter hangs".into()),
            Ok(None) => std::thread::sleep(Duration::from_millis(5)),
            Err(error) => break error,
        }
        answer = imposter.try_now();
    };
    ensure(!matches!(refusal, Error::Refused { .. }), || {
        format!("told too much: {refusal}")
    })?;
    open[1].set_read_timeout(Some(Duration::from_secs(20)))?;
    let answer = open[1].read(&mut [0; 100]);
    ensure(!matches!(answer, Ok(1..)), || {
        format!("a stranger was answered: {answer:?}")
    })?;
    drop(sending);
    cast.meet(0)
}

/// Peers that begin a handshake and vanish, and a connection that comes through all the same.
fn deserted_receiver(cast: &mut Cast) -> Result<(), Failure> {
    let transport = cast.transport()?;
    let before = cast.baseline(1)?;
    let mut listener = transport.listen(0)?;
    cast.publish(1, &listener)?;
    let receiving = accept_despite_deserters(&mut listener)?;
    drop((receiving, listener));
    cast.meet(1)?;
    cast.expect_resources(&before)
}

/// A client that knew the cookie and vanished is reported once; the listener goes on.
fn accept_despite_deserters(listener: &mut Listener) -> Result<RecvConnection, Failure> {
    let deadline = Instant::now() + Duration::from_secs(60);
    while Instant::now() < deadline {
        match listener.accept().try_now() {
            Ok(Some(connection)) => return Ok(connection),
            Ok(None) => std::thread::yield_now(),
            Err(Error::PeerLost { .. } | Error::Socket { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err("no connection came through".into())
}

fn deserting_sender(cast: &mut Cast) -> Result<(), Failure> {
    // A listener that is gone need not be called for seconds here.
    let transport = cast.transport_with(|config| config.socket_retries = 2)?;
    let before = cast.baseline(0)?;
    let handle = cast.learn(0)?;
    for polls in 0..40 {
        let mut attempt = transport.connect(0, &handle, ConnectOptions::default())?;
        for _ in 0..polls {
            // Once one of them has come through, the listener is gone and refuses the others.
            if !matches!(attempt.try_now(), Ok(None)) {
                break;
            }
            std::thread::sleep(Duration::from_micros(500));
        }
        // Dropped at whatever point it has reached, or the connection at once.
    }
    let connection = connect_persistently(&transport, &handle)?;
    drop(connection);
    cast.meet(0)?;
    cast.expect_resources(&before)
}

/// The receiver may have accepted one of the deserters and be gone; that is success, too.
fn connect_persistently(
    transport: &ibnet::Transport,
    handle: &Handle,
) -> Result<Option<ibnet::SendConnection>, Failure> {
    match transport
        .connect(0, handle, ConnectOptions::default())
        .and_then(|it| it.wait())
    {
        Ok(connection) => Ok(Some(connection)),
        Err(Error::PeerLost { .. } | Error::Socket { .. } | Error::Refused { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn bad_handles(cast: &mut Cast) -> Result<(), Failure> {
    let transport = cast.transport()?;
    let listener = transport.listen(0)?;
    let good = listener.handle().to_bytes();
    for (what, bytes) in [
        ("all 0xff", vec![0xff; 64]),
        ("all zero", vec![0; 64]),
        ("empty", Vec::new()),
        ("cut", good[..63].to_vec()),
        ("another version", [&good[..4], &[9], &good[5..]].concat()),
    ] {
        let outcome = Handle::from_bytes(&bytes);
        ensure(matches!(outcome, Err(Error::BadHandle(_))), || {
            format!("a handle that is {what} gives {outcome:?}")
        })?;
    }
    Ok(())
}

fn no_such_device(cast: &mut Cast) -> Result<(), Failure> {
    let transport = cast.transport()?;
    let count = transport.devices().len();
    for index in [count, usize::MAX] {
        let outcome = transport.listen(index).map(drop);
        ensure(matches!(outcome, Err(Error::InvalidArgument(_))), || {
            format!("{outcome:?}")
        })?;
    }
    let outcome = cast.transport_with(|config| {
        config.hca = "=nonexistent".parse().unwrap_or_default();
    });
    let text = outcome
        .err()
        .map(|error| error.to_string())
        .unwrap_or_default();
    ensure(text.contains("`hca`"), || {
        format!("the reason is missing: {text:?}")
    })
}

/// A peer whose host takes the TCP connection and whose process never answers: waited for while the connection
/// lives, or as long as is set.
fn no_answer(cast: &mut Cast) -> Result<(), Failure> {
    let limit = Duration::from_secs(2);
    let mute = TcpListener::bind("127.0.0.1:0")?;
    let address = mute.local_addr()?;
    let mut handle = cast.transport()?.listen(0)?.handle().to_bytes();
    handle[5] = 4;
    handle[6..8].copy_from_slice(&address.port().to_be_bytes());
    handle[8..24].fill(0);
    handle[8..12].copy_from_slice(&[127, 0, 0, 1]);
    let handle = Handle::from_bytes(&handle)?;

    let limited = cast.transport_with(|config| config.connect_timeout = Some(limit))?;
    let unlimited = cast.transport()?;
    let before = cast.resources()?;
    let start = Instant::now();
    let options = ConnectOptions::default();
    let outcome = limited.connect(0, &handle, options)?.wait();
    ensure(matches!(outcome, Err(Error::Timeout { .. })), || {
        format!("{:?}", outcome.as_ref().map(|_| ()))
    })?;
    let waited = start.elapsed();
    ensure(waited >= limit, || {
        format!("gave up after {waited:?} already")
    })?;
    // That attempt is in the system's queue, too.
    drop(mute.accept()?);

    let mut connecting = unlimited.connect(0, &handle, options)?;
    if connecting.wait_for(2 * limit)?.is_some() {
        return Err("a connection with a peer that is mute".into());
    }
    drop(mute.accept()?);
    let outcome = connecting.wait();
    let text = outcome
        .err()
        .map(|error| error.to_string())
        .unwrap_or_default();
    let name = &unlimited.devices()[0].name;
    ensure(
        text.contains(&address.to_string()) && text.contains(name),
        || format!("both ends are not in {text:?}"),
    )?;
    cast.expect_resources(&before)
}

/// Clients that connect and say nothing do not stay for ever.
fn silent_clients(cast: &mut Cast) -> Result<(), Failure> {
    let limit = Duration::from_secs(1);
    let transport = cast.transport_with(|config| config.connect_timeout = Some(limit))?;
    let before = cast.resources()?;
    let mut listener = transport.listen(0)?;
    let mut silent = Vec::new();
    for _ in 0..20 {
        let stream = TcpStream::connect(listener.handle().address())?;
        stream.set_read_timeout(Some(Duration::from_millis(1)))?;
        silent.push(stream);
    }
    let start = Instant::now();
    while !silent.is_empty() {
        ensure(start.elapsed() < Duration::from_secs(20), || {
            format!("{} silent clients are still there", silent.len())
        })?;
        ensure(listener.accept().try_now()?.is_none(), || {
            "a connection from nowhere".to_owned()
        })?;
        silent.retain_mut(|stream| !matches!(stream.read(&mut [0]), Ok(0)));
    }
    ensure(start.elapsed() >= limit, || {
        "hung up on too early".to_owned()
    })?;
    drop(listener);
    cast.expect_resources(&before)
}

fn closed_receiver(cast: &mut Cast) -> Result<(), Failure> {
    let transport = cast.transport()?;
    let listener = transport.listen(0)?;
    let handle = listener.handle();
    drop(listener);
    cast.send_mail(1, &handle.to_bytes())?;
    cast.meet(1)
}

fn closed_sender(cast: &mut Cast) -> Result<(), Failure> {
    // A listener that is gone need not be called for seconds here.
    let transport = cast.transport_with(|config| config.socket_retries = 2)?;
    let handle = cast.learn(0)?;
    let outcome = transport
        .connect(0, &handle, ConnectOptions::default())
        .and_then(|connecting| connecting.wait());
    let text = outcome
        .err()
        .map(|error| error.to_string())
        .unwrap_or_default();
    ensure(text.contains(&handle.address().to_string()), || {
        format!("the address is missing: {text:?}")
    })?;
    cast.meet(0)
}
