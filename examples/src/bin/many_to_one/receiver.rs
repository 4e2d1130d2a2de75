//! The one: takes what is there, from whomever, on one thread.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use ibnet::{Buffer, Error, Listener, RecvConnection, RecvTicket, Wait};
use ibnet_examples::say;

use crate::Outcome;
use crate::options::Options;
use crate::sender::stamp;

/// Receives posted on each connection.
const WINDOW: usize = 8;

/// What was received.
pub(crate) struct Summary {
    /// Messages of each sender.
    messages: Vec<usize>,
    size: usize,
    /// From the first message to the last.
    took: Duration,
}

/// A connection, and what is posted on it.
struct Client {
    receiving: RecvConnection,
    posted: VecDeque<RecvTicket>,
    /// Who it is, once it has said so.
    number: Option<u32>,
    taken: usize,
}

/// Accepts all senders, and takes all their messages.
pub(crate) fn serve(listener: &mut Listener, options: &Options) -> Outcome<Summary> {
    let mut clients = Vec::new();
    let mut messages = vec![0; options.senders];
    let start = Instant::now();
    let mut left = options.senders;
    while left > 0 {
        // Those who are there already are not kept waiting by those who come.
        if clients.len() < options.senders
            && let Some(receiving) = listener.accept().try_now()?
        {
            clients.push(Client::new(receiving, options)?);
        }
        for client in &mut clients {
            if client.taken == options.messages || !client.advance(options)? {
                continue;
            }
            if client.taken == options.messages {
                left -= 1;
                let number = client.number.ok_or("a client without a number")?;
                let place = messages.get_mut(number as usize);
                *place.ok_or("a client of a number that nobody has")? += client.taken;
            }
        }
    }
    Ok(Summary {
        messages,
        size: options.size,
        took: start.elapsed(),
    })
}

impl Client {
    fn new(receiving: RecvConnection, options: &Options) -> Outcome<Self> {
        let mut client = Self {
            receiving,
            posted: VecDeque::new(),
            number: None,
            taken: 0,
        };
        for _ in 0..WINDOW.min(options.messages) {
            let buffer = client.receiving.registrar().buffer(options.size)?;
            client.post(buffer)?;
        }
        Ok(client)
    }

    fn post(&mut self, buffer: Buffer) -> Result<(), Error> {
        self.posted
            .push_back(self.receiving.recv(buffer, 0).wait()?);
        Ok(())
    }

    /// Takes the next message if it is there; true if it was.
    fn advance(&mut self, options: &Options) -> Outcome<bool> {
        let Some(oldest) = self.posted.pop_front() else {
            return Ok(false);
        };
        let mut receive = self.receiving.finish(oldest);
        let Some(buffer) = receive.try_now()? else {
            self.posted.extend(receive.into_inner());
            self.posted.rotate_right(1);
            return Ok(false);
        };
        self.check(&buffer, options)?;
        self.taken += 1;
        if self.taken + self.posted.len() < options.messages {
            self.post(buffer)?;
        }
        Ok(true)
    }

    /// Every sender's messages come whole and in order.
    fn check(&mut self, buffer: &Buffer, options: &Options) -> Outcome<()> {
        let head: [u8; 8] = buffer
            .get(..8)
            .and_then(|head| head.try_into().ok())
            .ok_or("a message that is too short")?;
        let said = (u64::from_le_bytes(head) >> 32) as u32;
        let number = *self.number.get_or_insert(said);
        if head != stamp(number, self.taken as u32) || buffer.len() != options.size {
            let taken = self.taken;
            return Err(format!("message {taken} of sender {number} is not what was sent").into());
        }
        Ok(())
    }
}

impl Summary {
    pub(crate) fn print(&self) {
        for (number, messages) in self.messages.iter().enumerate() {
            say!("sender {number:>3}: {messages} messages, in order");
        }
        let all: usize = self.messages.iter().sum();
        let seconds = self.took.as_secs_f64().max(1e-9);
        say!(
            "{all} messages of {} bytes in {seconds:.3} s: {:.0} messages/s, {:.1} MB/s",
            self.size,
            all as f64 / seconds,
            (all * self.size) as f64 / seconds / 1e6
        );
    }
}
