//! Reads answers: pages of lists object by object, and single answers.

use std::io::{self, Read as _};
use std::time::Duration;

use super::bounds::{Claims, HeldPermit};
use super::client::Options;
use super::error::Error;
use super::list::{Each, Trouble, read_page};
use super::request::{ApiRequest, ListMeta, ListParams, page_limit};
use super::send::{CONNECT_TIMEOUT, Deadline, Sender, Terms};
use super::value::StreamedObject;
use crate::api::meta::Resource;
use crate::base::metrics::Metrics;
use crate::limits;
use crate::net::{self, RequestLimits};

/// A metric: objects that were skipped because they are too long, by `peer`.
pub(crate) const SKIPPED: &str = "gardenlet_api_skipped_objects_total";
/// After this many lists with expired pages, the next list has no pages.
const RESTARTS_MAX: u32 = 2;

/// What is left for a list, and the time for a page.
pub(super) struct Room {
    /// Short objects count as longer ones: of each, a caller may keep something.
    bytes: usize,
    time: Deadline,
    page_time: Duration,
}

impl Room {
    pub(super) fn of_list(options: &Options, terms: Terms) -> Self {
        let page_time = terms.timeout.max(options.bounds.page_time_min);
        Self { page_time, ..Self::of_page(options, terms) }
    }

    /// For a single page, which takes no longer than another call.
    pub(super) fn of_page(options: &Options, terms: Terms) -> Self {
        let bounds = &options.bounds;
        let time = Deadline::new(bounds.list_time_max);
        Self { bytes: bounds.list_bytes_max, time, page_time: terms.timeout }
    }
}

impl Sender {
    /// All pages of a list. `None` means that the list begins again.
    pub(super) fn pages(
        &self,
        r: &Resource,
        namespace: &str,
        params: &ListParams,
        terms: Terms,
        each: &mut dyn FnMut(Option<StreamedObject>),
    ) -> Result<String, Error> {
        let mut page = ListParams { limit: page_limit(params), ..params.clone() };
        let mut restarts = 0;
        let mut room = Room::of_list(&self.options, terms);
        for _ in 0..limits::LIST_PAGES_MAX {
            let read =
                self.page(r, &ApiRequest::list(r, namespace, &page), terms, &mut room, &mut |object, _| {
                    each(Some(object));
                    Ok(())
                });
            match read {
                Ok(meta) if meta.continue_token.is_empty() => return Ok(meta.resource_version),
                Ok(meta) => page.continue_token = meta.continue_token,
                Err(error) if error.is_gone() && !page.continue_token.is_empty() => {
                    restarts += 1;
                    each(None);
                    page.continue_token.clear();
                    page.limit = if restarts > RESTARTS_MAX { 0 } else { page.limit };
                }
                Err(error) => return Err(error),
            }
        }
        let problem = format!("the list has no end after {} pages", limits::LIST_PAGES_MAX);
        Err(Error::Response { request: r.collection_path(namespace), problem })
    }

    /// One page of a list, with the room that is left for the list.
    pub(super) fn page(
        &self,
        r: &Resource,
        request: &ApiRequest,
        terms: Terms,
        room: &mut Room,
        each: Each<'_>,
    ) -> Result<ListMeta, Error> {
        let bounds = &self.options.bounds;
        let deadline = Deadline::new(room.page_time.min(room.time.left()));
        if deadline.total.is_zero() {
            let source = net::Error::Timeout("all pages of a list");
            return Err(Error::Transport { request: request.bare_path().to_owned(), source });
        }
        let session = self.admitted(&deadline)?;
        let _pass = self.pass(&session, request, terms)?;
        let sent = self.sent();
        let limits = RequestLimits {
            connect: CONNECT_TIMEOUT.min(deadline.left()),
            total: Some(deadline.left()),
            response: Some(terms.answer_wait()),
            read: Some(terms.timeout),
        };
        let mut response = self.counted(request, &sent, self.send(&session, request, &limits))?;
        if !(200..300).contains(&response.status) {
            return Err(self.refused(&session, request, &mut response));
        }
        let bytes_max = bounds.page_bytes_max.min(room.bytes);
        let mut counting = |object: StreamedObject, text: &[u8]| {
            let least = bounds.list_object_bytes_min.saturating_sub(text.len());
            let too_many = net::Error::TooLarge { what: "list", bytes_max: bounds.list_bytes_max };
            room.bytes = room.bytes.checked_sub(least).ok_or(too_many)?;
            if object.is_too_long() {
                count_skipped(&self.options.metrics, self.options.peer);
            }
            each(object, text)
        };
        let read = read_page(&mut response.body, bytes_max, r, &self.claims(terms), &mut counting);
        let (meta, bytes) = read.map_err(|trouble| match trouble {
            Trouble::Net(source) => self.broken(Error::Transport { request: session.name(request), source }),
            Trouble::Text(why) => {
                let problem = format!("the answer is not a list: {why}");
                Error::Response { request: session.name(request), problem }
            }
            Trouble::Busy => self.busy(&session.name(request)),
        })?;
        room.bytes = room.bytes.saturating_sub(bytes);
        Ok(meta)
    }
}

/// Reads an answer that is held in memory.
pub(super) fn read_answer(
    body: &mut net::Body,
    claims: &Claims,
) -> Result<(Vec<u8>, Option<HeldPermit>), Trouble> {
    let broken = |error| Trouble::Net(net::Error::from_io("read the response", error));
    let bytes_max = claims.bounds.object_bytes_max;
    let mut bytes = Vec::new();
    let mut part = |bytes: &mut Vec<u8>, len: usize| {
        let max = u64::try_from(len.saturating_sub(bytes.len())).unwrap_or(u64::MAX);
        body.by_ref().take(max).read_to_end(bytes).map_err(broken)
    };
    part(&mut bytes, limits::SHORT_TEXT_BYTES_MAX.min(bytes_max + 1))?;
    let mut held = None;
    if bytes.len() >= limits::SHORT_TEXT_BYTES_MAX {
        held = Some(claims.text()?);
        part(&mut bytes, bytes_max + 1)?;
    }
    if bytes.len() > bytes_max {
        return Err(Trouble::Net(net::Error::TooLarge { what: "response", bytes_max }));
    }
    Ok((bytes, held))
}

/// Reads an answer that nobody needs, so that the connection can be used again. A failure does not change the answer's status.
pub(super) fn pass_over(body: &mut net::Body) {
    let max = u64::try_from(limits::UNUSED_ANSWER_BYTES_MAX).unwrap_or(u64::MAX);
    let _ = io::copy(&mut body.take(max), &mut io::sink());
}

/// Counts an object that is too long.
pub(super) fn count_skipped(metrics: &Metrics, peer: &str) {
    let help = "Objects in lists and watches that were skipped because they are too long.";
    metrics.add(SKIPPED, help, &[("peer", peer)], 1.0);
}
