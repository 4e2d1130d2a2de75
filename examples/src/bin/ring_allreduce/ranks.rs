//! The ranks together: hears what they say, in order, and notices when one is gone.

use std::collections::VecDeque;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use crate::line::Event;
use crate::options::Options;
use crate::plugin::Source;
use crate::seat::Seat;
use crate::wire::{FromRank, ToRank};

/// Ranks notice by themselves that nothing moves; the launcher waits a little longer to hear why.
const GRACE: Duration = Duration::from_secs(10);

/// All ranks. Dropping it ends those that are left, as far as that can be done (see [`Seat`]).
pub(crate) struct Ranks {
    ranks: Vec<Rank>,
    events: Receiver<(usize, Event)>,
    patience: Duration,
}

struct Rank {
    seat: Seat,
    /// Messages that nobody has asked for yet.
    said: VecDeque<FromRank>,
    /// Whether it has said that it is done, and may end.
    is_done: bool,
}

impl Ranks {
    pub(crate) fn start(options: &Options, plugin: &Source) -> Result<Self, String> {
        let (sender, events) = mpsc::channel();
        let mut ranks = Self {
            ranks: Vec::new(),
            events,
            patience: options.timeout + GRACE,
        };
        for rank in 0..options.ranks {
            ranks.ranks.push(Rank {
                seat: Seat::start(rank, options, plugin, sender.clone())?,
                said: VecDeque::new(),
                is_done: false,
            });
        }
        Ok(ranks)
    }

    /// The next message of each rank, in the order of ranks.
    pub(crate) fn gather<T>(
        &mut self,
        wanted: impl Fn(FromRank) -> Option<T>,
    ) -> Result<Vec<T>, String> {
        self.gather_or(wanted, |_| ())
    }

    /// The same, with progress on the way.
    pub(crate) fn gather_or<T>(
        &mut self,
        wanted: impl Fn(FromRank) -> Option<T>,
        mut progress: impl FnMut(u32),
    ) -> Result<Vec<T>, String> {
        let mut gathered = Vec::with_capacity(self.ranks.len());
        for rank in 0..self.ranks.len() {
            let message = loop {
                match self.ranks[rank].said.pop_front() {
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
                self.ranks[rank].is_done |= message == FromRank::Done;
                self.ranks[rank].said.push_back(message);
            }
            Event::Rubbish(line) => return Err(format!("rank {rank} said: {line}")),
            Event::End if self.ranks[rank].is_done => {}
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

    pub(crate) fn barrier(&mut self) -> Result<(), String> {
        self.gather(|message| (message == FromRank::Ready).then_some(()))?;
        self.go()
    }

    pub(crate) fn go(&mut self) -> Result<(), String> {
        (0..self.ranks.len()).try_for_each(|rank| self.tell(rank, &ToRank::Go))
    }

    pub(crate) fn tell(&mut self, rank: usize, message: &ToRank) -> Result<(), String> {
        if self.ranks[rank].seat.tell(message) {
            Ok(())
        } else {
            Err(self.obituary(rank))
        }
    }

    /// Why a rank is gone that has not said why.
    fn obituary(&mut self, rank: usize) -> String {
        match self.ranks[rank].seat.wait() {
            Ok(()) => format!("rank {rank} ended without a word"),
            Err(how) => format!("rank {rank} {how}"),
        }
    }

    /// Waits for ranks that have said that they are done.
    pub(crate) fn end(&mut self) -> Result<(), String> {
        for (rank, it) in self.ranks.iter_mut().enumerate() {
            it.seat.wait().map_err(|how| format!("rank {rank} {how}"))?;
        }
        Ok(())
    }
}
