//! The answers of S3 to requests for lists. Pure.
//!
//! An answer counts only if it is what S3 sends: whole, about what was asked, and with as many entries as it says. A proxy or a
//! broken store may answer anything, and an empty list would let an etcd start empty.

use super::xml::{self, Element};
use crate::base::clock::Timestamp;
use crate::format::time;

/// A request for a page of a list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListRequest<'a> {
    pub(crate) bucket: &'a str,
    /// The beginning of all keys.
    pub(crate) prefix: &'a str,
    /// Where the page begins; empty for the first one.
    pub(crate) from: &'a str,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Page<T> {
    pub(crate) entries: Vec<T>,
    /// The parameters of the request for the next page; empty at the end.
    pub(crate) next: Vec<(&'static str, String)>,
}

/// An upload that was not finished.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Unfinished {
    /// The key of its object.
    pub(crate) key: String,
    pub(crate) id: String,
    pub(crate) begun: Timestamp,
}

/// The keys below the prefix, without it, with the sizes of the objects. Errors: what is
/// wrong with the answer.
pub(crate) fn objects(text: &str, asked: ListRequest<'_>) -> Result<Page<(String, u64)>, &'static str> {
    let list = root(text, "ListBucketResult")?;
    if list.only("Name") != Some(asked.bucket) {
        return Err("it is not about this bucket");
    }
    if list.only("Prefix") != Some(asked.prefix) {
        return Err("it is about another prefix");
    }
    if list.all("ContinuationToken").next().is_some() && list.only("ContinuationToken") != Some(asked.from) {
        return Err("it is another page");
    }
    let entry = |entry: &Element| {
        let key = entry.only("Key")?.strip_prefix(asked.prefix)?.to_owned();
        Some((key, number(entry.only("Size")?)?))
    };
    let entries: Option<Vec<_>> = list.all("Contents").map(entry).collect();
    let entries = entries.ok_or("an entry has no key below the prefix, or no size")?;
    let count = list.only("KeyCount").and_then(number);
    if count != u64::try_from(entries.len()).ok() {
        return Err("it has not as many entries as it says");
    }
    let token = |list: &Element| {
        let token = list.only("NextContinuationToken").filter(|token| !token.is_empty())?;
        (token != asked.from).then(|| vec![("continuation-token", token.to_owned())])
    };
    Ok(Page { entries, next: next(&list, token)? })
}

/// The uploads below the prefix. Errors: what is wrong with the answer.
pub(crate) fn uploads(text: &str, asked: ListRequest<'_>) -> Result<Page<Unfinished>, &'static str> {
    let list = root(text, "ListMultipartUploadsResult")?;
    if list.only("Bucket") != Some(asked.bucket) {
        return Err("it is not about this bucket");
    }
    let entry = |entry: &Element| {
        let key = entry.only("Key")?.to_owned();
        let id = entry.only("UploadId").filter(|id| !id.is_empty())?.to_owned();
        let begun = time::parse_rfc3339(entry.only("Initiated")?).ok()?;
        Some(Unfinished { key, id, begun })
    };
    let entries: Option<Vec<_>> = list.all("Upload").map(entry).collect();
    let mut entries = entries.ok_or("an upload has no key, no id, or no time")?;
    // Some stores ignore the prefix.
    entries.retain(|upload| upload.key.starts_with(asked.prefix));
    let markers = |list: &Element| {
        let (key, id) = (list.only("NextKeyMarker")?, list.only("NextUploadIdMarker")?);
        (!key.is_empty()).then(|| vec![("key-marker", key.to_owned()), ("upload-id-marker", id.to_owned())])
    };
    Ok(Page { entries, next: next(&list, markers)? })
}

fn root(text: &str, name: &str) -> Result<Element, &'static str> {
    let root = xml::parse(text).ok_or("it is not XML, or not whole")?;
    if root.name == name { Ok(root) } else { Err("it is no list") }
}

fn next(
    list: &Element,
    following: impl Fn(&Element) -> Option<Vec<(&'static str, String)>>,
) -> Result<Vec<(&'static str, String)>, &'static str> {
    match list.only("IsTruncated") {
        Some("false") => Ok(Vec::new()),
        Some("true") => following(list).ok_or("it does not say where it continues"),
        _ => Err("it does not say whether it is all"),
    }
}

fn number(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

#[cfg(test)]
mod tests;
