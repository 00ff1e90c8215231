//! Takes known kinds of secrets out of texts: what stands behind a telling name, and what looks like a token or a key. It rather takes too much.

use std::mem;
use std::sync::OnceLock;

use regex_lite::{Captures, Regex};
use serde_json::Value;

use crate::format::view;

const REDACTED: &str = "[redacted]";
/// The end of names whose values are secret. The patterns have it as NAMES.
const NAMES: &str = "(?:pass(?:w(?:or)?d|phrase|code)?|pwd|token|secret|credential|authorization|cookie|signature|auth|api[_-]?key\
    |access[_-]?key(?:[_-]?id)?|private[_-]?key|key[_-]?data|secret[_-]?key)s?";
/// The members of a reference to an object. The name of a Secret is none.
const REFERENCE: [&str; 4] = ["apiVersion", "kind", "name", "namespace"];
/// Private keys, over several lines.
const PEM: &str = r"(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\z)";
/// What the journal and container runtimes put before each line.
const HEAD: &str =
    r"^\d{4}-\d\d-\d\dT[0-9:.,Z+-]+ (?:[A-Za-z0-9._-]+ [^\s\[\]]+\[\d+\]: |std(?:out|err) [FP] )?";
/// A telling name up to its value. What `value` means depends on the text before it.
const KEY: &str = r#"(?i)([a-z0-9_.-]*(?:NAMES|value))\\*["']?[ \t]*([:=])[ \t]*"#;
/// The end of a text before a `value` that is secret.
const OWNER: &str =
    r#"(?i)\b(?:name|key)\\*["']?[ \t]*[:=][ \t]*\\*["']?[a-z0-9_.-]*NAMES\\*["']?[\s,\\"'-]*$"#;
/// Values of telling names that are no secrets: nothing, booleans and references.
const SHOWN: &str = r#"^(?:(?:true|false|null)?\s*$|\[?(?:\{(?:\s*\\*"?(?:apiVersion|kind|name|namespace)\\*"?[ \t]*:[^,{}\[\]]*,?)+\}[, ]*)+\]?)"#;
/// The end of a value in a line of pairs, and the next name. A list goes on.
const NEXT: &str = r"[^,;\s][ \t]+[A-Za-z_][A-Za-z0-9_.-]*=";
/// Long words. Digests and paths are known; all others may be keys.
const WORDS: &str = r"(?:sha256:)?[A-Za-z0-9+/_=-]{32,}";
/// Patterns of texts that are always secret, and what replaces them.
const ALWAYS: [(&str, &str); 6] = [
    (r"(?i)\b(authorization|cookie)(s?\\*[\x22']?[ \t]*[:=][ \t]*)[^\r\n]*", "$1$2[redacted]"),
    (r"(?i)(--[a-z0-9-]*NAMES)[ \t]+\S+", "$1 [redacted]"),
    (r"(?i)\b(bearer|basic)[ \t]+[a-z0-9+/=._~-]{8,}", "$1 [redacted]"),
    (r"://[^\s\x22'<>]*@", "://[redacted]@"),
    (r"\beyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)*", REDACTED),
    (r"\b(?:[a-z0-9]{6}\.[a-z0-9]{16}|(?:AKIA|ASIA)[A-Z0-9]{16})\b", REDACTED),
];
/// How much of the text before a `value` is looked at.
const OWNER_BYTES_MAX: usize = 300;

/// The text without known kinds of secrets.
pub(super) fn clean(text: &str) -> String {
    let Some(patterns) = patterns() else { return REDACTED.to_owned() };
    let text = patterns.pem.replace_all(text, REDACTED);
    let (mut cleaned, mut before, mut block) = (String::new(), "", None);
    for line in text.split('\n') {
        let (head, line) = line.split_at(patterns.head.find(line).map_or(0, |head| head.end()));
        cleaned.push_str(head);
        cleaned.push_str(&patterns.clean_line(before, line, &mut block));
        cleaned.push('\n');
        before = line;
    }
    // The break behind the last line.
    cleaned.pop();
    cleaned
}

/// Takes the values of telling names out of a document, whatever they are made of, and secrets out of all other texts.
pub(super) fn clean_value(value: &mut Value) {
    match value {
        Value::Object(members) => {
            let tells = |name: &str| members.get(name).and_then(Value::as_str).is_some_and(is_telling);
            let is_pair = tells("name") || tells("key");
            for (name, mut member) in mem::take(members) {
                if (is_telling(&name) || is_pair && name == "value") && !is_shown(&member) {
                    member = Value::from(REDACTED);
                } else {
                    clean_value(&mut member);
                }
                members.insert(clean(&name), member);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(clean_value),
        Value::String(text) => *text = clean(text),
        _ => {}
    }
}

fn is_telling(name: &str) -> bool {
    patterns().is_none_or(|patterns| patterns.name.is_match(name))
}

/// Whether the value of a telling name is no secret.
fn is_shown(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(_) => true,
        Value::Array(items) => items.iter().all(is_shown),
        Value::Object(members) => {
            members.iter().all(|(name, member)| REFERENCE.contains(&name.as_str()) && member.is_string())
        }
        _ => false,
    }
}

struct Patterns {
    pem: Regex,
    head: Regex,
    key: Regex,
    owner: Regex,
    shown: Regex,
    next: Regex,
    words: Regex,
    /// The whole of a telling name.
    name: Regex,
    always: Vec<Regex>,
}

/// The patterns; none if one is broken. They are constants, and a test compiles all of them.
fn patterns() -> Option<&'static Patterns> {
    static PATTERNS: OnceLock<Option<Patterns>> = OnceLock::new();
    let compiled = |text: &str| Regex::new(&text.replace("NAMES", NAMES)).ok();
    let all = || {
        let mut always = Vec::new();
        for (text, _) in ALWAYS {
            always.push(compiled(text)?);
        }
        Some(Patterns {
            pem: compiled(PEM)?,
            head: compiled(HEAD)?,
            key: compiled(KEY)?,
            owner: compiled(OWNER)?,
            shown: compiled(SHOWN)?,
            next: compiled(NEXT)?,
            words: compiled(WORDS)?,
            name: compiled("(?i)NAMES$")?,
            always,
        })
    };
    PATTERNS.get_or_init(all).as_ref()
}

/// The value of a telling name that goes on in the lines after it.
#[derive(Clone, Copy)]
struct Block {
    /// Its lines begin behind this column.
    column: usize,
    /// The line of the name has nothing of it, so it may be a reference.
    is_bare: bool,
}

impl Patterns {
    /// Cleans a line. `before` is the line before it.
    fn clean_line(&self, before: &str, line: &str, block: &mut Option<Block>) -> String {
        let text = line.trim_start();
        let indent = &line[..line.len() - text.len()];
        if let Some(open) = *block
            && !text.is_empty()
        {
            let name = text.split(':').next().unwrap_or_default().trim_matches(['-', ' ', '"']);
            if indent.len() < open.column || indent.len() == open.column && !text.starts_with('-') {
                *block = None;
            } else if !open.is_bare || !REFERENCE.contains(&name) {
                return format!("{indent}{REDACTED}");
            }
        }
        if text.starts_with('{')
            && let Ok(mut value) = view::json(text.as_bytes())
        {
            clean_value(&mut value);
            return format!("{indent}{value}");
        }
        let mut text = line.to_owned();
        for (pattern, (_, rest)) in self.always.iter().zip(ALWAYS) {
            text = pattern.replace_all(&text, rest).into_owned();
        }
        let text = self.clean_named(before, &text, block);
        let shown = |found: &Captures<'_>| match is_key(&found[0]) {
            true => REDACTED.to_owned(),
            false => found[0].to_owned(),
        };
        self.words.replace_all(&text, shown).into_owned()
    }

    /// Takes the values of telling names out of a line.
    fn clean_named(&self, before: &str, text: &str, block: &mut Option<Block>) -> String {
        let (mut cleaned, mut done) = (String::new(), 0);
        while let Some(found) = self.key.captures_at(text, done) {
            let Some(key) = found.get(0) else { break };
            let (start, rest) = (key.start(), &text[key.end()..]);
            cleaned.push_str(&text[done..key.end()]);
            done = key.end();
            let is_value = found[1].to_ascii_lowercase().ends_with("value");
            if is_value && !self.owner.is_match(&format!("{}\n{}", tail(before), tail(&text[..start]))) {
                continue;
            }
            let shown = self.shown.find(rest);
            let (length, is_closed) = match shown {
                Some(shown) => (shown.end(), !rest.trim_end().is_empty()),
                None => self.extent(rest, &found[2]),
            };
            cleaned.push_str(shown.map_or(REDACTED, |shown| shown.as_str()));
            done += length;
            if !is_closed && done == text.len() {
                *block = Some(Block { column: column(&text[..start]), is_bare: shown.is_some() });
            }
        }
        cleaned.push_str(&text[done..]);
        cleaned
    }

    /// The length of a secret value, and whether it ends there: without quotes it may go on in the next line.
    fn extent(&self, rest: &str, sign: &str) -> (usize, bool) {
        if rest.trim_start_matches('\\').starts_with(['"', '\'']) {
            return closing(rest).map_or((rest.len(), false), |end| (end, true));
        }
        let next = self.next.find(rest).filter(|_| sign == "=").map_or(rest.len(), |next| next.start());
        let space = rest[next..].find([' ', '\t']).map_or(rest.len(), |space| next + space);
        (space, false)
    }
}

/// The end of a value in quotes; none if it does not end in this line. Quotes in the value have more backslashes than its own ones, and
/// quotes of the text around it have fewer.
fn closing(rest: &str) -> Option<usize> {
    let opening = rest.trim_start_matches('\\');
    let depth = rest.len() - opening.len();
    let mut chars = opening.char_indices();
    let (_, quote) = chars.next()?;
    let mut backslashes = 0;
    for (at, c) in chars {
        if c == quote && backslashes < depth {
            return Some(depth + at - backslashes);
        }
        if c == quote && backslashes % (2 * depth + 2) == depth {
            let next = opening[at + 1..].chars().next();
            let goes_on = |next: char| next.is_alphanumeric() || depth == 0 && next == quote;
            return (!next.is_some_and(goes_on)).then_some(depth + at + 1);
        }
        backslashes = if c == '\\' { backslashes + 1 } else { 0 };
    }
    None
}

/// Where a name begins; if other text is before it in its line, where the line begins.
fn column(before: &str) -> usize {
    let is_first = before.chars().all(|c| matches!(c, ' ' | '\t' | '-' | '"' | '\'' | '{'));
    if is_first { before.len() } else { before.len() - before.trim_start().len() }
}

fn tail(text: &str) -> &str {
    let from = text.len().saturating_sub(OWNER_BYTES_MAX);
    let from = (from..text.len()).find(|at| text.is_char_boundary(*at));
    &text[from.unwrap_or(text.len())..]
}

/// Whether a long word may be a key: letters and digits without a break, a long piece with letters of both kinds and digits, or a word in
/// which the case changes often.
fn is_key(word: &str) -> bool {
    if word.starts_with("sha256:") {
        return false;
    }
    let has = |piece: &str, kind: fn(&u8) -> bool| piece.as_bytes().iter().any(kind);
    let is_mixed = |piece: &str| {
        has(piece, u8::is_ascii_uppercase)
            && has(piece, u8::is_ascii_lowercase)
            && has(piece, u8::is_ascii_digit)
    };
    if word.bytes().all(|c| c.is_ascii_alphanumeric()) && has(word, u8::is_ascii_digit) {
        return true;
    }
    // Names of objects have dashes. Paths begin with a slash, and so do some keys.
    let is_path = word.starts_with('/');
    let mut pieces = word.split(|c: char| c == '-' || is_path && c == '/');
    let is_change = |pair: &&[u8]| {
        pair.iter().all(u8::is_ascii_alphanumeric)
            && pair[0].is_ascii_uppercase() != pair[1].is_ascii_uppercase()
    };
    is_mixed(word)
        && (pieces.any(|piece| piece.len() >= 20 && is_mixed(piece))
            || word.as_bytes().windows(2).filter(is_change).count() * 5 > word.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_go_and_the_rest_stays() {
        let table = [
            ("password: hunter2, user: me", "password: [redacted]"),
            (r#"{"token":"a b c","x":1}"#, r#"{"token":"[redacted]","x":1}"#),
            (r#"got {"token":"a b c","x":1}"#, r#"got {"token":[redacted],"x":1}"#),
            (r#"{"msg":"got {\"password\":\"a b\"}"}"#, r#"{"msg":"got {\"password\":[redacted]}"}"#),
            ("GET /x?X-Amz-Signature=abc&b=1", "GET /x?X-Amz-Signature=[redacted]"),
            ("Authorization: Basic bWU6aHVudGVyMg==", "Authorization: [redacted]"),
            ("sent Bearer abcdefghijkl, refused", "sent Bearer [redacted], refused"),
            ("proxy http://me:hunter2@proxy:3128/", "proxy http://[redacted]@proxy:3128/"),
            ("join with abcdef.0123456789abcdef now", "join with [redacted] now"),
            ("kubeconfigSecret: {name: a, namespace: b}", "kubeconfigSecret: {name: a, namespace: b}"),
            ("credentialsRef: {name: dns-int}", "credentialsRef: {name: dns-int}"),
            (
                "a\n-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----\nb",
                "a\n[redacted]\nb",
            ),
            ("-----BEGIN PRIVATE KEY-----MIIE", "[redacted]"),
            (
                "image echo@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
                "image echo@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            ),
            ("id e3b0c44298fc1c149afbf4c8996fb924", "id [redacted]"),
            ("key wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "key [redacted]"),
            (
                "/var/lib/kubelet/pods/volumes/kubernetes/State2/Dir",
                "/var/lib/kubelet/pods/volumes/kubernetes/State2/Dir",
            ),
            ("shoot--p--s1/kube-apiserver-5d8f6c9b4c-x2x4z", "shoot--p--s1/kube-apiserver-5d8f6c9b4c-x2x4z"),
            ("the bearer token is missing", "the bearer token is missing"),
        ];
        for (text, expected) in table {
            assert_eq!(clean(text), expected, "{text}");
        }
    }

    #[test]
    fn values_go_whole() {
        let table = [
            ("password: hunter2,rest", "password: [redacted]"),
            ("password: correct horse battery", "password: [redacted]"),
            ("password=hun&ter2", "password=[redacted]"),
            (
                "INFO seed: sent password=correct horse key=edge-1",
                "INFO seed: sent password=[redacted] key=edge-1",
            ),
            ("Set-Cookie=a=b; c=d", "Set-Cookie=[redacted]"),
            ("pwd=hunter2", "pwd=[redacted]"),
            ("run x --db-password hunter2 --now", "run x --db-password [redacted] --now"),
            ("password='it''s' user: a", "password=[redacted]"),
            ("password='a b', user: a", "password=[redacted], user: a"),
            (r#"password: "a\"b", user: a"#, "password: [redacted], user: a"),
            ("passwords: [hunter2]", "passwords: [redacted]"),
            (r#"tokens: ["x"]"#, "tokens: [redacted]"),
            ("secret: [a]", "secret: [redacted]"),
            ("secret: {a: hunter2, name: b}", "secret: [redacted]"),
            ("automountServiceAccountToken: false", "automountServiceAccountToken: false"),
            ("{name: DB_PASSWORD, value: hunter2}", "{name: DB_PASSWORD, value: [redacted]"),
            ("{name: REGION, value: north}", "{name: REGION, value: north}"),
            // Quotes in quotes, in a line that is JSON and in one that was cut.
            (
                r#"{"msg":"x {\"a\":\"{\\\"password\\\":\\\"a b\\\"}\"}"}"#,
                r#"{"msg":"x {\"a\":\"{\\\"password\\\":[redacted]}\"}"}"#,
            ),
            (
                r#"{"msg":"x {\"a\":\"{\\\"password\\\":\\\"a b\\\"}\"}","k":"#,
                r#"{"msg":"x {\"a\":\"{\\\"password\\\":[redacted]}\"}","k":"#,
            ),
            (r#"{"msg":"{\"passwords\":[\"a b\"]}"}"#, r#"{"msg":"{\"passwords\":\"[redacted]\"}"}"#),
            (r#"x {"msg":"\"password\":\"a b","n":1}"#, r#"x {"msg":"\"password\":[redacted]","n":1}"#),
            (
                r#"{"msg":"password: |\n  a","token":7}"#,
                r#"{"msg":"password: [redacted]\n  [redacted]","token":"[redacted]"}"#,
            ),
            // Keys without a name.
            ("sent Basic bWU6aHVudGVyMg==, refused", "sent Basic [redacted], refused"),
            ("id 5CA1AB1E0DDBA11C0FFEE0DDBA11DEADBEEF0123", "id [redacted]"),
            ("key /wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKE", "key [redacted]"),
            ("key Xk9-2mQ-vT4_rB7-pL1-zN8-wC5_hJ3-dF6-gS0", "key [redacted]"),
        ];
        for (text, expected) in table {
            assert_eq!(clean(text), expected, "{text}");
        }
    }

    #[test]
    fn values_go_with_all_their_lines() {
        let table = [
            ("token:\n- x\nb: c", "token:\n[redacted]\nb: c"),
            ("password: |\n  a b\n\n  c\nb: c", "password: [redacted]\n  [redacted]\n\n  [redacted]\nb: c"),
            (
                "- password: >-\n    a\n    name: b\n  user: c",
                "- password: [redacted]\n    [redacted]\n    [redacted]\n  user: c",
            ),
            ("password: \"a\n  b\"\nuser: c", "password: [redacted]\n  [redacted]\nuser: c"),
            ("read token:\r\n  x\r\nend", "read token:\r\n  [redacted]\nend"),
            (
                "kubeconfigSecret:\n  name: a\n  namespace: b\nc: d",
                "kubeconfigSecret:\n  name: a\n  namespace: b\nc: d",
            ),
            ("pullSecrets:\n- name: a\n  data: b", "pullSecrets:\n- name: a\n  [redacted]"),
            (
                "- name: AWS_SECRET_ACCESS_KEY\n  value: x\n- name: REGION\n  value: north",
                "- name: AWS_SECRET_ACCESS_KEY\n  value: [redacted]\n- name: REGION\n  value: north",
            ),
        ];
        let heads =
            ["", "2026-11-27T23:00:00+0000 edge-1 gardenlet[7]: ", "2026-11-27T23:00:00.1Z stderr F "];
        for (text, expected) in table {
            for head in heads {
                let each =
                    |text: &str| text.split('\n').map(|line| format!("{head}{line}\n")).collect::<String>();
                assert_eq!(clean(&each(text)), each(expected), "{text}");
            }
        }
    }

    #[test]
    fn a_document_loses_the_values_of_telling_names() {
        let mut value = serde_json::json!({
            "a": {"Password": "x\ny", "n": 1, "list": ["z", "token=y"], "passwords": ["x", 1], "pinToken": 7, "auth": {"user": "x"}},
            "tokenSecretRef": {"name": "r"}, "kubeconfigSecret": {"name": "r", "namespace": "g"}, "imagePullSecrets": [{"name": "r"}],
            "secret": {"name": "r", "data": "x"}, "automountToken": false, "https://me:hunter2@a": 1,
            "env": [{"name": "DB_PASSWORD", "value": "x"}, {"key": "TOKEN", "value": 1}, {"name": "A", "value": "y"}],
        });
        clean_value(&mut value);
        let expected = serde_json::json!({
            "a": {"Password": REDACTED, "n": 1, "list": ["z", "token=[redacted]"], "passwords": REDACTED, "pinToken": REDACTED, "auth": REDACTED},
            "tokenSecretRef": {"name": "r"}, "kubeconfigSecret": {"name": "r", "namespace": "g"}, "imagePullSecrets": [{"name": "r"}],
            "secret": REDACTED, "automountToken": false, "https://[redacted]@a": 1,
            "env": [{"name": "DB_PASSWORD", "value": REDACTED}, {"key": "TOKEN", "value": REDACTED}, {"name": "A", "value": "y"}],
        });
        assert_eq!(value, expected);
    }
}
