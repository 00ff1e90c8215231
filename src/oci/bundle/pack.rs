//! A bundle as one file, and the files of a bundle in any form. Archives are ustar and independent of time and machine:
//! the same charts give the same bytes. `.tar.gz` is for tools that require it; it is not compressed, because charts
//! are compressed already.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use flate2::Crc;
use flate2::read::MultiGzDecoder;
use tar::{EntryType, Header};

use super::import::Incoming;
use super::{Bundle, BundleBlobs, Error, IMAGES, INDEX, LAYOUT, NO_BUNDLE, READ_AGAIN, blob_path, replace};
use crate::base::sorted::SortedSet;
use crate::limits;
use crate::oci::file;

const BLOCK: usize = 512;
/// The most bytes in one stored block of gzip.
const STORED_BYTES_MAX: usize = 65_535;

/// The form of a bundle, which follows from its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BundleForm {
    Directory,
    /// `.tar`
    Tar,
    /// `.tar.gz` or `.tgz`
    TarGz,
}

impl BundleForm {
    /// The form of a new bundle.
    pub(crate) fn of(path: &Path) -> Self {
        let name = path.to_string_lossy();
        match name.as_ref() {
            name if name.ends_with(".tar") => Self::Tar,
            name if name.ends_with(".tar.gz") || name.ends_with(".tgz") => Self::TarGz,
            _ => Self::Directory,
        }
    }
}

/// `path` with a suffix after its name.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

/// Packs a bundle with these blobs into one file, atomically. Errors: if a file cannot be read or written.
pub(crate) fn pack(bundle: &Bundle, blobs: &BundleBlobs, to: &Path) -> Result<(), Error> {
    replace(to, &mut |file| {
        let file: &mut dyn Write = file;
        let mut out = BufWriter::new(file);
        match BundleForm::of(to) {
            BundleForm::TarGz => {
                let mut gzip = Stored::begin(&mut out)?;
                write(bundle, blobs, &mut gzip)?;
                gzip.end()?;
            }
            _ => write(bundle, blobs, &mut out)?,
        }
        out.flush()
    })
}

fn write(bundle: &Bundle, blobs: &BundleBlobs, out: &mut dyn Write) -> io::Result<()> {
    let fixed = [LAYOUT.0, INDEX, IMAGES].map(str::to_owned);
    for name in fixed.into_iter().chain(blobs.keys().map(blob_path)) {
        let mut file = File::open(bundle.directory().join(&name))?;
        let bytes = file.metadata()?.len();
        let mut header = Header::new_ustar();
        header.set_path(&name)?;
        header.set_entry_type(EntryType::Regular);
        header.set_mode(0o644);
        header.set_mtime(0);
        header.set_size(bytes);
        header.set_cksum();
        out.write_all(header.as_bytes())?;
        // A file that shrinks meanwhile must not break the archive.
        if transfer(&mut file, out, bytes)? != bytes {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        out.write_all(&[0; BLOCK][..padding(bytes)])?;
    }
    out.write_all(&[0; 2 * BLOCK])
}

/// Copies up to this many bytes, and returns how many there were.
fn transfer(from: &mut dyn Read, to: &mut dyn Write, bytes: u64) -> io::Result<u64> {
    let (mut buffer, mut done) = ([0; 16 << 10], 0);
    while done < bytes {
        let wanted = usize::try_from(bytes - done).unwrap_or(usize::MAX).min(buffer.len());
        let amount = from.read(&mut buffer[..wanted])?;
        if amount == 0 {
            break;
        }
        to.write_all(&buffer[..amount])?;
        done += u64::try_from(amount).unwrap_or(u64::MAX);
    }
    Ok(done)
}

/// The number of bytes between the end of a file and the next block.
fn padding(bytes: u64) -> usize {
    let block = u64::try_from(BLOCK).unwrap_or(u64::MAX);
    usize::try_from(bytes.next_multiple_of(block) - bytes).unwrap_or_default()
}

/// gzip without compression.
struct Stored<'a> {
    out: &'a mut dyn Write,
    crc: Crc,
}

impl<'a> Stored<'a> {
    fn begin(out: &'a mut dyn Write) -> io::Result<Self> {
        out.write_all(&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255])?;
        Ok(Self { out, crc: Crc::new() })
    }

    fn end(self) -> io::Result<()> {
        self.out.write_all(&[1, 0, 0, 255, 255])?;
        self.out.write_all(&self.crc.sum().to_le_bytes())?;
        self.out.write_all(&self.crc.amount().to_le_bytes())
    }
}

impl Write for Stored<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let bytes = &bytes[..bytes.len().min(STORED_BYTES_MAX)];
        let length = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
        self.out.write_all(&[0])?;
        self.out.write_all(&length.to_le_bytes())?;
        self.out.write_all(&(!length).to_le_bytes())?;
        self.out.write_all(bytes)?;
        self.crc.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

type Each<'a> = &'a mut dyn FnMut(&str, &mut Incoming<'_>) -> Result<(), Error>;

/// Calls back with the files of a bundle that have these paths.
pub(super) fn each(from: &Path, names: &SortedSet<String>, each: Each<'_>) -> Result<(), Error> {
    if from.is_dir() {
        return each_in_directory(from, names, each);
    }
    let open = || file::open(from).map_err(Error::at(from, NO_BUNDLE));
    let mut magic = [0; 2];
    let is_zipped = open()?.read_exact(&mut magic).is_ok() && magic == [0x1f, 0x8b];
    let mut file = open()?;
    let packed: &mut dyn Read = &mut file;
    if is_zipped {
        return each_in_archive(from, &mut MultiGzDecoder::new(packed), names, each);
    }
    each_in_archive(from, packed, names, each)
}

fn each_in_directory(from: &Path, names: &SortedSet<String>, each: Each<'_>) -> Result<(), Error> {
    for name in names {
        let path = from.join(name);
        let mut file = match file::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            other => other.map_err(Error::at(&path, READ_AGAIN))?,
        };
        let bytes = file.metadata().map_err(Error::at(&path, READ_AGAIN))?.len();
        each(name, &mut Incoming { from, name, bytes, content: &mut file })?;
    }
    Ok(())
}

fn each_in_archive(
    from: &Path,
    archive: &mut dyn Read,
    names: &SortedSet<String>,
    each: Each<'_>,
) -> Result<(), Error> {
    let refuse = |why: &str| Error::new(from.display(), why, READ_AGAIN);
    let broken = Error::at::<io::Error>;
    let mut total = 0_u64;
    for _ in 0..limits::BUNDLE_FILES_MAX {
        let mut header = Header::new_old();
        archive.read_exact(header.as_mut_bytes()).map_err(broken(from, READ_AGAIN))?;
        if header.as_bytes().iter().all(|byte| *byte == 0) {
            return Ok(());
        }
        let bytes = header.entry_size().map_err(|_| refuse("it is not a tar archive"))?;
        total = total.saturating_add(bytes);
        if total > limits::BUNDLE_BYTES_MAX {
            return Err(refuse(&format!(
                "it announces files of more than {} bytes",
                limits::BUNDLE_BYTES_MAX
            )));
        }
        let kind = header.entry_type();
        let path = header.path_bytes().into_owned();
        let mut content = Read::take(&mut *archive, bytes);
        // Skips directories, and headers that other tools put before a file.
        if kind.is_file() || kind.is_contiguous() {
            let name = String::from_utf8_lossy(&path);
            let name = name.trim_start_matches("./");
            if names.contains(name) {
                each(name, &mut Incoming { from, name, bytes, content: &mut content })?;
            }
        }
        let rest = content.limit();
        let skipped = u64::try_from(padding(bytes)).unwrap_or_default() + rest;
        let passed = transfer(archive, &mut io::sink(), skipped);
        if passed.map_err(broken(from, READ_AGAIN))? != skipped {
            return Err(refuse("it ends too early"));
        }
    }
    Err(refuse("it has too many files"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::base::random;

    #[test]
    fn the_name_says_the_form() {
        for (name, form) in [
            ("charts", BundleForm::Directory),
            ("charts.tar", BundleForm::Tar),
            ("x/charts.tar.gz", BundleForm::TarGz),
            ("charts.tgz", BundleForm::TarGz),
            ("charts.zip", BundleForm::Directory),
        ] {
            assert_eq!(BundleForm::of(Path::new(name)), form, "{name}");
        }
        assert_eq!(beside(Path::new("a/b.tar"), ".partial"), Path::new("a/b.tar.partial"));
    }

    #[test]
    fn stored_gzip_is_read_as_what_was_written() {
        let content: Vec<u8> = (0..200_000_u32).map(|n| n.to_le_bytes()[0]).collect();
        for bytes in [0, 1, STORED_BYTES_MAX, STORED_BYTES_MAX + 1, content.len()] {
            let mut zipped = Vec::new();
            let mut gzip = Stored::begin(&mut zipped).unwrap();
            gzip.write_all(&content[..bytes]).unwrap();
            gzip.end().unwrap();
            let mut plain = Vec::new();
            MultiGzDecoder::new(zipped.as_slice()).read_to_end(&mut plain).unwrap();
            assert!(plain == content[..bytes], "{bytes}");
        }
    }

    #[test]
    fn blocks_are_filled() {
        assert_eq!([0, 1, 511, 512, 513].map(padding), [0, 511, 1, 0, 511]);
    }

    #[test]
    fn invalid_archives_are_refused() {
        let path = std::env::temp_dir().join(format!("gardenlet-pack-{}", random::hex(12)));
        let read = |content: &[u8]| {
            fs::write(&path, content).unwrap();
            each(&path, &SortedSet::new(), &mut |_, _| Ok(())).unwrap_err().to_string()
        };
        let name = path.display();
        let table: [(&[u8], &str); 4] = [
            (b"", "failed to fill whole buffer"),
            (&[b'x'; 2 * BLOCK], "it is not a tar archive"),
            (&[0x1f, 0x8b, 9], "failed to fill whole buffer"),
            (b"text", "failed to fill whole buffer"),
        ];
        for (content, why) in table {
            let text = read(content);
            assert!(text.starts_with(&format!("{name}: ")), "{text}");
            assert!(text.ends_with(READ_AGAIN), "{text}");
            assert!(text.contains(why) || content.len() == 3, "{text}");
        }
        let mut header = Header::new_ustar();
        header.set_path("index.json").unwrap();
        header.set_size(100);
        header.set_cksum();
        let short = [header.as_bytes().as_slice(), b"{}"].concat();
        assert!(read(&short).contains("it ends too early"));
        for bytes in [u64::MAX, u64::MAX - 511, limits::BUNDLE_BYTES_MAX + 1] {
            header.set_size(bytes);
            header.set_cksum();
            let text = read(header.as_bytes());
            assert!(text.contains("it announces files of more than"), "{bytes}: {text}");
        }
        fs::remove_file(&path).unwrap();
        let none = each(&path, &SortedSet::new(), &mut |_, _| Ok(())).unwrap_err().to_string();
        assert!(none.ends_with(NO_BUNDLE), "{none}");
    }
}
