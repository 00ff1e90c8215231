//! The download of a chart, which resumes after an interruption.

use std::io::Read as _;
use std::sync::Arc;

use crate::net;
use crate::oci::cache::{Begun, Partial, VerifiedContent};
use crate::oci::check_size;
use crate::oci::error::{Error, PullVerdict};
use crate::oci::manifest::Blob;
use crate::oci::session::{Question, Session};

use super::{Errand, Puller};

/// An attempt that receives at least this many bytes does not count as failed.
const PROGRESS_BYTES: u64 = 4 << 10;

impl Puller {
    /// Returns the chart from the cache, or downloads it into the cache.
    pub(super) fn chart(
        &self,
        errand: Errand<'_>,
        session: &mut Session<'_>,
        blob: Blob,
    ) -> Result<VerifiedContent, Error> {
        check_size(blob)?;
        if self.asks {
            let (path, from) = (format!("blobs/{}", blob.digest), blob.bytes.saturating_sub(1));
            let answer = session.ask(Question { from, ..Question::small("GET", &path, "*/*") });
            return answer.map(|_| VerifiedContent::Bytes(Arc::default()));
        }
        loop {
            let mut partial = match self.cache.begin(blob.digest, errand.stop)? {
                Begun::There(content) => return Ok(self.hit(content)),
                Begun::Fetch(partial) => partial,
            };
            let was_begun = partial.bytes() > 0;
            self.download(errand, session, blob, &mut partial)?;
            match partial.finish() {
                // The part that an earlier pull left may be damaged; a chart that was downloaded completely now is not
                // retried.
                Err(Error::Digest { .. }) if was_begun => {}
                Ok(content) => {
                    let (reference, host) = (errand.order.reference.to_string(), session.host());
                    log::info!(reference = reference.as_str(), source = host, digest = blob.digest.to_string().as_str(), bytes = blob.bytes; "Chart pulled");
                    return Ok(content);
                }
                other => return other,
            }
        }
    }

    /// Downloads the missing bytes, and resumes after each interruption as long as there is progress.
    fn download(
        &self,
        errand: Errand<'_>,
        session: &mut Session<'_>,
        blob: Blob,
        partial: &mut Partial<'_>,
    ) -> Result<(), Error> {
        if partial.bytes() > blob.bytes {
            partial.restart()?;
        }
        while partial.bytes() < blob.bytes {
            let before = partial.bytes();
            let step = self.patiently(errand, || {
                let start = partial.bytes();
                match self.receive(errand, session, blob, partial) {
                    Err(error) if partial.bytes() >= start.saturating_add(PROGRESS_BYTES) => {
                        if error.verdict() == PullVerdict::Retry { Ok(()) } else { Err(error) }
                    }
                    other => other,
                }
            });
            step?;
            if partial.bytes() < blob.bytes && partial.bytes() <= before {
                return Err(Error::Short { bytes: partial.bytes(), expected: blob.bytes });
            }
        }
        Ok(())
    }

    /// One request for the rest of a chart.
    fn receive(
        &self,
        errand: Errand<'_>,
        session: &mut Session<'_>,
        blob: Blob,
        partial: &mut Partial<'_>,
    ) -> Result<(), Error> {
        let total = errand.deadline.saturating_sub(self.clock.mono());
        let (path, from) = (format!("blobs/{}", blob.digest), partial.bytes());
        let question = Question { from, total, ..Question::small("GET", &path, "*/*") };
        let mut response = match session.ask(question) {
            Err(Error::Status { status: 416, .. }) if from > 0 => {
                partial.restart()?;
                session.ask(Question { from: 0, ..question })?
            }
            other => other?,
        };
        let is_rest = response.status == 206;
        if is_rest && !begins_at(response.header("content-range"), partial.bytes()) {
            partial.restart()?;
            return Err(Error::Short { bytes: 0, expected: blob.bytes });
        }
        if !is_rest && partial.bytes() > 0 {
            // A registry without range support sends the chart from its start.
            partial.restart()?;
        }
        let mut buffer = [0; 16 << 10];
        loop {
            if errand.stop.is_stopped() {
                return Err(Error::Stopped);
            }
            if self.clock.mono() >= errand.deadline {
                let source = net::Error::Timeout("whole pull");
                return Err(Error::Net { host: session.host().to_owned(), source });
            }
            let amount = response.body.read(&mut buffer).map_err(|error| {
                match net::Error::from_io("read the chart", error) {
                    net::Error::Closed => Error::Stopped,
                    source => Error::Net { host: session.host().to_owned(), source },
                }
            })?;
            let bytes = u64::try_from(amount).unwrap_or(u64::MAX);
            self.count_bytes(amount);
            if partial.bytes().saturating_add(bytes) > blob.bytes {
                partial.restart()?;
                return Err(Error::Large { what: "chart", bytes_max: blob.bytes });
            }
            if amount == 0 {
                break;
            }
            partial.write(&buffer[..amount])?;
        }
        if partial.bytes() < blob.bytes {
            return Err(Error::Short { bytes: partial.bytes(), expected: blob.bytes });
        }
        Ok(())
    }

    fn count_bytes(&self, amount: usize) {
        let help = "Bytes of charts that came from registries.";
        // The length of a buffer is exact in 32 bits.
        let bytes = f64::from(u32::try_from(amount).unwrap_or(u32::MAX));
        self.metrics.add("gardenlet_chart_pull_bytes_total", help, &[], bytes);
    }
}

/// `Content-Range: bytes 5-9/10`.
fn begins_at(header: Option<&str>, from: u64) -> bool {
    let first =
        header.and_then(|text| text.trim().strip_prefix("bytes ")?.split('-').next()?.parse::<u64>().ok());
    first == Some(from)
}
