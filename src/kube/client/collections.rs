//! Lists and watches.

use std::time::Duration;

use serde::de::DeserializeOwned;

use super::Client;
use crate::api::meta::Resource;
use crate::base::random;
use crate::kube::error::Error;
use crate::kube::request::{List, ListItem, ListParams, Request, WatchParams};
use crate::kube::value::Streamed;
use crate::kube::watch::{Events, Watch};

impl Client {
    /// Reads one page of a list. An empty namespace means all.
    ///
    /// # Errors
    /// Any [`Error`].
    pub fn list<T: DeserializeOwned>(
        &self,
        r: &Resource,
        namespace: &str,
        params: &ListParams,
    ) -> Result<List<T>, Error> {
        self.fetch(&Request::list(r, namespace, params))
    }

    /// Reads all pages of a list and passes on each object without holding a page; returns the resourceVersion at which
    /// a watch may begin. On [`ListItem::Restart`], the caller must discard all objects so far: the pages expired and
    /// the list begins again. An object with an unexpected shape does not break the list: it is passed on by its key.
    ///
    /// # Errors
    /// Any [`Error`].
    pub fn list_each<T: DeserializeOwned>(
        &self,
        r: &Resource,
        namespace: &str,
        params: &ListParams,
        each: &mut dyn FnMut(ListItem<T>),
    ) -> Result<String, Error> {
        self.list_streamed(r, namespace, params, &mut |object| match object {
            None => each(ListItem::Restart),
            Some(object) => each(object.decode().map_or_else(ListItem::Undecodable, ListItem::Object)),
        })
    }

    /// The same, for a caller that decodes the objects itself. `None` means that the list begins again.
    ///
    /// # Errors
    /// Any [`Error`].
    pub fn list_streamed(
        &self,
        r: &Resource,
        namespace: &str,
        params: &ListParams,
        each: &mut dyn FnMut(Option<Streamed>),
    ) -> Result<String, Error> {
        self.shared.pages(r, namespace, params, self.terms, each)
    }

    /// Reads all pages of a list, then passes on each object; returns the resourceVersion at which a watch may begin.
    /// For long lists use [`Client::list_each`], which holds no page.
    ///
    /// # Errors
    /// Any [`Error`]; then no object was passed on.
    pub fn list_all<T: DeserializeOwned>(
        &self,
        r: &Resource,
        namespace: &str,
        params: &ListParams,
        each: &mut dyn FnMut(T),
    ) -> Result<String, Error> {
        let (mut all, mut undecodable) = (Vec::new(), None);
        let version = self.list_each(r, namespace, params, &mut |item| match item {
            ListItem::Object(object) => all.push(object),
            ListItem::Undecodable(object) => undecodable = Some(object.why),
            ListItem::Restart => {
                all.clear();
                undecodable = None;
            }
        })?;
        if let Some(source) = undecodable {
            // A skipped object would look deleted.
            return Err(Error::Decode { what: r.path(namespace, "", ""), source });
        }
        all.into_iter().for_each(each);
        Ok(version)
    }

    /// Begins a watch on a connection of its own.
    ///
    /// # Errors
    /// Any [`Error`]; a version that is too old is [`Error::is_gone`], either here or as the first event.
    pub fn watch<T: DeserializeOwned>(
        &self,
        r: &Resource,
        namespace: &str,
        params: &WatchParams,
    ) -> Result<Watch<T>, Error> {
        self.watch_streamed(r, namespace, params).map(Watch::new)
    }

    /// The same, for a caller that decodes the objects itself.
    ///
    /// # Errors
    /// As [`Client::watch`].
    pub fn watch_streamed(
        &self,
        r: &Resource,
        namespace: &str,
        params: &WatchParams,
    ) -> Result<Events, Error> {
        let seconds = match params.timeout_seconds {
            // Random, so that the watches of many agents do not restart at the same time.
            0 => (300.0 + 300.0 * random::unit()).round(),
            seconds => f64::from(seconds),
        };
        let length = Duration::from_secs_f64(seconds);
        let whole_seconds = u32::try_from(length.as_secs()).unwrap_or(u32::MAX);
        let request = Request::watch(r, namespace, params, whole_seconds);
        let (line, name, body) = self.shared.open_watch(&request, length, self.terms.timeout)?;
        Ok(Events::new(line, name, body))
    }
}
