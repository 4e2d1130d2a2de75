//! Starts the ranks, carries handles between them, and stops all when one fails.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use crate::options::Options;
use crate::report::{Report, Row};
use crate::wire::{FromRank, ToRank};

/// Ranks notice by themselves that nothing moves; the launcher waits a little longer to hear why.
const GRACE: Duration = Duration::from_secs(10);

/// Runs everything.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    let plugin = options.find_plugin()?;
    let mut ranks = Ranks::start(options, &plugin.to_string_lossy())?;

    let devices = ranks.gather(|message| match message {
        FromRank::Device(text) => Some(text),
        _ => None,
    })?;
    let handles = ranks.gather(|message| match message {
        FromRank::Handle(bytes) => Some(bytes),
        _ => None,
    })?;
    let mut report = Report::begin(&plugin.to_string_lossy(), &devices);
    for rank in 0..options.ranks {
        let right = &handles[(rank + 1) % options.ranks];
        ranks.tell(rank, &ToRank::Peer(right.clone()))?;
    }
    for size in &options.sizes {
        let row = measure(&mut ranks, options, *size, &mut report).inspect_err(|_| {
            report.clear_progress();
        })?;
        report.row(&row);
    }
    ranks.barrier()?;
    ranks.gather(|message| (message == FromRank::Done).then_some(()))?;
    ranks.end()?;
    match report.end() {
        0 => Ok(()),
        wrong => Err(format!("{wrong} elements are wrong")),
    }
}

/// One size: barriers until all ranks have a result.
fn measure(
    ranks: &mut Ranks,
    options: &Options,
    size: usize,
    report: &mut Report,
) -> Result<Row, String> {
    enum Step {
        Ready,
        Result(f64, Option<u64>),
    }
    let rounds = options.warmup + options.iterations;
    loop {
        let steps = ranks.gather_or(
            |message| match message {
                FromRank::Ready => Some(Step::Ready),
                FromRank::Result {
                    microseconds,
                    wrong,
                } => Some(Step::Result(microseconds, wrong)),
                _ => None,
            },
            |done| report.progress(size, done, rounds),
        )?;
        let mut row = Row {
            size,
            microseconds: 0.0,
            wrong: None,
        };
        let mut results = 0;
        for step in &steps {
            if let Step::Result(microseconds, wrong) = step {
                results += 1;
                row.microseconds = row.microseconds.max(*microseconds);
                row.wrong = match (row.wrong, wrong) {
                    (None, wrong) => *wrong,
                    (Some(before), wrong) => Some(before + wrong.unwrap_or(0)),
                };
            }
        }
        match results {
            0 => ranks.go()?,
            _ if results == steps.len() => return Ok(row),
            _ => return Err("the ranks do not agree on how many rounds there are".to_owned()),
        }
    }
}

/// The rank processes. Dropping it ends those that are left.
struct Ranks {
    processes: Vec<Process>,
    events: Receiver<(usize, Event)>,
    patience: Duration,
}

struct Process {
    child: Child,
    input: ChildStdin,
    /// Messages that nobody has asked for yet.
    said: VecDeque<FromRank>,
    /// Whether it has said that it is done, and may end.
    is_done: bool,
}

/// What a rank's output brings.
enum Event {
    Message(FromRank),
    Rubbish(String),
    /// The output is closed: the process has ended, or is about to.
    End,
}

impl Ranks {
    fn start(options: &Options, plugin: &str) -> Result<Self, String> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let (sender, events) = mpsc::channel();
        let mut ranks = Self {
            processes: Vec::new(),
            events,
            patience: options.timeout + GRACE,
        };
        for rank in 0..options.ranks {
            let mut command = Command::new(&program);
            command
                .args(options.for_rank(rank))
                .args(["--plugin", plugin])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped());
            die_with_parent(&mut command);
            let mut child = command
                .spawn()
                .map_err(|error| format!("cannot start rank {rank}: {error}"))?;
            let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
                // Both were asked for above.
                unreachable!("a child with piped streams has them")
            };
            ranks.processes.push(Process {
                child,
                input,
                said: VecDeque::new(),
                is_done: false,
            });
            listen(rank, output, sender.clone());
        }
        Ok(ranks)
    }

    /// The next message of each rank, in the order of ranks.
    fn gather<T>(&mut self, wanted: impl Fn(FromRank) -> Option<T>) -> Result<Vec<T>, String> {
        self.gather_or(wanted, |_| ())
    }

    /// The same, with progress on the way.
    fn gather_or<T>(
        &mut self,
        wanted: impl Fn(FromRank) -> Option<T>,
        mut progress: impl FnMut(u32),
    ) -> Result<Vec<T>, String> {
        let mut gathered = Vec::with_capacity(self.processes.len());
        for rank in 0..self.processes.len() {
            let message = loop {
                match self.processes[rank].said.pop_front() {
                    Some(message) => break message,
                    None => self.listen_to_all(rank, &mut progress)?,
                }
            };
            let text = message.to_line();
            let value = wanted(message);
            gathered.push(value.ok_or_else(|| format!("rank {rank} said out of turn: {text}"))?);
        }
        Ok(gathered)
    }

    /// Waits for something from any rank while `awaited` is waited for. What ends it all is an error,
    /// whichever rank it comes from.
    fn listen_to_all(
        &mut self,
        awaited: usize,
        progress: &mut impl FnMut(u32),
    ) -> Result<(), String> {
        let (rank, event) =
            self.events
                .recv_timeout(self.patience)
                .map_err(|error| match error {
                    RecvTimeoutError::Timeout => {
                        format!(
                            "rank {awaited} has said nothing for {} s",
                            self.patience.as_secs()
                        )
                    }
                    RecvTimeoutError::Disconnected => "all ranks are gone".to_owned(),
                })?;
        match event {
            Event::Message(FromRank::Failed(reason)) => return Err(self.cause(rank, &reason)),
            Event::Message(FromRank::Progress(rounds)) => progress(rounds),
            Event::Message(message) => {
                self.processes[rank].is_done |= message == FromRank::Done;
                self.processes[rank].said.push_back(message);
            }
            Event::Rubbish(line) => return Err(format!("rank {rank} said: {line}")),
            Event::End if self.processes[rank].is_done => {}
            Event::End => return Err(self.obituary(rank)),
        }
        Ok(())
    }

    /// Why it all came to an end when `rank` failed: if another one died without a word, that is what
    /// came first, and is seen within a moment.
    fn cause(&mut self, rank: usize, reason: &str) -> String {
        let failure = format!("rank {rank} failed: {reason}");
        let mut spoken = vec![rank];
        while let Ok((other, event)) = self.events.recv_timeout(Duration::from_millis(500)) {
            match event {
                Event::Message(FromRank::Failed(_)) => spoken.push(other),
                Event::End if !spoken.contains(&other) => {
                    return format!("{}; then {failure}", self.obituary(other));
                }
                _ => {}
            }
        }
        failure
    }

    fn barrier(&mut self) -> Result<(), String> {
        self.gather(|message| (message == FromRank::Ready).then_some(()))?;
        self.go()
    }

    fn go(&mut self) -> Result<(), String> {
        (0..self.processes.len()).try_for_each(|rank| self.tell(rank, &ToRank::Go))
    }

    fn tell(&mut self, rank: usize, message: &ToRank) -> Result<(), String> {
        let input = &mut self.processes[rank].input;
        writeln!(input, "{}", message.to_line())
            .and_then(|()| input.flush())
            .map_err(|_| self.obituary(rank))
    }

    /// Why a rank is gone that has not said why.
    fn obituary(&mut self, rank: usize) -> String {
        match self.processes[rank].child.wait() {
            Ok(status) => match status.signal() {
                Some(signal) => format!("rank {rank} was killed by signal {signal}"),
                None => format!("rank {rank} ended without a word ({status})"),
            },
            Err(error) => format!("rank {rank} is gone ({error})"),
        }
    }

    /// Waits for processes that have said that they are done.
    fn end(&mut self) -> Result<(), String> {
        for rank in 0..self.processes.len() {
            let status = self.processes[rank].child.wait();
            if !status.is_ok_and(|status| status.success()) {
                return Err(self.obituary(rank));
            }
        }
        Ok(())
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        for process in &mut self.processes {
            // An error says that it has ended already, which is what is wanted.
            let _ = process.child.kill();
            let _ = process.child.wait();
        }
    }
}

/// Passes on what a rank says, on a thread of its own.
fn listen(rank: usize, output: std::process::ChildStdout, events: Sender<(usize, Event)>) {
    thread::spawn(move || {
        for line in BufReader::new(output).lines() {
            let Ok(line) = line else { break };
            let event = match FromRank::from_line(&line) {
                Some(message) => Event::Message(message),
                None => Event::Rubbish(line),
            };
            if events.send((rank, event)).is_err() {
                return;
            }
        }
        // Nobody may be left to hear it.
        let _ = events.send((rank, Event::End));
    });
}

/// A launcher that is killed takes its ranks along.
fn die_with_parent(command: &mut Command) {
    let parent = std::process::id();
    let prepare = move || {
        // SAFETY: prctl and getppid take plain numbers, and may be called between fork and exec.
        unsafe {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                return Err(std::io::Error::last_os_error());
            }
            // The parent may have died before that.
            if u32::try_from(libc::getppid()) != Ok(parent) {
                return Err(std::io::Error::other("the launcher is gone"));
            }
        }
        Ok(())
    };
    // SAFETY: `prepare` does nothing that is not allowed after fork: two system calls, and an
    // allocation at most on the way to giving up.
    unsafe { command.pre_exec(prepare) };
}
