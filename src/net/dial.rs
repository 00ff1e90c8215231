//! Opens TCP connections.

use std::fmt;
use std::io;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use socket2::{Domain, SockRef, Socket, TcpKeepalive, Type};

use super::error::Error;
use crate::base::clock::Clock;
use crate::base::thread;
use crate::limits;

/// Opens TCP connections. Tests use a dialer of their own to cut, delay or count connections.
pub trait Dial: Send + Sync + fmt::Debug {
    /// Connects to a host name or an IP address (IPv6 without brackets), within `timeout` over all its
    /// addresses. Errors: the error of the system for the last address.
    fn dial(&self, host: &str, port: u16, timeout: Duration) -> io::Result<TcpStream>;

    /// The same, but reports each attempt before it begins, so that another thread can cancel it. Errors: as
    /// [`Dial::dial`], and the errors of `opening`.
    fn dial_telling(
        &self,
        host: &str,
        port: u16,
        timeout: Duration,
        opening: Opening<'_>,
    ) -> io::Result<TcpStream> {
        let _ = opening;
        self.dial(host, port, timeout)
    }

    /// Called once for each connection, before anything is sent. It is in use until the last reference is dropped. A dialer that
    /// ends connections keeps a weak one: another handle of the socket would keep the connection open.
    fn opened(&self, socket: &Arc<TcpStream>) {
        let _ = socket;
    }

    /// The addresses of a host name, within `timeout`. Errors: the error of the system.
    fn lookup(&self, host: &str, timeout: Duration) -> io::Result<Vec<IpAddr>> {
        let found = resolve(host, 0, timeout, &mut |_| Ok(()))?;
        Ok(found.iter().map(SocketAddr::ip).collect())
    }
}

/// Called before each attempt to connect; an error cancels the attempt.
pub(crate) type Opening<'a> = &'a mut dyn FnMut(&Arc<DialAttempt>) -> io::Result<()>;

/// The addresses of a name.
type Addresses = io::Result<Vec<SocketAddr>>;

/// An attempt to connect. The system waits for an unresponsive peer or resolver for as long as it may.
#[derive(Debug)]
pub enum DialAttempt {
    /// A name lookup.
    #[doc(hidden)]
    Lookup(mpsc::Sender<Addresses>),
    /// A connection to an address.
    #[doc(hidden)]
    Connect(Socket, SocketAddr),
}

impl DialAttempt {
    /// The address, if this is a connection.
    pub(crate) const fn address(&self) -> Option<IpAddr> {
        match self {
            Self::Lookup(_) => None,
            Self::Connect(_, address) => Some(address.ip()),
        }
    }

    /// Cancels the attempt. Once a connection is established, it has a shutdown handle of its own.
    pub(crate) fn cancel(&self) {
        // If there is nothing to cancel, the result is the same.
        match self {
            Self::Lookup(answer) => drop(answer.send(Err(io::ErrorKind::ConnectionAborted.into()))),
            Self::Connect(socket, _) => drop(socket.shutdown(Shutdown::Both)),
        }
    }
}

/// Idle time before the first keepalive probe.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(9);
/// Interval between keepalive probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);
/// Number of lost probes after which a connection is dead: the agent notices a silently dropped link within
/// 15 s, not within 15 minutes.
const KEEPALIVE_PROBES: u32 = 3;
/// A connection ends if sent data is not acknowledged for this long.
const USER_TIMEOUT: Duration = Duration::from_secs(10);

/// The dialer of the real program: tries all addresses of a name in turn, with keepalive,
/// `TCP_USER_TIMEOUT` and no delay.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemDialer;

impl Dial for SystemDialer {
    fn dial(&self, host: &str, port: u16, timeout: Duration) -> io::Result<TcpStream> {
        self.dial_telling(host, port, timeout, &mut |_| Ok(()))
    }

    fn dial_telling(
        &self,
        host: &str,
        port: u16,
        timeout: Duration,
        opening: Opening<'_>,
    ) -> io::Result<TcpStream> {
        let clock = Clock::system();
        let addresses = resolve(host, port, timeout, opening).map_err(|source| {
            // A distinct error tells a failed lookup from an unreachable address.
            io::Error::other(Error::Lookup { host: host.to_owned(), source })
        })?;
        let left = timeout.saturating_sub(clock.mono());
        let stream = connect_any(&addresses, left, |address, share| connect(address, share, opening))?;
        tune(&stream)?;
        Ok(stream)
    }
}

fn connect(address: &SocketAddr, timeout: Duration, opening: Opening<'_>) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(*address), Type::STREAM, None)?;
    // Another handle of the same socket, which is closed after the attempt.
    let attempt = Arc::new(DialAttempt::Connect(socket.try_clone()?, *address));
    opening(&attempt)?;
    socket.connect_timeout(&(*address).into(), timeout)?;
    Ok(socket.into())
}

/// Name lookups that the system has not answered yet. A lookup has no timeout, so each runs in a thread of its own that
/// may be left behind.
static LOOKUPS: AtomicUsize = AtomicUsize::new(0);

/// The addresses of a host; a name lookup takes at most `timeout`.
fn resolve(host: &str, port: u16, timeout: Duration, opening: Opening<'_>) -> Addresses {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let name = host.to_owned();
    within(&LOOKUPS, timeout, opening, move || Ok((name.as_str(), port).to_socket_addrs()?.collect()))
}

fn within(
    running: &'static AtomicUsize,
    timeout: Duration,
    opening: Opening<'_>,
    lookup: impl FnOnce() -> Addresses + Send + 'static,
) -> Addresses {
    let (sender, receiver) = mpsc::channel();
    let attempt = Arc::new(DialAttempt::Lookup(sender.clone()));
    opening(&attempt)?;
    if running.fetch_add(1, Ordering::SeqCst) >= limits::LOOKUPS_MAX {
        running.fetch_sub(1, Ordering::SeqCst);
        return Err(io::Error::new(io::ErrorKind::ResourceBusy, "the resolver does not answer"));
    }
    let started = thread::spawn("resolve", limits::SMALL_STACK_BYTES, move || {
        // After the timeout, no receiver is left.
        let _ = sender.send(lookup());
        running.fetch_sub(1, Ordering::SeqCst);
    });
    if let Err(error) = started {
        running.fetch_sub(1, Ordering::SeqCst);
        return Err(error);
    }
    receiver
        .recv_timeout(timeout)
        .unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "the resolver does not answer")))
}

/// Tries the addresses in turn. Each gets half of the remaining time, the last one all of it.
fn connect_any<T>(
    addresses: &[SocketAddr],
    timeout: Duration,
    mut connect: impl FnMut(&SocketAddr, Duration) -> io::Result<T>,
) -> io::Result<T> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    let mut left = timeout;
    for (index, address) in addresses.iter().enumerate() {
        let share = if index + 1 == addresses.len() { left } else { left / 2 };
        match connect(address, share.max(Duration::from_millis(1))) {
            Ok(connected) => return Ok(connected),
            Err(error) => {
                if error.kind() == io::ErrorKind::TimedOut {
                    left = left.saturating_sub(share);
                }
                last = error;
            }
        }
    }
    Err(last)
}

fn tune(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_IDLE)
        .with_interval(KEEPALIVE_INTERVAL)
        .with_retries(KEEPALIVE_PROBES);
    socket.set_tcp_keepalive(&keepalive)?;
    socket.set_tcp_user_timeout(Some(USER_TIMEOUT))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn later_addresses_are_tried_with_the_time_that_is_left() {
        let addresses: Vec<SocketAddr> = (1..=3).map(|n| SocketAddr::from(([127, 0, 0, n], 1))).collect();
        let mut shares = Vec::new();
        let result = connect_any(&addresses, Duration::from_secs(8), |address, share| {
            shares.push(share.as_secs());
            match address.ip().to_string().as_str() {
                "127.0.0.3" => Ok("third"),
                "127.0.0.2" => Err(io::ErrorKind::ConnectionRefused.into()),
                _ => Err(io::ErrorKind::TimedOut.into()),
            }
        });
        assert_eq!((result.unwrap(), shares), ("third", vec![4, 2, 4]));
        let refused = connect_any(&addresses[..1], Duration::from_secs(1), |_, _| {
            Err::<(), _>(io::ErrorKind::ConnectionRefused.into())
        });
        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        let none = connect_any(&[], Duration::from_secs(1), |_, _| Ok(()));
        assert_eq!(none.unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn names_are_resolved_within_the_time_limit() {
        static HUNG: AtomicUsize = AtomicUsize::new(0);
        let look = |host, timeout| resolve(host, 7, timeout, &mut |_| Ok(())).unwrap();
        assert_eq!(look("::1", Duration::ZERO), ["[::1]:7".parse().unwrap()]);
        assert!(look("localhost", Duration::from_secs(10)).iter().all(|a| a.ip().is_loopback()));
        // A resolver that hangs costs the timeout, and no more than the maximum number of threads.
        let (release, hold) = mpsc::channel::<()>();
        let hold = Arc::new(std::sync::Mutex::new(hold));
        let hang = |timeout, opening: Opening<'_>| {
            let hold = Arc::clone(&hold);
            let hung = within(&HUNG, timeout, opening, move || {
                let _ = hold.lock().unwrap().recv();
                Ok(Vec::new())
            });
            hung.unwrap_err().kind()
        };
        // A stop does not wait for a lookup.
        let mut told = None;
        let stopped = hang(Duration::from_secs(3_600), &mut |attempt| {
            attempt.cancel();
            told = Some(Arc::downgrade(attempt));
            Ok(())
        });
        assert_eq!(stopped, io::ErrorKind::ConnectionAborted);
        assert!(told.unwrap().upgrade().is_none(), "nothing is kept of it");
        let refused = hang(Duration::from_secs(3_600), &mut |_| Err(io::ErrorKind::NotConnected.into()));
        assert_eq!(refused, io::ErrorKind::NotConnected);
        let kinds: Vec<_> = (0..12).map(|_| hang(Duration::from_millis(5), &mut |_| Ok(()))).collect();
        assert_eq!((kinds[0], kinds[11]), (io::ErrorKind::TimedOut, io::ErrorKind::ResourceBusy));
        drop(release);
        while HUNG.load(Ordering::SeqCst) > 0 {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_connection_notices_a_dead_link_in_fifteen_seconds() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let stream = SystemDialer.dial("127.0.0.1", port, Duration::from_secs(5)).unwrap();
        let socket = SockRef::from(&stream);
        assert!(socket.keepalive().unwrap() && stream.nodelay().unwrap());
        let probes = socket.tcp_keepalive_retries().unwrap();
        let noticed =
            socket.tcp_keepalive_time().unwrap() + socket.tcp_keepalive_interval().unwrap() * probes;
        assert!(noticed <= Duration::from_secs(15), "{noticed:?}");
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(Duration::from_secs(10)));
    }
}
