//! A non-blocking TCP stream with an outgoing buffer: the transport of the handshake and of the
//! control messages after it.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::RangeInclusive;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};

use crate::connect::random;
use crate::error::Error;
use crate::events::{EventFlags, EventThread, Interest, Watch};
use crate::wire::frame::encode;
use crate::wire::message::Message;

/// The stream and what still has to be sent on it.
pub(crate) struct Channel {
    /// If somebody waits for it rather than polls.
    watch: Option<Watch>,
    stream: Arc<TcpStream>,
    peer: SocketAddr,
    output: Vec<u8>,
    is_connecting: bool,
}

/// What a read brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// So many bytes.
    Bytes(usize),
    /// Nothing yet.
    Nothing,
    /// The peer has closed its end.
    End,
}

/// After so long a silence the peer's host is taken for dead.
const DEAD_AFTER: Duration = Duration::from_secs(30);

/// Bytes to read at a time.
pub(crate) const READ_SIZE: usize = 4096;

impl Channel {
    /// Begins to connect to `peer`, from the address `source` if there is one.
    pub(crate) fn connect(peer: SocketAddr, source: Option<SocketAddr>) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(peer), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        socket.set_tcp_nodelay(true)?;
        notice_a_dead_host(&socket)?;
        if let Some(source) = source {
            // The port is chosen when the peer is known: ports are few if each serves one peer only.
            setsockopt(&socket, sockopt::IpBindAddressNoPort, &true)?;
            socket.bind(&source.into())?;
        }
        match socket.connect(&peer.into()) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(nix::libc::EINPROGRESS) => {}
            Err(error) => return Err(error),
        }
        Ok(Self {
            watch: None,
            stream: Arc::new(TcpStream::from(socket)),
            peer,
            output: Vec::new(),
            is_connecting: true,
        })
    }

    /// A stream that a listener has accepted from `peer`.
    pub(crate) fn accepted(stream: TcpStream, peer: SocketAddr) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        notice_a_dead_host(&stream)?;
        Ok(Self {
            watch: None,
            stream: Arc::new(stream),
            peer,
            output: Vec::new(),
            is_connecting: false,
        })
    }

    pub(crate) fn peer(&self) -> SocketAddr {
        self.peer
    }

    pub(crate) fn stream(&self) -> &Arc<TcpStream> {
        &self.stream
    }

    /// Whether the stream is connected. Never waits.
    pub(crate) fn is_connected(&mut self) -> io::Result<bool> {
        if !self.is_connecting {
            return Ok(true);
        }
        let mut fds = [PollFd::new(self.stream.as_fd(), PollFlags::POLLOUT)];
        match poll(&mut fds, PollTimeout::ZERO) {
            Ok(0) | Err(nix::errno::Errno::EINTR) => return Ok(false),
            Ok(_) => {}
            Err(errno) => return Err(errno.into()),
        }
        if let Some(error) = self.stream.take_error()? {
            return Err(error);
        }
        self.is_connecting = false;
        Ok(true)
    }

    /// Has `flags` woken, once, when the stream is connected, takes what still has to be sent,
    /// or else has something to read. The same attention each time.
    pub(crate) fn listen(
        &mut self,
        events: &EventThread,
        flags: &Arc<EventFlags>,
    ) -> Result<(), Error> {
        let interest = if self.is_connecting || !self.output.is_empty() {
            Interest::Write
        } else {
            Interest::Read
        };
        if let Some(watch) = &self.watch {
            return watch.arm(interest);
        }
        let stream = Arc::clone(&self.stream);
        self.watch = Some(events.watch_socket(stream, flags, interest)?);
        Ok(())
    }

    /// Ends what [`listen`](Self::listen) began.
    pub(crate) fn stop_listening(&mut self) {
        self.watch = None;
    }

    /// Lets the stream live through a silence of `time`, for a connection that outlives its links.
    pub(crate) fn outlive(&self, time: Duration) -> io::Result<()> {
        let longest = DEAD_AFTER.max(time);
        let questions = longest.as_secs().saturating_sub(15) / 5;
        let socket = SockRef::from(&*self.stream);
        let retries = u32::try_from(questions).unwrap_or(u32::MAX).clamp(3, 127);
        let interval = Duration::from_secs((questions * 5).div_ceil(retries.into()).max(5));
        socket.set_tcp_keepalive(
            &TcpKeepalive::new()
                .with_time(Duration::from_secs(15))
                .with_interval(interval)
                .with_retries(retries),
        )?;
        socket.set_tcp_user_timeout(Some(longest))
    }

    /// Adds a message to what has to be sent.
    pub(crate) fn queue_message(&mut self, message: &Message) {
        encode(message, &mut self.output);
    }

    /// Sends as much as the system takes; true when nothing is left.
    pub(crate) fn flush(&mut self) -> io::Result<bool> {
        while !self.output.is_empty() {
            match (&*self.stream).write(&self.output) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(sent) => drop(self.output.drain(..sent)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<Input> {
        loop {
            return match (&*self.stream).read(buffer) {
                Ok(0) => Ok(Input::End),
                Ok(count) => Ok(Input::Bytes(count)),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(Input::Nothing),
                Err(error) => Err(error),
            };
        }
    }
}

/// Lets the system ask now and then whether the peer's host is still there. A process that dies
/// closes its end; a host that loses its power or its cable says nothing, and a receiver that waits
/// for data would wait for ever. Half a minute is about what a queue pair takes to give up. The system does
/// not ask while it waits for an acknowledgement, which it would do for a quarter of an hour.
fn notice_a_dead_host<'a>(socket: impl Into<SockRef<'a>>) -> io::Result<()> {
    let socket = socket.into();
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(15))
        .with_interval(Duration::from_secs(5))
        .with_retries(3);
    socket.set_tcp_keepalive(&keepalive)?;
    socket.set_tcp_user_timeout(Some(DEAD_AFTER))
}

/// Opens a listening socket on `address`: on its port, or if that is 0 on the first free one of
/// `ports`, or on one of the system's choice.
pub(crate) fn listen(
    address: SocketAddr,
    ports: Option<&RangeInclusive<u16>>,
) -> Result<TcpListener, Error> {
    let Some(ports) = ports.filter(|_| address.port() == 0) else {
        return listen_on(address).map_err(|e| Error::socket(format!("listening on {address}"), e));
    };
    // From a random one on, so that processes that start together do not all try the same ones.
    // A range that a program made backwards has none.
    let (first, count) = (*ports.start(), ports.clone().count() as u32);
    let start = random::u32()? % count.max(1);
    for step in 0..count {
        let port = first + ((start + step) % count) as u16;
        match listen_on(SocketAddr::new(address.ip(), port)) {
            Ok(listener) => return Ok(listener),
            Err(error) if error.kind() == ErrorKind::AddrInUse => {}
            Err(error) => return Err(Error::socket(format!("listening on {address}"), error)),
        }
    }
    Err(Error::socket(
        format!(
            "listening on {}: every port from {} to {} (`ports`) is taken",
            address.ip(),
            ports.start(),
            ports.end()
        ),
        ErrorKind::AddrInUse.into(),
    ))
}

fn listen_on(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    if address.port() != 0 {
        // A named port may have been used a moment ago.
        socket.set_reuse_address(true)?;
    }
    socket.bind(&address.into())?;
    // The system cuts this to its own maximum (net.core.somaxconn).
    socket.listen(i32::MAX)?;
    socket.set_nonblocking(true)?;
    Ok(TcpListener::from(socket))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Instant;

    use super::*;

    fn wait(mut until: impl FnMut() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while !until() {
            assert!(Instant::now() < deadline, "nothing happened");
            std::thread::yield_now();
        }
    }

    #[test]
    fn bytes_arrive_and_the_end_is_seen() {
        let listener = listen("127.0.0.1:0".parse().unwrap(), None).unwrap();
        let mut client = Channel::connect(listener.local_addr().unwrap(), None).unwrap();
        wait(|| client.is_connected().unwrap());
        let mut accepted = None;
        wait(|| {
            accepted = listener.accept().ok();
            accepted.is_some()
        });
        let (stream, peer) = accepted.unwrap();
        let mut server = Channel::accepted(stream, peer).unwrap();

        let mut buffer = [0; 64];
        assert_eq!(server.read(&mut buffer).unwrap(), Input::Nothing);
        client.output.extend_from_slice(b"hel");
        client.output.extend_from_slice(b"lo");
        assert!(client.flush().unwrap());
        wait(|| server.read(&mut buffer).unwrap() == Input::Bytes(5));
        assert_eq!(&buffer[..5], b"hello");
        drop(client);
        wait(|| server.read(&mut buffer).unwrap() == Input::End);
    }

    #[test]
    fn a_channel_lives_through_a_silence_as_long_as_was_said() {
        let listener = listen("127.0.0.1:0".parse().unwrap(), None).unwrap();
        let client = Channel::connect(listener.local_addr().unwrap(), None).unwrap();
        let limits = || {
            let socket = SockRef::from(&*client.stream);
            let questions = socket.tcp_keepalive_retries().unwrap();
            let interval = socket.tcp_keepalive_interval().unwrap();
            (socket.tcp_user_timeout().unwrap(), interval * questions)
        };
        assert_eq!(limits(), (Some(DEAD_AFTER), Duration::from_secs(15)));
        for (time, limit) in [(1, 30), (30, 30), (120, 120), (86_400, 86_400)] {
            client.outlive(Duration::from_secs(time)).unwrap();
            let (user, keepalive) = limits();
            assert_eq!(user, Some(Duration::from_secs(limit)));
            assert!(keepalive + Duration::from_secs(15) >= Duration::from_secs(limit));
        }
    }

    #[test]
    fn ports_come_from_the_range() {
        let any = "127.0.0.1:0".parse().unwrap();
        let free = listen(any, None).unwrap().local_addr().unwrap().port();
        let range = free..=free;
        let first = listen(any, Some(&range)).unwrap();
        assert_eq!(first.local_addr().unwrap().port(), free);
        #[expect(clippy::reversed_empty_ranges, reason = "as a program may have it")]
        let backwards = 9..=5;
        for without_a_free_one in [range, backwards] {
            let text = listen(any, Some(&without_a_free_one))
                .unwrap_err()
                .to_string();
            assert!(text.contains("`ports`"), "{text}");
        }
    }
}
