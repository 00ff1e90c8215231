use std::cell::{Cell, RefCell};
use std::os::unix::fs::symlink;

use flate2::Compression;
use flate2::write::GzEncoder;
use ring::digest::{SHA256, digest};

use std::io::{Read, Write as _};

use super::member::tests::head;
use super::*;
use crate::base::clock::Timestamp;
use crate::base::error::chain;
use crate::base::random;
use crate::snapshot::directory::DirectoryStore;
use crate::snapshot::store::Upload;

/// A data directory that does not exist, a store without snapshots, and an `etcdutl` that copies.
struct Scene {
    root: PathBuf,
    place: EtcdPaths,
    said: RefCell<Vec<String>>,
}

impl Scene {
    fn new() -> Self {
        let root = std::env::temp_dir().join(format!("gardenlet-restore-{}", random::hex(12)));
        fs::create_dir_all(root.join("store/p/v2")).unwrap();
        fs::create_dir_all(root.join("volume")).unwrap();
        let (config, data) = (root.join("etcd.yaml"), root.join("volume/new.etcd"));
        let etcdutl = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/etcdutl");
        let place = EtcdPaths { etcd: "/bin/false".into(), etcdutl, config, data };
        let scene = Self { place, said: RefCell::default(), root };
        scene.configure("initial-cluster-token: t\n");
        scene
    }

    fn configure(&self, more: &str) {
        let text = format!(
            "name: etcd-main-0\ndata-dir: {}\ninitial-cluster: etcd-main-0=http://p:2380\ninitial-advertise-peer-urls: http://p:2380\n{more}",
            self.place.data.display()
        );
        fs::write(&self.place.config, text).unwrap();
    }

    fn store(&self) -> DirectoryStore {
        DirectoryStore::new(self.root.join("store"), "p")
    }

    /// Adds a snapshot with this prefix to the store. The time in its name is its revision.
    fn keep(&self, revision: u64, begin: &str) -> PathBuf {
        let path = self.root.join(format!("store/p/v2/Full-00000000-{revision:08}-{revision}.gz"));
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(&sealed(begin)).unwrap();
        fs::write(&path, packed.finish().unwrap()).unwrap();
        path
    }

    /// Makes a member with these files, if they have content, and folders without files.
    fn member(&self, log: &[u8], database: &[u8]) {
        let member = self.place.data.join("member");
        for (folder, name, content) in [("wal", "0.wal", log), ("snap", "db", database)] {
            fs::create_dir_all(member.join(folder)).unwrap();
            if !content.is_empty() {
                fs::write(member.join(folder).join(name), content).unwrap();
            }
        }
    }

    fn prepare_from(
        &self,
        accepted: SnapshotDemand,
        store: &dyn SnapshotStore,
    ) -> Result<PreparedData, String> {
        let mut say = |text: &str| self.said.borrow_mut().push(text.to_owned());
        prepare(&self.place, accepted, || Ok(store), &mut say).map_err(|error| chain(&error))
    }

    fn prepare(&self) -> Result<PreparedData, String> {
        self.prepare_from(SnapshotDemand::NewestWhole, &self.store())
    }

    fn said(&self) -> String {
        self.said.take().join("\n")
    }

    /// The first bytes of the database.
    fn data(&self) -> String {
        let bytes = fs::read(self.place.data.join("member/snap/db")).unwrap_or_default();
        String::from_utf8_lossy(bytes.split(|byte| *byte == 0).next().unwrap()).into_owned()
    }

    /// The content of the volume.
    fn volume(&self) -> Vec<String> {
        let entries = fs::read_dir(self.root.join("volume")).unwrap();
        let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

fn sealed(begin: &str) -> Vec<u8> {
    // Random data, so that each bit of the packed form matters.
    let mut all = random::vec(64 << 10);
    all[..80].copy_from_slice(&head(1, 16));
    all[..begin.len()].copy_from_slice(begin.as_bytes());
    let seal = digest(&SHA256, &all);
    all.extend_from_slice(seal.as_ref());
    all
}

/// The begin of a log.
const LOG: &[u8] = &[4, 0, 0, 0, 0, 0, 0, 0x84, 1];

fn restored(revision: u64) -> Result<PreparedData, String> {
    let snapshot = format!("Full-00000000-{revision:08}-{revision}.gz");
    Ok(PreparedData::Restored { snapshot, deltas: 0, revision })
}

#[test]
fn an_etcd_with_data_is_unchanged_regardless_of_the_store() {
    let scene = Scene::new();
    scene.member(LOG, &sealed("data"));
    fs::remove_dir_all(scene.root.join("store")).unwrap();
    assert_eq!(scene.prepare(), Ok(PreparedData::Member));
    // The store is not even opened, so bad credentials do not matter.
    let refused = || Err::<Box<dyn SnapshotStore>, _>(Error::Unusable("no key".to_owned()));
    assert!(matches!(
        prepare(&scene.place, SnapshotDemand::NewestWhole, refused, &mut |_| ()),
        Ok(PreparedData::Member)
    ));
    // Leftovers of an earlier start are removed.
    fs::create_dir_all(scene.root.join("volume/new.etcd.restoring-1/data/member")).unwrap();
    fs::write(scene.root.join("volume/new.etcd.restoring-2"), "half").unwrap();
    // A link in place of a leftover is not followed.
    symlink(scene.root.join("etcd.yaml"), scene.root.join("volume/new.etcd.restoring-3")).unwrap();
    fs::create_dir_all(scene.root.join("volume/lost+found")).unwrap();
    assert_eq!(scene.prepare(), Ok(PreparedData::Member));
    assert_eq!(scene.volume(), ["lost+found", "new.etcd"]);
    assert!(scene.root.join("etcd.yaml").is_file());
}

#[test]
fn data_are_a_store_that_opens() {
    let scene = Scene::new();
    // Neither a log nor a database: nothing can be lost.
    scene.member(b"", b"");
    assert_eq!(scene.prepare(), Ok(PreparedData::New));
    scene.keep(5, "five");
    assert_eq!(
        (scene.prepare(), scene.data(), scene.volume()),
        (restored(5), "five".to_owned(), vec!["new.etcd".to_owned()])
    );
    assert_eq!(scene.prepare(), Ok(PreparedData::Member));
    for (log, database, why) in
        [(LOG, &b"half a database"[..], "its database does not open"), (b"", b"x", "its member has no log")]
    {
        fs::remove_dir_all(&scene.place.data).unwrap();
        scene.member(log, database);
        scene.said();
        assert_eq!((scene.prepare(), scene.data()), (restored(5), "five".to_owned()));
        let said = scene.said();
        assert!(said.contains(&format!("new.etcd: {why}: restoring a snapshot of ")), "{said}");
        // Only the last one is kept.
        let [data, aside] = &scene.volume()[..] else { panic!("{:?}", scene.volume()) };
        assert!(data == "new.etcd" && aside.starts_with("new.etcd.unusable-"), "{aside}");
        assert!(said.contains(&format!("{aside}; remove it if nobody needs it")), "{said}");
        let kept = scene.root.join("volume").join(aside).join("member/snap/db");
        assert_eq!(fs::read(kept).unwrap(), database);
    }
    // Without a snapshot, etcd decides.
    fs::remove_dir_all(scene.root.join("store/p/v2")).unwrap();
    fs::remove_dir_all(&scene.place.data).unwrap();
    scene.member(b"", b"x");
    assert_eq!(scene.prepare(), Ok(PreparedData::Member));
    assert!(scene.said().ends_with("has no snapshots: etcd starts with what is there"));
    // A store that does not answer may have one.
    fs::remove_dir_all(scene.root.join("store")).unwrap();
    assert!(scene.prepare().unwrap_err().starts_with("read the store "));
}

#[test]
fn only_a_reachable_store_lets_an_etcd_start_empty() {
    let scene = Scene::new();
    assert_eq!(scene.prepare(), Ok(PreparedData::New));
    fs::create_dir(&scene.place.data).unwrap();
    assert_eq!(scene.prepare(), Ok(PreparedData::New));
    fs::write(scene.place.data.join(".touch"), "").unwrap();
    assert_eq!(scene.prepare(), Ok(PreparedData::New));
    fs::rename(scene.root.join("store"), scene.root.join("elsewhere")).unwrap();
    assert!(scene.prepare().unwrap_err().starts_with("read the store "));
    fs::rename(scene.root.join("elsewhere"), scene.root.join("store")).unwrap();
    fs::write(scene.place.data.join("notes"), "").unwrap();
    let error = scene.prepare().unwrap_err();
    assert!(
        error.contains("holds \"notes\", and no member: it is not the data of an etcd; move it away"),
        "{error}"
    );
}

#[test]
fn the_newest_valid_snapshot_is_restored() {
    let scene = Scene::new();
    scene.keep(5, "five");
    scene.keep(12, "twelve");
    scene.keep(7, "seven");
    fs::create_dir(&scene.place.data).unwrap();
    fs::write(scene.place.data.join(".touch"), "").unwrap();
    fs::write(scene.root.join("store/p/v2/Incr-00000006-00000012-11.gz"), "x").unwrap();
    assert_eq!(scene.prepare(), restored(12));
    assert_eq!((scene.data(), scene.volume()), ("twelve".to_owned(), vec!["new.etcd".to_owned()]));
    let called = fs::read_to_string(scene.place.data.join("member/called")).unwrap();
    let expected = "--name=etcd-main-0 --initial-cluster=etcd-main-0=http://p:2380 --initial-advertise-peer-urls=http://p:2380 \
                    --initial-cluster-token=t --bump-revision=1000000000 --mark-compacted\n";
    assert_eq!(called, expected);
    assert_eq!(scene.prepare(), Ok(PreparedData::Member));
}

#[test]
fn broken_snapshots_are_skipped_and_named() {
    let scene = Scene::new();
    scene.keep(1, "one");
    let broken: [&dyn Fn(Vec<u8>) -> Vec<u8>; 6] = [
        &|_| Vec::new(),
        &|all| all[..all.len() / 2].to_vec(),
        &|mut all| {
            let middle = all.len() / 2;
            all[middle] ^= 0x10;
            all
        },
        &|mut all| {
            let crc = all.len() - 6;
            all[crc] ^= 1;
            all
        },
        // gzip is valid, but etcd's digest is not.
        &|_| {
            let mut content = sealed("changed");
            content[100] ^= 1;
            let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
            packed.write_all(&content).unwrap();
            packed.finish().unwrap()
        },
        &|_| b"not packed".to_vec(),
    ];
    for (revision, break_it) in (2..).zip(broken) {
        let path = scene.keep(revision, "broken");
        fs::write(&path, break_it(fs::read(&path).unwrap())).unwrap();
    }
    fs::write(scene.root.join("store/p/v2/Full-00000000-00000009-9.zlib"), "x").unwrap();
    assert_eq!(scene.prepare(), restored(1));
    assert_eq!(scene.data(), "one");
    let said = scene.said();
    for revision in 2..=7 {
        let text = format!("snapshot Full-00000000-{revision:08}-{revision}.gz is broken: ");
        assert!(said.contains(&text), "{text}: {said}");
    }
    assert!(said.contains("Full-00000000-00000009-9.zlib is broken: it is packed in a way"), "{said}");
    // Without a valid snapshot, etcd does not start.
    fs::remove_dir_all(&scene.place.data).unwrap();
    fs::remove_file(scene.root.join("store/p/v2/Full-00000000-00000001-1.gz")).unwrap();
    let error = scene.prepare().unwrap_err();
    assert!(
        error.contains("(7 full ones are broken, 0 are deltas)") && error.contains("move them all away"),
        "{error}"
    );
    assert!(!scene.place.data.exists());
}

#[test]
fn an_older_snapshot_does_not_replace_the_newest_one_in_a_move() {
    let scene = Scene::new();
    let restore = || scene.prepare_from(SnapshotDemand::OnlyNewest { revision: 0 }, &scene.store());
    scene.keep(3, "three");
    let path = scene.keep(5, "five");
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    let error = restore().unwrap_err();
    let words =
        "etcd does not start with an older one while its Shoot is restored; bring a good copy of it to ";
    assert!(error.starts_with("snapshot Full-00000000-00000005-5.gz is broken: "), "{error}");
    assert!(error.contains(words), "{error}");
    assert!(!scene.place.data.exists());
    fs::write(&path, whole).unwrap();
    assert_eq!((restore(), scene.data()), (restored(5), "five".to_owned()));
}

#[test]
fn snapshots_that_have_vanished_are_missed() {
    let scene = Scene::new();
    let reaching = |revision| scene.prepare_from(SnapshotDemand::OnlyNewest { revision }, &scene.store());
    scene.keep(3, "three");
    scene.keep(5, "five");
    let error = reaching(6).unwrap_err();
    let words = "end with revision 5, and had reached revision 6: etcd does not start with older data while its Shoot is restored";
    assert!(error.starts_with("the snapshots of ") && error.contains(words), "{error}");
    assert!(!scene.place.data.exists());
    assert_eq!((reaching(5), scene.data()), (restored(5), "five".to_owned()));
}

#[test]
fn deltas_that_are_not_one_history_keep_etcd_from_starting() {
    let scene = Scene::new();
    scene.keep(5, "five");
    let delta = |name: &str| fs::write(scene.root.join("store/p/v2").join(name), "x").unwrap();
    delta("Incr-00000006-00000008-20.gz");
    delta("Incr-00000010-00000012-30.gz");
    let error = scene.prepare().unwrap_err();
    let expected = [
        "the delta snapshots of ",
        " after Full-00000000-00000005-5.gz cannot be restored: revisions 9 to 9 are in no snapshot, and Incr-00000010-00000012-30.gz \
         follows. This etcd does not start with a part of its data: ",
        "move this one and all deltas after it away to lose what they contain: the first one to move is Incr-00000010-00000012-30.gz",
    ];
    expected.iter().for_each(|part| assert!(error.contains(part), "{error}"));
    assert!(!scene.place.data.exists());
    // With the remedy, a restoration needs an etcd.
    fs::remove_file(scene.root.join("store/p/v2/Incr-00000010-00000012-30.gz")).unwrap();
    let error = scene.prepare().unwrap_err();
    assert_eq!(error, "apply delta snapshots with /bin/false: it ended with exit status: 1");
    assert!(!scene.place.data.exists());
    assert_eq!(scene.said().matches("it starts again").count(), 2);
}

#[test]
fn deltas_that_are_left_out_are_named() {
    let scene = Scene::new();
    scene.keep(50, "fifty");
    fs::write(scene.root.join("store/p/v2/Incr-00000900-00000950-20.gz"), "x").unwrap();
    fs::write(scene.keep(70, "broken"), "x").unwrap();
    fs::write(scene.root.join("store/p/v2/Incr-00000071-00000080-80.gz"), "x").unwrap();
    fs::write(scene.root.join("store/p/v2/Incr-00000081-00000090-90.gz"), "x").unwrap();
    assert_eq!(scene.prepare(), restored(50));
    let said = scene.said();
    for part in [
        "Incr-00000900-00000950-20.gz is of another history than Full-00000000-00000050-50.gz, and is not restored",
        "Incr-00000071-00000080-80.gz to Incr-00000081-00000090-90.gz continue a broken snapshot",
        "changes up to revision 90 are lost",
    ] {
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn a_store_with_only_deltas_is_not_empty() {
    let scene = Scene::new();
    fs::write(scene.root.join("store/p/v2/Incr-00000013-00000020-20.gz"), "x").unwrap();
    let error = scene.prepare().unwrap_err();
    assert!(error.contains("(0 full ones are broken, 1 are deltas)"), "{error}");
}

#[test]
fn an_interrupted_restoration_starts_again() {
    let scene = Scene::new();
    for order in ["fail", "kill"] {
        let path = scene.keep(9, order);
        let error = scene.prepare().unwrap_err();
        assert!(error.contains("etcdutl: it ended with "), "{error}");
        assert!(!scene.place.data.exists());
        fs::remove_file(path).unwrap();
    }
    scene.keep(9, "nine");
    assert!(scene.volume()[0].starts_with("new.etcd.restoring-"), "{:?}", scene.volume());
    assert_eq!((scene.prepare(), scene.data()), (restored(9), "nine".to_owned()));
    assert_eq!(scene.volume(), ["new.etcd"]);
}

/// A store that fails in the middle of the newest snapshot, a number of times.
#[derive(Debug)]
struct Flaky(DirectoryStore, Cell<u32>);

struct Cut(Box<dyn Read>, usize);

impl Read for Cut {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.1 == 0 {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        let count = self.1.min(buffer.len());
        let read = self.0.read(&mut buffer[..count])?;
        self.1 -= read;
        Ok(read)
    }
}

impl SnapshotStore for Flaky {
    fn place(&self) -> String {
        "flaky".to_owned()
    }

    fn list(&self) -> Result<Vec<Snapshot>, Error> {
        self.0.list()
    }

    fn open(&self, snapshot: &Snapshot) -> Result<Box<dyn Read + '_>, Error> {
        if self.1.replace(self.1.get().saturating_sub(1)) == 0 {
            return self.0.open(snapshot);
        }
        let mut all = Vec::new();
        self.0.open(snapshot)?.read_to_end(&mut all).map_err(Error::io("read"))?;
        let half = all.len() / 2;
        Ok(Box::new(Cut(Box::new(io::Cursor::new(all)), half)))
    }

    fn create(&self, name: &str) -> Result<Box<dyn Upload + '_>, Error> {
        self.0.create(name)
    }

    fn remove(&self, name: &str) -> Result<(), Error> {
        self.0.remove(name)
    }

    fn sweep(&self, now: Timestamp) -> Result<(), Error> {
        self.0.sweep(now)
    }
}

#[test]
fn a_failing_store_is_no_broken_snapshot() {
    let scene = Scene::new();
    scene.keep(1, "one");
    scene.keep(2, "two");
    let store = Flaky(scene.store(), Cell::new(1));
    let prepare = || scene.prepare_from(SnapshotDemand::NewestWhole, &store);
    let error = prepare().unwrap_err();
    assert_eq!(error, "read Full-00000000-00000002-2.gz of flaky: connection reset");
    assert_eq!((prepare(), scene.data()), (restored(2), "two".to_owned()));
}

#[test]
fn a_mismatching_configuration_keeps_etcd_from_starting() {
    let scene = Scene::new();
    let table = [
        ("name: x\n", "data-dir is \"\", and --data-dir"),
        ("data-dir: /elsewhere\n", "they must be the same"),
        ("- x\n", "data-dir is \"\""),
        ("\tx: [", "etcd.yaml: "),
    ];
    for (text, expected) in table {
        fs::write(&scene.place.config, text).unwrap();
        let error = scene.prepare().unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
    let data = scene.place.data.display().to_string();
    fs::write(&scene.place.config, format!("name: x\ndata-dir: {data}\ninitial-cluster: ''\n")).unwrap();
    assert!(scene.prepare().unwrap_err().ends_with("initial-cluster is missing"));
    fs::remove_file(&scene.place.config).unwrap();
    assert!(scene.prepare().unwrap_err().starts_with("read "));
}
