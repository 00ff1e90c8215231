//! The requests of agents to a real API server, from its audit log.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::failure::{Doing, Result};
use support::api::request::Info;

/// One answered request.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Request {
    pub(crate) verb: String,
    #[serde(rename = "requestURI")]
    pub(crate) uri: String,
    pub(crate) user: User,
    #[serde(default)]
    object_ref: Object,
    #[serde(default)]
    response_status: Status,
}

/// The object of the request, as the server understood it; empty if it is not an object.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Object {
    api_group: String,
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
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

    /// The request as the server authorizes it.
    pub(crate) fn info(&self) -> Info {
        let object = self.object_ref.clone();
        Info {
            verb: self.verb.clone(),
            group: object.api_group,
            resource: object.resource,
            namespace: object.namespace,
            name: object.name,
            subresource: object.subresource,
            path: self.uri.split('?').next().unwrap_or_default().to_owned(),
            ..Info::default()
        }
    }

    /// Whether it could change an object.
    pub(crate) fn is_write(&self) -> bool {
        !matches!(self.verb.as_str(), "get" | "list" | "watch")
    }
}

/// A reader of the log that continues at its last position.
#[derive(Debug)]
pub(crate) struct Audit {
    path: PathBuf,
    read: u64,
}

impl Audit {
    /// Reads new entries of the log from now on.
    pub(crate) fn from_now(path: &Path) -> Self {
        let read = fs::metadata(path).map_or(0, |metadata| metadata.len());
        Self { path: path.to_owned(), read }
    }

    /// Reads all entries of the log.
    pub(crate) fn of_all(path: &Path) -> Self {
        Self { path: path.to_owned(), read: 0 }
    }

    /// The requests that were answered since the last call. The server writes them before it answers.
    pub(crate) fn requests(&mut self) -> Result<Vec<Request>> {
        let mut file = match File::open(&self.path) {
            Err(err) if err.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.doing(|| format!("open {}", self.path.display()))?,
        };
        let mut unread = Vec::new();
        let read = file.seek(SeekFrom::Start(self.read)).and_then(|_| file.read_to_end(&mut unread));
        read.doing(|| format!("read {}", self.path.display()))?;
        let whole = unread.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        self.read += whole as u64;
        let lines = unread[..whole].split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
        lines.map(|line| serde_json::from_slice(line).doing(|| "read the audit log".to_owned())).collect()
    }
}
