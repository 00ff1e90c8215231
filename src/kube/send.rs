//! Sends requests: rate limit, deadline, credentials, metrics, and failure responses. No generics.

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use super::bounds::{Busy, Claims, HeldPermit};
use super::client::{Options, Response};
use super::connection::Connection;
use super::error::Error;
use super::gate::{GateRefusal, Pass};
use super::limiter::Limiter;
use super::list::Trouble;
use super::pages::{pass_over, read_answer};
use super::request::{ApiRequest, Method};
use super::session::Session;
use super::status;
use super::watch::{LongEvents, WatchConnection};
use crate::base::clock::{Clock, Mono};
use crate::base::cut::cut;
use crate::base::error::chain;
use crate::base::lock::IgnorePoison;
use crate::limits;
use crate::net::{self, RequestLimits, Traffic};

/// A metric: whether the last request was answered, by `peer`.
pub(crate) const REACHABLE: &str = "gardenlet_api_reachable";
/// A metric: how long the server takes to answer, by `peer`.
pub(crate) const RESPONSE_SECONDS: &str = "gardenlet_api_response_seconds";
/// The most that is kept of the reason why a server does not answer.
const REASON_BYTES_MAX: usize = 400;
/// How much one request changes that.
const SMOOTHING: f64 = 0.2;
/// A metric: when a server last answered, by `peer`.
pub(crate) const ANSWERED: &str = "gardenlet_api_last_response_timestamp_seconds";

/// Name resolution, TCP, proxy and TLS together.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of the response to a watch request.
const WATCH_RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
/// How late the server may end a watch.
const WATCH_END_SLACK: Duration = Duration::from_secs(30);
/// The deadline of a call; sockets wait in real time.
pub(super) struct Deadline {
    clock: Clock,
    pub(super) total: Duration,
}

impl Deadline {
    pub(super) fn new(total: Duration) -> Self {
        Self { clock: Clock::system(), total }
    }

    pub(super) fn left(&self) -> Duration {
        self.total.saturating_sub(self.clock.mono())
    }
}

/// The settings of one clone of a client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    /// Total time of a call.
    pub(super) timeout: Duration,
    /// Whether its calls pass the gate.
    pub(super) is_gated: bool,
}

impl Terms {
    /// How long a call waits for the start of the first page of a list.
    pub(super) fn answer_wait(self) -> Duration {
        if self.is_gated { self.timeout.min(limits::ANSWER_WAIT_MAX) } else { self.timeout }
    }
}

/// When a request was sent, by the program's clock and by the clock of sockets.
#[derive(Clone)]
pub(super) struct Sent {
    at: Mono,
    sockets: Clock,
}

/// The shared state of all clones of a client.
pub(super) struct Sender {
    pub(super) options: Options,
    limiter: Limiter,
    session: RwLock<Arc<Session>>,
    traffic: Traffic,
    /// See [`super::Client::begin_anew`].
    pub(super) past: AtomicUsize,
}

impl Sender {
    pub(super) fn new(connection: Connection, options: Options) -> Result<Self, Error> {
        let traffic = Traffic::default();
        let session = RwLock::new(Arc::new(Session::new(connection, &options, &traffic)?));
        let limiter = Limiter::new(options.qps, options.burst, &options.clock);
        Ok(Self { options, limiter, session, traffic, past: AtomicUsize::new(0) })
    }

    pub(super) fn session(&self) -> Arc<Session> {
        Arc::clone(&self.session.read().ignore_poison())
    }

    /// Switches to another connection; running calls finish, watches end.
    pub(super) fn replace(&self, connection: Connection) -> Result<(), Error> {
        let new = Arc::new(Session::new(connection, &self.options, &self.traffic)?);
        let old = std::mem::replace(&mut *self.session.write().ignore_poison(), Arc::clone(&new));
        old.end_watches();
        if let Some(gate) = &self.options.gate {
            gate.forget();
        }
        if self.options.stop.is_stopped() {
            new.shutdown();
        }
        Ok(())
    }

    /// Ends running requests and continues with new connections to the same server.
    pub(super) fn cut_off(&self) {
        let old = self.session();
        // The connection was valid before.
        if self.replace((*old.connection).clone()).is_ok() {
            old.shutdown();
        }
    }

    /// Sends a request; a failure status is an error.
    pub(super) fn call(&self, request: &ApiRequest, terms: Terms) -> Result<Response, Error> {
        let (response, retry_after) = self.exchange(request, terms)?;
        if response.is_success() {
            return Ok(response);
        }
        Err(self.failure(&self.session(), request, response.status, retry_after.as_deref(), &response.body))
    }

    /// Sends a request and reads the response of any status, with its `Retry-After`.
    pub(super) fn exchange(
        &self,
        request: &ApiRequest,
        terms: Terms,
    ) -> Result<(Response, Option<String>), Error> {
        self.exchange_reading(request, terms, true)
    }

    /// The same for a request whose answer matters only if it is a failure.
    pub(super) fn call_blindly(&self, request: &ApiRequest, terms: Terms) -> Result<(), Error> {
        let (response, retry_after) = self.exchange_reading(request, terms, false)?;
        if response.is_success() {
            return Ok(());
        }
        Err(self.failure(&self.session(), request, response.status, retry_after.as_deref(), &response.body))
    }

    fn exchange_reading(
        &self,
        request: &ApiRequest,
        terms: Terms,
        needs_answer: bool,
    ) -> Result<(Response, Option<String>), Error> {
        let is_read = request.method == Method::Get;
        let timeout = if is_read { terms.timeout } else { terms.timeout.min(self.options.write_timeout) };
        let deadline = Deadline::new(timeout);
        let session = self.admitted(&deadline)?;
        let _pass = self.pass(&session, request, terms)?;
        if let Some(permit) = self.options.permit.as_ref().filter(|_| !is_read) {
            permit.may_write().map_err(Error::Fenced)?;
        }
        let sent = self.sent();
        let limits = RequestLimits {
            connect: CONNECT_TIMEOUT.min(deadline.left()),
            total: Some(deadline.left()),
            response: (is_read && terms.is_gated).then_some(limits::ANSWER_WAIT_MAX),
            read: None,
        };
        let mut response = self.counted(request, &sent, self.send(&session, request, &limits))?;
        self.learn_time(&session, response.header("date"), sent.at);
        let is_success = (200..300).contains(&response.status);
        let read = if is_success && !needs_answer {
            pass_over(&mut response.body);
            Ok((Vec::new(), None))
        } else {
            match read_answer(&mut response.body, &self.claims(terms)) {
                // A long text about a failure does not change the failure.
                Err(Trouble::Net(net::Error::TooLarge { .. })) if !is_success => Ok((Vec::new(), None)),
                read => read,
            }
        };
        let (body, held) = read.map_err(|trouble| match trouble {
            Trouble::Net(source) => self.broken(Error::Transport { request: session.name(request), source }),
            Trouble::Text(_) | Trouble::Busy => self.busy(&session.name(request)),
        })?;
        let retry_after = response.header("retry-after").map(str::to_owned);
        Ok((Response { status: response.status, body, _held: held.map(Arc::new) }, retry_after))
    }

    pub(super) fn claims(&self, terms: Terms) -> Claims {
        Claims {
            bounds: self.options.bounds.clone(),
            wait_max: terms.timeout.min(limits::LONG_ANSWER_WAIT_MAX),
            stop: self.options.stop.clone(),
        }
    }

    /// The permit that decoding an answer needs.
    pub(super) fn values_permit(
        &self,
        request: &ApiRequest,
        body: &[u8],
        terms: Terms,
    ) -> Result<Option<HeldPermit>, Error> {
        self.claims(terms).values(body).map_err(|Busy| self.busy(&self.session().name(request)))
    }

    pub(super) fn busy(&self, request: &str) -> Error {
        self.broken(Error::Response { request: request.to_owned(), problem: Busy::PROBLEM.to_owned() })
    }

    pub(super) fn open_watch(
        &self,
        request: &ApiRequest,
        length: Duration,
        terms: Terms,
    ) -> Result<(Arc<WatchConnection>, String, net::Body, LongEvents), Error> {
        let session = self.admitted(&Deadline::new(terms.timeout))?;
        let line = WatchConnection::new(session.http().sibling());
        session.track(&line);
        let limits = RequestLimits {
            connect: CONNECT_TIMEOUT,
            total: Some(length + 2 * WATCH_END_SLACK),
            response: Some(WATCH_RESPONSE_TIMEOUT),
            read: Some(length + WATCH_END_SLACK),
        };
        let sent = self.sent();
        let mut response = self.counted(request, &sent, session.send(Some(&line), request, &limits))?;
        if response.status != 200 {
            return Err(self.refused(&session, request, &mut response));
        }
        // The session may have been replaced since `track`: then the line is shut, and the first read reports it.
        let (metrics, peer) = (self.options.metrics.clone(), self.options.peer);
        let long = LongEvents { claims: self.claims(terms), metrics, peer };
        Ok((line, session.name(request), response.body, long))
    }

    /// Waits for the rate limit, then returns the current session.
    pub(super) fn admitted(&self, deadline: &Deadline) -> Result<Arc<Session>, Error> {
        let options = &self.options;
        if options.stop.is_stopped() {
            return Err(Error::Stopped);
        }
        self.limiter.acquire(&options.clock, &options.stop, deadline.total)?;
        Ok(self.session())
    }

    /// Passes the gate, if the caller has one.
    pub(super) fn pass(
        &self,
        session: &Session,
        request: &ApiRequest,
        terms: Terms,
    ) -> Result<Option<Pass>, Error> {
        let Some(gate) = self.options.gate.as_ref().filter(|_| terms.is_gated) else { return Ok(None) };
        let refused = |refusal: GateRefusal| {
            let GateRefusal { why, after } = refusal;
            Error::Unsent { request: session.name(request), why, after }
        };
        gate.enter(self.options.clock.mono()).map(Some).map_err(refused)
    }

    /// Sends over the pool.
    pub(super) fn send(
        &self,
        session: &Arc<Session>,
        request: &ApiRequest,
        limits: &RequestLimits,
    ) -> Result<net::HttpResponse, Error> {
        if let Some(warm) = &self.options.warm {
            warm.uses(session);
        }
        session.send(None, request, limits)
    }

    pub(super) fn sent(&self) -> Sent {
        Sent { at: self.options.clock.mono(), sockets: Clock::system() }
    }

    /// Reports the result of a request to the gate.
    fn tell_gate(&self, sent: &Sent, result: &Result<net::HttpResponse, Error>) {
        let Some(gate) = &self.options.gate else { return };
        let now = self.options.clock.mono();
        match result {
            Ok(_) => gate.answered(now),
            Err(_) if self.options.stop.is_stopped() => {}
            Err(Error::Transport { source: source @ net::Error::Timeout(_), .. }) => {
                if sent.sockets.mono() >= limits::SILENCE_MIN {
                    gate.unreachable(sent.at, now, &chain(source));
                }
            }
            Err(error @ Error::Transport { source, .. }) if error.is_cut_off() => {
                gate.unreachable(sent.at, now, &chain(source));
            }
            Err(_) => {}
        }
    }

    /// Learns the time from the response, if the server is the garden and its certificate was verified.
    fn learn_time(&self, session: &Session, date: Option<&str>, sent: Mono) {
        let options = &self.options;
        let Some(time) = options.time.as_ref().filter(|_| options.tells_time && session.is_verified()) else {
            return;
        };
        if let Some(date) = date.and_then(status::parse_http_date) {
            time.learn(date, sent, options.clock.mono());
        }
    }

    /// Counts a response or a missing one, as client-go does.
    pub(super) fn counted(
        &self,
        request: &ApiRequest,
        sent: &Sent,
        result: Result<net::HttpResponse, Error>,
    ) -> Result<net::HttpResponse, Error> {
        self.tell_gate(sent, &result);
        if let (Ok(response), Some(unauthorized)) = (&result, &self.options.unauthorized)
            && response.status == 401
        {
            unauthorized.wake();
        }
        let method = request.method.as_str();
        let code =
            result.as_ref().map_or_else(|_| "<error>".to_owned(), |response| response.status.to_string());
        log::trace!(method, path = request.bare_path(), code = code.as_str(); "Request sent");
        let (peer, metrics) = (self.options.peer, &self.options.metrics);
        let labels = [("code", code.as_str()), ("method", method), ("host", peer)];
        let help = "Requests to API servers by status code, method and server (garden or seed).";
        metrics.add("rest_client_requests_total", help, &labels, 1.0);
        let help = "Whether the last request to the API server was answered.";
        metrics.set(REACHABLE, help, &[("peer", peer)], f64::from(u8::from(result.is_ok())));
        if result.is_ok() {
            let help = "When the API server last answered, in seconds since 1970.";
            // The status page judges by the same time.
            let time = self.options.time.as_ref();
            let now = time.map_or_else(|| self.options.clock.now(), |time| time.garden_clock().now());
            metrics.set(ANSWERED, help, &[("peer", peer)], now.seconds());
            self.measure(request, sent);
        }
        self.count_bytes();
        result.map_err(|error| {
            let error = self.broken(error);
            metrics.explain(REACHABLE, &[("peer", peer)], cut(chain(&error), REASON_BYTES_MAX));
            error
        })
    }

    /// Records how long the server took. A watch has no such time.
    fn measure(&self, request: &ApiRequest, sent: &Sent) {
        if request.path.contains("watch=true") {
            return;
        }
        let (metrics, labels) = (&self.options.metrics, [("peer", self.options.peer)]);
        let took = self.options.clock.mono().saturating_sub(sent.at).as_secs_f64();
        let before = metrics.value(RESPONSE_SECONDS, &labels);
        let help = "How long the API server takes to answer a request, smoothed, without watches.";
        let smoothed = before.map_or(took, |before| before + SMOOTHING * (took - before));
        metrics.set(RESPONSE_SECONDS, help, &labels, smoothed);
    }

    /// Adds the bytes since the last request, including those of watches.
    fn count_bytes(&self) {
        let metrics = &self.options.metrics;
        let (received, sent) = self.traffic.count(metrics, self.options.peer);
        let Some(daily) = &self.options.daily else { return };
        let (received, sent) = daily.add(received, sent, self.options.clock.mono());
        for (direction, bytes) in [("received", received), ("sent", sent)] {
            let help = "Bytes exchanged with the garden within the last 24 hours, TLS included.";
            #[expect(clippy::cast_precision_loss, reason = "a gauge needs no more precision")]
            metrics.set("gardenlet_garden_bytes_per_day", help, &[("direction", direction)], bytes as f64);
        }
    }

    /// Maps a broken connection to a stop while the program is stopping.
    pub(super) fn broken(&self, error: Error) -> Error {
        if self.options.stop.is_stopped() { Error::Stopped } else { error }
    }

    /// The failure of a response whose body has not been read yet.
    pub(super) fn refused(
        &self,
        session: &Session,
        request: &ApiRequest,
        response: &mut net::HttpResponse,
    ) -> Error {
        let retry_after = response.header("retry-after").map(str::to_owned);
        // A truncated body does not change the status.
        let body = response.body.read_all(limits::CONFIG_FILE_BYTES_MAX).unwrap_or_default();
        self.failure(session, request, response.status, retry_after.as_deref(), &body)
    }

    fn failure(
        &self,
        session: &Session,
        request: &ApiRequest,
        code: u16,
        retry_after: Option<&str>,
        body: &[u8],
    ) -> Error {
        let now = self.options.clock.now();
        Error::Api(Box::new(status::failure(&session.name(request), code, retry_after, body, now)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_wait_less_for_a_list_to_begin_than_others() {
        let s = Duration::from_secs;
        for (timeout, is_gated, expected) in [(30, true, 10), (30, false, 30), (5, true, 5), (5, false, 5)] {
            let terms = Terms { timeout: s(timeout), is_gated };
            assert_eq!(terms.answer_wait(), s(expected), "{timeout} {is_gated}");
        }
    }
}
