//! A real etcd 3.5 that `gardenlet etcd start` starts, the snapshots that `gardenlet etcd snapshot` takes of it over
//! TLS, and their restoration after a loss of data.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use gardenlet::base::clock::{Clock, Timestamp};
use gardenlet::base::random;
use gardenlet::format::base64;
use serde_json::{Value, json};

use crate::etcd::Etcd;
use crate::failure::{Doing, Failure, Result, ensure, equal};
use crate::gateway::Gateway;
use crate::lab::Lab;
use crate::process::{Process, run};
use crate::wait;
use support::pki::Authority;
use support::s3::{BUCKET, S3Server};

/// The port for plain text, for the story; the next one is for TLS, and the one after it for peers.
pub(super) const PORT: u16 = 32_379;
/// The longest duration of a step on a busy machine.
pub(super) const PATIENCE_S: u64 = 60;
/// The number that a restoration adds to the revision.
pub(super) const ADDED: u64 = 1_000_000_000;
const DAY: Duration = Duration::from_secs(86_400);

/// An etcd with its volume and its store.
pub(super) struct Site {
    pub(super) place: PathBuf,
    program: PathBuf,
    tools: [PathBuf; 2],
    store: Vec<String>,
    starts: u32,
}

impl Site {
    pub(super) fn new(lab: &Lab) -> Result<Self> {
        let tool = |name: &str| {
            lab.environment.program(name).ok_or_else(|| Failure::new(format!("{name} not found")))
        };
        let place = lab.place.clone();
        let site = Self {
            store: vec![
                format!("--directory={}", place.join("store").display()),
                "--prefix=entry/etcd-main".to_owned(),
            ],
            tools: [tool("etcd-3.5")?, tool("etcdutl-3.5")?],
            program: lab.environment.agent(),
            starts: 0,
            place,
        };
        for folder in ["store", "volume"] {
            fs::create_dir_all(site.place.join(folder))?;
        }
        site.write_certificates()?;
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let file = |name: &str| site.place.join(name).display().to_string();
        let config = json!({
            "name": "etcd-main-0",
            "data-dir": site.data(),
            "enable-v2": false,
            "listen-client-urls": format!("{},https://127.0.0.1:{}", url(PORT), PORT + 1),
            "advertise-client-urls": url(PORT),
            "listen-peer-urls": url(PORT + 2),
            "initial-advertise-peer-urls": url(PORT + 2),
            "initial-cluster": format!("etcd-main-0={}", url(PORT + 2)),
            "initial-cluster-token": "etcd-cluster",
            "initial-cluster-state": "new",
            "client-transport-security": {
                "client-cert-auth": true,
                "trusted-ca-file": file("ca.crt"),
                "cert-file": file("server.crt"),
                "key-file": file("server.key"),
            },
        });
        fs::write(site.place.join("etcd.yaml"), config.to_string())?;
        Ok(site)
    }

    fn write_certificates(&self) -> Result<()> {
        let now = Clock::system().now();
        let authority = Authority::new("etcd", now);
        let (from, until): (Timestamp, Timestamp) = (now.minus(DAY), now.plus(DAY));
        let (server, client) =
            (authority.both("etcd-server", from, until), authority.client("etcd-client", &[], from, until));
        let files = [
            ("ca.crt", authority.certificate()),
            ("server.crt", server.certificate),
            ("server.key", server.key),
            ("client.crt", client.certificate),
            ("client.key", client.key),
        ];
        files.iter().try_for_each(|(name, text)| Ok(fs::write(self.place.join(name), text)?))
    }

    /// Its store is a bucket from now on.
    pub(super) fn use_bucket(&mut self, credentials: &[(&str, String)]) -> Result<()> {
        let secret = self.place.join("secret");
        fs::create_dir_all(&secret)?;
        for (name, text) in credentials {
            fs::write(secret.join(name), text)?;
        }
        self.store = vec![format!("--s3={}", secret.display()), "--prefix=entry/etcd-main".to_owned()];
        Ok(())
    }

    pub(super) fn data(&self) -> PathBuf {
        self.place.join("volume/new.etcd")
    }

    pub(super) fn wipe(&self) -> Result<()> {
        Ok(fs::remove_dir_all(self.data())?)
    }

    fn command(&self, verb: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["etcd", verb]).args(&self.store);
        command
    }

    /// Prepares the volume and becomes etcd.
    pub(super) fn begin(&mut self) -> Result<Process> {
        let mut command = self.command("start");
        let [etcd, etcdutl] = &self.tools;
        command
            .arg(format!("--etcd={}", etcd.display()))
            .arg(format!("--etcdutl={}", etcdutl.display()))
            .arg(format!("--etcd-config={}", self.place.join("etcd.yaml").display()))
            .arg(format!("--data-dir={}", self.data().display()));
        self.starts += 1;
        Process::start(&format!("etcd-{}", self.starts), &self.place, command)
    }

    /// The same, until it answers.
    pub(super) fn start(&mut self) -> Result<Process> {
        let mut process = self.begin()?;
        wait::until("etcd to answer", PATIENCE_S, || {
            process.ensure_running()?;
            Ok::<_, Failure>(revision().ok())
        })?;
        Ok(process)
    }

    fn snapshot_command(&self) -> Command {
        let mut command = self.command("snapshot");
        let file = |name: &str| self.place.join(name).display().to_string();
        command
            .arg(format!("--endpoint=https://127.0.0.1:{}", PORT + 1))
            .args([format!("--ca={}", file("ca.crt")), format!("--cert={}", file("client.crt"))])
            .args([format!("--key={}", file("client.key")), format!("--result={}", file("result"))])
            .args(["--keep=2", "--maintenance-window=000000+0000,235959+0000"]);
        command
    }

    /// The message of a run, which is written for the kubelet.
    pub(super) fn snapshot(&self) -> Result<Value> {
        let told: Value = serde_json::from_str(&run(&mut self.snapshot_command())?)?;
        let written: Value = serde_json::from_slice(&fs::read(self.place.join("result"))?)?;
        equal("the result", &written, &told)?;
        Ok(told)
    }

    /// The names in the store, the oldest first.
    fn names(&self) -> Result<Vec<String>> {
        let list: Value = serde_json::from_str(&run(self.command("list").args(["-o", "json"]))?)?;
        let names = list.as_array().into_iter().flatten();
        Ok(names.map(|entry| entry["name"].as_str().unwrap_or_default().to_owned()).collect())
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.place.join("store/entry/etcd-main/v2").join(name)
    }
}

pub(super) fn call(method: &str, body: &Value) -> Result<Value> {
    Etcd(PORT).call(method, body)
}

pub(super) fn key(name: &str) -> String {
    base64::encode(name.as_bytes())
}

fn put(name: &str, value: &[u8]) -> Result<()> {
    call("put", &json!({"key": key(name), "value": base64::encode(value)})).map(drop)
}

pub(super) fn number(value: &Value) -> u64 {
    value.as_u64().or_else(|| value.as_str()?.parse().ok()).unwrap_or_default()
}

pub(super) fn revision() -> Result<u64> {
    Ok(number(&call("range", &json!({"key": key("x")}))?["header"]["revision"]))
}

/// Whether a key exists.
pub(super) fn has(name: &str) -> Result<bool> {
    Ok(number(&call("range", &json!({"key": key(name), "count_only": true}))?["count"]) == 1)
}

/// A new lease of so many seconds.
pub(super) fn lease(seconds: u64) -> Result<u64> {
    Ok(number(&Etcd(PORT).ask("lease/grant", &json!({"TTL": seconds}))?["ID"]))
}

/// Some megabytes, of which a part is no longer used.
fn fill() -> Result<()> {
    for n in 0..24 {
        put(&format!("large-{n}"), &random::vec(256 << 10))?;
    }
    for n in 0..12 {
        call("deleterange", &json!({"key": key(&format!("large-{n}"))}))?;
    }
    let now = revision()?;
    call("compaction", &json!({"revision": now, "physical": true})).map(drop)
}

/// A wiped etcd is restored from its newest whole snapshot, with revisions that no client has seen, and does not start
/// while its store is away.
pub(crate) fn directory(lab: &mut Lab) -> Result<()> {
    let mut site = Site::new(lab)?;
    let mut etcd = site.start()?;
    put("first", b"1")?;
    fill()?;
    let first = site.snapshot()?;
    equal(
        "whether it was taken, and the database compacted",
        &json!([first["taken"], first["defragmented"]]),
        &json!([true, true]),
    )?;
    ensure(number(&first["databaseBytes"]) < 5 << 20, || format!("the database was not compacted: {first}"))?;
    let again = site.snapshot()?;
    equal(
        "without a change",
        &json!([again["taken"], again["snapshot"]]),
        &json!([false, first["snapshot"]]),
    )?;
    put("later", b"2")?;
    let before = revision()?;
    etcd.kill();
    site.wipe()?;
    etcd = site.start()?;
    equal(
        "keys of before and after the snapshot",
        &[has("first")?, has("large-23")?, has("later")?],
        &[true, true, false],
    )?;
    let after = revision()?;
    ensure(after > before && after >= number(&first["revision"]) + ADDED, || {
        format!("{after} is after {before}")
    })?;
    // A watch from an old revision has to start again.
    let old = call("range", &json!({"key": key("first"), "revision": before.to_string()}));
    let refused = old.err().map(|failure| failure.to_string()).unwrap_or_default();
    ensure(refused.contains("compacted"), || format!("an old revision is compacted: {refused}"))?;

    put("second", b"1")?;
    let second = site.snapshot()?;
    put("third", b"1")?;
    let third = site.snapshot()?;
    let names = site.names()?;
    equal("the names in the store", &json!(names), &json!([second["snapshot"], third["snapshot"]]))?;
    let newest = site.file(names.last().map_or("", String::as_str));
    let whole = fs::read(&newest)?;
    fs::write(&newest, &whole[..whole.len() / 2])?;
    etcd.kill();
    site.wipe()?;
    etcd = site.start()?;
    ensure(etcd.log_text().contains("is broken: "), || "the log names the broken one".to_owned())?;
    equal(
        "keys of the older snapshot",
        &[has("first")?, has("second")?, has("third")?],
        &[true, true, false],
    )?;

    etcd.kill();
    site.wipe()?;
    fs::rename(site.place.join("store"), site.place.join("away"))?;
    let mut refused = site.begin()?;
    let status =
        wait::until("the end of a start without a store", PATIENCE_S, || Ok::<_, Failure>(refused.ended()))?;
    equal("its exit code", &status.code(), &Some(1))?;
    ensure(!site.data().exists(), || "the data directory exists without a store".to_owned())?;
    fs::rename(site.place.join("away"), site.place.join("store"))?;
    let _etcd = site.start()?;
    equal("keys with the store", &[has("second")?, has("third")?], &[true, false])
}

/// After a kill at any point of a restoration or a snapshot, the next run completes it.
pub(crate) fn killed(lab: &mut Lab) -> Result<()> {
    let mut site = Site::new(lab)?;
    let mut etcd = site.start()?;
    put("first", b"1")?;
    fill()?;
    // A snapshot may run longer after each kill, until one completes.
    for tries in 0.. {
        let mut snapshot = site
            .snapshot_command()
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .doing(|| "start".to_owned())?;
        wait::pause(Duration::from_millis(20 * tries));
        snapshot.kill()?;
        if snapshot.wait()?.success() || tries == 20 {
            break;
        }
        let halves = site.names()?;
        ensure(halves.len() <= 1, || format!("there are partial snapshots: {halves:?}"))?;
    }
    site.snapshot()?;
    equal("whole snapshots", &site.names()?.len(), &1)?;
    etcd.kill();
    for tries in 0..8 {
        if site.data().exists() {
            site.wipe()?;
        }
        let mut etcd = site.begin()?;
        // This does not wait for a condition: any moment is good.
        wait::pause(Duration::from_millis(25 * tries));
        etcd.kill();
        let mut etcd = site.start()?;
        equal("keys after a kill", &[has("first")?, has("large-23")?], &[true, true])?;
        etcd.kill();
    }
    Ok(())
}

/// The same with a bucket.
pub(crate) fn bucket(lab: &mut Lab) -> Result<()> {
    let server = S3Server::start(&Clock::system());
    in_bucket(lab, &server.credentials()).map(drop)
}

/// The same with a real server, which then loses half of the newest snapshot.
pub(crate) fn real_bucket(lab: &mut Lab) -> Result<()> {
    let gateway = Gateway::start(lab)?;
    let (site, etcd) = in_bucket(lab, &gateway.with_bucket(BUCKET)?)?;
    let kept = site.names()?;
    put("later", b"1")?;
    let taken = site.snapshot()?;
    let newest = taken["snapshot"].as_str().unwrap_or_default();
    let path = gateway.bucket(BUCKET).join("entry/etcd-main/v2").join(newest);
    let whole = fs::read(&path)?;
    fs::write(&path, &whole[..whole.len() / 2])?;
    // The revision is the same, and the snapshot is not.
    let again = site.snapshot()?;
    equal(
        "whether it was taken again",
        &json!([again["taken"], again["revision"]]),
        &json!([true, taken["revision"]]),
    )?;
    equal("the snapshots", &json!(site.names()?), &json!([newest, again["snapshot"]]))?;
    ensure(!kept.is_empty() && site.data().exists(), || "etcd has its data".to_owned())?;
    drop(etcd);
    Ok(())
}

fn in_bucket(lab: &Lab, credentials: &[(&str, String)]) -> Result<(Site, Process)> {
    let mut site = Site::new(lab)?;
    site.use_bucket(credentials)?;
    let mut etcd = site.start()?;
    for n in 0..24 {
        put(&format!("large-{n}"), &random::vec(256 << 10))?;
    }
    let taken = site.snapshot()?;
    ensure(number(&taken["bytes"]) > 5 << 20, || format!("it has only one part: {taken}"))?;
    equal("names", &json!(site.names()?), &json!([taken["snapshot"]]))?;
    etcd.kill();
    site.wipe()?;
    // A power cut can leave the folders of a member without their files.
    fs::create_dir_all(site.data().join("member/snap"))?;
    etcd = site.start()?;
    equal("a key", &has("large-23")?, &true)?;
    ensure(revision()? >= number(&taken["revision"]) + ADDED, || "its revision is a new one".to_owned())?;
    Ok((site, etcd))
}
