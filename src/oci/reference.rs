//! References to artifacts: `registry/repository:tag`, `registry/repository@digest`, or both, as strictly as Gardener
//! parses them (`name.ParseReference` of go-containerregistry with `StrictValidation`): neither registry nor tag has a
//! default.

use std::fmt;

use super::digest::Digest;

/// The registry name of Docker Hub.
const DOCKER_HUB: &str = "index.docker.io";

/// An artifact in a registry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ArtifactReference {
    /// Host and port as written, in lower case; Docker Hub is `index.docker.io`.
    pub(crate) registry: String,
    /// Path of the repository.
    pub(crate) repository: String,
    /// The requested version. A tag beside a digest is ignored.
    pub(crate) target: TagOrDigest,
}

/// A version in a repository.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum TagOrDigest {
    /// The current target of the tag.
    Tag(String),
    Digest(Digest),
}

impl fmt::Display for TagOrDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tag(tag) => f.write_str(tag),
            Self::Digest(digest) => digest.fmt(f),
        }
    }
}

impl fmt::Display for ArtifactReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let delimiter = if matches!(self.target, TagOrDigest::Tag(_)) { ':' } else { '@' };
        write!(f, "{}/{}{delimiter}{}", self.registry, self.repository, self.target)
    }
}

impl ArtifactReference {
    /// Parses a reference; drops a leading `oci://`. Errors: what is wrong with it, without the text itself,
    /// because it may contain a password before the host.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let text = text.strip_prefix("oci://").unwrap_or(text);
        let (name, digest) = match text.split_once('@') {
            Some((name, digest)) if !digest.contains('@') => {
                (name, Some(Digest::parse(digest).ok_or("the digest is not sha256: with 64 digits")?))
            }
            Some(_) => return Err("more than one @"),
            None => (text, None),
        };
        // A colon in the last part starts a tag; an earlier one belongs to the port.
        let (name, tag) = match name.rsplit_once(':') {
            Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
            _ => (name, None),
        };
        if !tag.is_none_or(is_tag) {
            return Err("the tag is empty, too long or has other characters than letters, digits, _ - .");
        }
        let (registry, repository) = split_registry(name)?;
        if !is_repository(repository) {
            return Err(
                "the repository has 2 to 255 characters, of small letters, digits, _ - . /, and no part . or ..",
            );
        }
        if registry == DOCKER_HUB && !repository.contains('/') {
            return Err("Docker Hub needs the whole path, such as library/name");
        }
        let target = match (digest, tag) {
            (Some(digest), _) => TagOrDigest::Digest(digest),
            (None, Some(tag)) => TagOrDigest::Tag(tag.to_owned()),
            (None, None) => return Err("neither a tag nor a digest"),
        };
        Ok(Self { registry, repository: repository.to_owned(), target })
    }
}

/// The registry is the first part if it has a dot or a port.
fn split_registry(name: &str) -> Result<(String, &str), &'static str> {
    let (registry, repository) = name
        .split_once('/')
        .filter(|(registry, _)| registry.contains(['.', ':']))
        .ok_or("the registry must be given, as a host with a dot or a port")?;
    if !is_registry(registry) {
        return Err("the registry is not a host with an optional port");
    }
    let registry = registry.to_ascii_lowercase();
    Ok((if registry == "docker.io" { DOCKER_HUB.to_owned() } else { registry }, repository))
}

fn is_registry(text: &str) -> bool {
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, port)) if address.parse::<std::net::Ipv6Addr>().is_ok() => ("v6", port),
        _ => text.find(':').map_or((text, ""), |colon| text.split_at(colon)),
    };
    let is_port = port.strip_prefix(':').map_or(port.is_empty(), |port| port.parse::<u16>().is_ok());
    let is_host = |c: u8| c.is_ascii_alphanumeric() || b"-._".contains(&c);
    !host.is_empty() && host.bytes().all(is_host) && is_port
}

fn is_repository(text: &str) -> bool {
    let is_letter = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || b"_-./".contains(&c);
    (2..=255).contains(&text.len())
        && text.bytes().all(is_letter)
        && text.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

fn is_tag(text: &str) -> bool {
    (1..=128).contains(&text.len())
        && text.bytes().all(|c| c.is_ascii_alphanumeric() || b"_-.".contains(&c))
        && !matches!(text, "." | "..")
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn references_are_read_as_strictly_as_gardener_does() {
        let pinned = format!("sha256:{HEX}");
        let table = [
            ("reg.example.org/charts/x:1.0.0", Some("reg.example.org/charts/x:1.0.0")),
            ("oci://reg.example.org/charts/x:1.0.0", Some("reg.example.org/charts/x:1.0.0")),
            ("Reg.Example.org/xy:V1", Some("reg.example.org/xy:V1")),
            ("localhost:5000/xy:1", Some("localhost:5000/xy:1")),
            ("[::1]:5000/xy:1", Some("[::1]:5000/xy:1")),
            ("[fd00::1]/xy:1", Some("[fd00::1]/xy:1")),
            ("10.0.0.1:5000/a/b/c_d-e.f:1", Some("10.0.0.1:5000/a/b/c_d-e.f:1")),
            ("docker.io/library/nginx:1", Some("index.docker.io/library/nginx:1")),
            ("index.docker.io/a/b:1", Some("index.docker.io/a/b:1")),
            ("docker.io/nginx:1", None),
            ("nginx:1", None),
            ("library/nginx:1", None),
            ("localhost/xy:1", None),
            ("reg.example.org/xy", None),
            ("reg.example.org/xy:", None),
            ("reg.example.org:5000/xy", None),
            ("reg.example.org/x:1", None),
            ("reg.example.org/XY:1", None),
            ("reg.example.org/../etc:1", None),
            ("reg.example.org/a//b:1", None),
            ("reg.example.org/xy:a b", None),
            ("reg.example.org/xy@sha256:12", None),
            ("reg.example.org/xy@sha512:12", None),
            ("user:word@reg.example.org/xy:1", None),
            ("https://reg.example.org/xy:1", None),
            ("reg.example.org:/xy:1", None),
            ("reg.example.org:70000/xy:1", None),
            ("fd00::1/xy:1", None),
            ("oci://oci://reg.example.org/xy:1", None),
            ("", None),
            (":", None),
            ("@", None),
        ];
        for (text, expected) in table {
            let found = ArtifactReference::parse(text).ok().map(|reference| reference.to_string());
            assert_eq!(found.as_deref(), expected, "{text}");
        }
        for name in ["reg.example.org/xy", "reg.example.org/xy:1.0.0"] {
            let found = ArtifactReference::parse(&format!("{name}@{pinned}")).unwrap();
            assert_eq!(found.to_string(), format!("reg.example.org/xy@{pinned}"), "the digest decides");
        }
        let long = |n: usize| format!("reg.example.org/{}:{}", "a".repeat(n), "1".repeat(n));
        assert!(
            ArtifactReference::parse(&long(128)).is_ok() && ArtifactReference::parse(&long(129)).is_err()
        );
        assert!(ArtifactReference::parse(&format!("reg.example.org/{}:1", "a".repeat(256))).is_err());
    }

    #[test]
    fn no_text_makes_the_parser_panic() {
        for text in super::super::testing::texts("a.:/@[]é%s\u{0}", 20_000) {
            let _ = ArtifactReference::parse(&text);
        }
    }
}
