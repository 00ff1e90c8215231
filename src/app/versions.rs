//! Checks versions: ours against the garden's, and the clusters' Kubernetes against the versions that this program was
//! tested with.

use crate::api::core::ConfigMap;
use crate::format::yaml;

/// The environment variable that disables [`check_kubernetes`], as in upstream.
pub(crate) const SWITCH: &str = "EXPERIMENTAL_DISABLE_KUBERNETES_VERSION_CHECK";

/// The namespace and the name of the garden's ConfigMap with its version.
pub(crate) const NAMESPACE: &str = "gardener-system-public";
pub(crate) const INFO: &str = "gardener-info";

/// The oldest and the newest supported minor version of Kubernetes 1 (Gardener v1.150).
const KUBERNETES_MINORS: (u32, u32) = (32, 36);

/// Checks that Gardener supports the Kubernetes version of the garden or the seed.
pub(crate) fn check_kubernetes(cluster: &str, version: &str) -> Result<(), String> {
    let (oldest, newest) = KUBERNETES_MINORS;
    match major_minor(version) {
        Some((1, minor)) if (oldest..=newest).contains(&minor) => Ok(()),
        _ => Err(format!(
            "Kubernetes {version:?} of the {cluster} is not supported: it must be from 1.{oldest} to 1.{newest} (set \
             {SWITCH}=true to try all the same)"
        )),
    }
}

/// The version of Gardener in the ConfigMap; empty if it has none.
pub(crate) fn gardener(info: &ConfigMap) -> String {
    let text = info.data.get("gardenerAPIServer").map(String::as_str).unwrap_or_default();
    let info = yaml::parse(text).unwrap_or_default();
    info["version"].as_str().unwrap_or_default().to_owned()
}

/// Checks that our version is not newer than the garden's, and at most two minor versions older.
pub(crate) fn check_skew(ours: &str, theirs: &str) -> Result<(), String> {
    let (Some(our), Some(their)) = (major_minor(ours), major_minor(theirs)) else {
        return Err(format!(
            "the garden's version {theirs:?} in config map gardener-system-public/gardener-info (key gardenerAPIServer) \
             cannot be read"
        ));
    };
    if our > their {
        return Err(format!(
            "gardenlet {ours} must not be newer than the garden's API server {theirs}: upgrade the garden first"
        ));
    }
    if our.0 != their.0 || their.1 - our.1 > 2 {
        return Err(format!(
            "the garden's API server {theirs} is too new for gardenlet {ours}, which must be at most two minor versions older: \
             install a newer gardenlet"
        ));
    }
    Ok(())
}

fn major_minor(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.trim_start_matches('v').split(['.', '-', '+']);
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubernetes_versions() {
        let table = [
            ("v1.31.9", false),
            ("v1.32.0", true),
            ("v1.34.3-gke.1", true),
            ("v1.36.2+k3s1", true),
            ("v1.37.0", false),
            ("v2.33.0", false),
            ("", false),
        ];
        for (version, supported) in table {
            assert_eq!(check_kubernetes("seed", version).is_ok(), supported, "{version}");
        }
        let error = check_kubernetes("garden", "v1.37.0").unwrap_err();
        assert!(
            error.contains("garden") && error.contains("EXPERIMENTAL_DISABLE_KUBERNETES_VERSION_CHECK=true")
        );
    }

    #[test]
    fn the_chart_takes_the_same_versions() {
        let (oldest, newest) = KUBERNETES_MINORS;
        let chart = include_str!("../../packaging/chart/Chart.yaml");
        let line = format!("kubeVersion: \">= 1.{oldest}.0-0 < 1.{}.0-0\"", newest + 1);
        assert!(chart.lines().any(|it| it == line), "no line {line} in {chart}");
    }

    #[test]
    fn version_skew() {
        let table = [
            ("v1.150.0", "v1.150.0", true),
            ("v1.150.3", "v1.150.0-dev-abc", true),
            ("v1.148.0", "v1.150.0", true),
            ("v1.147.0", "v1.150.0", false),
            ("v1.151.0", "v1.150.0", false),
            ("v1.150.0", "", false),
            ("v1.150.0", "v2.0.0", false),
        ];
        for (ours, theirs, allowed) in table {
            assert_eq!(check_skew(ours, theirs).is_ok(), allowed, "{ours} with {theirs}");
        }
        let why = check_skew("v1.150.0", "v1.153.0").unwrap_err();
        assert!(why.contains("v1.153.0 is too new for gardenlet v1.150.0"), "{why}");
    }
}
