//! Signatures of requests to S3 (AWS Signature Version 4, with a fixed set of headers).

use std::fmt;

use ring::{digest, hmac};

use crate::base::clock::Timestamp;
use crate::base::redact::Secret;
use crate::format::time::layout;
use crate::format::{hex, percent};

/// The key that signs requests.
#[derive(Clone)]
pub(crate) struct Key {
    pub(crate) id: String,
    pub(crate) secret: Secret<String>,
    /// The region that the signature is for.
    pub(crate) region: String,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").field("region", &self.region).finish_non_exhaustive()
    }
}

/// A request to sign.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unsigned<'a> {
    /// The method in capitals.
    pub(crate) method: &'a str,
    /// Like in the `Host` header.
    pub(crate) host: &'a str,
    /// Escaped, with a leading slash.
    pub(crate) path: &'a str,
    /// Escaped and sorted, as [`query`] returns it.
    pub(crate) query: &'a str,
    /// SHA-256 of the body.
    pub(crate) digest: &'a str,
    pub(crate) at: Timestamp,
}

/// The headers `Authorization` and `X-Amz-Date`.
pub(crate) fn sign(key: &Key, request: &Unsigned<'_>) -> (String, String) {
    let date = layout::format(request.at, 0, "20060102T150405Z");
    let day = date.get(..8).unwrap_or_default();
    let signed = "host;x-amz-content-sha256;x-amz-date";
    let Unsigned { method, host, path, query, digest, .. } = *request;
    let canonical = format!(
        "{method}\n{path}\n{query}\nhost:{host}\nx-amz-content-sha256:{digest}\nx-amz-date:{date}\n\n{signed}\n{digest}"
    );
    let scope = format!("{day}/{}/s3/aws4_request", key.region);
    let text = format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{}", sha256_hex(canonical.as_bytes()));
    let mut signature = format!("AWS4{}", key.secret.expose()).into_bytes();
    for part in [day, &key.region, "s3", "aws4_request", &text] {
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &signature), part.as_bytes());
        signature = tag.as_ref().to_vec();
    }
    let signature = hex::encode(&signature);
    let id = &key.id;
    let value =
        format!("AWS4-HMAC-SHA256 Credential={id}/{scope},SignedHeaders={signed},Signature={signature}");
    (value, date)
}

/// SHA-256 as hexadecimal digits.
pub(crate) fn sha256_hex(bytes: &[u8]) -> String {
    hex::encode(digest::digest(&digest::SHA256, bytes).as_ref())
}

/// Escapes all special bytes of a path except slashes.
pub(crate) fn path(text: &str) -> String {
    let mut out = String::new();
    percent::encode(&mut out, text.as_bytes(), &|byte| percent::is_unreserved(byte) || byte == b'/');
    out
}

/// A query in the order of the signature.
pub(crate) fn query(pairs: &[(&str, &str)]) -> String {
    let escaped = |text: &str| {
        let mut out = String::new();
        percent::encode(&mut out, text.as_bytes(), &percent::is_unreserved);
        out
    };
    let mut parts: Vec<String> =
        pairs.iter().map(|(name, value)| format!("{}={}", escaped(name), escaped(value))).collect();
    parts.sort();
    parts.join("&")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::time::parse_rfc3339;

    /// The examples of AWS's documentation ("Signature Calculations for the Authorization Header") with the signed
    /// headers that we send.
    #[test]
    fn signatures_are_those_of_the_documentation() {
        let key = Key {
            id: "AKIAIOSFODNN7EXAMPLE".to_owned(),
            secret: Secret::new("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".to_owned()),
            region: "us-east-1".to_owned(),
        };
        let table = [
            (query(&[("lifecycle", "")]), "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"),
            (
                query(&[("prefix", "J"), ("max-keys", "2")]),
                "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
            ),
        ];
        for (query, expected) in table {
            let request = Unsigned {
                method: "GET",
                host: "examplebucket.s3.amazonaws.com",
                path: "/",
                query: &query,
                digest: &sha256_hex(b""),
                at: parse_rfc3339("2013-05-24T00:00:00Z").unwrap(),
            };
            let (value, date) = sign(&key, &request);
            assert_eq!(date, "20130524T000000Z");
            assert_eq!(
                value,
                format!(
                    "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,\
                     SignedHeaders=host;x-amz-content-sha256;x-amz-date,Signature={expected}"
                )
            );
        }
        assert!(!format!("{key:?}").contains("wJalr"));
    }

    #[test]
    fn paths_and_queries_are_escaped_once() {
        assert_eq!(path("/shoot--p--s/v2/Full-1.gz"), "/shoot--p--s/v2/Full-1.gz");
        assert_eq!(path("/a b+c=\u{e4}"), "/a%20b%2Bc%3D%C3%A4");
        let pairs = [("prefix", "a/b c"), ("list-type", "2"), ("continuation-token", "x+/=")];
        assert_eq!(query(&pairs), "continuation-token=x%2B%2F%3D&list-type=2&prefix=a%2Fb%20c");
        assert_eq!(query(&[("uploads", "")]), "uploads=");
    }
}
