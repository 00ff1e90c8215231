//! The snapshots of a Shoot that moves: the last one, its copy from the bucket of one seed to that of another, and what is refused
//! because changes would be lost.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use flate2::Compression;
use flate2::write::GzEncoder;
use gardenlet::base::clock::Clock;
use gardenlet::base::random;
use serde_json::{Value, json};

use crate::story_snapshots::gateway;
use support::http::message::{Request, Response};
use support::s3::{Answer, S3Server, refusal};
use support::shoot::said;

const PREFIX: &str = "entry/etcd-main";
const FULL: &str = "Full-00000000-00000042-1790000000.gz";
const FINAL: &str = "Full-00000000-00000042-1790000000.gz.final";
const FIRST_DELTA: &str = "Incr-00000043-00000050-1790000100.gz";
const SECOND_DELTA: &str = "Incr-00000051-00000060-1790000200.gz";

/// The buckets of two seeds.
struct Move {
    root: PathBuf,
    from: S3Server,
    to: S3Server,
}

/// The end of a command.
struct Run {
    told: Value,
    /// What is left for the agent.
    left: Value,
    errors: String,
    code: Option<i32>,
}

fn key(name: &str) -> String {
    format!("{PREFIX}/v2/{name}")
}

/// What etcd and etcd-backup-restore store: a content and its digest, packed.
fn packed(content: &[u8]) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(content).unwrap();
    packed.write_all(ring::digest::digest(&ring::digest::SHA256, content).as_ref()).unwrap();
    packed.finish().unwrap()
}

impl Move {
    fn new() -> Self {
        let root = std::env::temp_dir().join(format!("gardenlet-move-{}", random::hex(12)));
        // The program uses the machine's clock.
        let (from, to) = (S3Server::start(&Clock::system()), S3Server::start(&Clock::system()));
        let scene = Self { root, from, to };
        scene.secret("from", &scene.from, &[]);
        scene.secret("to", &scene.to, &[]);
        scene
    }

    /// Writes a Secret, with other values for some of its keys.
    fn secret(&self, folder: &str, server: &S3Server, other: &[(&str, &str)]) {
        let folder = self.root.join(folder);
        fs::create_dir_all(&folder).unwrap();
        for (name, value) in server.credentials() {
            fs::write(folder.join(name), value).unwrap();
        }
        for (name, value) in other {
            fs::write(folder.join(name), value).unwrap();
        }
    }

    /// Runs the program with little memory.
    fn run(&self, args: &[&str], variables: &[(&str, &str)]) -> Run {
        let result = self.root.join("result");
        let _ = fs::remove_file(&result);
        let mut command = Command::new("sh");
        let program = env!("CARGO_BIN_EXE_gardenlet");
        command.args(["-c", "ulimit -d 12288 && exec \"$0\" \"$@\"", program, "etcd"]).args(args);
        command.env_clear().envs(variables.iter().copied()).stdin(Stdio::null());
        let output = command.output().unwrap();
        let read = |bytes: &[u8]| serde_json::from_slice(bytes).unwrap_or_default();
        Run {
            told: read(&output.stdout),
            left: fs::read(result).map(|bytes| read(&bytes)).unwrap_or_default(),
            errors: String::from_utf8(output.stderr).unwrap(),
            code: output.status.code(),
        }
    }

    fn store(&self, option: &str, folder: &str) -> String {
        format!("--{option}={}", self.root.join(folder).display())
    }

    fn result(&self) -> String {
        format!("--result={}", self.root.join("result").display())
    }

    fn copy(&self, more: &[&str]) -> Run {
        let (from, to, result) = (self.store("from-s3", "from"), self.store("s3", "to"), self.result());
        let prefix = format!("--prefix={PREFIX}");
        self.run(&[&["copy", &from, &to, &prefix, &result, "--wait=0"][..], more].concat(), &[])
    }

    fn put(&self, name: &str, content: Vec<u8>) {
        self.from.objects().insert(key(name), content);
    }

    /// A full snapshot of several parts, and two deltas.
    fn fill(&self) {
        self.put(FINAL, packed(&random::vec(1 << 20).repeat(11)));
        self.put(FIRST_DELTA, packed(b"[]"));
        self.put(SECOND_DELTA, packed(b"[1]"));
        self.put("Full-00000000-00000007-1780000000.gz", packed(&[7; 4_096]));
    }

    fn names(&self) -> Vec<String> {
        self.to.objects().keys().map(|key| key.rsplit('/').next().unwrap().to_owned()).collect()
    }
}

impl Drop for Move {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

#[test]
fn an_interrupted_copy_is_continued() {
    let scene = Move::new();
    scene.fill();
    // The key loses its right to write after the first snapshot.
    let written = AtomicUsize::new(0);
    scene.to.twist(move |request, _| {
        let is_late = request.method != "GET" && written.fetch_add(1, Ordering::SeqCst) > 0;
        is_late.then(|| Answer::Reply(refusal(403, "AccessDenied", "")))
    });
    let run = scene.copy(&[]);
    assert_eq!(run.code, Some(1), "{}", run.errors);
    let why = "write a snapshot (bucket backups at ";
    assert!(run.left["error"].as_str().unwrap().contains(why), "{}", run.left);
    assert_eq!(run.left["acceptable"], Value::Null);
    // Nobody can take a delta alone for a complete backup. (The refused PUT still took effect in this server.)
    assert!(!scene.names().contains(&FULL.to_owned()), "{:?}", scene.names());
    assert!(scene.names().contains(&SECOND_DELTA.to_owned()));
    scene.to.behave();
    scene.to.objects().remove(&key(FIRST_DELTA));
    let run = scene.copy(&[]);
    assert_eq!(run.code, Some(0), "{}", run.errors);
    assert_eq!(run.told, run.left);
    let expected = json!({"snapshot": FULL, "revision": 60, "deltas": 2, "copied": 2, "startsEmpty": false});
    for (field, value) in expected.as_object().unwrap() {
        assert_eq!(&run.told[field], value, "{field} of {}", run.told);
    }
    assert_eq!(run.told["lost"], Value::Null);
    assert_eq!(scene.names(), [FULL, FIRST_DELTA, SECOND_DELTA]);
    for (there, here) in [(FINAL, FULL), (FIRST_DELTA, FIRST_DELTA), (SECOND_DELTA, SECOND_DELTA)] {
        assert!(scene.to.objects()[&key(here)] == scene.from.objects()[&key(there)], "{here}");
    }
    // A second run only reads.
    scene.to.take_seen();
    let run = scene.copy(&[]);
    assert_eq!((run.code, &run.told["copied"]), (Some(0), &json!(0)), "{}", run.errors);
    assert!(scene.to.take_seen().iter().all(|seen| seen.starts_with("GET ")));
    assert!(scene.from.take_seen().iter().all(|seen| seen.starts_with("GET ")));
}

/// What is wrong, how, what the program says, what its stand-ins say of that, and whether it may be accepted.
type Trouble = (&'static str, fn(&Move), &'static str, &'static str, Option<&'static [&'static str]>);

/// Another content of an object than the one that was stored.
fn spoiled(request: &Request, answer: &Response) -> Option<Answer> {
    let is_object = request.method == "GET" && request.path.ends_with(".gz") && answer.status == 200;
    is_object.then(|| {
        let mut other = answer.clone();
        if let Some(byte) = other.body.last_mut() {
            *byte ^= 1;
        }
        Answer::Reply(other)
    })
}

#[test]
fn nothing_is_lost_unless_it_was_accepted() {
    let table: [Trouble; 8] = [
        (
            "the final snapshot is damaged",
            |scene| {
                let mut objects = scene.from.objects();
                let content = objects.get_mut(&key(FINAL)).unwrap();
                let middle = content.len() / 2;
                content[middle] ^= 1;
            },
            "snapshot Full-00000000-00000042-1790000000.gz.final is broken: ",
            said::BROKEN,
            Some(&["Full-00000000-00000007-1780000000.gz"]),
        ),
        (
            "there is no final one",
            |scene| {
                let content = scene.from.objects().remove(&key(FINAL)).unwrap();
                scene.put(FULL, content);
            },
            "the newest full snapshot Full-00000000-00000042-1790000000.gz is not final, and deltas follow it",
            said::NOT_FINAL,
            Some(&[FULL, FIRST_DELTA, SECOND_DELTA]),
        ),
        (
            "a delta is missing",
            |scene| drop(scene.from.objects().remove(&key(FIRST_DELTA))),
            "revisions 43 to 50 are in no snapshot, and Incr-00000051",
            "",
            Some(&[FULL]),
        ),
        (
            "there is nothing",
            |scene| scene.from.objects().clear(),
            "there is no snapshot",
            said::NO_SNAPSHOT,
            Some(&[]),
        ),
        (
            "there is no bucket",
            |scene| scene.secret("from", &scene.from, &[("bucketName", "other")]),
            "there is no bucket \"other\"",
            "",
            None,
        ),
        (
            "the key has no rights",
            |scene| scene.from.twist(|_, _| Some(Answer::Reply(refusal(403, "AccessDenied", "")))),
            "the key has no right to do this",
            "",
            None,
        ),
        (
            "the server does not answer",
            |scene| scene.secret("from", &scene.from, &[("endpoint", "http://127.0.0.1:1")]),
            "connect to 127.0.0.1:1",
            said::UNREACHABLE,
            None,
        ),
        (
            "the new bucket keeps something else",
            |scene| scene.to.twist(spoiled),
            "snapshot Incr-00000051-00000060-1790000200.gz is broken: the store has another content under this name",
            said::SPOILED,
            None,
        ),
    ];
    for (what, spoil, why, said, accepted) in table {
        assert!(why.contains(said), "{what}: the stand-ins say {said:?}");
        let scene = Move::new();
        scene.fill();
        spoil(&scene);
        let run = scene.copy(&[]);
        assert_eq!((run.code, &run.told), (Some(1), &Value::Null), "{what}: {}", run.errors);
        assert!(run.left["error"].as_str().unwrap().contains(why), "{what}: {}", run.left);
        assert_eq!(run.left["acceptable"] == true, accepted.is_some(), "{what}: {}", run.left);
        assert_eq!(scene.names(), [""; 0], "{what}");
        let run = scene.copy(&["--accept-loss"]);
        match accepted {
            Some(names) => {
                assert_eq!((run.code, &run.told), (Some(0), &run.left), "{what}: {}", run.errors);
                assert!(run.told["lost"].as_str().unwrap().contains(why), "{what}: {}", run.told);
                assert_eq!(run.told["startsEmpty"] == true, names.is_empty(), "{what}: {}", run.told);
                assert_eq!(scene.names(), names, "{what}");
            }
            None => {
                assert_eq!(run.code, Some(1), "{what}");
                assert!(run.left["error"].as_str().unwrap().contains(why), "{what}: {}", run.left);
            }
        }
    }
}

#[test]
fn the_last_snapshot_of_one_seed_starts_an_etcd_on_another() {
    let scene = Move::new();
    let (from, prefix) = (scene.store("s3", "from"), format!("--prefix={PREFIX}"));
    let last = || {
        let endpoint = format!("--endpoint={}", gateway(1));
        scene.run(&["snapshot", &endpoint, "--final", &from, &prefix, &scene.result()], &[])
    };
    let run = last();
    assert_eq!((run.code, &run.told["taken"]), (Some(0), &json!(true)), "{}", run.errors);
    let name = run.told["snapshot"].as_str().unwrap();
    assert!(name.ends_with(".gz.final") && run.told["final"] == true && run.told["revision"] == 42, "{name}");
    assert_eq!(run.told, run.left);
    let again = last();
    assert_eq!((&again.told["taken"], &again.told["snapshot"]), (&json!(false), &run.told["snapshot"]));

    let config = scene.root.join("etcd.yaml");
    let data = scene.root.join("new.etcd");
    let text = format!(
        "{{name: x, data-dir: {}, initial-cluster: x=http://p, initial-advertise-peer-urls: http://p}}",
        data.display()
    );
    fs::write(&config, text).unwrap();
    let etcdutl = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/etcdutl");
    let options = [
        format!("--etcdutl={}", etcdutl.display()),
        format!("--etcd-config={}", config.display()),
        format!("--data-dir={}", data.display()),
        scene.store("s3", "to"),
    ];
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let start = |variables: &[(&str, &str)]| {
        scene.run(&[&["start", "--etcd=/bin/echo"][..], &options, &[prefix.as_str()]].concat(), variables)
    };
    let run = start(&[("GARDENLET_ETCD_NEVER_EMPTY", "true")]);
    assert_eq!(run.code, Some(1), "{}", run.errors);
    for words in [said::NEVER_EMPTY, "edge.gardenlet/accept-data-loss=true"] {
        assert!(run.errors.contains(words), "{}", run.errors);
    }
    assert_eq!(scene.copy(&[]).code, Some(0));
    let run = start(&[("GARDENLET_ETCD_NEVER_EMPTY", "true")]);
    assert_eq!(run.code, Some(0), "{}", run.errors);
    assert!(run.errors.contains("(revision 42) is restored"), "{}", run.errors);
    let run = start(&[("GARDENLET_ETCD_NEVER_EMPTY", "true"), ("GARDENLET_ETCD_AT_LEAST", "42")]);
    assert_eq!(run.code, Some(0), "{}", run.errors);
    let run = start(&[("GARDENLET_ETCD_NEVER_EMPTY", "true"), ("GARDENLET_ETCD_AT_LEAST", "43")]);
    assert!(run.code == Some(1) && run.errors.contains(said::OLDER), "{}", run.errors);
    let left = scene.root.join("result").display().to_string();
    let run = start(&[
        ("GARDENLET_ETCD_NEVER_EMPTY", "true"),
        ("GARDENLET_ETCD_AT_LEAST", "x"),
        ("GARDENLET_ETCD_RESULT", &left),
    ]);
    let cause = "GARDENLET_ETCD_AT_LEAST=x: expected a revision";
    assert!(run.errors.contains(cause) && run.left["error"] == cause, "{}, {}", run.errors, run.left);
    assert_eq!(run.left["unusable"], false);
    // This data directory is no database that opens.
    scene.to.objects().clear();
    let run = start(&[("GARDENLET_ETCD_NEVER_EMPTY", "true")]);
    assert!(run.code == Some(1) && run.errors.contains(said::NEVER_EMPTY), "{}", run.errors);
    fs::remove_dir_all(&data).unwrap();
    let run = start(&[("GARDENLET_ETCD_NEVER_EMPTY", "false")]);
    assert_eq!(run.code, Some(0), "{}", run.errors);
    assert!(run.errors.contains("etcd starts empty"), "{}", run.errors);
}
