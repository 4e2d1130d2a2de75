//! Runs one scenario: starts a process for each role, relays their mail, and judges the outcome.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::mail::{FromRole, delivery};
use crate::play::{Outcome, Place, Scenario};

/// A role's process.
struct Player {
    child: Child,
    input: Option<ChildStdin>,
    is_victim: bool,
    has_ended: bool,
}

enum News {
    Line(usize, String),
    /// The role's output has ended.
    End(usize),
}

/// Plays `scenario` at `place`.
pub fn run(scenario: &Scenario, place: &Place) -> Outcome {
    let devices = match place {
        Place::Nowhere(why) => return Outcome::NotRun((*why).to_owned()),
        Place::Devices { devices, .. } => devices,
    };
    let start = Instant::now();
    let (news_sender, news) = channel();
    let mut players = Vec::new();
    for role in 0..scenario.roles.len() {
        match start_role(scenario, role, devices, &news_sender) {
            Ok(player) => players.push(player),
            Err(error) => {
                end_all(&mut players);
                return Outcome::Failed(format!("cannot start role {role}: {error}"));
            }
        }
    }
    drop(news_sender);
    let judged = conduct(&mut players, &news, start + scenario.limit);
    end_all(&mut players);
    match judged {
        Ok(None) => Outcome::Passed(start.elapsed().as_secs_f64()),
        Ok(Some(why)) => Outcome::NotRun(why),
        Err(why) => Outcome::Failed(why),
    }
}

fn start_role(
    scenario: &Scenario,
    role: usize,
    devices: &[String],
    news: &Sender<News>,
) -> std::io::Result<Player> {
    let mut child = Command::new(std::env::current_exe()?)
        .args([
            "--role",
            scenario.name,
            &role.to_string(),
            &devices.join(","),
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let input = child.stdin.take();
    if let Some(output) = child.stdout.take() {
        let news = news.clone();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if news.send(News::Line(role, line)).is_err() {
                    return;
                }
            }
            let _ = news.send(News::End(role));
        });
    }
    Ok(Player {
        child,
        input,
        is_victim: false,
        has_ended: false,
    })
}

/// Relays until all roles have ended. `Ok(Some(_))` if a role says it cannot be played.
fn conduct(
    players: &mut [Player],
    news: &Receiver<News>,
    deadline: Instant,
) -> Result<Option<String>, String> {
    let mut skipped = None;
    while players.iter().any(|player| !player.has_ended) {
        let left = deadline.saturating_duration_since(Instant::now());
        match news.recv_timeout(left) {
            Ok(News::Line(from, line)) => match FromRole::parse(&line) {
                FromRole::Mail { to, bytes } => deliver(players, from, to, &bytes),
                FromRole::Kill { victim } => strike(players, victim)?,
                FromRole::Skip { why } => skipped = Some(why),
                FromRole::Other(line) => println!("\n  [{from}] {line}"),
            },
            Ok(News::End(role)) => judge(players, role)?,
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                let hanging: Vec<String> = players
                    .iter()
                    .enumerate()
                    .filter(|(_, player)| !player.has_ended)
                    .map(|(role, _)| role.to_string())
                    .collect();
                return Err(format!(
                    "hang: role {} has not ended",
                    hanging.join(" and ")
                ));
            }
        }
    }
    Ok(skipped)
}

fn deliver(players: &mut [Player], from: usize, to: usize, bytes: &[u8]) {
    if let Some(input) = players.get_mut(to).and_then(|player| player.input.as_mut()) {
        // A role that has ended needs no mail; one that died is judged by its exit status.
        let _ = writeln!(input, "{}", delivery(from, bytes)).and_then(|()| input.flush());
    }
}

fn strike(players: &mut [Player], victim: usize) -> Result<(), String> {
    let player = players
        .get_mut(victim)
        .ok_or_else(|| format!("there is no role {victim}"))?;
    player.is_victim = true;
    player
        .child
        .kill()
        .map_err(|error| format!("cannot kill role {victim}: {error}"))
}

/// A role's output has ended: looks at how the process did.
fn judge(players: &mut [Player], role: usize) -> Result<(), String> {
    let player = &mut players[role];
    let status = player
        .child
        .wait()
        .map_err(|error| format!("role {role}: {error}"))?;
    player.has_ended = true;
    if status.success() || player.is_victim {
        return Ok(());
    }
    Err(format!("role {role} ended with {status}"))
}

/// Ends what still runs, gently first, so that the kernel's objects are released in order.
fn end_all(players: &mut [Player]) {
    for player in players.iter_mut().filter(|player| !player.has_ended) {
        player.input = None;
        if let Ok(id) = i32::try_from(player.child.id()) {
            let _ = kill(Pid::from_raw(id), Signal::SIGTERM);
        }
    }
    let deadline = Instant::now() + Duration::from_secs(2);
    for player in players.iter_mut().filter(|player| !player.has_ended) {
        while Instant::now() < deadline && matches!(player.child.try_wait(), Ok(None)) {
            thread::sleep(Duration::from_millis(10));
        }
        let _ = player.child.kill();
        let _ = player.child.wait();
    }
}
