//! Uploads and downloads of snapshots: multipart uploads, which become an object atomically, and downloads in one
//! stream that resumes.

use std::io::{self, Read, Write};

use super::{Question, S3, xml};
use crate::base::backoff::Backoff;
use crate::base::clock::Mono;
use crate::limits;
use crate::net::{Body, HttpResponse};
use crate::snapshot::error::Error;
use crate::snapshot::name::Snapshot;
use crate::snapshot::store::{SnapshotStore as _, Upload};

/// An upload. Content of less than one part is sent as a single object.
pub(super) struct Parts<'a> {
    store: &'a S3,
    key: String,
    part: Vec<u8>,
    bytes: u64,
    /// The id of the upload, while it is neither finished nor aborted.
    upload: Option<String>,
    /// The ETags of the parts.
    tags: Vec<String>,
}

impl<'a> Parts<'a> {
    pub(super) fn new(store: &'a S3, key: String) -> Self {
        let part = Vec::with_capacity(limits::SNAPSHOT_PART_BYTES);
        Self { store, key, part, bytes: 0, upload: None, tags: Vec::new() }
    }

    fn question<'q>(&'q self, method: &'q str) -> Question<'q> {
        self.store.question("write a snapshot", method, &self.key)
    }

    fn send_part(&mut self) -> Result<(), Error> {
        if self.upload.is_none() {
            let question = Question { query: &[("uploads", "")], ..self.question("POST") };
            let answer = self.store.text(question, limits::SNAPSHOT_ANSWER_BYTES_MAX)?;
            let begun = xml::parse(&answer).filter(|root| root.name == "InitiateMultipartUploadResult");
            let id = begun.as_ref().and_then(|root| root.only("UploadId")).filter(|id| !id.is_empty());
            self.upload =
                Some(id.map(str::to_owned).ok_or_else(|| self.odd("the store gave no name for the upload"))?);
        }
        let id = self.upload.as_deref().unwrap_or_default();
        let number = (self.tags.len() + 1).to_string();
        let query = [("partNumber", number.as_str()), ("uploadId", id)];
        let total = self.store.pace.of(bytes_of(&self.part));
        let question = Question { query: &query, body: &self.part, total, ..self.question("PUT") };
        let response = self.store.ask(question)?;
        let tag = self.tag(&response)?;
        self.tags.push(tag);
        self.part.clear();
        Ok(())
    }

    /// The ETag of the uploaded data. A server that is no store does not return one.
    fn tag(&self, response: &HttpResponse) -> Result<String, Error> {
        let tag = response.header("etag").filter(|tag| !tag.is_empty()).map(str::to_owned);
        tag.ok_or_else(|| self.odd("the store gave no tag for what it was sent"))
    }

    fn odd(&self, why: &str) -> Error {
        Error::Refused { doing: self.store.doing("write a snapshot"), why: why.to_owned() }
    }

    fn complete(&self) -> Result<(), Error> {
        let Some(id) = &self.upload else {
            let total = self.store.pace.of(bytes_of(&self.part));
            let question = Question { body: &self.part, total, ..self.question("PUT") };
            return self.tag(&self.store.ask(question)?).map(drop);
        };
        let mut list = "<CompleteMultipartUpload>".to_owned();
        for (index, tag) in self.tags.iter().enumerate() {
            let (number, tag) = (index + 1, xml::escape(tag));
            list += &format!("<Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag></Part>");
        }
        list += "</CompleteMultipartUpload>";
        let query = [("uploadId", id.as_str())];
        let question = Question { query: &query, body: list.as_bytes(), ..self.question("POST") };
        let answer = self.store.text(question, limits::SNAPSHOT_ANSWER_BYTES_MAX).and_then(|answer| {
            let is_done =
                xml::parse(&answer).is_some_and(|root| root.name == "CompleteMultipartUploadResult");
            is_done.then_some(()).ok_or_else(|| self.odd("the store did not confirm the end of the upload"))
        });
        match answer {
            Ok(()) => Ok(()),
            // The answer to an earlier try may have been lost.
            Err(error) => {
                if self.is_there() {
                    Ok(())
                } else {
                    Err(error)
                }
            }
        }
    }

    fn is_there(&self) -> bool {
        let name = self.key.strip_prefix(&self.store.folder).unwrap_or(&self.key);
        let is_ours = |s: &Snapshot| s.name.text == name && s.bytes == self.bytes;
        self.store.list().is_ok_and(|all| all.iter().any(is_ours))
    }
}

fn bytes_of(part: &[u8]) -> u64 {
    u64::try_from(part.len()).unwrap_or(u64::MAX)
}

impl Write for Parts<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = limits::SNAPSHOT_PART_BYTES - self.part.len();
        let (now, _) = bytes.split_at(room.min(bytes.len()));
        self.part.extend_from_slice(now);
        self.bytes += bytes_of(now);
        if self.part.len() == limits::SNAPSHOT_PART_BYTES {
            self.send_part().map_err(io::Error::other)?;
        }
        Ok(now.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Upload for Parts<'_> {
    fn finish(mut self: Box<Self>) -> Result<u64, Error> {
        if self.upload.is_some() && !self.part.is_empty() {
            self.send_part()?;
        }
        self.complete()?;
        self.upload = None;
        Ok(self.bytes)
    }
}

impl Drop for Parts<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.upload.take() {
            let query = [("uploadId", id.as_str())];
            // A later sweep removes what is left after a failure.
            let _ = self.store.ask(Question { query: &query, ..self.question("DELETE") });
        }
    }
}

/// A download. It resumes after an interruption, until its time is over.
pub(super) struct Download<'a> {
    store: &'a S3,
    key: String,
    bytes: u64,
    offset: u64,
    body: Option<Body>,
    begun: Mono,
    /// Failures since the last progress.
    backoff: Backoff,
}

impl<'a> Download<'a> {
    pub(super) fn begin(store: &'a S3, snapshot: &Snapshot) -> Result<Self, Error> {
        let key = format!("{}{}", store.folder, snapshot.name.text);
        let backoff = Backoff::new(super::RETRY_FIRST, super::RETRY_MAX);
        let begun = store.real.mono();
        let mut download = Self { store, key, bytes: snapshot.bytes, offset: 0, body: None, begun, backoff };
        download.open()?;
        Ok(download)
    }

    fn open(&mut self) -> Result<(), Error> {
        let range = format!("bytes={}-", self.offset);
        let range = (self.offset > 0).then_some(range.as_str());
        let doing = "read a snapshot";
        let refused = |why: String| Error::Refused { doing: self.store.doing(doing), why };
        let whole = self.store.pace.of(self.bytes);
        let total = whole.saturating_sub(self.store.real.mono().saturating_sub(self.begun));
        if total.is_zero() {
            let (offset, bytes, seconds) = (self.offset, self.bytes, whole.as_secs());
            return Err(refused(format!(
                "the store is too slow: {offset} of {bytes} bytes came in {seconds} s"
            )));
        }
        let question = Question { range, total, ..self.store.question(doing, "GET", &self.key) };
        let response = self.store.ask(question)?;
        if range.is_some() && response.status != 206 {
            return Err(refused("the store cannot resume a download".to_owned()));
        }
        self.body = Some(response.body);
        Ok(())
    }
}

impl Read for Download<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.offset < self.bytes {
            if self.body.is_none() {
                self.open().map_err(io::Error::other)?;
            }
            let read = self.body.as_mut().map_or(Ok(0), |body| body.read(buffer));
            let error = match read {
                Ok(0) => io::Error::from(io::ErrorKind::UnexpectedEof),
                Ok(count) => {
                    self.offset += u64::try_from(count).unwrap_or(u64::MAX);
                    self.backoff.reset();
                    return Ok(count);
                }
                Err(error) => error,
            };
            self.body = None;
            let is_last = self.backoff.failures() + 1 >= limits::SNAPSHOT_ATTEMPTS_MAX;
            let delay = self.backoff.next_delay();
            if is_last || self.store.stop.wait(&self.store.clock, delay) {
                return Err(error);
            }
        }
        Ok(0)
    }
}
