//! Whether the data directory of an etcd holds a store that opens.
//!
//! A power cut or a full disk can leave a member without a log or with a database that does not open. etcd ends with an error
//! then, or begins at revision 1.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use crate::snapshot::error::Error;

/// A file that etcd itself leaves in a directory if it ends before it has a member.
pub(super) const TOUCHED: &str = ".touch";

/// The data of an etcd.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Member {
    Absent,
    /// etcd can start with them.
    Whole,
    /// There are files, and etcd cannot start with them; with the reason.
    Unusable(&'static str),
}

/// Looks at a data directory. A directory with other content is refused, because it may be valuable.
pub(super) fn look(data: &Path) -> Result<Member, Error> {
    let doing = || format!("read the data directory {}", data.display());
    let entries = match fs::read_dir(data) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Member::Absent),
        other => other.map_err(Error::io(doing()))?,
    };
    let mut strange = None;
    for entry in entries {
        let name = entry.map_err(Error::io(doing()))?.file_name();
        if name == "member" {
            return member(&data.join("member")).map_err(Error::io(doing()));
        }
        strange = strange.or(Some(name).filter(|name| name != TOUCHED));
    }
    match strange {
        None => Ok(Member::Absent),
        Some(name) => Err(Error::Unusable(format!(
            "{} holds {:?}, and no member: it is not the data of an etcd; move it away to let a snapshot be restored",
            data.display(),
            name
        ))),
    }
}

fn member(folder: &Path) -> io::Result<Member> {
    if !has_log(&folder.join("wal"))? {
        let is_empty = !has_file(folder)?;
        return Ok(if is_empty { Member::Absent } else { Member::Unusable("its member has no log") });
    }
    // etcd makes a missing database from its log, or says why it cannot.
    let opens = match File::open(folder.join("snap/db")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => true,
        opened => opens(&opened?)?,
    };
    Ok(if opens { Member::Whole } else { Member::Unusable("its database does not open") })
}

/// Whether there is a file that begins with a record. etcd makes files of zeros in advance.
fn has_log(folder: &Path) -> io::Result<bool> {
    for entry in entries(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|end| end == "wal") {
            let mut head = Vec::new();
            File::open(&path)?.take(8).read_to_end(&mut head)?;
            if head.len() == 8 && head.iter().any(|byte| *byte != 0) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

fn has_file(folder: &Path) -> io::Result<bool> {
    for entry in entries(folder)? {
        let entry = entry?;
        if !entry.file_type()?.is_dir() || has_file(&entry.path())? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The entries of a folder; none if it is missing.
fn entries(folder: &Path) -> io::Result<Box<dyn Iterator<Item = io::Result<fs::DirEntry>>>> {
    match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Box::new(std::iter::empty())),
        read => Ok(Box::new(read?)),
    }
}

const META_OFFSET: u64 = 16;
const META_BYTES: usize = 64;
const MAGIC: u32 = 0xED0C_DAED;
const VERSION: u32 = 2;

/// Whether it is a database of bbolt: one of its two descriptions is intact, and the file has all of its pages.
fn opens(file: &File) -> io::Result<bool> {
    let bytes = file.metadata()?.len();
    // The second description is on the second page, and the size of a page is in the descriptions.
    let places = std::iter::once(0).chain((10..=16).map(|exponent| 1 << exponent));
    let mut newest: Option<Meta> = None;
    for place in places {
        let mut meta = [0; META_BYTES];
        match file.read_exact_at(&mut meta, place + META_OFFSET) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
            read => read?,
        }
        newest = newest.max(Meta::read(&meta).filter(|found| place == 0 || place == found.page_bytes));
    }
    Ok(newest.is_some_and(|newest| newest.pages.saturating_mul(newest.page_bytes) <= bytes))
}

/// The later transaction is greater.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Meta {
    transaction: u64,
    page_bytes: u64,
    pages: u64,
}

impl Meta {
    /// `None` if it is not intact. All our processors are little endian, and bbolt writes in their order.
    fn read(bytes: &[u8; META_BYTES]) -> Option<Self> {
        let small = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let large = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let is_intact = small(0)? == MAGIC && small(4)? == VERSION && large(56)? == fnv(bytes.get(..56)?);
        let page_bytes = u64::from(small(8)?);
        is_intact.then_some(Self { transaction: large(48)?, page_bytes, pages: large(40)? })
    }
}

/// FNV-1a, 64 bits.
fn fnv(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
pub(super) mod tests {
    use std::io::Write as _;

    use super::*;
    use crate::base::random;

    /// The first 80 bytes of a database with pages of 4 KiB.
    pub(crate) fn head(transaction: u64, pages: u64) -> Vec<u8> {
        let mut meta = Vec::new();
        for field in [MAGIC, VERSION, 4_096, 0] {
            meta.extend(field.to_le_bytes());
        }
        for field in [3, 0, 2, pages, transaction] {
            meta.extend(u64::to_le_bytes(field));
        }
        let sum = fnv(&meta);
        [vec![0; 16], meta, sum.to_le_bytes().to_vec()].concat()
    }

    /// A database of so many pages of 4 KiB.
    fn database(pages: u64) -> Vec<u8> {
        let mut all = vec![0; usize::try_from(pages).unwrap() * 4_096];
        for (page, transaction) in [(0, 6), (1, 7)] {
            let head = head(transaction, pages);
            all[page * 4_096..page * 4_096 + head.len()].copy_from_slice(&head);
        }
        all
    }

    #[test]
    fn a_database_opens_if_one_description_is_intact_and_all_pages_are_there() {
        let break_at = |mut all: Vec<u8>, places: &[usize]| {
            places.iter().for_each(|place| all[*place] ^= 1);
            all
        };
        let whole = || database(4);
        let table = [
            (whole(), true),
            (break_at(whole(), &[50]), true),
            (break_at(whole(), &[4_096 + 50]), true),
            (break_at(whole(), &[50, 4_096 + 50]), false),
            (whole()[..16_383].to_vec(), false),
            (whole()[..80].to_vec(), false),
            (whole()[..79].to_vec(), false),
            (Vec::new(), false),
            (vec![0; 16_384], false),
            (random::vec(16_384), false),
        ];
        let path = std::env::temp_dir().join(format!("gardenlet-database-{}", random::hex(12)));
        for (number, (content, expected)) in table.into_iter().enumerate() {
            fs::write(&path, content).unwrap();
            assert_eq!(opens(&File::open(&path).unwrap()).unwrap(), expected, "{number}");
        }
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn data_are_a_log_and_a_database_that_opens() {
        use Member::{Absent, Unusable, Whole};
        let (no_log, no_database) = ("its member has no log", "its database does not open");
        let log = || Some(vec![4, 0, 0, 0, 0, 0, 0, 0x84, 1]);
        // The log and the database, if they exist.
        let table = [
            (None, None, Absent),
            (log(), Some(database(4)), Whole),
            (log(), None, Whole),
            (log(), Some(vec![0; 16_384]), Unusable(no_database)),
            (log(), Some(database(4)[..9_000].to_vec()), Unusable(no_database)),
            (None, Some(database(4)), Unusable(no_log)),
            (Some(vec![0; 64]), Some(database(4)), Unusable(no_log)),
            (Some(Vec::new()), None, Unusable(no_log)),
        ];
        for (log, database, expected) in table {
            let data = std::env::temp_dir().join(format!("gardenlet-member-{}", random::hex(12)));
            assert_eq!(look(&data).unwrap(), Absent);
            for folder in ["member/wal", "member/snap"] {
                fs::create_dir_all(data.join(folder)).unwrap();
            }
            for (name, content) in [("wal/0.wal", log), ("snap/db", database)] {
                if let Some(content) = content {
                    File::create(data.join("member").join(name)).unwrap().write_all(&content).unwrap();
                }
            }
            let found = look(&data).unwrap();
            fs::remove_dir_all(data).unwrap();
            assert_eq!(found, expected);
        }
    }
}
