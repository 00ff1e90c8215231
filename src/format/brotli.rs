//! Brotli (RFC 7932): reads compressed streams, and writes streams that any reader accepts.

use std::fmt;
use std::io;

use crate::base::capped;

/// Why a stream could not be read.
#[derive(Debug)]
pub enum Error {
    /// The stream is broken or ends early.
    Stream(io::Error),
    /// Its content is longer than this many bytes.
    OutputBytes(usize),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stream(_) => f.write_str("broken brotli stream"),
            Self::OutputBytes(max) => write!(f, "brotli stream with more than {max} bytes of content"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Stream(source) => Some(source),
            Self::OutputBytes(_) => None,
        }
    }
}

/// Reads a stream whose content has at most `bytes_max` bytes. Errors: a broken stream, or
/// content that is longer.
pub fn decode(stream: &[u8], bytes_max: usize) -> Result<Vec<u8>, Error> {
    let mut reader = reader(stream);
    let content = capped::read(&mut reader, bytes_max).map_err(Error::Stream)?;
    content.ok_or(Error::OutputBytes(bytes_max))
}

/// Decompresses a stream while it is read. Reading needs as much memory as [`window_bytes`] returns, and half of that
/// in addition while the window grows.
pub(crate) fn reader(stream: &[u8]) -> impl io::Read {
    const BUFFER_BYTES: usize = 16 << 10;
    // The crate also reads streams with windows of up to 1 GiB, which RFC 7932 does not allow. An empty stream is
    // broken.
    let stream = if window_bytes(stream).is_some() { stream } else { &[] };
    brotli_decompressor::Decompressor::new(stream, BUFFER_BYTES)
}

/// The window of a stream, at most 16 MiB; `None` if the header is invalid (RFC 7932, section 9.1).
pub(crate) fn window_bytes(stream: &[u8]) -> Option<usize> {
    let first = *stream.first()?;
    let bits = match (first & 1, first >> 1 & 7, first >> 4 & 7) {
        (0, _, _) => 16,
        (_, 0, 0) => 17,
        (_, 0, 1) => return None,
        (_, 0, more) => 8 + more,
        (_, more, _) => 17 + more,
    };
    Some(1 << bits)
}

/// Writes a stream of uncompressed blocks: valid everywhere, three bytes longer per 64 KiB.
pub fn encode(content: &[u8]) -> Vec<u8> {
    const BLOCK_BYTES: usize = 1 << 16;
    /// The end of a stream: an empty last block.
    const END: u8 = 0b11;
    let mut out = Vec::with_capacity(content.len() + 3 * content.len().div_ceil(BLOCK_BYTES) + 1);
    if content.is_empty() {
        // The stream begins with one bit for the window of 64 KiB.
        out.push(END << 1);
        return out;
    }
    for (i, block) in content.chunks(BLOCK_BYTES).enumerate() {
        // Not last (1 bit), length in four nibbles (2 bits), length - 1 (16 bits), uncompressed (1 bit).
        let length = u32::try_from(block.len() - 1).unwrap_or(0);
        let header = (length << 3 | 1 << 19) << u32::from(i == 0);
        out.extend_from_slice(&header.to_le_bytes()[..3]);
        out.extend_from_slice(block);
    }
    out.push(END);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_go_both_ways() {
        for len in [0, 1, 255, 65_535, 65_536, 65_537, 200_000] {
            let content: Vec<u8> = (0..len).map(|i| u8::try_from(i % 251).unwrap()).collect();
            assert_eq!(decode(&encode(&content), 200_000).unwrap(), content, "{len}");
        }
    }

    #[test]
    fn a_stream_of_another_encoder_is_read() {
        // "a" twenty times, as the reference encoder writes it at quality 11.
        let stream = [0x1b, 0x13, 0x00, 0xf8, 0x25, 0xc2, 0x42, 0x8c, 0x00, 0x40];
        assert_eq!(decode(&stream, 100).unwrap(), [b'a'; 20]);
    }

    #[test]
    fn windows_are_read_from_the_first_byte() {
        let table = [
            (&[0b0000_0110][..], Some(1 << 16)),
            (&[0b0000_0001], Some(1 << 17)),
            (&[0x1b], Some(1 << 22)),
            (&[0b0000_1111], Some(1 << 24)),
            (&[0b0010_0001], Some(1 << 10)),
            (&[0b0111_0001], Some(1 << 15)),
            // The mark of windows of up to 1 GiB.
            (&[0b0001_0001, 30], None),
            (&[], None),
        ];
        for (stream, expected) in table {
            assert_eq!(window_bytes(stream), expected, "{stream:?}");
        }
        assert!(decode(&[0b0001_0001, 30, 0, 0, 0, 0, 0], 100).is_err());
    }

    #[test]
    fn long_and_broken_streams_are_refused() {
        let stream = encode(&[7; 1_000]);
        assert!(matches!(decode(&stream, 999), Err(Error::OutputBytes(999))));
        assert!(matches!(decode(&stream[..500], 1_000), Err(Error::Stream(_))));
        assert!(matches!(decode(&[0xff; 16], 1_000), Err(Error::Stream(_))));
        assert!(decode(&[], 10).is_err());
    }
}
