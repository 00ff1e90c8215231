//! A TCP proxy that breaks connections when a test orders it, for servers without faults of their own. It may ask clients
//! for credentials.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use gardenlet::base::thread;
use rustls::{ServerConfig, ServerConnection};

use super::encoding::base64;

const STACK_BYTES: usize = 128 << 10;
/// A free port of loopback.
const FREE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// What happens to bytes and new connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// They pass.
    Pass,
    /// New connections are reset, open ones continue.
    Refuse,
    /// Nothing passes and nothing is closed, as if the other side had vanished.
    Hole,
    /// Each piece of up to 16 KiB passes after this real time.
    Slow(Duration),
    /// New connections end after the server's first bytes, in the middle of a handshake. Open ones continue.
    Greet,
}

/// What a client must say before its bytes pass.
#[derive(Clone, Copy, Debug)]
pub enum Door {
    /// Nothing.
    Open,
    /// CONNECT with this user and password.
    Connect(&'static str, &'static str),
    /// SOCKS5 with this user and password.
    Socks5(&'static str, &'static str),
}

/// The destination of a connection.
enum Targets {
    /// One server, whatever the client requests.
    One(SocketAddr),
    /// The requested `host:port`, if it is in the map. Others are refused.
    Named(Vec<(String, SocketAddr)>),
}

struct State {
    mode: Mode,
    open: Vec<TcpStream>,
}

struct Shared {
    targets: Targets,
    door: Door,
    /// The `host:port` that accepted clients requested.
    asked: Mutex<Vec<String>>,
    state: Mutex<State>,
    changed: Condvar,
    stopping: AtomicBool,
    connections: AtomicU64,
    bytes: AtomicU64,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn target(&self, asked: &str) -> Option<SocketAddr> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).push(asked.to_owned());
        match &self.targets {
            Targets::One(target) => Some(*target),
            Targets::Named(all) => all.iter().find(|(name, _)| name == asked).map(|(_, target)| *target),
        }
    }

    /// Waits until bytes may pass.
    fn admit(&self) {
        let slow = {
            let held = |s: &mut State| s.mode == Mode::Hole && !self.stopping.load(Ordering::SeqCst);
            let state = self.changed.wait_while(self.state(), held).unwrap_or_else(PoisonError::into_inner);
            if let Mode::Slow(delay) = state.mode { delay } else { return }
        };
        let same = |s: &mut State| s.mode == Mode::Slow(slow) && !self.stopping.load(Ordering::SeqCst);
        drop(self.changed.wait_timeout_while(self.state(), slow, same));
    }
}

/// A running proxy. It ends, with all connections, when it is dropped.
pub struct Proxy {
    shared: Arc<Shared>,
    listener: TcpListener,
    accepting: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Listens on a free port of loopback and forwards to `target`.
    pub fn start(target: SocketAddr) -> io::Result<Self> {
        Self::behind(target, Door::Open)
    }

    /// The same at a given address of loopback.
    pub fn at(address: SocketAddr, target: SocketAddr) -> io::Result<Self> {
        Self::of(address, Targets::One(target), Door::Open)
    }

    /// The same, for clients with credentials.
    pub fn behind(target: SocketAddr, door: Door) -> io::Result<Self> {
        Self::of(FREE, Targets::One(target), door)
    }

    /// A proxy for these servers (`host:port`) only.
    pub fn knowing(targets: &[(String, SocketAddr)], door: Door) -> io::Result<Self> {
        Self::of(FREE, Targets::Named(targets.to_vec()), door)
    }

    fn of(address: SocketAddr, targets: Targets, door: Door) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let shared = Arc::new(Shared {
            targets,
            door,
            asked: Mutex::default(),
            state: Mutex::new(State { mode: Mode::Pass, open: Vec::new() }),
            changed: Condvar::new(),
            stopping: AtomicBool::new(false),
            connections: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        });
        let (taking, taken) = (shared.clone(), listener.try_clone()?);
        let accepting = thread::spawn("proxy-accept", STACK_BYTES, move || {
            while let Ok((tcp, _)) = taken.accept() {
                if taking.stopping.load(Ordering::SeqCst) {
                    break;
                }
                // If the connection cannot be opened, the client sees it closed as if by the server.
                let _ = take(&taking, tcp);
            }
        })?;
        Ok(Self { shared, listener, accepting: Some(accepting) })
    }

    /// The address at which it listens.
    pub fn address(&self) -> SocketAddr {
        self.listener.local_addr().unwrap()
    }

    pub fn set(&self, mode: Mode) {
        self.shared.state().mode = mode;
        self.shared.changed.notify_all();
    }

    /// Ends all open connections.
    pub fn cut(&self) {
        for tcp in self.shared.state().open.drain(..) {
            let _ = tcp.shutdown(Shutdown::Both);
        }
    }

    /// The `host:port` that accepted clients requested.
    pub fn asked(&self) -> Vec<String> {
        self.shared.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The number of connections so far.
    pub fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// The number of bytes in both directions.
    pub fn bytes(&self) -> u64 {
        self.shared.bytes.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        self.shared.changed.notify_all();
        self.cut();
        // Linux: wakes the thread that waits in accept.
        let _ = socket2::SockRef::from(&self.listener).shutdown(Shutdown::Both);
        if let Some(thread) = self.accepting.take() {
            let _ = thread.join();
        }
    }
}

fn take(shared: &Arc<Shared>, client: TcpStream) -> io::Result<()> {
    shared.connections.fetch_add(1, Ordering::SeqCst);
    if shared.state().mode == Mode::Refuse {
        return socket2::SockRef::from(&client).set_linger(Some(Duration::ZERO));
    }
    let target = enter(shared, &client)?;
    let server = TcpStream::connect_timeout(&target, Duration::from_secs(5))?;
    let ends = [(client.try_clone()?, server.try_clone()?, false), (server, client, true)];
    let greets = shared.state().mode == Mode::Greet;
    for (from, to, answers) in ends {
        shared.state().open.push(from.try_clone()?);
        let forwarding = shared.clone();
        let limit = Limit { small: greets, once: greets && answers };
        drop(thread::spawn("proxy-forward", STACK_BYTES, move || forward(&forwarding, from, to, limit))?);
    }
    Ok(())
}

/// Checks the client's credentials and returns the destination that it requests.
fn enter(shared: &Shared, client: &TcpStream) -> io::Result<SocketAddr> {
    client.set_read_timeout(Some(Duration::from_secs(30)))?;
    let target = match (shared.door, &shared.targets) {
        (Door::Open, Targets::One(target)) => *target,
        (Door::Open, Targets::Named(_)) => return Err(io::ErrorKind::InvalidInput.into()),
        (Door::Connect(user, password), _) => connect(shared, client, user, password)?,
        (Door::Socks5(user, password), _) => socks5(shared, client, user, password)?,
    };
    client.set_read_timeout(None)?;
    Ok(target)
}

fn connect(shared: &Shared, mut client: &TcpStream, user: &str, password: &str) -> io::Result<SocketAddr> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.extend(exactly::<1>(client)?);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let login = format!("Proxy-Authorization: Basic {}", base64(format!("{user}:{password}").as_bytes()));
    if !head.lines().any(|line| line == login) {
        client.write_all(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")?;
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let asked = head.strip_prefix("CONNECT ").and_then(|rest| rest.split(' ').next()).unwrap_or_default();
    let Some(target) = shared.target(asked) else {
        client.write_all(b"HTTP/1.1 502 Bad Gateway\r\n\r\n")?;
        return Err(io::ErrorKind::NotFound.into());
    };
    client.write_all(b"HTTP/1.1 200 Connection established\r\nX-Proxy: here\r\n\r\n")?;
    Ok(target)
}

fn socks5(shared: &Shared, mut client: &TcpStream, user: &str, password: &str) -> io::Result<SocketAddr> {
    let [5, count] = exactly(client)? else { return Err(io::ErrorKind::InvalidData.into()) };
    let mut methods = vec![0; count.into()];
    client.read_exact(&mut methods)?;
    if !methods.contains(&2) {
        client.write_all(&[5, 0xff])?;
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    client.write_all(&[5, 2])?;
    let [1] = exactly(client)? else { return Err(io::ErrorKind::InvalidData.into()) };
    let is_right = (short_text(client)?.as_str(), short_text(client)?.as_str()) == (user, password);
    client.write_all(&[1, u8::from(!is_right)])?;
    // By name: the client need not resolve it.
    let [5, 1, 0, 3] = exactly(client)? else { return Err(io::ErrorKind::InvalidData.into()) };
    let asked = format!("{}:{}", short_text(client)?, u16::from_be_bytes(exactly(client)?));
    let target = shared.target(&asked);
    client.write_all(&[5, if target.is_some() { 0 } else { 4 }, 0, 1, 0, 0, 0, 0, 0, 0])?;
    target.ok_or_else(|| io::ErrorKind::NotFound.into())
}

fn short_text(mut client: &TcpStream) -> io::Result<String> {
    let mut text = vec![0; exactly::<1>(client)?[0].into()];
    client.read_exact(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn exactly<const N: usize>(mut client: &TcpStream) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    client.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// How much passes in one direction.
#[derive(Clone, Copy)]
struct Limit {
    small: bool,
    once: bool,
}

/// Carries bytes one way until either end closes, or only the first piece.
fn forward(shared: &Shared, mut from: TcpStream, mut to: TcpStream, limit: Limit) {
    let mut buffer = vec![0; if limit.small { 256 } else { 16 << 10 }];
    while let Ok(n) = from.read(&mut buffer) {
        shared.admit();
        // Count them before they are written: a reader expects them in the count.
        shared.bytes.fetch_add(n as u64, Ordering::SeqCst);
        if n == 0 || to.write_all(&buffer[..n]).is_err() || limit.once {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
    shared.state().open.retain(|open| open.peer_addr().is_ok());
}

/// TLS in front of a server without TLS, such as a proxy that clients reach with `https`.
pub struct TlsFront {
    listener: TcpListener,
    accepting: Option<JoinHandle<()>>,
}

impl TlsFront {
    /// Listens on a free port of loopback and forwards to `target`, whose end it waits for.
    pub fn start(config: Arc<ServerConfig>, target: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let taken = listener.try_clone()?;
        let accepting = thread::spawn("front-accept", STACK_BYTES, move || {
            while let Ok((tcp, _)) = taken.accept() {
                let config = config.clone();
                // An error of one connection does not matter here.
                let serve = move || drop(Secured::open(config, tcp, target));
                drop(thread::spawn("front", STACK_BYTES, serve));
            }
        })?;
        Ok(Self { listener, accepting: Some(accepting) })
    }

    /// The address at which it listens.
    pub fn address(&self) -> SocketAddr {
        self.listener.local_addr().unwrap()
    }
}

impl Drop for TlsFront {
    fn drop(&mut self) {
        let _ = socket2::SockRef::from(&self.listener).shutdown(Shutdown::Both);
        if let Some(thread) = self.accepting.take() {
            let _ = thread.join();
        }
    }
}

/// One connection of a [`TlsFront`]: two threads share the state of its TLS, and neither waits while it holds the lock.
struct Secured {
    tls: Mutex<ServerConnection>,
    client: TcpStream,
    server: TcpStream,
}

impl Secured {
    fn open(config: Arc<ServerConfig>, client: TcpStream, target: SocketAddr) -> io::Result<()> {
        let tls = Mutex::new(ServerConnection::new(config).map_err(io::Error::other)?);
        let (answering, server) = (client.try_clone()?, TcpStream::connect(target)?);
        let all = Arc::new(Self { tls, client: answering, server });
        let back = all.clone();
        let answers = thread::spawn("front-back", STACK_BYTES, move || {
            let _ = back.encrypt();
            back.end();
        })?;
        let _ = all.decrypt();
        all.end();
        let _ = answers.join();
        Ok(())
    }

    fn end(&self) {
        let _ = self.client.shutdown(Shutdown::Both);
        let _ = self.server.shutdown(Shutdown::Both);
    }

    fn tls(&self) -> MutexGuard<'_, ServerConnection> {
        self.tls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn decrypt(&self) -> io::Result<()> {
        let mut wire = vec![0; 16 << 10];
        loop {
            let read = (&self.client).read(&mut wire)?;
            let (mut rest, mut plain) = (&wire[..read], Vec::new());
            let mut tls = self.tls();
            while !rest.is_empty() {
                tls.read_tls(&mut rest)?;
                let state = tls.process_new_packets().map_err(io::Error::other)?;
                let place = plain.len();
                plain.resize(place + state.plaintext_bytes_to_read(), 0);
                tls.reader().read_exact(&mut plain[place..])?;
            }
            while tls.wants_write() {
                tls.write_tls(&mut &self.client)?;
            }
            drop(tls);
            (&self.server).write_all(&plain)?;
            if read == 0 {
                return Ok(());
            }
        }
    }

    fn encrypt(&self) -> io::Result<()> {
        let mut plain = vec![0; 16 << 10];
        loop {
            let read = (&self.server).read(&mut plain)?;
            let mut tls = self.tls();
            tls.writer().write_all(&plain[..read])?;
            if read == 0 {
                tls.send_close_notify();
            }
            while tls.wants_write() {
                tls.write_tls(&mut &self.client)?;
            }
            if read == 0 {
                return Ok(());
            }
        }
    }
}

#[test]
fn bytes_pass_vanish_and_pass_again() {
    let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let proxy = Proxy::start(server.local_addr().unwrap()).unwrap();
    let mut client = TcpStream::connect(proxy.address()).unwrap();
    let (mut end, _) = server.accept().unwrap();
    let mut byte = [0];
    client.write_all(b"a").unwrap();
    end.read_exact(&mut byte).unwrap();
    proxy.set(Mode::Hole);
    client.write_all(b"b").unwrap();
    end.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    assert!(end.read_exact(&mut byte).is_err());
    proxy.set(Mode::Slow(Duration::from_millis(1)));
    end.set_read_timeout(None).unwrap();
    end.read_exact(&mut byte).unwrap();
    assert_eq!((&byte, proxy.bytes()), (b"b", 2));
    proxy.cut();
    assert!(matches!(client.read(&mut byte), Ok(0) | Err(_)));
    proxy.set(Mode::Refuse);
    // The system takes the connection before the proxy resets it.
    let refused = TcpStream::connect(proxy.address()).and_then(|mut c| c.read(&mut byte));
    assert!(matches!(refused, Ok(0) | Err(_)));
    assert_eq!(proxy.connections(), 2);
}
