//! One device of two ports: what is sent over a virtual device takes both.
//!
//! Messages go over the first port alone, then over both as one ([`Transport::merge`]), and it is
//! counted what each port carried. This example uses the raw layer of `ibnet`, as a transport of a
//! collective library does: memory of its own, requests by their ids, and an observer that hears of
//! every part of a message.
//!
//! ```text
//! virtual_device [--devices A,B] [--peer-devices C,D] [--size BYTES] [--messages N]
//! ```

mod counter;
mod options;
mod raw;

use std::process::ExitCode;
use std::thread;

use ibnet::{ConnectOptions, RecvConnection, SendConnection, Transport, Wait};
use ibnet_examples::{Scene, conclude, index_of, options_of, say, show_warnings};
use options::Options;

/// What may fail here fails for many reasons.
type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    show_warnings();
    let options = match options_of("virtual_device", options::HELP, Options::parse) {
        Ok(options) => options,
        Err(end) => return end,
    };
    conclude("virtual_device", run(&options))
}

fn run(options: &Options) -> Outcome<()> {
    let scene = Scene::open("a virtual device", options.wanted, 4, &options.names())?;
    let transport = &scene.transport;
    let from = pair(transport, &options.devices, [0, 1])?;
    let to = pair(transport, &options.peer_devices, [2, 3])?;
    measure("the first port alone", transport, [from[0], to[0]], options)?;

    let (from, to) = (transport.merge(&from)?, transport.merge(&to)?);
    let devices = transport.devices();
    say!(
        "# {} is one device of {} Mb/s, {} another",
        devices[from].name,
        devices[from].speed_mbps,
        devices[to].name
    );
    measure("both as one", transport, [from, to], options)
}

/// The two ports of one end.
fn pair(transport: &Transport, names: &[String], defaults: [usize; 2]) -> Outcome<[usize; 2]> {
    let name = |place: usize| names.get(place).map(String::as_str);
    let pair = [
        index_of(transport, name(0), defaults[0])?,
        index_of(transport, name(1), defaults[1])?,
    ];
    if pair[0] == pair[1] {
        let name = &transport.devices()[pair[0]].name;
        return Err(format!("two ports are needed, and there is only {name}").into());
    }
    Ok(pair)
}

fn measure(
    title: &str,
    transport: &Transport,
    [from, to]: [usize; 2],
    options: &Options,
) -> Outcome<()> {
    let (sending, receiving) = connect(transport, from, to)?;
    let description = sending.description();
    let carried = raw::transfer(sending, receiving, options)?;
    say!("# {title}: {description}");
    let members = &transport.devices()[from].members;
    for (member, carried) in members.iter().zip(&carried.by_device) {
        say!(
            "  {:>12}: {:>6} parts, {} bytes",
            transport.devices()[*member].name,
            carried.parts,
            carried.bytes
        );
    }
    say!("  {:.1} MB/s", carried.megabytes_per_second);
    Ok(())
}

/// A connection between two devices of this process.
fn connect(
    transport: &Transport,
    from: usize,
    to: usize,
) -> Outcome<(SendConnection, RecvConnection)> {
    let mut listener = transport.listen(to)?;
    let options = ConnectOptions::default();
    let mut connecting = transport.connect(from, &listener.handle(), options)?;
    thread::scope(|scope| {
        let accepting = scope.spawn(move || listener.accept().wait_for(options::PATIENCE));
        let connected = connecting.wait_for(options::PATIENCE)?;
        let accepted = accepting.join().map_err(|_| "accepting panicked")??;
        match (connected, accepted) {
            (Some(sending), Some(receiving)) => Ok((sending, receiving)),
            _ => Err("no connection within the time".into()),
        }
    })
}
