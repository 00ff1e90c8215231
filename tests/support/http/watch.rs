//! The body of a watch.

use std::io::{self, Write};
use std::time::Duration;

use gardenlet::base::clock::Mono;
use serde_json::Value;

use super::faults::{Action, Seen, failure};
use super::message::{stream_head, write_chunk};
use super::server::Shared;
use super::tls::Stream;
use crate::api::Target;
use crate::api::read::{Query, bookmark, end_of_initial_events, event, event_of, watch_start};
use crate::api::store::settle;

/// A watch without `timeoutSeconds` ends after this time.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(1_800);
const BOOKMARK_PERIOD: Duration = Duration::from_secs(60);
/// How long a watch sleeps at most, in real time, before it looks for the end of the connection and of its time.
const LOOK: Duration = Duration::from_millis(40);

struct Sender<'a> {
    stream: &'a mut Stream,
    actions: &'a [Action],
    seen: &'a Seen,
    shared: &'a Shared,
    /// The time until which it sends nothing.
    blind_until: Option<Mono>,
    /// Events so far, counting those that were left out.
    count: u64,
    sent: u64,
}

/// The reason why a watch ends.
enum End {
    /// The body ends as it should.
    Proper,
    /// The connection breaks.
    Broken,
}

impl Sender<'_> {
    fn send(&mut self, value: &Value) -> Result<(), End> {
        let mut line = value.to_string().into_bytes();
        line.push(b'\n');
        let number = self.count;
        self.count += 1;
        if self.blind_until.is_some() {
            return Ok(());
        }
        for action in self.actions {
            match action {
                Action::SkipEvent(n) if *n == number => return Ok(()),
                Action::Blind(begins, time) if begins(self.seen) => {
                    self.blind_until = Some(self.shared.api.clock.mono() + *time);
                    return Ok(());
                }
                Action::Late(begins, time) if begins(self.seen) => self.shared.pause(*time),
                Action::EndAfterEvents(n) if *n <= number => return Err(End::Proper),
                Action::HalfEvent(n) if *n == number => {
                    line.truncate(line.len() / 2);
                    // The connection breaks in any case.
                    let _ = write_chunk(self.stream, &line);
                    return Err(End::Broken);
                }
                _ => {}
            }
        }
        self.sent += 1;
        write_chunk(self.stream, &line).map_err(|_| End::Broken)
    }
}

/// Serves a watch to its end. True if the connection can be used again.
pub fn serve(
    shared: &Shared,
    stream: &mut Stream,
    (target, query): &(Target, Query),
    actions: &[Action],
    (date, seen): (&str, &Seen),
) -> io::Result<bool> {
    let sequence = seen.sequence;
    stream.write_all(&stream_head(date))?;
    stream.flush()?;
    let mut sender = Sender { stream, actions, seen, shared, blind_until: None, count: 0, sent: 0 };
    let end = follow(shared, &mut sender, target, query, sequence);
    let sent = sender.sent;
    shared.record.update(sequence, |r| {
        r.events = sent;
        r.ended = true;
    });
    match end {
        End::Proper => {
            write_chunk(stream, b"")?;
            Ok(true)
        }
        End::Broken => Ok(false),
    }
}

fn follow(shared: &Shared, sender: &mut Sender<'_>, target: &Target, query: &Query, sequence: u64) -> End {
    for action in sender.actions {
        if let Action::WatchError(failure) = action {
            return sender.send(&event("ERROR", &failure.status())).err().unwrap_or(End::Proper);
        }
    }
    let start = watch_start(&shared.api.store.read(), target, query);
    let (mut revision, first) = match start {
        Ok(start) => start,
        Err(failure) => return sender.send(&event("ERROR", &failure.status())).err().unwrap_or(End::Proper),
    };
    for value in &first {
        if let Err(end) = sender.send(value) {
            return end;
        }
    }
    if query.initial_events == Some(true) && query.bookmarks {
        // Faults do not count bookmarks.
        let line = format!("{}\n", end_of_initial_events(target, query, revision));
        if write_chunk(sender.stream, line.as_bytes()).is_err() {
            return End::Broken;
        }
    }
    let clock = &shared.api.clock;
    let deadline = clock.mono() + query.timeout_s.map_or(DEFAULT_TIMEOUT, Duration::from_secs);
    let mut next_bookmark = clock.mono() + BOOKMARK_PERIOD;
    loop {
        match pending(shared, target, query, &mut revision) {
            Ok(events) => {
                for value in &events {
                    if let Err(end) = sender.send(value) {
                        return end;
                    }
                }
                if !events.is_empty() {
                    let sent = sender.sent;
                    shared.record.update(sequence, |r| r.events = sent);
                }
            }
            Err(value) => return sender.send(&value).err().unwrap_or(End::Proper),
        }
        let now = clock.mono();
        let over = now >= deadline;
        match sender.blind_until {
            Some(until) if now < until && !shared.is_stopping() && !sender.stream.is_closed() => {
                shared.api.store.wait_after(revision, LOOK);
                continue;
            }
            Some(_) => {
                sender.blind_until = None;
                let gone = event("ERROR", &failure(410, None).status());
                return sender.send(&gone).err().unwrap_or(End::Proper);
            }
            None => {}
        }
        if query.bookmarks && (now >= next_bookmark || over) {
            next_bookmark = now + BOOKMARK_PERIOD;
            // Faults do not count bookmarks.
            let line = format!("{}\n", bookmark(target, query, revision));
            if write_chunk(sender.stream, line.as_bytes()).is_err() {
                return End::Broken;
            }
        }
        if over {
            return End::Proper;
        }
        if shared.is_stopping() || sender.stream.is_closed() {
            return End::Broken;
        }
        if shared.api.store.wait_after(revision, LOOK.min(deadline - now)) > revision {
            settle();
        }
    }
}

/// The events after a revision, which is then advanced; the ERROR event if they are compacted.
fn pending(shared: &Shared, target: &Target, query: &Query, revision: &mut u64) -> Result<Vec<Value>, Value> {
    let state = shared.api.store.read();
    if *revision < state.compacted {
        let message = format!("too old resource version: {revision} ({})", state.compacted);
        let failure = crate::api::failure::Failure::expired(message);
        return Err(event("ERROR", &failure.status()));
    }
    let events =
        state.since(*revision).filter_map(|c| event_of(target, query, c)).map(|(kind, o)| event(kind, &o));
    let events = events.collect();
    *revision = (*revision).max(state.revision);
    Ok(events)
}
