//! A name server on loopback whose answers a story changes, for agents that resolve names as any program does: with the
//! system's resolver, which finds the server in `/etc/resolv.conf`.

use std::net::{Ipv4Addr, UdpSocket};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gardenlet::base::thread;

use crate::cluster;
use crate::failure::{Doing as _, Result};
use crate::lab::Lab;

const STACK_BYTES: usize = 128 << 10;
/// The port where resolvers expect a name server.
const PORT: u16 = 53;
/// Types of records.
const A: [u8; 2] = [0, 1];
/// The header of a message, and the part of its question after the name.
const HEADER_BYTES: usize = 12;
const TAIL_BYTES: usize = 4;

/// The answer to all requests for an address.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// These addresses, in this order, with a time to live of zero.
    Addresses(Vec<Ipv4Addr>),
    /// The name does not exist.
    NoName,
    /// A failure of the server.
    Failure,
    /// No answer.
    Silence,
}

/// A running name server. It ends when dropped.
pub(crate) struct Names {
    answer: Arc<Mutex<Answer>>,
    socket: UdpSocket,
    /// A `resolv.conf` with its address.
    pub(crate) file: PathBuf,
}

fn lock(answer: &Mutex<Answer>) -> MutexGuard<'_, Answer> {
    answer.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Names {
    pub(crate) fn start(lab: &Lab, answer: Answer) -> Result<Self> {
        let file = lab.place.join("resolv.conf");
        cluster::write(&file, &format!("nameserver {}\n", Ipv4Addr::LOCALHOST))?;
        let socket =
            UdpSocket::bind((Ipv4Addr::LOCALHOST, PORT)).doing(|| format!("serve names on port {PORT}"))?;
        let answer = Arc::new(Mutex::new(answer));
        let (said, asked) = (Arc::clone(&answer), socket.try_clone()?);
        drop(thread::spawn("names", STACK_BYTES, move || {
            let mut buffer = [0; 512];
            while let Ok((length, from)) = asked.recv_from(&mut buffer) {
                // An empty datagram ends it.
                if length == 0 {
                    break;
                }
                if let Some(response) = respond(&buffer[..length], &lock(&said)) {
                    // The client may be gone.
                    let _ = asked.send_to(&response, from);
                }
            }
        })?);
        Ok(Self { answer, socket, file })
    }

    /// Sets the answer from now on.
    pub(crate) fn say(&self, answer: Answer) {
        *lock(&self.answer) = answer;
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        let _ = self.socket.send_to(&[], (Ipv4Addr::LOCALHOST, PORT));
    }
}

/// The response to a query with one question.
fn respond(query: &[u8], answer: &Answer) -> Option<Vec<u8>> {
    let labels = query.get(HEADER_BYTES..)?;
    let end = HEADER_BYTES + labels.iter().position(|byte| *byte == 0)? + 1;
    let question = query.get(HEADER_BYTES..end + TAIL_BYTES)?;
    let (code, addresses) = match answer {
        Answer::Silence => return None,
        Answer::Failure => (2, &[][..]),
        Answer::NoName => (3, &[][..]),
        Answer::Addresses(all) if query[end..end + 2] == A => (0, all.as_slice()),
        // It has no address of another type.
        Answer::Addresses(_) => (0, &[][..]),
    };
    let count = u8::try_from(addresses.len()).ok()?;
    // A response; if recursion was wanted, it is available.
    let mut response = vec![query[0], query[1], 0x80 | query[2] & 1, 0x80 | code, 0, 1, 0, count, 0, 0, 0, 0];
    response.extend(question);
    for address in addresses {
        // The name of the question, an address of the internet, valid for 0 s, 4 bytes long.
        response.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4]);
        response.extend(address.octets());
    }
    Some(response)
}
