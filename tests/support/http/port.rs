//! Ports of servers that do not listen for a while.

use std::io;
use std::net::SocketAddr;

use socket2::{Domain, Socket, Type};

/// Keeps a port that was just given up: whoever connects is refused, and no other server of the tests is given it, which
/// would answer in this one's place.
pub fn keep(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    // Connections of the past may linger.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}
