//! Addresses that come and go while a transport is open, on a link and a Soft-RoCE device of the
//! scenario's own: the choice follows each time, and connections work with it.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use ibnet::{ConnectOptions, Transport, Wait};

use super::own_link::OwnLink;
use super::solo;
use crate::cast::{Cast, ensure};
use crate::play::{Failure, Scenario};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![Scenario {
        needs_processes: Some("the kernel's addresses change"),
        ..solo(
            "addresses/the-choice-follows-every-change",
            &[follow_every_change],
        )
    }]
}

/// The kernel changes GID tables some time after the addresses.
const PATIENCE: Duration = Duration::from_secs(20);

fn follow_every_change(cast: &mut Cast) -> Result<(), Failure> {
    let link = match OwnLink::create("addr") {
        Ok(link) => link,
        Err(error) => return Err(cast.skip(&format!("no Soft-RoCE device of its own: {error}"))),
    };
    link.address("add", "198.18.92.1/24")?;
    let transport = cast.transport_with(|config| {
        config.hca = format!("={}", link.device).parse().unwrap_or_default();
    })?;
    let expect = |address: &str| -> Result<(), Failure> {
        expect_choice(&transport, address)?;
        talk(&transport).map_err(|error| format!("with {address}: {error}").into())
    };
    expect("198.18.92.1")?;

    // A second subnet: as good, with a higher index. Without the first it is the only one.
    link.address("add", "198.18.93.1/24")?;
    expect("198.18.92.1")?;
    link.address("del", "198.18.92.1/24")?;
    expect("198.18.93.1")?;

    // Removed and added the other way round, the addresses have other places in the table.
    link.address("add", "198.18.92.1/24")?;
    talk(&transport)?;
    link.address("del", "198.18.93.1/24")?;
    expect("198.18.92.1")?;
    link.address("add", "198.18.93.1/24")?;
    talk(&transport)?;

    // IPv6 alone: a global address before the link-local one, whatever their places.
    link.address("del", "198.18.92.1/24")?;
    link.address("del", "198.18.93.1/24")?;
    link.address("add", "fd00:92::1/64")?;
    expect("fd00:92::1")?;
    link.address("add", "198.18.92.1/24")?;
    expect("198.18.92.1")?;

    // Without a link there is no connection; with it, addresses or not, there is one again.
    link.set("down")?;
    wait_for("the port to be down", || {
        let outcome = talk(&transport);
        let text = outcome
            .err()
            .map_or_else(String::new, |error| error.to_string());
        Ok(text.contains("its state is").then_some(()))
    })?;
    link.set("up")?;
    wait_for("the port to be up again", || Ok(talk(&transport).ok()))?;
    expect("198.18.92.1")
}

/// Waits until the port's choice is this address.
fn expect_choice(transport: &Transport, address: &str) -> Result<(), Failure> {
    let wanted: IpAddr = address.parse()?;
    let mut last = String::new();
    let found = wait_for("the choice", || {
        let report = transport.port_reports(0)?.remove(0);
        last = match report.gid {
            Ok(selection) => {
                let address = selection.entry.gid.to_ipv6();
                let address = address
                    .to_ipv4_mapped()
                    .map_or(IpAddr::V6(address), IpAddr::V4);
                if address == wanted {
                    return Ok(Some(()));
                }
                selection.to_string()
            }
            Err(error) => error.to_string(),
        };
        Ok(None)
    });
    found.map_err(|error| format!("{error}: expected {address} of\n{last}").into())
}

fn wait_for<T>(
    what: &str,
    mut look: impl FnMut() -> Result<Option<T>, Failure>,
) -> Result<T, Failure> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        if Instant::now() > deadline {
            return Err(format!("waiting for {what}: nothing for {} s", PATIENCE.as_secs()).into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A connection of the device to itself, and a message over it.
fn talk(transport: &Transport) -> Result<(), Failure> {
    let mut listener = transport.listen(0)?;
    let mut connecting = transport.connect(0, &listener.handle(), ConnectOptions::default())?;
    let (mut sending, mut receiving) = (None, None);
    while sending.is_none() || receiving.is_none() {
        if sending.is_none() {
            sending = connecting.try_now()?;
        }
        if receiving.is_none() {
            receiving = listener.accept().try_now()?;
        }
    }
    let (Some(mut sending), Some(mut receiving)) = (sending, receiving) else {
        return Err("both ends are there".into());
    };
    let receive = receiving
        .recv(receiving.registrar().buffer(100)?, 0)
        .wait()?;
    let mut buffer = sending.registrar().buffer(5)?;
    buffer.copy_from_slice(b"hello");
    let send = sending.send(buffer, 0).wait()?;
    let message = receiving.finish(receive).wait()?;
    sending.finish(send).wait()?;
    ensure(message[..] == *b"hello", || {
        format!("it says {:?}", &message[..])
    })?;
    sending.close()?;
    Ok(receiving.close()?)
}
