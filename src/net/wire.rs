//! A connection as bytes: a socket, any number of TLS layers around it, and the timeouts of the running request.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConnection;
use ureq::unversioned::transport::{Buffers as _, NextTimeout, Transport};

use super::buffers::Buffers;
use super::traffic::{Direction, Traffic};
use crate::base::clock::{Clock, Mono};

/// The timeouts of the running request. Sockets wait in real time, so this clock is always the machine's.
#[derive(Clone)]
pub(super) struct Timer {
    clock: Clock,
    until: Option<Mono>,
    total: NextTimeout,
}

impl Timer {
    pub(super) fn new(clock: Clock, total: NextTimeout) -> Self {
        let mut timer = Self { clock, until: None, total };
        timer.set(total);
        timer
    }

    fn set(&mut self, total: NextTimeout) {
        let never = total.after.is_not_happening();
        self.until = (!never).then(|| self.clock.mono().saturating_add(*total.after));
        self.total = total;
    }

    /// The remaining time for one read or write: the remaining total, cut to the limit of a single operation.
    fn left(
        &self,
        limited: impl Fn(NextTimeout) -> NextTimeout,
    ) -> io::Result<(Option<Duration>, ureq::Timeout)> {
        let mut now = self.total;
        if let Some(until) = self.until {
            now.after = until.saturating_sub(self.clock.mono()).into();
        }
        let now = limited(now);
        if now.after.is_not_happening() {
            return Ok((None, now.reason));
        }
        if now.after.is_zero() {
            return Err(timed_out(now.reason));
        }
        Ok((Some(*now.after), now.reason))
    }

    /// The remaining total time.
    pub(super) fn total_left(&self) -> io::Result<Option<Duration>> {
        self.left(|timeout| timeout).map(|(left, _)| left)
    }
}

fn timed_out(reason: ureq::Timeout) -> io::Error {
    io::Error::other(ureq::Error::Timeout(reason))
}

/// A socket, or TLS around another channel.
pub(super) enum Channel {
    Tcp { socket: Arc<TcpStream>, timer: Timer, traffic: Traffic },
    Tls { connection: Box<ClientConnection>, below: Box<Channel> },
}

impl Channel {
    fn set_timeout(&mut self, timeout: NextTimeout) {
        match self {
            Self::Tcp { timer, .. } => timer.set(timeout),
            Self::Tls { below, .. } => below.set_timeout(timeout),
        }
    }

    fn socket(&self) -> &TcpStream {
        match self {
            Self::Tcp { socket, .. } => socket,
            Self::Tls { below, .. } => below.socket(),
        }
    }

    /// Wraps the connection in TLS; the handshake is complete afterwards.
    pub(super) fn wrap(self, mut connection: ClientConnection) -> io::Result<Self> {
        let mut below = self;
        while connection.is_handshaking() {
            connection.complete_io(&mut below)?;
        }
        Ok(Self::Tls { connection: Box::new(connection), below: Box::new(below) })
    }
}

impl Read for Channel {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp { socket, timer, traffic } => {
                let amount = retry(|| {
                    let (left, reason) = timer.left(NextTimeout::for_read)?;
                    socket.set_read_timeout(left)?;
                    (&**socket).read(buffer).map_err(|error| as_timeout(error, reason))
                })?;
                traffic.add(Direction::Received, amount);
                Ok(amount)
            }
            Self::Tls { connection, below } => {
                rustls::Stream::new(&mut **connection, &mut **below).read(buffer)
            }
        }
    }
}

impl Write for Channel {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp { socket, timer, traffic } => {
                let amount = retry(|| {
                    let (left, reason) = timer.left(NextTimeout::for_write)?;
                    socket.set_write_timeout(left)?;
                    (&**socket).write(bytes).map_err(|error| as_timeout(error, reason))
                })?;
                traffic.add(Direction::Sent, amount);
                Ok(amount)
            }
            Self::Tls { connection, below } => {
                rustls::Stream::new(&mut **connection, &mut **below).write(bytes)
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Tcp { .. } => Ok(()),
            Self::Tls { connection, below } => rustls::Stream::new(&mut **connection, &mut **below).flush(),
        }
    }
}

/// A signal may interrupt a socket that has a timeout.
fn retry(mut step: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match step() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

fn as_timeout(error: io::Error, reason: ureq::Timeout) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => timed_out(reason),
        // TCP_USER_TIMEOUT expired without an acknowledgement. The text of the error describes it.
        _ => error,
    }
}

/// The transport that ureq reads and writes.
pub(super) struct Conduit {
    channel: Channel,
    buffers: Buffers,
}

impl Conduit {
    pub(super) fn new(channel: Channel) -> Self {
        Self { channel, buffers: Buffers::default() }
    }
}

impl fmt::Debug for Conduit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Conduit({:?})", self.channel.socket().peer_addr().ok())
    }
}

impl Transport for Conduit {
    fn buffers(&mut self) -> &mut dyn ureq::unversioned::transport::Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), ureq::Error> {
        self.channel.set_timeout(timeout);
        self.channel.write_all(&self.buffers.output()[..amount])?;
        self.channel.flush()?;
        Ok(())
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, ureq::Error> {
        self.channel.set_timeout(timeout);
        let amount = self.channel.read(self.buffers.input_append_buf())?;
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    fn is_open(&mut self) -> bool {
        self.buffers.release();
        is_quiet(self.channel.socket()).unwrap_or(false)
    }

    fn is_tls(&self) -> bool {
        matches!(self.channel, Channel::Tls { .. })
    }
}

/// Whether an idle connection is still usable: it has neither ended nor received bytes that belong to no request.
fn is_quiet(socket: &TcpStream) -> io::Result<bool> {
    socket.set_nonblocking(true)?;
    let peeked = socket.peek(&mut [0]);
    socket.set_nonblocking(false)?;
    Ok(matches!(peeked, Err(error) if error.kind() == io::ErrorKind::WouldBlock))
}
