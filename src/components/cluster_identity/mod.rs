//! ManagedResource `cluster-identity`: the ConfigMap with the name of the seed cluster.

use super::archive;
use super::managed::Managed;
use crate::base::json::json;
use crate::base::sorted::SortedMap;
use crate::format::yaml::{self, Dialect};

/// The name of the ManagedResource, and of the ConfigMap.
pub const NAME: &str = "cluster-identity";
/// The ConfigMap's namespace.
pub const NAMESPACE: &str = "kube-system";
/// The key of the ConfigMap that contains the kind of cluster with this identity.
pub(crate) const ORIGIN_KEY: &str = "origin";
/// The value of [`ORIGIN_KEY`] in a seed.
pub(crate) const ORIGIN: &str = "seed";

/// For a seed with this identity.
pub(crate) fn fill(identity: &str) -> Managed {
    let mut map = archive::object("cluster_identity/config-map.yaml");
    map["data"][NAME] = json!(identity);
    Managed::component(NAME, &yaml::emit(&map, Dialect::V4))
}

/// Whether the existing ConfigMap belongs to another owner and must stay unchanged. Its identity must match
/// the Seed's (name, identity). A mismatch means that the cluster is a copy of another one, or that it was
/// another seed before. Errors: the identities differ: the conflict and the remedy.
pub(crate) fn is_of_others(
    data: &SortedMap<String, String>,
    seed: &str,
    identity: &str,
) -> Result<bool, String> {
    let entry = |key: &str| data.get(key).map_or("", String::as_str);
    let (found, origin) = (entry(NAME), entry(ORIGIN_KEY));
    if found == identity {
        return Ok(origin != ORIGIN);
    }
    Err(format!(
        "ConfigMap {NAMESPACE}/{NAME} of the seed says that this cluster is {found:?} (origin {origin:?}), and Seed {seed} has \
         status.clusterIdentity {identity:?}, which never changes: if the ConfigMap is wrong, delete it, and the agent creates \
         it again; if it is right, delete the Seed and register this cluster again"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_as_in_the_golden_file() {
        let golden = include_str!("../../../tests/fixtures/components/cluster-identity.yaml");
        assert_eq!(fill("5ac3b1a2-edge").golden(), golden);
    }

    #[test]
    fn an_identity_is_kept_and_never_disputed() {
        let map = |entries: &[(&str, &str)]| -> SortedMap<String, String> {
            entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        let table = [
            (map(&[(NAME, "a"), (ORIGIN_KEY, ORIGIN)]), Ok(false)),
            (map(&[(NAME, "a"), (ORIGIN_KEY, "shoot")]), Ok(true)),
            (map(&[(NAME, "a")]), Ok(true)),
            (map(&[(NAME, "b"), (ORIGIN_KEY, ORIGIN)]), Err("\"b\" (origin \"seed\"), and Seed edge has")),
            (map(&[(NAME, "b"), (ORIGIN_KEY, "shoot")]), Err("\"b\" (origin \"shoot\"), and Seed edge has")),
            (map(&[]), Err("\"\" (origin \"\"), and Seed edge has status.clusterIdentity \"a\"")),
        ];
        for (data, expected) in table {
            match (is_of_others(&data, "edge", "a"), expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{data:?}"),
                (Err(found), Err(words)) => assert!(found.contains(words), "{found}"),
                (found, _) => panic!("{data:?}: {found:?}"),
            }
        }
    }
}
