//! What agents asked of a real API server, from its audit log.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::failure::{Doing, Result};

/// One answered request.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Request {
    pub(crate) verb: String,
    #[serde(rename = "requestURI")]
    pub(crate) uri: String,
    pub(crate) user: User,
    #[serde(default)]
    response_status: Status,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct User {
    pub(crate) username: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Status {
    #[serde(default)]
    code: u16,
}

impl Request {
    pub(crate) fn code(&self) -> u16 {
        self.response_status.code
    }

    /// Whether it could change something.
    pub(crate) fn is_write(&self) -> bool {
        !matches!(self.verb.as_str(), "get" | "list" | "watch")
    }
}

/// A reader of the log that continues where it stopped.
#[derive(Debug)]
pub(crate) struct Audit {
    path: PathBuf,
    read: usize,
}

impl Audit {
    /// Reads what is written to the log from now on.
    pub(crate) fn from_now(path: &Path) -> Self {
        let read = fs::metadata(path).map_or(0, |metadata| usize::try_from(metadata.len()).unwrap_or(0));
        Self { path: path.to_owned(), read }
    }

    /// The requests that were answered since the last call. The server writes them before it answers.
    pub(crate) fn requests(&mut self) -> Result<Vec<Request>> {
        let bytes = match fs::read(&self.path) {
            Err(err) if err.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.doing(|| format!("read {}", self.path.display()))?,
        };
        let unread = bytes.get(self.read..).unwrap_or_default();
        let whole = unread.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        self.read += whole;
        let lines = unread[..whole].split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
        lines.map(|line| serde_json::from_slice(line).doing(|| "read the audit log".to_owned())).collect()
    }
}
