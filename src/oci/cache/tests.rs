use std::os::unix::fs::MetadataExt as _;

use super::*;
use crate::base::random;

struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        Self(std::env::temp_dir().join(format!("gardenlet-charts-{}", random::hex(12))))
    }

    fn cache(&self, bytes_max: u64) -> Cache {
        Cache::new(Some(&self.0), bytes_max)
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.join("charts")).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.map(|e| e.file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn file(&self, digest: Digest) -> PathBuf {
        self.0.join("charts").join(digest.hex())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn content(found: Option<VerifiedContent>) -> Option<Vec<u8>> {
    found.map(|content| content.read_all(1 << 20).unwrap())
}

impl<'a> Begun<'a> {
    fn fetch(self) -> Partial<'a> {
        match self {
            Self::Fetch(partial) => *partial,
            Self::There(_) => panic!("it is there already"),
        }
    }
}

fn keep(cache: &Cache, bytes: &[u8]) -> Digest {
    let digest = Digest::of(bytes);
    cache.put(digest, bytes);
    digest
}

#[test]
fn the_next_process_finds_cached_files_and_never_rewrites_them() {
    let scratch = Scratch::new();
    let digest = keep(&scratch.cache(1 << 20), b"chart");
    let inode = fs::metadata(scratch.file(digest)).unwrap().ino();
    let modified = fs::metadata(scratch.file(digest)).unwrap().mtime_nsec();
    let cache = scratch.cache(1 << 20);
    assert_eq!(content(cache.find(digest)).unwrap(), b"chart");
    assert!(matches!(cache.begin(digest, &Stop::new()), Ok(Begun::There(_))));
    let metadata = fs::metadata(scratch.file(digest)).unwrap();
    assert_eq!((metadata.ino(), metadata.mtime_nsec()), (inode, modified));
    assert_eq!(content(cache.find(Digest::of(b"other"))), None);
    assert_eq!(scratch.names(), [digest.hex()]);
}

#[test]
fn a_torn_or_changed_file_is_removed_and_fetched_again() {
    let scratch = Scratch::new();
    let cache = scratch.cache(1 << 20);
    for damage in [b"".as_slice(), b"char", b"chart!", b"chaRt"] {
        let digest = keep(&cache, b"chart");
        fs::write(scratch.file(digest), damage).unwrap();
        assert!(cache.find(digest).is_none(), "{damage:?}");
        assert!(scratch.names().is_empty());
    }
    let digest = keep(&cache, b"chart");
    assert_eq!(content(cache.find(digest)).unwrap(), b"chart");
}

#[test]
fn a_download_goes_on_where_the_last_one_ended() {
    let scratch = Scratch::new();
    let digest = Digest::of(b"a long chart");
    let begin = |cache: &Cache| {
        let mut partial = cache.begin(digest, &Stop::new()).unwrap().fetch();
        let before = partial.bytes();
        if before == 0 {
            partial.write(b"a long").unwrap();
            return (before, None);
        }
        partial.write(b" chart").unwrap();
        (before, Some(partial.finish().unwrap()))
    };
    assert_eq!(begin(&scratch.cache(1 << 20)).0, 0);
    assert_eq!(scratch.names(), [format!("{}.part", digest.hex())]);
    let (before, found) = begin(&scratch.cache(1 << 20));
    assert_eq!((before, content(found).unwrap().as_slice()), (6, b"a long chart".as_slice()));
    assert_eq!(scratch.names(), [digest.hex()]);
}

#[test]
fn content_with_another_digest_is_dropped() {
    let scratch = Scratch::new();
    let cache = scratch.cache(1 << 20);
    let digest = Digest::of(b"right");
    let mut partial = cache.begin(digest, &Stop::new()).unwrap().fetch();
    partial.write(b"wrong").unwrap();
    let error = partial.finish().unwrap_err();
    assert!(matches!(error, Error::Digest { found, .. } if found == Digest::of(b"wrong")));
    let partial = cache.begin(digest, &Stop::new()).unwrap().fetch();
    assert_eq!(partial.bytes(), 0, "nothing of it is used again");
}

#[test]
fn unused_files_are_evicted_first() {
    let scratch = Scratch::new();
    let digests: Vec<Digest> = {
        let cache = scratch.cache(1 << 20);
        (0..4u8).map(|n| keep(&cache, &[n; 3_000])).collect()
    };
    for (age, digest) in (0..).zip(&digests) {
        let at = std::time::UNIX_EPOCH + Duration::from_secs(1_000_000 + age);
        File::options().write(true).open(scratch.file(*digest)).unwrap().set_modified(at).unwrap();
    }
    // Four blocks; the first was used, so the second goes, then the third.
    let cache = scratch.cache(16 << 10);
    cache.find(digests[0]).unwrap();
    let fifth = keep(&cache, &[5; 3_000]);
    let sixth = keep(&cache, &[6; 3_000]);
    let here = |digest: &Digest| scratch.file(*digest).exists();
    assert_eq!(digests.iter().map(here).collect::<Vec<_>>(), [true, false, false, true]);
    assert!(here(&fifth) && here(&sixth));
    // A chart that does not fit at all is usable, but not kept.
    let large = vec![7; 20_000];
    let mut partial = cache.begin(Digest::of(&large), &Stop::new()).unwrap().fetch();
    partial.write(&large).unwrap();
    assert_eq!(content(partial.finish().ok()).unwrap(), large);
    assert!(scratch.names().is_empty());
}

#[test]
fn without_a_disk_a_little_is_kept_in_memory() {
    let memory = Cache::new(None, 1 << 20);
    let first = keep(&memory, &vec![1; 1 << 20]);
    let second = keep(&memory, &vec![2; 1 << 20]);
    assert!(memory.find(first).is_some());
    let third = keep(&memory, b"small");
    assert!(memory.find(second).is_none(), "it was used longest ago");
    assert!(memory.find(first).is_some() && memory.find(third).is_some());

    // A file in place of the directory.
    let scratch = Scratch::new();
    fs::create_dir_all(&scratch.0).unwrap();
    fs::write(scratch.0.join("charts"), "").unwrap();
    let cache = scratch.cache(1 << 20);
    let digest = keep(&cache, b"chart");
    assert_eq!(content(cache.find(digest)).unwrap(), b"chart");
}

#[test]
fn the_same_content_is_fetched_once() {
    let cache = Cache::new(None, 1 << 20);
    let digest = Digest::of(b"chart");
    let partial = cache.begin(digest, &Stop::new()).unwrap().fetch();
    let (other, stop) = (cache.clone(), Stop::new());
    let waiter = {
        let stop = stop.clone();
        crate::base::thread::spawn("second", 256 << 10, move || match other.begin(digest, &stop) {
            Ok(Begun::There(content)) => content.read_all(10).unwrap(),
            _ => Vec::new(),
        })
        .unwrap()
    };
    let mut partial = partial;
    partial.write(b"chart").unwrap();
    partial.finish().unwrap();
    assert_eq!(waiter.join().unwrap(), b"chart");
    let held = Digest::of(b"held");
    let _partial = cache.begin(held, &stop).unwrap().fetch();
    stop.stop();
    assert!(matches!(cache.begin(held, &stop), Err(Error::Stopped)));
}
