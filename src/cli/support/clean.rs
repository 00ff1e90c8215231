//! Takes secrets out of texts: what stands behind a telling name, and what looks like a token or a key. It rather takes too much.

use regex_lite::{Captures, Regex};
use serde_json::Value;

const REDACTED: &str = "[redacted]";
/// The end of names whose values are secret.
const NAMES: &str = "(?:passw(?:or)?d|passphrase|token|secret|credentials?|authorization|cookie|signature|auth|api[_-]?key|access[_-]?key(?:[_-]?id)?\
    |private[_-]?key|key[_-]?data|secret[_-]?key)";
/// Texts that are secret wherever they stand, and what is left of them.
const ALWAYS: [(&str, &str); 6] = [
    (r"(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\z)", REDACTED),
    (r"(?i)\b(authorization|cookie)(\\?[\x22']?[ \t]*[:=][ \t]*)[^\r\n]*", "$1$2[redacted]"),
    (r"(?i)\b(bearer)[ \t]+[a-z0-9+/=._~-]{8,}", "$1 [redacted]"),
    (r"://[^\s\x22'<>]*@", "://[redacted]@"),
    (r"\beyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)*", REDACTED),
    (r"\b(?:[a-z0-9]{6}\.[a-z0-9]{16}|(?:AKIA|ASIA)[A-Z0-9]{16})\b", REDACTED),
];
/// Long words. Digests and paths are known; all others may be keys.
const WORDS: &str = r"(?:sha256:)?[A-Za-z0-9+/_=-]{32,}";

/// The text without secrets.
pub(super) fn clean(text: &str) -> String {
    let mut text = text.to_owned();
    for (pattern, rest) in ALWAYS {
        text = replace(&text, pattern, rest);
    }
    let value = r#"(\\"[^"\n]*?\\"|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|[^\s,;&{}\[\]"'\\]+)"#;
    let named = format!(r#"(?i)([a-z0-9_.-]*{NAMES})(\\?["']?[ \t]*[:=][ \t]*){value}"#);
    text = replace(&text, &named, "$1$2[redacted]");
    let Some(words) = compiled(WORDS) else { return REDACTED.to_owned() };
    let shown =
        |found: &Captures<'_>| if is_key(&found[0]) { REDACTED.to_owned() } else { found[0].to_owned() };
    words.replace_all(&text, shown).into_owned()
}

/// Takes the values of telling names out of a document, whatever they are made of, and secrets out of all other texts.
pub(super) fn clean_value(value: &mut Value) {
    match value {
        Value::Object(members) => {
            for (name, member) in members.iter_mut() {
                if member.is_string() && is_telling(name) {
                    *member = Value::from(REDACTED);
                } else {
                    clean_value(member);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(clean_value),
        Value::String(text) => *text = clean(text),
        _ => {}
    }
}

fn is_telling(name: &str) -> bool {
    compiled(&format!("(?i){NAMES}$")).is_none_or(|names| names.is_match(name))
}

/// A pattern that is broken lets nothing through.
fn replace(text: &str, pattern: &str, rest: &str) -> String {
    compiled(pattern)
        .map_or_else(|| REDACTED.to_owned(), |pattern| pattern.replace_all(text, rest).into_owned())
}

/// The patterns are constants, and a test compiles all of them.
fn compiled(pattern: &str) -> Option<Regex> {
    Regex::new(pattern).ok()
}

/// Whether a long word may be a key: a hexadecimal number that is no digest, or a long piece with letters of both kinds and digits.
fn is_key(word: &str) -> bool {
    if word.starts_with("sha256:") {
        return false;
    }
    let is_hex = word.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'));
    let is_mixed = |piece: &str| {
        let has = |kind: fn(&u8) -> bool| piece.as_bytes().iter().any(kind);
        piece.len() >= 20
            && has(u8::is_ascii_uppercase)
            && has(u8::is_ascii_lowercase)
            && has(u8::is_ascii_digit)
    };
    // Names of objects have dashes, and paths begin with a slash.
    is_hex || !word.starts_with('/') && word.split('-').any(is_mixed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_go_and_the_rest_stays() {
        let table = [
            ("password: hunter2, user: me", "password: [redacted], user: me"),
            (r#"{"token":"a b c","x":1}"#, r#"{"token":[redacted],"x":1}"#),
            (r#"{"msg":"got {\"password\":\"a b\"}"}"#, r#"{"msg":"got {\"password\":[redacted]}"}"#),
            ("GET /x?X-Amz-Signature=abc&b=1", "GET /x?X-Amz-Signature=[redacted]&b=1"),
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
    fn a_document_loses_the_values_of_telling_names() {
        let mut value = serde_json::json!({"a": {"Password": "x\ny", "n": 1, "list": ["z", "token=y"]}, "tokenSecretRef": {"name": "r"}});
        clean_value(&mut value);
        let expected = serde_json::json!({"a": {"Password": REDACTED, "n": 1, "list": ["z", "token=[redacted]"]}, "tokenSecretRef": {"name": "r"}});
        assert_eq!(value, expected);
    }
}
