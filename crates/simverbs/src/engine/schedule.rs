//! The stepped fabric: a seeded scheduler that takes one small step at a time.

use std::time::Duration;

use super::State;
use super::lanes::Lane;
use super::slab::{Key, QpId};
use super::timers::{Clock, Nanos};
use crate::random::Random;

/// How much virtual time a step takes.
pub(crate) const STEP: Nanos = 1_000;

/// A step that could be next.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choice {
    qp: QpId,
    lane: Lane,
}

/// By how much queue pairs are favoured at present.
///
/// With fair choices all queue pairs would get ahead at about the same pace, and schedules in
/// which one is far ahead of another would never be seen. So each has a weight that is drawn anew
/// now and then.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Favour(u64);

impl Favour {
    pub(crate) fn new(bits: u64) -> Self {
        Self(bits)
    }

    /// 1, 4, 16 or 64.
    fn of(self, choice: Choice) -> u64 {
        let place = choice.qp.index() * Lane::ALL.len() + choice.lane as usize;
        let mut random = Random::new(self.0.wrapping_add(place as u64));
        1 << (2 * random.below(4))
    }
}

impl State {
    /// Takes one step. Whether there was anything to do.
    ///
    /// If nothing can be done before a timer is due, `may_wait` says whether to go on to that
    /// time.
    pub(crate) fn step(&mut self, may_wait: bool) -> bool {
        let now = self.clock.now();
        self.clock.move_to(now.saturating_add(STEP));
        if self.fire_timers() {
            return true;
        }
        if let Some(choice) = self.choose() {
            let aside = self.take(choice.qp, choice.lane);
            debug_assert!(aside.is_none(), "a stepped fabric copies at once");
            return true;
        }
        match self.timers.next() {
            Some(next) if may_wait => {
                self.clock.move_to(next);
                self.fire_timers();
                true
            }
            _ => {
                // Time does not pass while nothing happens.
                self.clock = Clock::Virtual(now);
                false
            }
        }
    }

    /// Takes steps until nothing can be done before a timer is due. How many there were.
    pub(crate) fn run_until_idle(&mut self) -> usize {
        let mut steps = 0;
        while self.step(false) {
            steps += 1;
        }
        steps
    }

    /// Lets virtual time pass, and does everything that happens meanwhile.
    pub(crate) fn advance(&mut self, duration: Duration) {
        let duration = Nanos::try_from(duration.as_nanos()).unwrap_or(Nanos::MAX);
        let end = self.clock.now().saturating_add(duration);
        loop {
            self.run_until_idle();
            match self.timers.next() {
                Some(next) if next <= end => {
                    self.clock.move_to(next);
                    self.fire_timers();
                }
                _ => break,
            }
        }
        self.clock.move_to(end);
    }

    /// Draws a step among all that are possible.
    fn choose(&mut self) -> Option<Choice> {
        if self.random.chance(64) {
            self.favour = Favour::new(self.random.next_u64());
        }
        let mut choices = std::mem::take(&mut self.choices);
        choices.clear();
        for (id, qp) in self.qps.iter() {
            let open = Lane::ALL.into_iter().filter(|&lane| qp.is_open(lane));
            choices.extend(open.map(|lane| Choice { qp: id, lane }));
        }
        let total: u64 = choices.iter().map(|&choice| self.favour.of(choice)).sum();
        let mut ticket = self.random.below(total);
        let chosen = choices.iter().copied().find(|&choice| {
            let weight = self.favour.of(choice);
            let is_hit = ticket < weight;
            ticket = ticket.saturating_sub(weight);
            is_hit
        });
        self.choices = choices;
        chosen
    }
}
