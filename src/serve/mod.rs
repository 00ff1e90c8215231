//! A small HTTP/1.1 server for probes and metrics: GET and HEAD, one request per connection, a bounded number of
//! connections. It listens on its own thread and shares nothing with the rest but the closures that it is given.

use std::io::{self, Write};
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

use socket2::SockRef;

use crate::base::stop::Stop;
use crate::base::thread;
use crate::limits;

mod checks;
mod request;
mod routes;

pub use checks::Checks;
pub use request::Request;
pub use routes::{Response, Routes};

/// A request must have arrived, and a response must have left, within this time each.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause after an error of the listener itself, such as too many open files.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// A running listener. Dropped, it ends as if its [`Stop`] had been pulled.
#[derive(Debug)]
pub struct Server {
    addr: SocketAddr,
    stop: Stop,
    accepting: Option<JoinHandle<()>>,
}

impl Server {
    /// Where it listens; tells the port if 0 was asked for.
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.accepting.take() {
            // A panic there is one of a closure, and has been written to standard error.
            let _ = thread.join();
        }
    }
}

/// Listens at `bind` (an IP address or a host name; empty means all addresses) and `port` (0 picks a free one) until
/// `stop` is pulled.
///
/// # Errors
/// The system's, if it cannot listen there.
pub fn start(bind: &str, port: u16, routes: Routes, stop: &Stop) -> io::Result<Server> {
    let listener = listen(bind, port)?;
    let addr = listener.local_addr()?;
    let stop = stop.child();
    let waker = listener.try_clone()?;
    stop.on_stop(move || {
        // Frees the blocked `accept`. An error says that the listener is gone already.
        let _ = SockRef::from(&waker).shutdown(Shutdown::Both);
    });
    let acceptor =
        Acceptor { listener, routes: routes.shared(), stop: stop.clone(), connections: Vec::new() };
    let accepting = thread::spawn("serve", limits::SERVE_STACK_BYTES, move || acceptor.run())?;
    Ok(Server { addr, stop, accepting: Some(accepting) })
}

fn listen(bind: &str, port: u16) -> io::Result<TcpListener> {
    if !bind.is_empty() {
        return TcpListener::bind((bind, port));
    }
    // The unspecified IPv6 address takes IPv4 connections as well, where there is IPv6 at all.
    TcpListener::bind((Ipv6Addr::UNSPECIFIED, port))
        .or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)))
}

struct Acceptor {
    listener: TcpListener,
    routes: routes::Shared,
    stop: Stop,
    connections: Vec<Connection>,
}

struct Connection {
    socket: TcpStream,
    thread: JoinHandle<()>,
}

impl Acceptor {
    fn run(mut self) {
        let clock = crate::base::clock::Clock::system();
        while !self.stop.is_stopped() {
            let accepted = self.listener.accept();
            if self.stop.is_stopped() {
                break;
            }
            if let Err(error) = accepted.and_then(|(socket, _)| self.admit(socket)) {
                log::debug!(err:% = error; "A connection of the HTTP server failed");
                self.stop.wait(&clock, ACCEPT_RETRY);
            }
        }
        for connection in self.connections {
            // Ends its blocked read or write; an error says that it is closed already.
            let _ = connection.socket.shutdown(Shutdown::Both);
            let _ = connection.thread.join();
        }
    }

    fn admit(&mut self, socket: TcpStream) -> io::Result<()> {
        self.connections.retain(|connection| !connection.thread.is_finished());
        socket.set_write_timeout(Some(EXCHANGE_TIMEOUT))?;
        if self.connections.len() >= limits::SERVE_CONNECTIONS_MAX {
            // Fits into the empty send buffer, so it cannot block.
            (&socket).write_all(&Response::text(503, "too many connections\n").bytes(true))?;
            socket.shutdown(Shutdown::Write)?;
            request::drain_once(&socket);
            return Ok(());
        }
        let (routes, own) = (self.routes.clone(), socket.try_clone()?);
        let thread =
            thread::spawn("serve-request", limits::SERVE_STACK_BYTES, move || exchange(&own, &routes))?;
        self.connections.push(Connection { socket, thread });
        Ok(())
    }
}

fn exchange(socket: &TcpStream, routes: &routes::Shared) {
    let (response, with_body) = match request::read(socket, EXCHANGE_TIMEOUT) {
        Ok(request) => (routes.respond(&request), !request.is_head()),
        Err(request::Error::Refused(status, reason)) => (Response::text(status, format!("{reason}\n")), true),
        Err(request::Error::Gone) => return,
    };
    // A client that went away needs no answer.
    let _ = (&mut &*socket).write_all(&response.bytes(with_body));
    let _ = socket.shutdown(Shutdown::Write);
    request::drain(socket);
}

#[cfg(test)]
mod tests;
