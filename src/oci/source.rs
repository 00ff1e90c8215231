//! The sources of an artifact in order: a layout directory, mirrors, the registry itself. No IO.

use std::path::PathBuf;

use super::reference::ArtifactReference;
use crate::config::settings::Registry;
use crate::net::Url;

/// The registries of Gardener's local setup speak plain HTTP (`localRegistryPattern` upstream).
const LOCAL_REGISTRY: &str = "registry.local.gardener.cloud:";

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum RegistrySource {
    /// A directory with an OCI layout.
    Layout(PathBuf),
    /// A mirror of the requested registry.
    Mirror(Endpoint),
    /// The registry of the reference.
    Registry(Endpoint),
}

/// A repository behind the API of a registry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Endpoint {
    /// Scheme, host and port.
    pub(super) base: Url,
    /// Host, with a port unless it is the default of the scheme: the key of logins and settings.
    pub(super) host: String,
    /// Path of the repository there.
    pub(super) repository: String,
}

impl Endpoint {
    /// A URL in the repository.
    pub(super) fn url(&self, path: &str) -> String {
        format!("{}://{}/v2/{}/{path}", self.base.scheme, self.base.authority(), self.repository)
    }
}

/// All sources, the preferred one first.
pub(super) fn sources(reference: &ArtifactReference, registries: &[Registry]) -> Vec<RegistrySource> {
    let entry = entry(registries, &reference.registry);
    let mut found = Vec::new();
    if let Some(dir) = entry.and_then(|entry| entry.layout_dir.clone()) {
        found.push(RegistrySource::Layout(dir));
    }
    for mirror in entry.map_or(&[] as &[String], |entry| &entry.mirrors) {
        let rewrites = entry.map_or(&[] as &[_], |entry| &entry.rewrites);
        let repository = rewrite(&reference.repository, rewrites);
        found.extend(endpoint(mirror, &repository, registries).map(RegistrySource::Mirror));
    }
    found.extend(
        endpoint(&reference.registry, &reference.repository, registries).map(RegistrySource::Registry),
    );
    found
}

/// The configuration of a host.
pub(super) fn entry<'a>(registries: &'a [Registry], host: &str) -> Option<&'a Registry> {
    let canonical = |host: &str| {
        let host = host.to_ascii_lowercase();
        if host == "docker.io" {
            "index.docker.io".to_owned()
        } else {
            host.trim_end_matches(":443").to_owned()
        }
    };
    let host = canonical(host);
    registries.iter().find(|registry| canonical(&registry.host) == host)
}

fn rewrite(repository: &str, rewrites: &[(String, String)]) -> String {
    let fits =
        |(from, to): &(String, String)| Some(format!("{to}{}", repository.strip_prefix(from.as_str())?));
    rewrites.iter().find_map(fits).unwrap_or_else(|| repository.to_owned())
}

/// `host`, or a URL with a path that precedes the repository. `None` if it is not a URL, which the configuration and
/// the parser of references exclude.
fn endpoint(place: &str, repository: &str, registries: &[Registry]) -> Option<Endpoint> {
    let text = if place.contains("://") {
        place.to_owned()
    } else {
        let host = place.split('/').next().unwrap_or_default();
        let is_plain =
            entry(registries, host).is_some_and(|entry| entry.insecure) || host.contains(LOCAL_REGISTRY);
        format!("{}://{place}", if is_plain { "http" } else { "https" })
    };
    let base = Url::parse(&text).ok()?;
    let prefix = base.path.trim_matches('/');
    let repository = if prefix.is_empty() { repository.to_owned() } else { format!("{prefix}/{repository}") };
    Some(Endpoint { host: host_key(&base), base, repository })
}

/// The base URL of the API of a host, or of a mirror.
pub(super) fn base(place: &str, registries: &[Registry]) -> Option<Url> {
    endpoint(place, "", registries).map(|endpoint| endpoint.base)
}

/// Host, with a port unless it is the default of the scheme.
pub(super) fn host_key(url: &Url) -> String {
    let authority = url.authority();
    let usual = if url.scheme == "https" { ":443" } else { ":80" };
    authority.strip_suffix(usual).unwrap_or(&authority).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(reference: &str, registries: &[Registry]) -> Vec<String> {
        let text = |source: &RegistrySource| match source {
            RegistrySource::Layout(dir) => format!("layout {}", dir.display()),
            RegistrySource::Mirror(endpoint) => format!("mirror {} {}", endpoint.host, endpoint.url("x")),
            RegistrySource::Registry(endpoint) => format!("registry {} {}", endpoint.host, endpoint.url("x")),
        };
        sources(&ArtifactReference::parse(reference).unwrap(), registries).iter().map(text).collect()
    }

    #[test]
    fn sources_stand_in_their_order() {
        let registry = |host: &str| Registry { host: host.to_owned(), ..Registry::default() };
        let registries = [
            Registry {
                mirrors: vec!["https://m.example.org:5000/a/b/".to_owned(), "plain:80".to_owned()],
                rewrites: vec![
                    ("team/".to_owned(), "our-team/".to_owned()),
                    (String::new(), "rest/".to_owned()),
                ],
                layout_dir: Some("/charts".into()),
                ..registry("reg.example.org")
            },
            Registry { insecure: true, ..registry("plain:80") },
            Registry { layout_dir: Some("/hub".into()), ..registry("docker.io") },
        ];
        let table: [(&str, &[&str]); 6] = [
            (
                "reg.example.org/team/x:1",
                &[
                    "layout /charts",
                    "mirror m.example.org:5000 https://m.example.org:5000/v2/a/b/our-team/x/x",
                    "mirror plain http://plain:80/v2/our-team/x/x",
                    "registry reg.example.org https://reg.example.org:443/v2/team/x/x",
                ],
            ),
            (
                "reg.example.org:443/other:1",
                &[
                    "layout /charts",
                    "mirror m.example.org:5000 https://m.example.org:5000/v2/a/b/rest/other/x",
                    "mirror plain http://plain:80/v2/rest/other/x",
                    "registry reg.example.org https://reg.example.org:443/v2/other/x",
                ],
            ),
            ("other.example.org/xy:1", &["registry other.example.org https://other.example.org:443/v2/xy/x"]),
            (
                "index.docker.io/a/b:1",
                &["layout /hub", "registry index.docker.io https://index.docker.io:443/v2/a/b/x"],
            ),
            (
                "registry.local.gardener.cloud:5001/xy:1",
                &[
                    "registry registry.local.gardener.cloud:5001 http://registry.local.gardener.cloud:5001/v2/xy/x",
                ],
            ),
            ("[::1]:5000/xy:1", &["registry [::1]:5000 https://[::1]:5000/v2/xy/x"]),
        ];
        for (reference, expected) in table {
            assert_eq!(places(reference, &registries), expected, "{reference}");
        }
    }
}
