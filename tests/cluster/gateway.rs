//! A real server of S3, whose buckets are folders.

use std::fs;
use std::net::TcpStream;
use std::path::PathBuf;

use crate::failure::{Doing, Failure, Result};
use crate::lab::Lab;
use crate::process::Process;
use crate::sandbox::ADDRESS;
use crate::wait;
use support::s3::{KEY_ID, REGION, SECRET};

const PORT: u16 = 32_382;
const STARTED_WITHIN_S: u64 = 60;

/// It ends when dropped.
#[derive(Debug)]
pub(crate) struct Gateway {
    _process: Process,
    /// The folder with the buckets.
    root: PathBuf,
}

impl Gateway {
    pub(crate) fn start(lab: &Lab) -> Result<Self> {
        let root = lab.place.join("objects");
        fs::create_dir_all(&root).doing(|| format!("create {}", root.display()))?;
        let mut command = lab.command("versitygw")?;
        command.args(["--access", KEY_ID, "--secret", SECRET, "--region", REGION]);
        command.args(["--port", &format!("{ADDRESS}:{PORT}"), "posix"]).arg(&root);
        let mut process = Process::start("versitygw", &lab.place, command)?;
        wait::until("the server of S3", STARTED_WITHIN_S, || {
            process.ensure_running()?;
            Ok::<_, Failure>(TcpStream::connect((ADDRESS, PORT)).ok())
        })?;
        Ok(Self { _process: process, root })
    }

    /// The keys of a Secret, without the name of a bucket. etcd-backup-restore needs the last one; this program always does so.
    pub(crate) fn credentials() -> [(&'static str, String); 5] {
        [
            ("accessKeyID", KEY_ID.to_owned()),
            ("secretAccessKey", SECRET.to_owned()),
            ("region", REGION.to_owned()),
            ("endpoint", format!("http://{ADDRESS}:{PORT}")),
            ("s3ForcePathStyle", "true".to_owned()),
        ]
    }

    /// The folder of a bucket, which exists once it is made.
    pub(crate) fn bucket(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Makes a bucket. The keys of a Secret for it.
    pub(crate) fn with_bucket(&self, name: &str) -> Result<Vec<(&'static str, String)>> {
        let folder = self.bucket(name);
        fs::create_dir_all(&folder).doing(|| format!("create {}", folder.display()))?;
        let mut credentials = Self::credentials().to_vec();
        credentials.push(("bucketName", name.to_owned()));
        Ok(credentials)
    }
}
