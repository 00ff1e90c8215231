//! A question before a command writes what cannot be taken back.

use std::io::Read;

use super::{Io, say};

/// The longest answer to a question.
const ANSWER_BYTES_MAX: usize = 256;

/// Asks for a word. Errors: the answer is another one, or nobody can answer.
pub(super) fn confirm(io: &mut Io<'_>, question: &str, expected: &str) -> Result<(), String> {
    if !io.is_terminal {
        return Err(
            "nothing was written, because nobody can answer a question here: confirm with --yes".to_owned()
        );
    }
    say(io, format_args!("{question}"));
    if answer(io.input) == expected { Ok(()) } else { Err("nothing was written".to_owned()) }
}

/// One line of the input.
fn answer(input: &mut dyn Read) -> String {
    let (mut line, mut byte) = (Vec::new(), [0]);
    while line.len() < ANSWER_BYTES_MAX && matches!(input.read(&mut byte), Ok(1)) && byte != *b"\n" {
        line.extend(byte);
    }
    String::from_utf8_lossy(&line).trim().to_owned()
}
