//! The chart of an extension, as it travels in a ControllerDeployment.

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::failure::{Doing, Result};
use crate::image;

const FILES: &[(&str, &str)] = &[
    ("Chart.yaml", include_str!("chart/Chart.yaml")),
    ("values.yaml", include_str!("chart/values.yaml")),
    ("templates/_helpers.tpl", include_str!("chart/templates/_helpers.tpl")),
    ("templates/objects.yaml", include_str!("chart/templates/objects.yaml")),
    ("templates/things.yaml", include_str!("chart/templates/things.yaml")),
];

/// The chart `demo` of the folder `chart`.
pub(crate) fn demo() -> Result<Vec<u8>> {
    archive(FILES)
}

const EXTENSION: &[(&str, &str)] = &[
    ("Chart.yaml", include_str!("extension/Chart.yaml")),
    ("values.yaml", include_str!("extension/values.yaml")),
    ("templates/_helpers.tpl", include_str!("extension/templates/_helpers.tpl")),
    ("templates/access.yaml", include_str!("extension/templates/access.yaml")),
    ("templates/deployment.yaml", include_str!("extension/templates/deployment.yaml")),
    ("templates/webhook.yaml", include_str!("extension/templates/webhook.yaml")),
];

/// The chart of the folder `extension`, whose program is [`image::EXTENSION`].
pub(crate) fn extension() -> Result<Vec<u8>> {
    archive(EXTENSION)
}

/// A chart that is none: its template ends within an action.
pub(crate) fn broken() -> Result<Vec<u8>> {
    archive(&[
        ("Chart.yaml", include_str!("chart/Chart.yaml")),
        ("templates/objects.yaml", "a: {{ .Values.greeting"),
    ])
}

/// A chart with two objects in the extension's own namespace, of which a seed can have many.
pub(crate) fn small() -> Result<Vec<u8>> {
    archive(&[("Chart.yaml", include_str!("chart/Chart.yaml")), ("templates/objects.yaml", SMALL)])
}

const SMALL: &str = "apiVersion: v1
kind: ServiceAccount
metadata: {name: small, namespace: {{ .Release.Namespace }}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: small, namespace: {{ .Release.Namespace }}}
data: {number: {{ .Values.number | quote }}}
";

fn archive(files: &[(&str, &str)]) -> Result<Vec<u8>> {
    let mut builder = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    let appended = files.iter().try_for_each(|(name, text)| {
        image::append(&mut builder, &format!("demo/{name}"), 0o644, text.as_bytes())
    });
    let finished = appended.and_then(|()| builder.into_inner()).and_then(GzEncoder::finish);
    finished.doing(|| "pack the chart".to_owned())
}
