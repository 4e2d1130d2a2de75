//! Endings: closing with requests in flight, peers that die, errors that stay.

use std::time::{Duration, Instant};

use ibnet::{Error, RecvConnection, RecvTicket, SendConnection, SendTicket, Wait};

use super::{duet, duet_everywhere};
use crate::cast::{Cast, ensure};
use crate::pattern::{fill, mismatch};
use crate::play::{Failure, Role, Scenario, Scene};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        duet_everywhere(
            "endings/sender-closes-in-flight",
            &[left_receiver, leaving_sender],
        ),
        duet_everywhere(
            "endings/receiver-closes-in-flight",
            &[leaving_receiver, left_sender],
        ),
        duet_everywhere(
            "endings/both-close-in-flight",
            &[leaving_receiver, leaving_sender],
        ),
        duet_everywhere(
            "endings/what-was-taken-counts",
            &[taking_receiver, trusting_sender],
        ),
        duet(
            "endings/what-was-sent-arrives",
            &[late_receiver, hasty_sender],
        ),
        duet(
            "endings/what-was-sent-is-seen-however-late",
            &[slow_receiver, hasty_sender_of_256],
        ),
        losing_the_link(),
        killing(
            "endings/sender-is-killed",
            &[bereaved_receiver, doomed_sender],
        ),
        killing(
            "endings/receiver-is-killed",
            &[doomed_receiver, bereaved_sender],
        ),
    ]
}

/// One of the two is killed in mid-transfer.
const fn killing(name: &'static str, roles: &'static [Role; 2]) -> Scenario {
    let mut scenario = duet(name, roles);
    scenario.needs_processes = Some("a process is killed");
    scenario
}

const IN_FLIGHT: usize = 32;
const SIZE: usize = 1 << 20;

/// An error must come within this time; anything longer is a hang.
const PATIENCE: Duration = Duration::from_secs(30);

fn post_receives(receiving: &mut RecvConnection) -> Result<Vec<RecvTicket>, Failure> {
    (0..IN_FLIGHT)
        .map(|_| {
            Ok(receiving
                .recv(receiving.registrar().buffer(SIZE)?, 0)
                .wait()?)
        })
        .collect()
}

fn post_sends(sending: &mut SendConnection) -> Result<Vec<SendTicket>, Failure> {
    (0..IN_FLIGHT)
        .map(|_| {
            let buffer = sending.registrar().buffer(SIZE)?;
            Ok(sending.send(buffer, 0).wait()?)
        })
        .collect()
}

/// Closes with everything in flight.
fn leaving_receiver(cast: &mut Cast) -> Result<(), Failure> {
    let transport = cast.transport()?;
    let before = cast.baseline(1)?;
    let mut receiving = cast.accept_from(1, &transport)?;
    let tickets = post_receives(&mut receiving)?;
    // The sender is busy with them now.
    cast.receive_mail(1)?;
    quickly("closing", || Ok(receiving.close()?))?;
    drop(tickets);
    cast.meet(1)?;
    cast.expect_resources(&before)
}

fn leaving_sender(cast: &mut Cast) -> Result<(), Failure> {
    let transport = cast.transport()?;
    let before = cast.baseline(0)?;
    let mut sending = cast.connect_to(0, &transport)?;
    let tickets = post_sends(&mut sending)?;
    cast.send_mail(0, b"sent")?;
    quickly("closing", || Ok(sending.close()?))?;
    drop(tickets);
    cast.meet(0)?;
    cast.expect_resources(&before)
}

/// Has posted receives and is left: each gives its data or the one error, soon.
fn left_receiver(cast: &mut Cast) -> Result<(), Failure> {
    let transport = cast.transport()?;
    let before = cast.baseline(1)?;
    let mut receiving = cast.accept_from(1, &transport)?;
    let mut tickets = post_receives(&mut receiving)?;
    // One more than will be sent, so that one is sure to fail.
    tickets.push(
        receiving
            .recv(receiving.registrar().buffer(SIZE)?, 0)
            .wait()?,
    );
    cast.receive_mail(1)?;
    let mut failures = 0;
    quickly("the receives", || {
        for ticket in tickets {
            match receiving.finish(ticket).wait().map_err(Error::from) {
                Ok(buffer) => ensure(buffer.len() == SIZE, || "a short message".to_owned())?,
                Err(Error::PeerClosed { .. }) => failures += 1,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    })?;
    ensure(failures > 0, || {
        "the receive without a message did not fail".to_owned()
    })?;
    expect_latched(
        receiving
            .recv(receiving.registrar().buffer(1)?, 0)
            .wait()
            .map(drop)
            .map_err(Error::from),
    )?;
    receiving.close()?;
    cast.meet(1)?;
    cast.expect_resources(&before)
}

fn left_sender(cast: &mut Cast) -> Result<(), Failure> {
    let transport = cast.transport()?;
    let before = cast.baseline(0)?;
    let mut sending = cast.connect_to(0, &transport)?;
    let tickets = post_sends(&mut sending)?;
    cast.send_mail(0, b"sent")?;
    quickly("the sends", || {
        for ticket in tickets {
            match sending.finish(ticket).wait().map_err(Error::from) {
                Ok(_) | Err(Error::PeerClosed { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    })?;
    let error = quickly("noticing the end", || {
        loop {
            let buffer = sending.registrar().buffer(1)?;
            match sending.send(buffer, 0).try_now() {
                Err(failed) => return Ok(failed.error),
                Ok(Some(_)) => return Err("something was announced after the end".into()),
                Ok(None) => std::thread::yield_now(),
            }
        }
    })?;
    ensure(matches!(error, Error::PeerClosed { .. }), || {
        error.to_string()
    })?;
    sending.close()?;
    cast.meet(0)?;
    cast.expect_resources(&before)
}

/// Takes everything and closes at once: the sender's requests are done, whether or not their
/// acknowledgements came through.
fn taking_receiver(cast: &mut Cast) -> Result<(), Failure> {
    let transport = cast.transport()?;
    for _ in 0..5 {
        let mut receiving = cast.accept_from(1, &transport)?;
        let tickets = post_receives(&mut receiving)?;
        for ticket in tickets {
            ensure(
                mismatch(&receiving.finish(ticket).wait()?, 9).is_none(),
                || "wrong data".to_owned(),
            )?;
        }
        receiving.close()?;
    }
    cast.meet(1)
}

fn trusting_sender(cast: &mut Cast) -> Result<(), Failure> {
    let transport = cast.transport()?;
    for _ in 0..5 {
        let mut sending = cast.connect_to(0, &transport)?;
        let mut tickets = Vec::new();
        for _ in 0..IN_FLIGHT {
            let mut buffer = sending.registrar().buffer(SIZE)?;
            fill(&mut buffer, 9);
            tickets.push(sending.send(buffer, 0).wait()?);
        }
        for ticket in tickets {
            sending.finish(ticket).wait()?;
        }
    }
    cast.meet(0)
}

/// Asks for its messages only after the sender has closed.
fn late_receiver(cast: &mut Cast) -> Result<(), Failure> {
    let transport = cast.transport()?;
    let mut receiving = cast.accept_from(1, &transport)?;
    let tickets = post_receives(&mut receiving)?;
    cast.receive_mail(1)?;
    std::thread::sleep(Duration::from_millis(100));
    for ticket in tickets {
        ensure(receiving.finish(ticket).wait()?.len() == SIZE, || {
            "a short message".to_owned()
        })?;
    }
    Ok(())
}

fn hasty_sender(cast: &mut Cast) -> Result<(), Failure> {
    let transport = cast.transport()?;
    let mut sending = cast.connect_to(0, &transport)?;
    for ticket in post_sends(&mut sending)? {
        sending.finish(ticket).wait()?;
    }
    sending.close()?;
    cast.send_mail(0, b"gone")
}

/// Sees that the sender has left, and looks at its many messages long after.
fn slow_receiver(cast: &mut Cast) -> Result<(), Failure> {
    let transport = cast.transport()?;
    let mut receiving = cast.accept_from(1, &transport)?;
    let mut tickets = Vec::new();
    for _ in 0..256 {
        tickets.push(
            receiving
                .recv(receiving.registrar().buffer(64)?, 0)
                .wait()?,
        );
    }
    cast.receive_mail(1)?;
    let newest = tickets.pop().ok_or("no receive")?;
    let mut newest = receiving.finish(newest);
    let mut is_done = newest.try_now()?.is_some();
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(250));
        is_done = is_done || newest.try_now()?.is_some();
    }
    let newest = newest.into_inner();
    for ticket in tickets.into_iter().chain(newest) {
        receiving.finish(ticket).wait()?;
    }
    Ok(())
}

fn hasty_sender_of_256(cast: &mut Cast) -> Result<(), Failure> {
    let transport = cast.transport()?;
    let mut sending = cast.connect_to(0, &transport)?;
    let mut tickets = Vec::new();
    for _ in 0..256 {
        tickets.push(sending.send(sending.registrar().buffer(64)?, 0).wait()?);
    }
    for ticket in tickets {
        sending.finish(ticket).wait()?;
    }
    sending.close()?;
    cast.send_mail(0, b"gone")
}

/// Every packet is lost from some moment on, without anybody being told.
fn losing_the_link() -> Scenario {
    Scenario {
        scene: Scene::Pair,
        needs_processes: Some("the kernel drops the packets"),
        ..duet("endings/link-is-lost", &[cut_off_receiver, cut_off_sender])
    }
}

fn cut_off_receiver(cast: &mut Cast) -> Result<(), Failure> {
    let transport = cast.transport()?;
    let mut receiving = cast.accept_from(1, &transport)?;
    let tickets = post_receives(&mut receiving)?;
    cast.send_mail(1, b"posted")?;
    let error = quickly("noticing the lost link", || {
        for ticket in tickets {
            if let Err(error) = receiving.finish(ticket).wait() {
                return Ok(error.error);
            }
        }
        Err("everything arrived over a link that loses everything".into())
    })?;
    // The sender notices, and tells.
    ensure(matches!(error, Error::PeerFailed { .. }), || {
        error.to_string()
    })?;
    cast.send_mail(1, b"noticed")
}

fn cut_off_sender(cast: &mut Cast) -> Result<(), Failure> {
    if std::env::var_os("IBNET_TEST_LINKS").is_none() {
        // Only where nothing else needs them.
        return Err(cast.skip("IBNET_TEST_LINKS does not allow to cut links"));
    }
    // Gives up after some 30 ms instead of half a minute; Soft-RoCE takes 7 retries for endless.
    let transport = cast.transport_with(|config| {
        config.ack_timeout = Some(Duration::from_millis(4));
        config.retry_count = 7;
    })?;
    let mut sending = cast.connect_to(0, &transport)?;
    // The announcements must be here before the cut: they, too, need answers.
    cast.receive_mail(0)?;
    std::thread::sleep(Duration::from_millis(300));
    let _cut = CutLink::of(cast.device())?;
    let tickets = post_sends(&mut sending);
    let error = quickly("noticing the lost link", || {
        for ticket in tickets? {
            if let Err(error) = sending.finish(ticket).wait() {
                return Ok(error.error);
            }
        }
        Err("everything was acknowledged over a link that loses everything".into())
    })?;
    let text = error.to_string();
    ensure(
        matches!(error, Error::Completion { .. }) && text.contains("RETRY_EXC"),
        || text.clone(),
    )?;
    // The connection stays open meanwhile: the peer must have been told.
    cast.receive_mail(0).map(drop)
}

/// Drops every packet that leaves a device, until it is dropped itself.
struct CutLink {
    interface: String,
}

impl CutLink {
    fn of(device: &str) -> Result<Self, Failure> {
        let interfaces = format!("/sys/class/infiniband/{device}/ports/1/gid_attrs/ndevs");
        let interface = std::fs::read_dir(&interfaces)?
            .filter_map(|entry| std::fs::read_to_string(entry.ok()?.path()).ok())
            .map(|name| name.trim().to_owned())
            .find(|name| !name.is_empty())
            .ok_or_else(|| format!("no network interface in {interfaces}"))?;
        let cut = Self { interface };
        cut.tc(&["add"], &["netem", "loss", "100%"])?;
        Ok(cut)
    }

    fn tc(&self, action: &[&str], discipline: &[&str]) -> Result<(), Failure> {
        let mut command = std::process::Command::new("/sbin/tc");
        command
            .arg("qdisc")
            .args(action)
            .args(["dev", &self.interface, "root"]);
        super::programs::run(command.args(discipline))
    }
}

impl Drop for CutLink {
    fn drop(&mut self) {
        if let Err(error) = self.tc(&["del"], &[]) {
            eprintln!("  {} still loses everything: {error}", self.interface);
        }
    }
}

/// The sender dies in mid-transfer.
fn bereaved_receiver(cast: &mut Cast) -> Result<(), Failure> {
    let transport = cast.transport()?;
    let before = cast.baseline(1)?;
    let mut receiving = cast.accept_from(1, &transport)?;
    let mut tickets = post_receives(&mut receiving)?;
    cast.receive_mail(1)?;
    cast.kill(1)?;
    let error = quickly("noticing the death", || {
        loop {
            let ticket = tickets.pop().ok_or("all receives were done")?;
            let again = receiving
                .finish(ticket)
                .wait()
                .and_then(|buffer| receiving.recv(buffer, 0).wait());
            match again {
                Ok(ticket) => tickets.push(ticket),
                Err(error) => return Ok(error.error),
            }
        }
    })?;
    ensure(matches!(error, Error::PeerLost { .. }), || {
        error.to_string()
    })?;
    expect_latched(
        receiving
            .recv(receiving.registrar().buffer(1)?, 0)
            .wait()
            .map(drop)
            .map_err(Error::from),
    )?;
    receiving.close()?;
    // Nothing of the dead is left, either.
    cast.expect_resources(&before)
}

fn doomed_sender(cast: &mut Cast) -> Result<(), Failure> {
    let transport = cast.transport()?;
    cast.baseline(0)?;
    let mut sending = cast.connect_to(0, &transport)?;
    let tickets = post_sends(&mut sending)?;
    cast.send_mail(0, b"kill me")?;
    // Sends on for as long as it lives.
    let mut tickets = std::collections::VecDeque::from(tickets);
    while let Some(ticket) = tickets.pop_front() {
        let buffer = sending.finish(ticket).wait()?;
        tickets.push_back(sending.send(buffer, 0).wait()?);
    }
    Ok(())
}

fn doomed_receiver(cast: &mut Cast) -> Result<(), Failure> {
    let transport = cast.transport()?;
    cast.baseline(1)?;
    let mut receiving = cast.accept_from(1, &transport)?;
    let mut tickets = std::collections::VecDeque::from(post_receives(&mut receiving)?);
    cast.send_mail(1, b"kill me")?;
    while let Some(ticket) = tickets.pop_front() {
        let buffer = receiving.finish(ticket).wait()?;
        tickets.push_back(receiving.recv(buffer, 0).wait()?);
    }
    Ok(())
}

/// The receiver dies in mid-transfer.
fn bereaved_sender(cast: &mut Cast) -> Result<(), Failure> {
    let transport = cast.transport()?;
    let before = cast.baseline(0)?;
    let mut sending = cast.connect_to(0, &transport)?;
    cast.receive_mail(0)?;
    let tickets = post_sends(&mut sending)?;
    cast.kill(0)?;
    let error = quickly("noticing the death", || {
        for ticket in tickets {
            if let Err(error) = sending.finish(ticket).wait() {
                return Ok(error.error);
            }
        }
        loop {
            let buffer = sending.registrar().buffer(1)?;
            match sending
                .send(buffer, 0)
                .wait()
                .and_then(|ticket| sending.finish(ticket).wait())
            {
                Ok(_) => {}
                Err(error) => return Ok(error.error),
            }
        }
    })?;
    ensure(matches!(error, Error::PeerLost { .. }), || {
        error.to_string()
    })?;
    sending.close()?;
    cast.expect_resources(&before)
}

/// Every call after the end gives the error again.
fn expect_latched(outcome: Result<(), Error>) -> Result<(), Failure> {
    match outcome {
        Err(Error::PeerClosed { .. } | Error::PeerLost { .. }) => Ok(()),
        other => Err(format!("after the end a call gives {other:?}").into()),
    }
}

fn quickly<T>(what: &str, work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    let start = Instant::now();
    let outcome = work()?;
    let took = start.elapsed();
    ensure(took < PATIENCE, || format!("{what} took {took:?}"))?;
    Ok(outcome)
}
