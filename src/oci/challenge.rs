//! `WWW-Authenticate` headers (RFC 9110, section 11.6.1), and the challenges that the agent can answer. No IO.

/// The authentication scheme of a registry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Challenge {
    /// With user and password.
    Basic,
    /// With a token of `realm`.
    Bearer {
        /// URL of the token service.
        realm: String,
        /// The service for which the token is valid.
        service: Option<String>,
        /// The permissions of the token.
        scope: Option<String>,
    },
}

/// The challenge to answer: a token if there is a choice, as upstream does.
pub(super) fn pick<'a>(headers: impl Iterator<Item = &'a str>) -> Option<Challenge> {
    let all: Vec<Challenge> = headers.flat_map(parse).collect();
    let bearer = all.iter().position(|challenge| matches!(challenge, Challenge::Bearer { .. }));
    all.into_iter().nth(bearer.unwrap_or(0))
}

/// All known challenges of one header.
fn parse(header: &str) -> Vec<Challenge> {
    let mut found = Vec::new();
    let mut rest = Cursor(header);
    while let Some(scheme) = rest.word() {
        let parameters = rest.parameters();
        let value = |name: &str| {
            parameters.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.clone())
        };
        if scheme.eq_ignore_ascii_case("basic") {
            found.push(Challenge::Basic);
        } else if scheme.eq_ignore_ascii_case("bearer")
            && let Some(realm) = value("realm")
        {
            found.push(Challenge::Bearer { realm, service: value("service"), scope: value("scope") });
        }
        rest.skip_to_next();
    }
    found
}

struct Cursor<'a>(&'a str);

impl<'a> Cursor<'a> {
    /// A token at the current position, if there is one.
    fn word(&mut self) -> Option<&'a str> {
        let text = self.0.trim_start_matches([' ', '\t', ',']);
        let end = text.find([' ', '\t', ',', '=', '"']).unwrap_or(text.len());
        let (word, rest) = text.split_at(end);
        self.0 = rest;
        (!word.is_empty()).then_some(word)
    }

    /// The parameters up to the next scheme, which is a word without `=`.
    fn parameters(&mut self) -> Vec<(&'a str, String)> {
        let mut found = Vec::new();
        loop {
            let before = self.0;
            let Some(name) = self.word() else { break };
            let Some(rest) = self.0.trim_start().strip_prefix('=') else {
                self.0 = before;
                break;
            };
            self.0 = rest.trim_start();
            found.push((name, self.value()));
        }
        found
    }

    fn value(&mut self) -> String {
        let Some(quoted) = self.0.strip_prefix('"') else {
            let end = self.0.find([' ', '\t', ',']).unwrap_or(self.0.len());
            let (value, rest) = self.0.split_at(end);
            self.0 = rest;
            return value.to_owned();
        };
        let mut value = String::new();
        let mut letters = quoted.char_indices();
        while let Some((at, letter)) = letters.next() {
            match letter {
                '"' => {
                    self.0 = &quoted[at + 1..];
                    return value;
                }
                '\\' => value.extend(letters.next().map(|(_, letter)| letter)),
                _ => value.push(letter),
            }
        }
        self.0 = "";
        value
    }

    /// Skips anything that is neither a scheme nor a parameter, so that every round makes progress.
    fn skip_to_next(&mut self) {
        if self.0.trim_start().starts_with(['=', '"']) {
            self.0 = self.0.find(',').map_or("", |comma| &self.0[comma + 1..]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bearer(realm: &str, service: Option<&str>, scope: Option<&str>) -> Option<Challenge> {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        Some(Challenge::Bearer { realm: realm.to_owned(), service: owned(service), scope: owned(scope) })
    }

    #[test]
    fn challenges_are_read_in_all_their_forms() {
        let table: [(&[&str], Option<Challenge>); 12] = [
            (
                &[r#"Bearer realm="https://a/t",service="reg",scope="repository:x:pull,push""#],
                bearer("https://a/t", Some("reg"), Some("repository:x:pull,push")),
            ),
            (&[r#"bearer Realm = "https://a\"b" , service=reg"#], bearer("https://a\"b", Some("reg"), None)),
            (&[r#"Basic realm="x", Bearer realm="https://a""#], bearer("https://a", None, None)),
            (&[r#"Basic realm="x""#, r#"Bearer realm="https://a""#], bearer("https://a", None, None)),
            (&["Basic"], Some(Challenge::Basic)),
            (&[r#"Negotiate, NTLM, Basic realm="a, b""#], Some(Challenge::Basic)),
            (&["Bearer service=x"], None),
            (&["Bearer realm=\"https://a"], bearer("https://a", None, None)),
            (&["Digest realm=\"x\", nonce=\"y\""], None),
            (&["=,\"=\",=\"\\"], None),
            (&[""], None),
            (&[], None),
        ];
        for (headers, expected) in table {
            assert_eq!(pick(headers.iter().copied()), expected, "{headers:?}");
        }
    }

    #[test]
    fn no_header_makes_the_parser_panic_or_hang() {
        for text in super::super::testing::texts("ab=\", \\é\t", 50_000) {
            let _ = parse(&text);
        }
    }
}
