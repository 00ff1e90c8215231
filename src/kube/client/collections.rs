//! Lists and watches.

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Client;
use crate::api::meta::Resource;
use crate::base::cut::cut;
use crate::base::random;
use crate::kube::bounds::Marks;
use crate::kube::error::Error;
use crate::kube::pages::Room;
use crate::kube::request::{ApiRequest, List, ListItem, ListParams, UndecodableObject, WatchParams};
use crate::kube::value::StreamedObject;
use crate::kube::watch::{Events, Watch};
use crate::{limits, net};

impl Client {
    /// Reads one page of a list. An empty namespace means all. If the objects of a Shoot together take too
    /// much memory, the page has fewer of them than requested. Errors: any [`Error`]; also if an object
    /// cannot be read, because a skipped one would look deleted.
    pub fn list<T: DeserializeOwned>(
        &self,
        r: &Resource,
        namespace: &str,
        params: &ListParams,
    ) -> Result<List<T>, Error> {
        let mut page = params.clone();
        let mut room = Room::of_page(&self.shared.options, self.terms);
        loop {
            match self.kept_page(r, namespace, &page, &mut room) {
                Err(error) if error.is_too_large() && page.limit != 1 => {
                    page.limit = if page.limit == 0 { limits::SHOOT_PAGE_ITEMS } else { page.limit / 2 };
                }
                other => return other,
            }
        }
    }

    fn kept_page<T: DeserializeOwned>(
        &self,
        r: &Resource,
        namespace: &str,
        params: &ListParams,
        room: &mut Room,
    ) -> Result<List<T>, Error> {
        let (mut items, mut undecodable) = (Vec::new(), None);
        let (mut bytes, mut nodes) = self.shared.options.bounds.kept_max;
        let request = ApiRequest::list(r, namespace, params);
        let metadata = self.shared.page(r, &request, self.terms, room, &mut |object, text| {
            let left = bytes.checked_sub(text.len()).zip(nodes.checked_sub(Marks::of(text).values_max()));
            (bytes, nodes) = left.ok_or(net::Error::TooLarge {
                what: "page of objects that are held in memory",
                bytes_max: self.shared.options.bounds.kept_max.0,
            })?;
            match object.decode() {
                Ok(object) => items.push(object),
                Err(object) => undecodable = Some(UndecodableObject { head: Value::Null, ..object }),
            }
            Ok(())
        })?;
        match undecodable {
            None => Ok(List { metadata, items }),
            Some(object) => Err(undecoded(r, namespace, object)),
        }
    }

    /// Reads all pages of a list and passes on each object without holding a page; returns the resourceVersion at which
    /// a watch may begin. On [`ListItem::Restart`], the caller must discard all objects so far: the pages expired and
    /// the list begins again. An object with an unexpected shape, or one that is too long, does not break the list: it is
    /// passed on by its key. `each` must not send requests, because it may hold memory that they need.
    pub fn list_each<T: DeserializeOwned>(
        &self,
        r: &Resource,
        namespace: &str,
        params: &ListParams,
        each: &mut dyn FnMut(ListItem<T>),
    ) -> Result<String, Error> {
        self.list_streamed(r, namespace, params, &mut |object| match object {
            None => each(ListItem::Restart),
            Some(mut object) => {
                let _held = object.take_permit();
                each(object.decode().map_or_else(headless, ListItem::Object));
            }
        })
    }

    /// The same, for a caller that decodes the objects itself. `None` means that the list begins again.
    pub(crate) fn list_streamed(
        &self,
        r: &Resource,
        namespace: &str,
        params: &ListParams,
        each: &mut dyn FnMut(Option<StreamedObject>),
    ) -> Result<String, Error> {
        self.shared.pages(r, namespace, params, self.terms, each)
    }

    /// Reads all pages of a list without holding a page, and returns what `keep` makes of the objects: at most `max` results, further
    /// ones are ignored. Errors: any [`Error`]; also if an object cannot be read, because a skipped one would look deleted. `keep` must not
    /// send requests, because it may hold memory that they need.
    pub(crate) fn list_kept<T: DeserializeOwned, K>(
        &self,
        r: &Resource,
        namespace: &str,
        params: &ListParams,
        max: usize,
        keep: &mut dyn FnMut(T) -> Option<K>,
    ) -> Result<Vec<K>, Error> {
        self.kept(r, namespace, params, max, keep).map(|(_, kept)| kept)
    }

    /// The same, with the resourceVersion of the list.
    fn kept<T: DeserializeOwned, K>(
        &self,
        r: &Resource,
        namespace: &str,
        params: &ListParams,
        max: usize,
        keep: &mut dyn FnMut(T) -> Option<K>,
    ) -> Result<(String, Vec<K>), Error> {
        let (mut all, mut undecodable) = (Vec::new(), None);
        let version = self.list_each(r, namespace, params, &mut |item| match item {
            ListItem::Object(object) if all.len() < max => all.extend(keep(object)),
            ListItem::Object(_) => {}
            ListItem::Undecodable(object) => undecodable = Some(object),
            ListItem::Restart => {
                all.clear();
                undecodable = None;
            }
        })?;
        match undecodable {
            None => Ok((version, all)),
            Some(object) => Err(undecoded(r, namespace, object)),
        }
    }

    /// Reads all pages of a list, then passes on each object; returns the resourceVersion at which a watch
    /// may begin. For long lists use [`Client::list_each`], which holds no page. Errors: any [`Error`]; then
    /// no object was passed on.
    pub fn list_all<T: DeserializeOwned>(
        &self,
        r: &Resource,
        namespace: &str,
        params: &ListParams,
        each: &mut dyn FnMut(T),
    ) -> Result<String, Error> {
        let (version, all) = self.kept(r, namespace, params, usize::MAX, &mut Some)?;
        all.into_iter().for_each(each);
        Ok(version)
    }

    /// Begins a watch on a connection of its own. Errors: any [`Error`]; a version that is too old is
    /// [`Error::is_gone`], either here or as the first event.
    pub fn watch<T: DeserializeOwned>(
        &self,
        r: &Resource,
        namespace: &str,
        params: &WatchParams,
    ) -> Result<Watch<T>, Error> {
        self.watch_streamed(r, namespace, params).map(Watch::new)
    }

    /// The same, for a caller that decodes the objects itself. Errors: as [`Client::watch`].
    pub(crate) fn watch_streamed(
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
        let request = ApiRequest::watch(r, namespace, params, whole_seconds);
        let (line, name, body, long) = self.shared.open_watch(&request, length, self.terms)?;
        Ok(Events::new(line, name, body, long))
    }
}

/// An object that cannot be decoded, without the values that were read before the limit: the caller may keep it.
fn headless<T>(object: UndecodableObject) -> ListItem<T> {
    ListItem::Undecodable(UndecodableObject { head: Value::Null, ..object })
}

/// An object of a list cannot be read.
fn undecoded(r: &Resource, namespace: &str, object: UndecodableObject) -> Error {
    let key = cut(object.key.to_string(), limits::SHOOT_NAME_BYTES_MAX);
    Error::Decode { what: format!("{key} of {}", r.collection_path(namespace)), source: object.why }
}
