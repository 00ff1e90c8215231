//! Bounded reads: reading stops as soon as the input exceeds its limit.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Reads the whole input; `None` if it is longer than `bytes_max`. Errors: the error of the reader.
pub(crate) fn read(from: &mut dyn Read, bytes_max: usize) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    let limit = u64::try_from(bytes_max).unwrap_or(u64::MAX).saturating_add(1);
    from.take(limit).read_to_end(&mut bytes)?;
    Ok((bytes.len() <= bytes_max).then_some(bytes))
}

/// Reads a whole file. Errors: the error of the system, and `FileTooLarge` if the file
/// is larger than `bytes_max`.
pub(crate) fn read_file(path: &Path, bytes_max: usize) -> io::Result<Vec<u8>> {
    let too_large = || io::Error::new(io::ErrorKind::FileTooLarge, format!("larger than {bytes_max} bytes"));
    read(&mut File::open(path)?, bytes_max)?.ok_or_else(too_large)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_input_is_not_read_to_its_end() {
        let read_of = |bytes_max| read(&mut &b"abc"[..], bytes_max).unwrap();
        assert_eq!((read_of(2), read_of(3)), (None, Some(b"abc".to_vec())));
        assert_eq!(read(&mut io::repeat(1), 1 << 20).unwrap(), None);
    }

    #[test]
    fn files_that_are_too_large_are_refused() {
        let path = Path::new("Cargo.toml");
        let bytes = std::fs::read(path).unwrap();
        assert_eq!(read_file(path, bytes.len()).unwrap(), bytes);
        let error = read_file(path, bytes.len() - 1).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(error.to_string(), format!("larger than {} bytes", bytes.len() - 1));
        assert_eq!(read_file(Path::new("nothing"), 1).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
