//! Many senders, one receiver: how a server takes messages from all its clients on one thread.
//!
//! The senders are threads with a connection each. The receiver has receives posted on every
//! connection and goes round them with `poll`, which never waits; whose message is there is served,
//! and its buffer is posted again. A server that is idle most of the time would rather await its
//! connections, as `idle_receivers` does.
//!
//! ```text
//! many_to_one [--senders N] [--messages N] [--size BYTES]
//! ```

mod options;
mod receiver;
mod sender;

use std::process::ExitCode;
use std::thread;

use ibnet_examples::{Scene, conclude, index_of, options_of, show_warnings};
use options::Options;

/// What may fail here fails for many reasons.
type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    show_warnings();
    let options = match options_of("many_to_one", options::HELP, Options::parse) {
        Ok(options) => options,
        Err(end) => return end,
    };
    conclude("many_to_one", run(&options))
}

fn run(options: &Options) -> Outcome<()> {
    let names: Vec<String> = options.device.iter().cloned().collect();
    let scene = Scene::open("many to one", options.wanted, 2, &names)?;
    let transport = &scene.transport;
    let own = index_of(transport, options.device.as_deref(), 0)?;
    // The receiver is on the other simulated device; of real ones, the same reaches itself.
    let to = match options.device {
        Some(_) => own,
        None => index_of(transport, None, 1)?,
    };
    let mut listener = transport.listen(to)?;
    let handle = listener.handle();
    thread::scope(|scope| {
        let senders: Vec<_> = (0..options.senders)
            .map(|number| {
                scope.spawn(move || {
                    sender::send(transport, own, &handle, number, options)
                        .map_err(|error| format!("sender {number}: {error}"))
                })
            })
            .collect();
        let received = receiver::serve(&mut listener, options);
        // A receiver that has failed is gone, which its senders notice.
        drop(listener);
        let sent: Result<Vec<()>, String> = senders
            .into_iter()
            .map(|sender| {
                sender
                    .join()
                    .unwrap_or_else(|_| Err("a sender panicked".into()))
            })
            .collect();
        received?.print();
        Ok(sent.map(drop)?)
    })
}
