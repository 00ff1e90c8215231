//! Walks over all objects of some kinds, page by page, with a limited number of writes per second.

use std::collections::VecDeque;
use std::time::Duration;

use serde::Deserialize;

use super::refused::Refused;
use crate::api::meta::{ALL_NAMESPACES, Key, ObjectMeta, Resource};
use crate::base::clock::Mono;
use crate::flow::Failed;
use crate::kube::{Client, Error, ErrorVerdict, ListParams};
use crate::limits;

const SECOND: Duration = Duration::from_secs(1);
/// A step ends after this time, or after this many writes, because others need the worker too.
const STEP_MAX: Duration = Duration::from_millis(300);
const STEP_WRITES_MAX: usize = 50;
/// How often an object is retried after a conflict.
const TRIES_MAX: u32 = 3;

/// The times of the last writes. There are never more than [`limits::REWRITES_PER_SECOND`] in a second.
#[derive(Debug, Default)]
pub(super) struct RewritePace(VecDeque<Mono>);

impl RewritePace {
    /// How long to wait for the next write; zero allows it now.
    fn wait(&self, now: Mono) -> Duration {
        match self.0.front() {
            Some(first) if self.0.len() >= limits::REWRITES_PER_SECOND => {
                first.saturating_add(SECOND).saturating_sub(now)
            }
            _ => Duration::ZERO,
        }
    }

    /// A write has ended. It counts from its end, which also works for a server whose speed changes.
    fn count(&mut self, now: Mono) {
        if self.0.len() >= limits::REWRITES_PER_SECOND {
            self.0.pop_front();
        }
        self.0.push_back(now);
    }
}

/// The listed part of an object.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) resource: Resource,
    pub(super) key: Key,
    /// `.secrets` of a ServiceAccount.
    pub(super) secrets: Vec<String>,
    /// It has label [`super::KEY_NAME`].
    pub(super) is_labelled: bool,
    tries: u32,
}

#[derive(Deserialize)]
struct ListedObject {
    metadata: ObjectMeta,
    #[serde(default)]
    secrets: Vec<AccountSecret>,
}

#[derive(Deserialize)]
struct AccountSecret {
    #[serde(default)]
    name: String,
}

/// The result of a step.
#[derive(Debug)]
pub(super) enum Walked {
    /// All objects are written.
    Done,
    /// There are more objects.
    Again { after: Duration, why: String },
    /// All others are written.
    Refused(Refused),
    /// The server does not answer, or does not accept our credentials any more.
    Away(Failed),
}

/// A walk. It keeps one page in memory.
#[derive(Debug)]
pub(super) struct Walk {
    kinds: VecDeque<Resource>,
    selector: String,
    /// Whether whole objects are needed.
    is_whole: bool,
    page: VecDeque<Item>,
    /// The continuation token of the page, once a page of the first kind was read.
    token: Option<String>,
    written: usize,
    refused: Refused,
}

impl Walk {
    /// Over objects that match a label selector.
    pub(super) fn new(kinds: Vec<Resource>, selector: &str, troubles: Vec<String>) -> Self {
        Self {
            kinds: kinds.into(),
            selector: selector.to_owned(),
            is_whole: false,
            page: VecDeque::new(),
            token: None,
            written: 0,
            refused: Refused::new(troubles),
        }
    }

    /// The same with whole objects instead of metadata.
    pub(super) fn whole(self) -> Self {
        Self { is_whole: true, ..self }
    }

    /// Continues for a moment. `write` returns whether there was anything to write.
    pub(super) fn go_on(
        &mut self,
        shoot: &Client,
        pace: &mut RewritePace,
        write: &mut dyn FnMut(&Item) -> Result<bool, Error>,
    ) -> Walked {
        let begun = shoot.clock().mono();
        let mut writes = 0;
        loop {
            let now = shoot.clock().mono();
            if writes >= STEP_WRITES_MAX || now.saturating_sub(begun) >= STEP_MAX {
                return self.again(Duration::ZERO);
            }
            let Some(item) = self.page.pop_front() else {
                match self.next_page(shoot) {
                    Ok(true) => continue,
                    Ok(false) if self.refused.is_empty() => return Walked::Done,
                    Ok(false) => return Walked::Refused(std::mem::take(&mut self.refused)),
                    Err(failed) => return Walked::Away(failed),
                }
            };
            let wait = pace.wait(now);
            if !wait.is_zero() {
                self.page.push_front(item);
                return self.again(wait);
            }
            let result = write(&item);
            if !matches!(result, Ok(false)) {
                pace.count(shoot.clock().mono());
                writes += 1;
            }
            match result {
                Ok(is_written) => {
                    self.written += usize::from(is_written);
                    self.refused.has_written();
                }
                Err(error) => {
                    if let Some(walked) = self.fail(item, error) {
                        return walked;
                    }
                }
            }
        }
    }

    fn again(&self, after: Duration) -> Walked {
        let kind = self.kinds.front().map_or("", |kind| kind.plural.as_ref());
        let why = format!(
            "objects of the Shoot that have been written: {}, at most {} a second; now those of kind {kind}",
            self.written,
            limits::REWRITES_PER_SECOND
        );
        Walked::Again { after, why }
    }

    /// The objects that could not be written so far.
    pub(super) const fn refused(&self) -> &Refused {
        &self.refused
    }

    /// The consequence of an error; `None` if the walk continues.
    fn fail(&mut self, item: Item, error: Error) -> Option<Walked> {
        // The server may wait for a webhook that does not answer. Skip the object: other objects may still be written,
        // and otherwise no walk would get past it.
        if error.is_late() {
            self.refused.object(&item.resource, &item.key, &error);
            return self.refused.is_hopeless().then(|| Walked::Refused(std::mem::take(&mut self.refused)));
        }
        if error.failure().is_none() || error.status_code() == Some(401) {
            self.page.push_front(item);
            return Some(Walked::Away(error.into()));
        }
        match error.verdict() {
            // The object or its kind is gone.
            ErrorVerdict::NotFound => None,
            ErrorVerdict::Conflict if item.tries < TRIES_MAX => {
                self.page.push_back(Item { tries: item.tries + 1, ..item });
                None
            }
            ErrorVerdict::Throttled(after) => {
                self.page.push_front(item);
                Some(self.again(after.unwrap_or(SECOND)))
            }
            _ => {
                self.refused.object(&item.resource, &item.key, &error);
                self.refused.is_hopeless().then(|| Walked::Refused(std::mem::take(&mut self.refused)))
            }
        }
    }

    /// Reads the next page; returns whether there was one.
    fn next_page(&mut self, shoot: &Client) -> Result<bool, Failed> {
        let Some(kind) = self.kinds.front() else { return Ok(false) };
        if self.token.as_deref() == Some("") {
            self.next_kind();
            return Ok(true);
        }
        let params = ListParams {
            label_selector: self.selector.clone(),
            limit: limits::REWRITE_PAGE_ITEMS,
            continue_token: self.token.clone().unwrap_or_default(),
            metadata_only: !self.is_whole,
            ..ListParams::default()
        };
        match shoot.list::<ListedObject>(kind, ALL_NAMESPACES, &params) {
            Ok(list) => {
                let kind = kind.clone();
                let item = |listed: ListedObject| Item {
                    resource: kind.clone(),
                    is_labelled: listed.metadata.labels.contains_key(super::KEY_NAME),
                    key: Key::new(listed.metadata.namespace, listed.metadata.name),
                    secrets: listed.secrets.into_iter().map(|reference| reference.name).collect(),
                    tries: 0,
                };
                self.page = list.items.into_iter().map(item).collect();
                self.token = Some(list.metadata.continue_token);
            }
            // Objects that were already written are skipped.
            Err(error) if error.is_gone() && self.token.is_some() => self.token = None,
            Err(error) if error.is_not_found() => self.next_kind(),
            Err(error) if is_away(&error) => return Err(error.into()),
            Err(error) => {
                self.refused.kind(kind, &error);
                self.next_kind();
            }
        }
        Ok(true)
    }

    fn next_kind(&mut self) {
        self.kinds.pop_front();
        self.token = None;
    }
}

/// Whether the failure of a list is one of the server, and not one of a single kind: an answer with a failure, an object that cannot
/// be read, a page that takes too much memory.
fn is_away(error: &Error) -> bool {
    let is_answer = error.failure().is_some() || error.verdict() == ErrorVerdict::Invalid;
    !is_answer || error.status_code() == Some(401)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_per_second_are_limited() {
        let at = |ms: u64| Duration::from_millis(ms);
        let mut pace = RewritePace::default();
        for n in 0..100 {
            assert!(pace.wait(at(n)).is_zero(), "{n}");
            pace.count(at(n));
        }
        assert_eq!(pace.wait(at(100)), at(900));
        assert_eq!(pace.wait(at(999)), at(1));
        assert!(pace.wait(at(1_000)).is_zero());
        // The writes of the first second expire one by one.
        pace.count(at(1_000));
        assert_eq!(pace.wait(at(1_000)), at(1));
        assert!(pace.wait(at(1_001)).is_zero());
    }
}
