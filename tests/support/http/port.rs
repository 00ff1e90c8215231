//! Ports of servers that do not listen for a while.

use std::io;
use std::net::SocketAddr;

use socket2::{Domain, Socket, Type};

/// Keeps a port that was just closed. Connections are refused, and no other server of the tests gets the port and answers in
/// this one's place.
pub fn keep(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    // Connections of the past may linger.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}
