//! Many connections: on many threads, very many in one process, and those that come to nothing.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use ibnet::{Connecting, Error, SendConnection, Wait};

use super::exercise::Exercise;
use super::{duet, duet_everywhere, solo};
use crate::cast::{Cast, ensure};
use crate::play::{Failure, Scenario, Scene};
use crate::resources::resident_kib;

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        duet_everywhere(
            "crowds/8-connections-on-8-threads",
            &[threaded_receiver, threaded_sender],
        ),
        Scenario {
            scene: Scene::Pair,
            limit: Duration::from_secs(300),
            ..duet(
                "crowds/1000-connections-64-at-a-time",
                &[thousand_receiver, thousand_sender],
            )
        },
        duet(
            "crowds/listener-closed-in-mid-accept",
            &[closing_listener, refused_clients],
        ),
        solo("crowds/attempts-that-are-left-alone", &[abandoned_attempts]),
    ]
}

const THREADS: usize = 8;

fn exercise(number: u8) -> Exercise {
    Exercise {
        seed: u64::from(number),
        parts: 2,
        least: 4096,
    }
}

fn threaded_receiver(cast: &mut Cast) -> Result<(), Failure> {
    let transport = cast.transport()?;
    let before = cast.baseline(1)?;
    let mut listener = cast.listen(&transport)?;
    cast.publish(1, &listener)?;
    let connections: Vec<_> = (0..THREADS)
        .map(|_| Ok(listener.accept().wait()?))
        .collect::<Result<_, Failure>>()?;
    drop(listener);
    on_threads(connections, |_, mut receiving| {
        // The first message says which of the sender's threads this is.
        let ticket = receiving.recv(receiving.registrar().buffer(1)?, 0).wait()?;
        let number = receiving.finish(ticket).wait()?[0];
        for _ in 0..3 {
            exercise(number).receive(&mut receiving)?;
        }
        Ok(receiving.close()?)
    })?;
    cast.meet(1)?;
    cast.expect_resources(&before)
}

fn threaded_sender(cast: &mut Cast) -> Result<(), Failure> {
    let transport = cast.transport_with(|config| {
        config.queue_pairs = 2;
        config.min_part = Some(4096);
        config.split_data = cast.pairs() == 1;
    })?;
    let before = cast.baseline(0)?;
    let handle = cast.learn(0)?;
    let connections: Vec<_> = (0..THREADS)
        .map(|_| cast.connect(&transport, &handle))
        .collect::<Result<_, Failure>>()?;
    // Connected on its thread, too: no two attempts may be in each other's way.
    on_threads(connections, |number, connecting: Connecting| {
        let mut sending = connecting.wait()?;
        let mut buffer = sending.registrar().buffer(1)?;
        buffer[0] = number as u8;
        let ticket = sending.send(buffer, 0).wait()?;
        sending.finish(ticket).wait()?;
        for _ in 0..3 {
            exercise(number as u8).send(&mut sending)?;
        }
        Ok(sending.close()?)
    })?;
    cast.meet(0)?;
    cast.expect_resources(&before)
}

/// Does `work` with each of `items` on a thread of its own.
fn on_threads<T: Send>(
    items: Vec<T>,
    work: impl Fn(usize, T) -> Result<(), Failure> + Sync,
) -> Result<(), Failure> {
    std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = items
            .into_iter()
            .enumerate()
            .map(|(number, item)| scope.spawn(move || work(number, item)))
            .collect();
        for (number, thread) in threads.into_iter().enumerate() {
            let outcome = thread.join().map_err(|_| "it panicked")?;
            outcome.map_err(|error| format!("thread {number}: {error}"))?;
        }
        Ok(())
    })
}

/// Soft-RoCE allows more than a million queue pairs, half a million regions and 32,767 completions
/// in a queue (Linux 6.1), so that descriptors are what there is least of: 1024 by default.
const THOUSAND: usize = 1000;
const AT_A_TIME: usize = 64;

/// An end of a connection with one path at full depth has at most 160 KiB, what the driver maps
/// included. (Of a simulated device all is in the process.) A receiver's has `more` for its queue pair for
/// flushing.
fn expect_little_memory(cast: &Cast, before: Option<usize>, more: usize) -> Result<(), Failure> {
    let most = 160 + more;
    let (Some(before), Some(now)) = (before, resident_kib()) else {
        return Ok(());
    };
    let each = now.saturating_sub(before) / THOUSAND;
    ensure(cast.is_simulated() || each <= most, || {
        format!("{each} KiB for an end of a connection; at most {most} are allowed")
    })
}

/// What a queue pair for flushing may add to a receiver's end, in KiB.
const FLUSHING: usize = 40;

fn thousand_receiver(cast: &mut Cast) -> Result<(), Failure> {
    allow_many_descriptors()?;
    let transport = cast.transport()?;
    let before = cast.baseline(1)?;
    let mut listener = cast.listen(&transport)?;
    cast.publish(1, &listener)?;
    let memory = resident_kib();
    let mut connections = Vec::new();
    while connections.len() < THOUSAND {
        connections.push(listener.accept().wait()?);
    }
    drop(listener);
    expect_little_memory(cast, memory, FLUSHING)?;
    let now = cast.baseline(1)?;
    if let (Some(before), Some(now)) = (before.queue_pairs(), now.queue_pairs()) {
        let ends = if cast.is_simulated() { 2 } else { 1 };
        let made = (now - before) as usize;
        // And one of each receiver's for flushing.
        ensure(made == THOUSAND * (ends + 1), || {
            format!("{made} queue pairs for {THOUSAND} connections")
        })?;
    }
    // Every one of them carries its message, and none another's.
    let mut tickets = Vec::new();
    for receiving in &mut connections {
        tickets.push(receiving.recv(receiving.registrar().buffer(8)?, 0).wait()?);
    }
    let mut seen = vec![false; THOUSAND];
    for (receiving, ticket) in connections.iter_mut().zip(tickets) {
        let buffer = receiving.finish(ticket).wait()?;
        let number = u64::from_le_bytes(buffer[..].try_into()?) as usize;
        ensure(!std::mem::replace(&mut seen[number], true), || {
            format!("message {number} twice")
        })?;
    }
    // Half of them are closed by this end first.
    for receiving in connections.drain(..THOUSAND / 2) {
        receiving.close()?;
    }
    cast.meet(1)?;
    drop(connections);
    cast.meet(1)?;
    cast.expect_resources(&before)
}

fn thousand_sender(cast: &mut Cast) -> Result<(), Failure> {
    allow_many_descriptors()?;
    let transport = cast.transport()?;
    let before = cast.baseline(0)?;
    let handle = cast.learn(0)?;
    let memory = resident_kib();
    let mut attempts: VecDeque<Connecting> = VecDeque::new();
    let mut connections: Vec<SendConnection> = Vec::new();
    while connections.len() < THOUSAND {
        while attempts.len() < AT_A_TIME && connections.len() + attempts.len() < THOUSAND {
            attempts.push_back(cast.connect(&transport, &handle)?);
        }
        for _ in 0..attempts.len() {
            let Some(mut attempt) = attempts.pop_front() else {
                break;
            };
            match attempt.try_now()? {
                Some(connection) => connections.push(connection),
                None => attempts.push_back(attempt),
            }
        }
        std::thread::yield_now();
    }
    expect_little_memory(cast, memory, 0)?;
    cast.baseline(0)?;
    let mut tickets = Vec::new();
    for (number, sending) in connections.iter_mut().enumerate() {
        let mut buffer = sending.registrar().buffer(8)?;
        buffer.copy_from_slice(&(number as u64).to_le_bytes());
        tickets.push(sending.send(buffer, 0).wait()?);
    }
    for (sending, ticket) in connections.iter_mut().zip(tickets) {
        sending.finish(ticket).wait()?;
    }
    cast.meet(0)?;
    for sending in connections.into_iter().rev() {
        sending.close()?;
    }
    cast.meet(0)?;
    cast.expect_resources(&before)
}

/// Each connection has a descriptor at each end, and both ends may be in this process.
fn allow_many_descriptors() -> Result<(), Failure> {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    let needed = 3 * THOUSAND as u64;
    if soft < needed {
        setrlimit(Resource::RLIMIT_NOFILE, needed.min(hard), hard)?;
    }
    Ok(())
}

/// An error must come within this time; anything longer is a hang.
const PATIENCE: Duration = Duration::from_secs(30);

/// Clients that a listener has in hand when it is closed.
const CLIENTS: usize = 6;
const ROUNDS: usize = 20;

/// The listener is closed with clients at every stage of their handshakes.
fn closing_listener(cast: &mut Cast) -> Result<(), Failure> {
    let transport = cast.transport_with(|config| config.queue_pairs = 8)?;
    let before = cast.baseline(1)?;
    for polls in 0..ROUNDS {
        let mut listener = cast.listen(&transport)?;
        cast.publish(1, &listener)?;
        // The clients are on their way.
        cast.meet(1)?;
        let mut accepted = Vec::new();
        for _ in 0..polls {
            accepted.extend(listener.accept().try_now()?);
            std::thread::sleep(Duration::from_micros(300));
        }
        drop(listener);
        drop(accepted);
        cast.meet(1)?;
    }
    cast.expect_resources(&before)
}

fn refused_clients(cast: &mut Cast) -> Result<(), Failure> {
    let transport = cast.transport_with(|config| config.socket_retries = 0)?;
    let before = cast.baseline(0)?;
    for _ in 0..ROUNDS {
        let handle = cast.learn(0)?;
        let mut attempts = Vec::new();
        for _ in 0..CLIENTS {
            let mut attempt = cast.connect(&transport, &handle)?;
            // Greets, if the system has connected it already.
            let _ = attempt.try_now()?;
            attempts.push(attempt);
        }
        cast.meet(0)?;
        for attempt in attempts {
            let start = Instant::now();
            match attempt.wait() {
                Ok(_) | Err(Error::PeerLost { .. } | Error::Socket { .. }) => {}
                Err(error) => return Err(error.into()),
            }
            ensure(start.elapsed() < PATIENCE, || {
                "a closed listener was noticed late".to_owned()
            })?;
        }
        cast.meet(0)?;
    }
    cast.expect_resources(&before)
}

/// Attempts that are neither asked again nor dropped: the listener gets rid of its
/// half when the time is over, and the other half goes when it is dropped.
fn abandoned_attempts(cast: &mut Cast) -> Result<(), Failure> {
    let limit = Duration::from_secs(1);
    let transport = cast.transport_with(|config| {
        config.connect_timeout = Some(limit);
        // So many take more polls than any of the attempts gets.
        config.queue_pairs = 64;
    })?;
    let before = cast.resources()?;
    let mut listener = cast.listen(&transport)?;
    let handle = listener.handle();
    let mut abandoned = Vec::new();
    for polls in 0..10 {
        let mut attempt = cast.connect(&transport, &handle)?;
        for _ in 0..polls {
            ensure(attempt.try_now()?.is_none(), || {
                "an attempt was done too soon".to_owned()
            })?;
            ensure(listener.accept().try_now()?.is_none(), || {
                "an attempt was accepted too soon".to_owned()
            })?;
        }
        abandoned.push(attempt);
    }
    let start = Instant::now();
    let mut given_up = 0;
    while start.elapsed() < 2 * limit {
        match listener.accept().try_now() {
            Ok(None) => {}
            Ok(Some(_)) => return Err("an abandoned attempt came through".into()),
            // Those that had shown the cookie are reported, each once.
            Err(Error::Timeout { .. }) => given_up += 1,
            Err(error) => return Err(error.into()),
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    ensure((1..10).contains(&given_up), || {
        format!("{given_up} abandoned attempts were given up")
    })?;
    // The listener holds nothing of them any more: what is left is in the attempts.
    drop(abandoned);
    let listening = cast.resources()?;
    ensure(listening.queue_pairs() == before.queue_pairs(), || {
        format!("the listener keeps something: {before} before, {listening} now")
    })?;
    drop(listener);
    cast.expect_resources(&before)
}
