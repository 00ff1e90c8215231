//! Upper and lower case, words, and wrapping.

use super::super::find;
use super::strings::{bytes, check_size};
use super::{Args, Function, FunctionResult, fixed};
use crate::chart::value::Type::{Int, Str};

pub(super) const FUNCTIONS: &[Function] = &[
    fixed("upper", &[Str], |a| Ok(a.str(0).chars().map(upper).collect::<String>().into())),
    fixed("lower", &[Str], |a| Ok(a.str(0).chars().map(lower).collect::<String>().into())),
    fixed("title", &[Str], |a| Ok(title(&a.str(0)).into())),
    fixed("untitle", &[Str], |a| Ok(untitle(&a.str(0)).into())),
    fixed("swapcase", &[Str], |a| Ok(swapcase(&a.str(0)).into())),
    fixed("nospace", &[Str], |a| Ok(nospace(a).into())),
    fixed("initials", &[Str], |a| Ok(initials(a.bytes(0)).into())),
    fixed("camelcase", &[Str], |a| Ok(pascal_case(&a.str(0)).into())),
    fixed("snakecase", &[Str], |a| Ok(separated_case(&a.str(0), '_').into())),
    fixed("kebabcase", &[Str], |a| Ok(separated_case(&a.str(0), '-').into())),
    fixed("wrap", &[Int, Str], |a| wrap(a.bytes(1), a.int(0), b"\n", false)),
    fixed("wrapWith", &[Int, Str, Str], |a| wrap(a.bytes(2), a.int(0), a.bytes(1), true)),
];

/// Go maps one rune to one rune: `ß` has no upper case.
fn upper(c: char) -> char {
    let mut mapped = c.to_uppercase();
    match (mapped.next(), mapped.next()) {
        (Some(only), None) => only,
        _ => c,
    }
}

fn lower(c: char) -> char {
    c.to_lowercase().next().unwrap_or(c)
}

fn title(s: &str) -> String {
    let mut after_separator = true;
    s.chars()
        .map(|c| {
            let mapped = if after_separator { upper(c) } else { c };
            after_separator = match c {
                '_' => false,
                c if c.is_ascii() => !c.is_ascii_alphanumeric(),
                c => !c.is_alphanumeric() && c.is_whitespace(),
            };
            mapped
        })
        .collect()
}

fn untitle(s: &str) -> String {
    let mut word_starts = true;
    s.chars()
        .map(|c| {
            let mapped = if word_starts && !c.is_whitespace() { lower(c) } else { c };
            word_starts = c.is_whitespace();
            mapped
        })
        .collect()
}

fn swapcase(s: &str) -> String {
    let mut after_space = true;
    s.chars()
        .map(|c| {
            if c.is_uppercase() {
                after_space = false;
                lower(c)
            } else if c.is_lowercase() {
                after_space = false;
                upper(c)
            } else {
                after_space = if c.is_alphabetic() { after_space } else { c.is_whitespace() };
                c
            }
        })
        .collect()
}

/// goutils treats each byte as a rune, which garbles text with blanks and non-ASCII characters. This
/// function does the same.
fn nospace(a: &Args<'_>) -> String {
    let kept: String = a.bytes(0).iter().map(|b| char::from(*b)).filter(|c| !c.is_whitespace()).collect();
    if kept.chars().count() == a.bytes(0).len() { a.str(0).into_owned() } else { kept }
}

fn initials(text: &[u8]) -> String {
    let mut after_gap = true;
    let mut out = String::new();
    for c in text.iter().map(|b| char::from(*b)) {
        if !c.is_whitespace() && after_gap {
            out.push(c);
        }
        after_gap = c.is_whitespace();
    }
    out
}

fn is_connector(c: char) -> bool {
    c == '-' || c == '_' || c.is_whitespace()
}

/// `some_words` to `SomeWords`. Leading connectors stay, and runs of them lose one.
fn pascal_case(s: &str) -> String {
    let mut out: String = s.chars().take_while(|c| is_connector(*c)).collect();
    let mut chars = s.chars().skip(out.chars().count());
    let Some(first) = chars.next() else {
        // Only connectors: the library repeats the last one.
        out.extend(s.chars().next_back());
        return out;
    };
    let mut capitals = first.is_uppercase();
    let mut last = upper(first);
    for c in chars {
        let mut next = c;
        if is_connector(c) && is_connector(last) {
            out.push(last);
            last = c;
            continue;
        }
        if is_connector(last) {
            capitals = c.is_uppercase();
            next = upper(c);
        } else {
            // A word in capitals keeps only the first.
            if capitals && c.is_uppercase() {
                next = lower(c);
            } else {
                capitals = false;
            }
            out.push(last);
        }
        last = next;
    }
    out.push(last);
    out
}

#[derive(Clone, Copy, PartialEq)]
enum Word {
    Nothing,
    Number,
    Capitals,
    Letters,
    Connector,
    Punctuation,
    Other,
}

/// Letters for this conversion: lower case or without case, except Chinese, Japanese and Korean ones.
fn is_letter(c: char) -> bool {
    let is_ideograph =
        matches!(c, '\u{3400}'..='\u{4d85}' | '\u{4e00}'..='\u{9fcc}' | '\u{20000}'..='\u{2b81d}');
    c.is_alphabetic() && !is_ideograph
}

fn is_punctuation(c: char) -> bool {
    // ASCII symbols such as `$+<=>^|~` and the backtick are not punctuation in Unicode.
    (c.is_ascii_punctuation() && !"$+<=>^`|~".contains(c))
        || matches!(c, '\u{a1}' | '\u{a7}' | '\u{ab}' | '\u{b6}' | '\u{b7}' | '\u{bb}' | '\u{bf}' | '\u{2010}'..='\u{2027}' | '\u{2030}'..='\u{205e}')
}

/// The first word and the rest.
fn next_word(s: &str) -> (Word, &str, &str) {
    let Some(first) = s.chars().next() else { return (Word::Nothing, "", "") };
    let run = |belongs: &dyn Fn(char) -> bool| {
        let after = &s[first.len_utf8()..];
        first.len_utf8() + after.find(|c| !belongs(c)).unwrap_or(after.len())
    };
    let small = |c: char| is_letter(c) && !c.is_uppercase();
    let (word, len) = match first {
        c if is_connector(c) => (Word::Connector, run(&is_connector)),
        c if is_punctuation(c) => (Word::Punctuation, run(&is_punctuation)),
        c if c.is_uppercase() => {
            let capitals = run(&|c| c.is_uppercase());
            let follows = s[capitals..].chars().next();
            let single = capitals == first.len_utf8();
            (
                Word::Capitals,
                match follows {
                    // `Status` is one word, `HTTPStatus` is two.
                    Some(c) if is_letter(c) && single => run(&small),
                    Some(c) if is_letter(c) => {
                        capitals - s[..capitals].chars().next_back().map_or(0, char::len_utf8)
                    }
                    _ => capitals,
                },
            )
        }
        c if is_letter(c) => (Word::Letters, run(&small)),
        c if c.is_numeric() => (Word::Number, run(&char::is_numeric)),
        _ => {
            let other = |c: char| !is_connector(c) && !is_letter(c) && !c.is_numeric() && !is_punctuation(c);
            (Word::Other, run(&other))
        }
    };
    (word, &s[..len], &s[len..])
}

/// `HTTPServer` to `http_server`.
fn separated_case(s: &str, connector: char) -> String {
    let mut out = String::new();
    let (mut kind, mut word, mut rest) = next_word(s);
    while !rest.is_empty() {
        if kind != Word::Connector {
            push_lower(&mut out, kind, word, connector);
        }
        let (previous, last) = (kind, word);
        (kind, word, rest) = next_word(rest);
        match previous {
            Word::Number => {
                while matches!(kind, Word::Letters | Word::Number) {
                    push_lower(&mut out, kind, word, connector);
                    (kind, word, rest) = next_word(rest);
                }
                if !matches!(kind, Word::Nothing | Word::Punctuation | Word::Connector) {
                    out.push(connector);
                }
            }
            Word::Connector => push_lower(&mut out, previous, last, connector),
            Word::Punctuation => {}
            _ if kind != Word::Number => {
                if !matches!(kind, Word::Connector | Word::Punctuation) {
                    out.push(connector);
                }
            }
            _ if rest.is_empty() => {}
            _ => {
                let number = word;
                (kind, word, rest) = next_word(rest);
                if kind != Word::Letters {
                    // The number belongs to the previous word: `Bld4Floor` is `bld4_floor`.
                    push_lower(&mut out, Word::Number, number, connector);
                    if !matches!(kind, Word::Connector | Word::Punctuation) {
                        out.push(connector);
                    }
                } else {
                    out.push(connector);
                    push_lower(&mut out, Word::Number, number, connector);
                    while matches!(kind, Word::Letters | Word::Number) {
                        push_lower(&mut out, kind, word, connector);
                        (kind, word, rest) = next_word(rest);
                    }
                    if !matches!(kind, Word::Nothing | Word::Punctuation | Word::Connector) {
                        out.push(connector);
                    }
                }
            }
        }
    }
    push_lower(&mut out, kind, word, connector);
    out
}

fn push_lower(out: &mut String, kind: Word, word: &str, connector: char) {
    match kind {
        Word::Capitals | Word::Letters => out.extend(word.chars().map(lower)),
        Word::Connector => out.extend(word.chars().map(|_| connector)),
        _ => out.push_str(word),
    }
}

/// Breaks lines at blanks after `width` bytes; breaks longer words only with `breaks_words`.
fn wrap(text: &[u8], width: i64, line_end: &[u8], breaks_words: bool) -> FunctionResult {
    let width = usize::try_from(width.max(1)).unwrap_or(usize::MAX / 4);
    let line_end = if line_end.is_empty() { b"\n" } else { line_end };
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while text.len() - at > width {
        check_size(out.len())?;
        if text[at] == b' ' {
            at += 1;
            continue;
        }
        let window = &text[at..=at + width];
        let (kept, next) = if let Some(blank) = window.iter().rposition(|b| *b == b' ') {
            (at + blank, at + blank + 1)
        } else if breaks_words {
            (at + width, at + width)
        } else if let Some(blank) = find(&text[at + width..], b" ") {
            (at + width + blank, at + width + blank + 1)
        } else {
            break;
        };
        out.extend_from_slice(&text[at..kept]);
        out.extend_from_slice(line_end);
        at = next;
    }
    out.extend_from_slice(&text[at..]);
    Ok(bytes(&out))
}
