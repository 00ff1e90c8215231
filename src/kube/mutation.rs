//! Feeds damaged text to every parser of input from outside: it may refuse the text, but must not panic.

use std::path::Path;
use std::time::Duration;

use super::bounds::{Bounds, Claims};
use super::{kubeconfig, list, request, split, status};
use crate::api::core::SECRET;
use crate::base::clock::Timestamp;
use crate::base::stop::Stop;
use crate::net::{ProxyEnv, ProxyPolicy, Url};

/// A seeded generator (xorshift), so that a failure can be repeated.
struct Seeded(u64);

impl Seeded {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(n.max(1)).unwrap()).unwrap()
    }

    /// Flips, cuts, duplicates or replaces a few bytes.
    fn damage(&mut self, sample: &[u8]) -> Vec<u8> {
        let mut bytes = sample.to_vec();
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len());
            match self.below(5) {
                0 if !bytes.is_empty() => bytes[at] ^= 1 << self.below(8),
                1 => bytes.truncate(at),
                2 => bytes.extend_from_within(at..),
                3 if !bytes.is_empty() => bytes[at] = b"{}[]\",:\n\0\xff%@/"[self.below(13)],
                _ => drop(bytes.drain(..at)),
            }
            bytes.truncate(4_096);
        }
        bytes
    }
}

const KUBECONFIG: &str = "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: k, user: u}}]\n\
    clusters:\n- name: k\n  cluster: {server: 'https://h:1', certificate-authority-data: UEVN, proxy-url: http://p}\n\
    users:\n- name: u\n  user: {token: t, exec: {apiVersion: client.authentication.k8s.io/v1, command: c, args: [a]}}\n";
const STATUS: &str = r#"{"kind":"Status","metadata":{"continue":"x"},"code":429,"reason":"R","details":{"causes":[{"field":"f"}],"retryAfterSeconds":1}}"#;
const LIST: &str =
    r#"{"kind":"SecretList","metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":"ä"}},{}]}"#;

#[test]
fn damaged_text_is_refused_without_panic() {
    let claims = Claims { bounds: Bounds::default(), wait_max: Duration::ZERO, stop: Stop::new() };
    for seed in 1..=2_000 {
        let mut random = Seeded(seed);
        let mut text = |sample: &str| String::from_utf8_lossy(&random.damage(sample.as_bytes())).into_owned();
        if let Ok(config) = kubeconfig::parse(&text(KUBECONFIG), Path::new("/d")) {
            let _ = config.current();
        }
        let _ = Url::parse(&text("https://user:p%40w@[fd00::1]:6443/path?q"));
        let env = ProxyEnv {
            https_proxy: text("http://u:p@proxy:1"),
            no_proxy: text("*.a,10.0.0.0/8,[::1]:3,b:1"),
            ..ProxyEnv::default()
        };
        if let Ok(policy) = ProxyPolicy::from_env(&env) {
            let _ = policy.proxy_for("https", "host.a", 443);
        }
        let _ = status::parse_http_date(&text("Sun, 06 Nov 1994 08:49:37 GMT"));
        let body = random.damage(STATUS.as_bytes());
        let _ = status::failure("", 429, Some("x"), &body, Timestamp::default()).verdict();
        let list = random.damage(LIST.as_bytes());
        let _ = list::read_page(&mut &list[..], usize::MAX, &SECRET, &claims, &mut |_, _| Ok(()));
        let _ = split::whole_part(&list);
        let _ = serde_json::from_slice::<request::List<crate::api::meta::Metadata>>(
            &random.damage(LIST.as_bytes()),
        );
    }
}
