//! The buffers of one connection. They exist only while they hold data: an idle connection has none, and a connection
//! that waits for a response has a small one.

use crate::limits;

/// Size of the output buffer. A header line, such as a token, must fit.
const OUTPUT_BYTES: usize = 16 << 10;
/// Size of the input buffer, until headers need more.
const INPUT_BYTES: usize = 4 << 10;

#[derive(Default)]
pub(super) struct Buffers {
    input: Vec<u8>,
    filled: usize,
    consumed: usize,
    output: Vec<u8>,
    progress: bool,
}

impl Buffers {
    /// Frees an empty buffer.
    pub(super) fn release(&mut self) {
        self.output = Vec::new();
        if self.consumed == self.filled {
            (self.input, self.filled, self.consumed) = (Vec::new(), 0, 0);
        }
    }

    /// Moves unread data to the front and makes room behind it. All headers must fit into the buffer at once, so it
    /// grows up to twice their maximum: then ureq reports that they are too large.
    fn make_room(&mut self) {
        self.input.copy_within(self.consumed..self.filled, 0);
        (self.filled, self.consumed) = (self.filled - self.consumed, 0);
        if self.filled == self.input.len() {
            let wanted = (self.filled * 2).clamp(INPUT_BYTES, 2 * limits::RESPONSE_HEADER_BYTES_MAX);
            self.input.resize(wanted.max(self.filled), 0);
        }
    }
}

impl ureq::unversioned::transport::Buffers for Buffers {
    fn output(&mut self) -> &mut [u8] {
        self.output.resize(OUTPUT_BYTES, 0);
        &mut self.output
    }

    fn input(&self) -> &[u8] {
        &self.input[self.consumed..self.filled]
    }

    fn input_append_buf(&mut self) -> &mut [u8] {
        self.output = Vec::new();
        self.make_room();
        &mut self.input[self.filled..]
    }

    fn input_appended(&mut self, amount: usize) {
        self.filled = (self.filled + amount).min(self.input.len());
    }

    fn input_consume(&mut self, amount: usize) {
        self.progress = amount > 0;
        self.consumed = (self.consumed + amount).min(self.filled);
    }

    fn tmp_and_output(&mut self) -> (&mut [u8], &mut [u8]) {
        self.make_room();
        self.output.resize(OUTPUT_BYTES, 0);
        (&mut self.input[self.filled..], &mut self.output)
    }

    fn can_use_input(&self) -> bool {
        self.consumed < self.filled && self.progress
    }
}

#[cfg(test)]
mod tests {
    use ureq::unversioned::transport::Buffers as _;

    use super::*;

    #[test]
    fn buffers_grow_for_headers_and_vanish_when_idle() {
        let mut buffers = Buffers::default();
        assert_eq!(buffers.output().len(), 16_384);
        for expected in [4_096, 8_192, 16_384, 32_768, 65_536, 131_072] {
            let room = buffers.input_append_buf().len();
            buffers.input_appended(room);
            assert_eq!(buffers.input().len(), expected);
        }
        assert_eq!(buffers.input_append_buf().len(), 0);
        assert_eq!(buffers.output.capacity(), 0);
        buffers.input_consume(131_072);
        buffers.release();
        assert_eq!(buffers.input.capacity(), 0);
    }

    #[test]
    fn unread_bytes_survive_the_next_read() {
        let mut buffers = Buffers::default();
        buffers.input_append_buf()[..3].copy_from_slice(b"abc");
        buffers.input_appended(3);
        assert!(!buffers.can_use_input());
        buffers.input_consume(1);
        assert!(buffers.can_use_input());
        buffers.input_append_buf()[..1].copy_from_slice(b"d");
        buffers.input_appended(1);
        assert_eq!(buffers.input(), b"bcd");
    }
}
