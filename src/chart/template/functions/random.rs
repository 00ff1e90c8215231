//! Random text and numbers.

use super::strings::check_size;
use super::{Args, Function, FunctionResult, fixed};
use crate::base::random;
use crate::chart::value::Type::{Int, Str};
use crate::chart::value::Value;
use crate::format::{base64, hex};

const DIGITS: &[u8] = b"0123456789";
const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const BOTH: &[u8] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

pub(super) const FUNCTIONS: &[Function] = &[
    fixed("randAlphaNum", &[Int], |a| text(a, BOTH)),
    fixed("randAlpha", &[Int], |a| text(a, LETTERS)),
    fixed("randNumeric", &[Int], |a| text(a, DIGITS)),
    fixed("randAscii", &[Int], |a| text(a, &(b' '..=b'~').collect::<Vec<u8>>())),
    fixed("randBytes", &[Int], rand_bytes),
    fixed("randInt", &[Int, Int], rand_int),
    fixed("shuffle", &[Str], shuffle),
    fixed("uuidv4", &[], |_| Ok(uuid(random::bytes()).into())),
];

fn text(a: &Args<'_>, alphabet: &[u8]) -> FunctionResult {
    let len = usize::try_from(a.int(0)).unwrap_or(0);
    check_size(len)?;
    Ok(random::text(len, alphabet).into())
}

fn rand_bytes(a: &Args<'_>) -> FunctionResult {
    let len = usize::try_from(a.int(0)).map_err(|_| "runtime error: makeslice: len out of range")?;
    check_size(len)?;
    let mut bytes = Vec::with_capacity(len);
    while bytes.len() < len {
        bytes.extend(random::bytes::<32>().into_iter().take(len - bytes.len()));
    }
    Ok(base64::encode(&bytes).into())
}

fn rand_int(a: &Args<'_>) -> FunctionResult {
    let (min, max) = (a.int(0), a.int(1));
    let span = max.checked_sub(min).and_then(|s| u64::try_from(s).ok()).filter(|s| *s > 0);
    let span = span.ok_or("invalid argument to Intn")?;
    let offset = i64::try_from(below(span)).unwrap_or(0);
    Ok(Value::Int(min + offset))
}

/// A number below `bound`. The bias of the remainder is too small for charts to notice.
fn below(bound: u64) -> u64 {
    let wide = u128::from_be_bytes(random::bytes()) % u128::from(bound);
    u64::try_from(wide).unwrap_or(0)
}

fn shuffle(a: &Args<'_>) -> FunctionResult {
    let mut chars: Vec<char> = a.str(0).chars().collect();
    for i in (1..chars.len()).rev() {
        let bound = u64::try_from(i + 1).unwrap_or(1);
        chars.swap(i, usize::try_from(below(bound)).unwrap_or(0));
    }
    Ok(chars.into_iter().collect::<String>().into())
}

fn uuid(mut bytes: [u8; 16]) -> String {
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex = hex::encode(&bytes);
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}
