//! Many receives that are awaited at once, on one thread of a popular runtime, at no cost while
//! nothing comes.
//!
//! Every connection is served by a task of tokio. For a while no sender sends anything; the program
//! measures how much processor time it needs for that. Then every sender sends, and every message is
//! checked. Nothing of `ibnet` knows of tokio: its futures are woken by the one thread of the
//! transport that sleeps until a device, a peer or the clock has news.
//!
//! ```text
//! idle_receivers [--connections N] [--messages N] [--idle MILLISECONDS]
//! ```

mod clock;
mod options;
mod tasks;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use ibnet_examples::{Scene, conclude, index_of, options_of, say, show_warnings};
use options::Options;
use tokio::runtime::Builder;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// What may fail here fails for many reasons. Tasks hand it from thread to thread.
type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn main() -> ExitCode {
    show_warnings();
    let options = match options_of("idle_receivers", options::HELP, Options::parse) {
        Ok(options) => options,
        Err(end) => return end,
    };
    let names: Vec<String> = options.device.iter().cloned().collect();
    let outcome = Scene::open("idle receivers", options.wanted, 2, &names)
        .map_err(|error| error.to_string().into())
        .and_then(|scene| {
            let runtime = Builder::new_current_thread().enable_time().build()?;
            runtime.block_on(run(&scene, &options))
        });
    conclude("idle_receivers", outcome)
}

async fn run(scene: &Scene, options: &Options) -> Outcome<()> {
    let transport = &scene.transport;
    let own = index_of(transport, options.device.as_deref(), 0)?;
    // The receivers are on the other simulated device; of real ones, the same reaches itself.
    let to = match options.device {
        Some(_) => own,
        None => index_of(transport, None, 1)?,
    };
    let mut tasks = JoinSet::new();
    // Tells the senders when to begin.
    let (begin, may_begin) = watch::channel(false);
    let mut pairs = tasks::connect_all(transport, [own, to], options).await?;
    for (number, (sending, receiving)) in pairs.drain(..).enumerate() {
        tasks.spawn(tasks::receive(receiving, number, options.messages));
        tasks.spawn(tasks::send(
            sending,
            number,
            options.messages,
            may_begin.clone(),
        ));
    }
    // Every receive is posted, and every sender waits.
    tokio::time::sleep(Duration::from_millis(50)).await;

    let before = clock::processor_time()?;
    tokio::time::sleep(options.idle).await;
    let used = clock::processor_time()?.saturating_sub(before);
    say!(
        "{} connections, {} ms of waiting: {:.3} ms of processor time",
        options.connections,
        options.idle.as_millis(),
        used.as_secs_f64() * 1e3
    );

    let start = Instant::now();
    begin.send(true)?;
    let mut messages = 0;
    while let Some(task) = tasks.join_next().await {
        messages += task??;
    }
    say!(
        "then {messages} messages in {:.1} ms, every one right",
        start.elapsed().as_secs_f64() * 1e3
    );
    Ok(())
}
