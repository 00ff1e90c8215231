//! A small HTTP/1.1 server for probes and metrics: GET and HEAD, one request per connection, a limited number of
//! connections. It listens on its own thread and shares only the given closures with the rest.
//!
//! The server must answer a probe whatever other clients do. When all connections are in use, a new one replaces the
//! oldest idle one. Answers other than probes never take all connections.

use std::io::{self, Write};
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use socket2::SockRef;

use crate::base::stop::Stop;
use crate::base::thread;
use crate::limits;

mod checks;
mod request;
mod routes;

pub(crate) use checks::Checks;
pub(crate) use request::ServerRequest;
pub(crate) use routes::{Routes, ServerResponse};

/// The time limit for receiving a request, and for sending a response.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause after an error of the listener itself, such as too many open files.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// A running listener. Dropping it has the effect of its [`Stop`].
#[derive(Debug)]
pub(crate) struct HttpServer {
    addr: SocketAddr,
    stop: Stop,
    accepting: Option<JoinHandle<()>>,
}

impl HttpServer {
    /// The address; it has the real port if 0 was requested.
    pub(crate) const fn addr(&self) -> SocketAddr {
        self.addr
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.accepting.take() {
            // Only a closure can panic there, and the panic was written to standard error.
            let _ = thread.join();
        }
    }
}

/// Listens at `bind` (an IP address or a host name; empty means all addresses) and `port` (0 chooses a free
/// one) until `stop` is pulled. Errors: the error of the system, if the process cannot listen there.
pub(crate) fn start(bind: &str, port: u16, routes: Routes, stop: &Stop) -> io::Result<HttpServer> {
    let listener = listen(bind, port)?;
    let addr = listener.local_addr()?;
    let stop = stop.child();
    let waker = listener.try_clone()?;
    stop.on_stop(move || {
        // This ends the blocked `accept`. It fails if the listener is closed already.
        let _ = SockRef::from(&waker).shutdown(Shutdown::Both);
    });
    let acceptor =
        Acceptor { listener, routes: routes.shared(), stop: stop.clone(), connections: Vec::new() };
    let accepting = thread::spawn("serve", limits::SERVE_STACK_BYTES, move || acceptor.run())?;
    Ok(HttpServer { addr, stop, accepting: Some(accepting) })
}

/// Opens the socket. Errors: the address cannot be used, for example because another program has it.
pub(crate) fn listen(bind: &str, port: u16) -> io::Result<TcpListener> {
    if !bind.is_empty() {
        return TcpListener::bind((bind, port));
    }
    // On a system with IPv6, the unspecified IPv6 address accepts IPv4 connections, too.
    TcpListener::bind((Ipv6Addr::UNSPECIFIED, port))
        .or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)))
}

struct Acceptor {
    listener: TcpListener,
    routes: routes::SharedRoutes,
    stop: Stop,
    connections: Vec<Connection>,
}

struct Connection {
    socket: TcpStream,
    thread: JoinHandle<()>,
    /// The connection is idle: the client has not sent a whole request yet, or has its answer. The thread that clears
    /// this decides about the connection: its own thread answers, the acceptor closes it.
    idle: Arc<AtomicBool>,
}

impl Connection {
    /// Ends the connection and its thread.
    fn close(self) {
        // This ends a blocked read or write. It fails if the connection is closed already.
        let _ = self.socket.shutdown(Shutdown::Both);
        let _ = self.thread.join();
    }
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
        self.connections.into_iter().for_each(Connection::close);
    }

    fn admit(&mut self, socket: TcpStream) -> io::Result<()> {
        self.connections.retain(|connection| !connection.thread.is_finished());
        if self.connections.len() >= limits::SERVE_CONNECTIONS_MAX && !self.drop_idle() {
            // The answer fits into the empty send buffer, so this cannot block.
            (&socket).write_all(&ServerResponse::text(503, "too many connections\n").bytes(true))?;
            socket.shutdown(Shutdown::Write)?;
            request::drain_once(&socket);
            return Ok(());
        }
        let (routes, own) = (self.routes.clone(), socket.try_clone()?);
        let idle = Arc::new(AtomicBool::new(true));
        let waiting = Arc::clone(&idle);
        let answer = move || exchange(&own, &routes, &waiting);
        let thread = thread::spawn("serve-request", limits::SERVE_STACK_BYTES, answer)?;
        self.connections.push(Connection { socket, thread, idle });
        Ok(())
    }

    /// Closes the oldest idle connection. Returns whether there was one.
    fn drop_idle(&mut self) -> bool {
        let is_ours = |connection: &Connection| connection.idle.swap(false, Ordering::SeqCst);
        let Some(oldest) = self.connections.iter().position(is_ours) else { return false };
        self.connections.remove(oldest).close();
        true
    }
}

fn exchange(socket: &TcpStream, routes: &routes::SharedRoutes, idle: &AtomicBool) {
    let request = request::read(socket, EXCHANGE_TIMEOUT);
    if !idle.swap(false, Ordering::SeqCst) {
        return;
    }
    // A client that has closed the connection needs no answer.
    let _ = match request {
        Ok(request) => routes.respond(&request, |response| {
            request::write(socket, &response.bytes(!request.is_head()), EXCHANGE_TIMEOUT)
        }),
        Err(request::Error::Refused(status, reason)) => {
            let response = ServerResponse::text(status, format!("{reason}\n"));
            request::write(socket, &response.bytes(true), EXCHANGE_TIMEOUT)
        }
        Err(request::Error::Gone) => return,
    };
    let _ = socket.shutdown(Shutdown::Write);
    idle.store(true, Ordering::SeqCst);
    request::drain(socket);
}

#[cfg(test)]
mod tests;
