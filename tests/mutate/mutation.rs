//! Makes broken inputs from good ones.

use support::random::Random;

/// The maximum length of an input.
const BYTES_MAX: usize = 256 << 10;
/// Numbers that parsers often handle wrongly.
const NUMBERS: &[&str] = &[
    "0",
    "-1",
    "-0",
    "1e999",
    "-1e-999",
    "255",
    "256",
    "65536",
    "2147483648",
    "4294967296",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "0x7fffffff",
    "1e308",
    "99999999999999999999999999999999999999999",
    "0.000000000000000000000000000000000001",
    ".inf",
    "NaN",
];
/// Opening and closing brackets.
const LEVELS: &[(&str, &str)] = &[
    ("[", "]"),
    ("{\"a\":", "}"),
    ("{a: ", "}"),
    ("(", ")"),
    ("- ", ""),
    ("{{if 1}}", "{{end}}"),
    ("? ", ""),
];
const BYTES: &[u8] = b"\0\t\n\r \"'\\{}[]:,-#&*!|>%@/.\x7f\x80\xc3\xe2\xff";

/// One of the corpus with one to six changes.
pub(crate) fn mutated(random: &mut Random, corpus: &[Vec<u8>], words: &[&str]) -> Vec<u8> {
    let mut input = random.pick(corpus).clone();
    let changes = if random.chance(50) { 1 } else { 2 + random.below(5) };
    for _ in 0..changes {
        change(random, &mut input, corpus, words);
        input.truncate(BYTES_MAX);
    }
    input
}

fn change(random: &mut Random, input: &mut Vec<u8>, corpus: &[Vec<u8>], words: &[&str]) {
    let at = random.below(input.len() + 1);
    let end = at + random.below((input.len() - at).min(64) + 1);
    match random.below(10) {
        0 if !input.is_empty() => {
            let at = at.min(input.len() - 1);
            input[at] ^= 1 << random.below(8);
        }
        1 if !input.is_empty() => {
            let at = at.min(input.len() - 1);
            input[at] = *random.pick(BYTES);
        }
        2 => drop(input.drain(at..end)),
        3 => {
            let piece = input[at..end].to_vec();
            let times = if random.chance(10) { 1 + random.below(1_000) } else { 1 };
            input.splice(at..at, piece.repeat(times));
        }
        4 => {
            let other = random.pick(corpus);
            let tail = &other[random.below(other.len() + 1)..];
            input.truncate(at);
            input.extend_from_slice(tail);
        }
        5 | 6 if !words.is_empty() => drop(input.splice(at..end.min(at + 8), random.pick(words).bytes())),
        7 => {
            let digits = input.iter().enumerate().skip(at).find(|(_, byte)| byte.is_ascii_digit());
            let start = digits.map_or(at, |(start, _)| start);
            let length = input[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
            input.splice(start..start + length, random.pick(NUMBERS).bytes());
        }
        8 => {
            let (open, close) = random.pick(LEVELS);
            let depth = 1 << random.below(14);
            let inner = input[at..end].to_vec();
            let nested = [open.repeat(depth).into_bytes(), inner, close.repeat(depth).into_bytes()].concat();
            input.splice(at..end, nested);
        }
        9 if random.chance(30) => input.truncate(at),
        _ => input.insert(at, *random.pick(BYTES)),
    }
}
