//! Manifests and indexes: finds the layer with the chart. No IO.

use serde::Deserialize;
use serde_json::Value;

use super::digest::Digest;
use crate::format::view;
use crate::limits;

/// The layer that holds a chart (Helm's media type).
const CHART: &str = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";
/// The media types that the agent requests from a registry.
pub(super) const ACCEPT: &str = "application/vnd.oci.image.manifest.v1+json, \
    application/vnd.docker.distribution.manifest.v2+json, application/vnd.oci.image.index.v1+json, \
    application/vnd.docker.distribution.manifest.list.v2+json";

/// The next step after a manifest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Next {
    Chart(Blob),
    /// Another manifest from an index.
    Manifest(Digest),
}

/// Content with its digest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Blob {
    pub(super) digest: Digest,
    pub(super) bytes: u64,
}

/// Why a manifest does not lead to a chart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ArtifactProblem {
    /// The content is not a manifest.
    NotAManifest,
    /// It has no layers.
    NoLayers,
    /// No layer is a chart.
    NoHelmLayer,
    /// The layer has no usable digest or size.
    BadLayer,
    /// The index has no matching entry.
    EmptyIndex,
    /// Too many nested indexes.
    DeepIndex,
}

impl std::fmt::Display for ArtifactProblem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::NotAManifest => "the registry's answer is not an OCI manifest",
            // These two are Gardener's texts.
            Self::NoLayers => "no layers found",
            Self::NoHelmLayer => "no helm layer found in artifact",
            Self::BadLayer => "the helm layer has no usable digest or size",
            Self::EmptyIndex => "the image index has no entry without a platform or for linux/amd64",
            Self::DeepIndex => "the image index contains only other indexes",
        })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ManifestDocument {
    #[serde(default)]
    schema_version: u32,
    layers: Option<Vec<Descriptor>>,
    manifests: Option<Vec<Descriptor>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Descriptor {
    media_type: String,
    digest: String,
    size: u64,
    platform: Option<Platform>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Platform {
    os: String,
    architecture: String,
}

/// Reads a manifest or an index. Its fields determine the kind, because media types in headers are
/// often missing or wrong.
///
/// Of an index, the first entry without a platform or for linux/amd64 counts, as upstream resolves it.
pub(super) fn read(content: &[u8]) -> Result<Next, ArtifactProblem> {
    let document: ManifestDocument = view::parse(content).map_err(|_| ArtifactProblem::NotAManifest)?;
    if document.schema_version != 2 {
        return Err(ArtifactProblem::NotAManifest);
    }
    match (document.layers, document.manifests) {
        (Some(layers), _) if layers.is_empty() => Err(ArtifactProblem::NoLayers),
        (Some(layers), _) => {
            let layer =
                layers.iter().find(|layer| layer.media_type == CHART).ok_or(ArtifactProblem::NoHelmLayer)?;
            let digest = Digest::parse(&layer.digest).ok_or(ArtifactProblem::BadLayer)?;
            if layer.size == 0 {
                return Err(ArtifactProblem::BadLayer);
            }
            Ok(Next::Chart(Blob { digest, bytes: layer.size }))
        }
        (None, Some(manifests)) => {
            let ours = manifests.iter().find(|entry| is_ours(entry.platform.as_ref()));
            let digest = ours.and_then(|entry| Digest::parse(&entry.digest));
            digest.map(Next::Manifest).ok_or(ArtifactProblem::EmptyIndex)
        }
        (None, None) => Err(ArtifactProblem::NoLayers),
    }
}

/// All blobs of a manifest: its configuration and its layers.
pub(super) fn parts(content: &[u8]) -> Result<Vec<Blob>, ArtifactProblem> {
    let document = view::json(content).map_err(|_| ArtifactProblem::NotAManifest)?;
    let layers = document["layers"].as_array().ok_or(ArtifactProblem::NoLayers)?;
    if layers.len() > limits::OCI_LAYERS_MAX {
        return Err(ArtifactProblem::BadLayer);
    }
    let blob = |part: &Value| {
        Some(Blob { digest: Digest::parse(part["digest"].as_str()?)?, bytes: part["size"].as_u64()? })
    };
    std::iter::once(&document["config"])
        .chain(layers)
        .map(|part| blob(part).ok_or(ArtifactProblem::BadLayer))
        .collect()
}

fn is_ours(platform: Option<&Platform>) -> bool {
    platform.is_none_or(|platform| platform.os == "linux" && platform.architecture == "amd64")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_manifest_consists_of_its_configuration_and_its_layers() {
        let part =
            |digit: &str, size: u64| json!({"digest": format!("sha256:{}", digit.repeat(64)), "size": size});
        let blob = |digit: &str, bytes| Blob { digest: Digest::from_hex(&digit.repeat(64)).unwrap(), bytes };
        let many = vec![part("1", 1); limits::OCI_LAYERS_MAX + 1];
        let table = [
            (
                json!({"config": part("1", 2), "layers": [part("2", 7), part("3", 0)]}),
                Ok(vec![blob("1", 2), blob("2", 7), blob("3", 0)]),
            ),
            (json!({"config": part("1", 2), "layers": []}), Ok(vec![blob("1", 2)])),
            (json!({"layers": [part("2", 7)]}), Err(ArtifactProblem::BadLayer)),
            (
                json!({"config": part("1", 2), "layers": [{"digest": "x", "size": 1}]}),
                Err(ArtifactProblem::BadLayer),
            ),
            (json!({"config": part("1", 2), "layers": many}), Err(ArtifactProblem::BadLayer)),
            (json!({"manifests": []}), Err(ArtifactProblem::NoLayers)),
        ];
        for (document, expected) in table {
            assert_eq!(parts(document.to_string().as_bytes()), expected, "{document}");
        }
        assert_eq!(parts(b"<html>"), Err(ArtifactProblem::NotAManifest));
    }

    #[test]
    fn the_first_helm_layer_is_the_chart() {
        let hex = |digit: &str| format!("sha256:{}", digit.repeat(64));
        let digest = |digit: &str| Digest::parse(&hex(digit)).unwrap();
        let layer = |kind: &str, digit: &str| json!({"mediaType": kind, "digest": hex(digit), "size": 7});
        let manifest = |layers: &[Value]| json!({"schemaVersion": 2, "config": {}, "layers": layers});
        let index = |entries: Value| json!({"schemaVersion": 2, "manifests": entries});
        let provenance = layer("application/vnd.cncf.helm.chart.provenance.v1.prov", "1");
        let arm = json!({"digest": hex("4"), "platform": {"os": "linux", "architecture": "arm64"}});
        let amd = json!({"digest": hex("5"), "platform": {"os": "linux", "architecture": "amd64"}});
        let blob = |digit: &str| Ok(Next::Chart(Blob { digest: digest(digit), bytes: 7 }));
        let table = [
            (manifest(&[provenance.clone(), layer(CHART, "2"), layer(CHART, "3")]), blob("2")),
            (manifest(&[]), Err(ArtifactProblem::NoLayers)),
            (json!({"schemaVersion": 2, "config": {}}), Err(ArtifactProblem::NoLayers)),
            (manifest(&[provenance]), Err(ArtifactProblem::NoHelmLayer)),
            (
                manifest(&[json!({"mediaType": CHART, "digest": "sha512:1", "size": 7})]),
                Err(ArtifactProblem::BadLayer),
            ),
            (manifest(&[json!({"mediaType": CHART, "digest": hex("2")})]), Err(ArtifactProblem::BadLayer)),
            (index(json!([arm, amd])), Ok(Next::Manifest(digest("5")))),
            (index(json!([arm, {"digest": hex("6")}])), Ok(Next::Manifest(digest("6")))),
            (index(json!([arm])), Err(ArtifactProblem::EmptyIndex)),
            (index(json!([])), Err(ArtifactProblem::EmptyIndex)),
            (json!({"schemaVersion": 1, "layers": []}), Err(ArtifactProblem::NotAManifest)),
            (json!([1]), Err(ArtifactProblem::NotAManifest)),
            (json!("text"), Err(ArtifactProblem::NotAManifest)),
        ];
        for (document, expected) in table {
            assert_eq!(read(document.to_string().as_bytes()), expected, "{document}");
        }
        assert_eq!(read(b"<html>"), Err(ArtifactProblem::NotAManifest));
        assert_eq!(read("[".repeat(100_000).as_bytes()), Err(ArtifactProblem::NotAManifest));
    }
}
