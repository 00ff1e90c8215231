//! One connection: request after request until it ends.

use std::io::{self, BufReader, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::faults::{Action, Seen};
use super::message::{Request, Response, stream_head, write_chunk};
use super::record::Recorded;
use super::route::{Reply, answer, authenticate, forbidden, impersonate};
use super::server::Shared;
use super::tls::Stream;
use super::watch;
use crate::api::User;
use crate::api::request::Info;
use crate::encoding::http_date;

/// What happens to the connection after an exchange.
#[derive(PartialEq, Eq)]
enum Next {
    KeepAlive,
    Close,
    Reset,
}

/// Serves a connection to its end.
pub fn serve(shared: &Arc<Shared>, tcp: TcpStream, number: u64) {
    let config = shared.tls();
    let Ok(stream) = Stream::accept(config, tcp, shared.traffic.clone()) else { return };
    let peer = stream.peer();
    let mut stream = BufReader::new(stream);
    while let Ok(Some(request)) = Request::read(&mut stream) {
        let exchange = Exchange { shared, number, request: &request };
        match exchange.run(stream.get_mut(), &peer) {
            Ok(Next::KeepAlive) if !Response::closes(&request) => {}
            Ok(Next::Reset) => {
                // The socket goes away with an RST instead of a FIN, once nothing else holds it.
                shared.forget(number);
                let _ = socket2::SockRef::from(stream.get_ref().tcp()).set_linger(Some(Duration::ZERO));
                return;
            }
            _ => break,
        }
    }
    stream.get_mut().close();
}

struct Exchange<'a> {
    shared: &'a Arc<Shared>,
    number: u64,
    request: &'a Request,
}

impl Exchange<'_> {
    fn run(
        &self,
        stream: &mut Stream,
        peer: &[rustls::pki_types::CertificateDer<'static>],
    ) -> io::Result<Next> {
        let request = self.request;
        let info = Info::parse(&request.method, &request.path, |name| request.parameter(name));
        let user = authenticate(self.shared, request, self.shared.peer(peer));
        let name = user.as_ref().map_or_else(|_| String::new(), |u| u.name.clone());
        let body = self.body();
        let sequence = self.record(&info, &name, body.clone());
        let seen = Seen {
            method: request.method.clone(),
            path: request.path.clone(),
            query: request.raw_query.clone(),
            user: name,
            user_agent: request.header("user-agent").unwrap_or_default().to_owned(),
            info: info.clone(),
            body,
            sequence,
        };
        let (actions, fault) = self.shared.faults.decide(&seen);
        self.shared.record.update(sequence, |r| r.fault = fault);
        let date = self.date(&actions);
        if let Some(next) = self.before(stream, &seen, &actions, &date)? {
            return Ok(next);
        }
        let reply = self.process(&info, user, &actions);
        match reply {
            Reply::Watch(watched) => {
                self.shared.record.update(sequence, |r| r.status = 200);
                let again = watch::serve(self.shared, stream, &watched, &actions, (&date, &seen))?;
                Ok(if again { Next::KeepAlive } else { Next::Close })
            }
            Reply::Whole(response) => self.after(stream, &seen, &actions, &date, response),
        }
    }

    /// The body of a write.
    fn body(&self) -> Option<Value> {
        let is_write = matches!(self.request.method.as_str(), "POST" | "PUT" | "PATCH" | "DELETE");
        serde_json::from_slice(&self.request.body).ok().filter(|_| is_write)
    }

    /// The number of the request.
    fn record(&self, info: &Info, user: &str, body: Option<Value>) -> u64 {
        let request = self.request;
        self.shared.record.push(Recorded {
            sequence: 0,
            at: self.shared.api.clock.now(),
            connection: self.number,
            method: request.method.clone(),
            path: request.path.clone(),
            query: request.raw_query.clone(),
            user: user.to_owned(),
            user_agent: request.header("user-agent").unwrap_or_default().to_owned(),
            host: request.header("host").unwrap_or_default().to_owned(),
            info: info.clone(),
            status: 0,
            body,
            media_type: request.media_type().to_owned(),
            events: 0,
            ended: false,
            fault: None,
        })
    }

    fn date(&self, actions: &[Action]) -> String {
        let wrong = actions.iter().find_map(|a| if let Action::WrongDate(s) = a { Some(*s) } else { None });
        http_date(self.shared.api.clock.now().offset(wrong.unwrap_or(0).saturating_mul(1_000_000_000)))
    }

    /// Faults instead of the request, or before it.
    fn before(
        &self,
        stream: &mut Stream,
        seen: &Seen,
        actions: &[Action],
        date: &str,
    ) -> io::Result<Option<Next>> {
        for action in actions {
            let response = match action {
                Action::Tell(listener) => {
                    listener(seen);
                    continue;
                }
                Action::Delay(time) => {
                    self.shared.pause(*time);
                    continue;
                }
                Action::Silence(time) => {
                    self.shared.pause(*time);
                    return Ok(Some(Next::Close));
                }
                Action::Drop => return Ok(Some(Next::Close)),
                Action::Reset => return Ok(Some(Next::Reset)),
                Action::Flood(bytes) => {
                    self.shared.record.update(seen.sequence, |r| (r.status, r.ended) = (200, true));
                    return flood(stream, date, *bytes).map(|()| Some(Next::KeepAlive));
                }
                Action::Html(status) => Response::text(
                    *status,
                    "text/html",
                    "<html><body>The proxy has no way through.</body></html>",
                ),
                Action::Refuse(failure) => match Reply::from(failure.clone()) {
                    Reply::Whole(response) => response,
                    Reply::Watch(_) => continue,
                },
                _ => continue,
            };
            return self.send(stream, seen.sequence, date, &response).map(|()| Some(Next::KeepAlive));
        }
        Ok(None)
    }

    fn process(
        &self,
        info: &Info,
        user: Result<User, crate::api::failure::Failure>,
        actions: &[Action],
    ) -> Reply {
        let user = match user.and_then(|user| impersonate(self.shared, self.request, user)) {
            Ok(user) => user,
            Err(failure) => return failure.into(),
        };
        if let Some(reply) = self.shared.webhook(self.request, &user) {
            return Reply::Whole(reply);
        }
        if let Err(reason) = self.shared.decide(&user, info) {
            return forbidden(&user, info, &reason).into();
        }
        let stale = actions.iter().find_map(|action| match action {
            Action::Stale(revision) => Some(*revision),
            Action::StaleBy(n) => Some(self.shared.api.store.read().revision.saturating_sub(*n)),
            _ => None,
        });
        answer(self.shared, self.request, info, &user, stale)
    }

    /// Faults of the answer.
    fn after(
        &self,
        stream: &mut Stream,
        seen: &Seen,
        actions: &[Action],
        date: &str,
        mut response: Response,
    ) -> io::Result<Next> {
        for action in actions {
            match action {
                Action::TellAfter(listener) => listener(seen),
                Action::DelayAnswer(time) => self.shared.pause(*time),
                Action::RefuseAfter(failure) => {
                    if let Reply::Whole(refusal) = Reply::from(failure.clone()) {
                        response = refusal;
                    }
                }
                Action::DropAfter => {
                    self.shared.record.update(seen.sequence, |r| r.ended = true);
                    return Ok(Next::Close);
                }
                Action::Half => {
                    let bytes = response.bytes(date, self.request);
                    stream.write_all(&bytes[..bytes.len() - response.body.len() / 2 - 1])?;
                    stream.flush()?;
                    return Ok(Next::Close);
                }
                Action::BrokenJson => {
                    let half = response.body.len() / 2;
                    response.body[half..].fill(b'}');
                }
                _ => {}
            }
        }
        self.send(stream, seen.sequence, date, &response)?;
        Ok(Next::KeepAlive)
    }

    fn send(&self, stream: &mut Stream, sequence: u64, date: &str, response: &Response) -> io::Result<()> {
        self.shared.record.update(sequence, |r| {
            r.status = response.status;
            r.ended = true;
        });
        stream.write_all(&response.bytes(date, self.request))?;
        stream.flush()
    }
}

/// A list with one object of this many bytes. It is never held in memory.
fn flood(stream: &mut Stream, date: &str, bytes: usize) -> io::Result<()> {
    static PIECE: [u8; 64 << 10] = [b'x'; 64 << 10];
    stream.write_all(&stream_head(date))?;
    write_chunk(stream, br#"{"items":[{"metadata":{"name":"flood"},"data":""#)?;
    let mut left = bytes;
    while left > 0 {
        let piece = left.min(PIECE.len());
        write_chunk(stream, &PIECE[..piece])?;
        left -= piece;
    }
    write_chunk(stream, br#""}],"metadata":{"resourceVersion":"1"}}"#)?;
    write_chunk(stream, b"")
}
