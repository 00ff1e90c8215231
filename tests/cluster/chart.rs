//! The chart of an extension, as it is stored in a ControllerDeployment, and the agent's own one in another version.

use std::fs;
use std::path::Path;

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

/// An invalid chart: its template ends within an action.
pub(crate) fn broken() -> Result<Vec<u8>> {
    archive(&[
        ("Chart.yaml", include_str!("chart/Chart.yaml")),
        ("templates/objects.yaml", "a: {{ .Values.greeting"),
    ])
}

/// A chart with two objects in the extension's own namespace, for many installations in a seed.
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

/// The agent's own chart in another version, with more permissions than this one.
pub(crate) fn agent(version: &str) -> Result<Vec<u8>> {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/chart"));
    let head = format!("apiVersion: v2\nname: gardenlet\nversion: {version}\nappVersion: {version}\n");
    let mut files = vec![("Chart.yaml".to_owned(), head)];
    let mut names = vec!["values.yaml".to_owned(), "values.schema.json".to_owned()];
    let templates =
        fs::read_dir(folder.join("templates")).doing(|| "list the agent's templates".to_owned())?;
    names.extend(templates.flatten().map(|file| format!("templates/{}", file.file_name().display())));
    for name in names {
        let text =
            fs::read_to_string(folder.join(&name)).doing(|| format!("read {name} of the agent's chart"))?;
        files.push((name, text.replace("\nrules:\n", MORE_RULES)));
    }
    let files: Vec<_> = files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    archive_of("gardenlet", &files)
}

const MORE_RULES: &str = "
rules:
- apiGroups: [example.org]
  resources: [things]
  verbs: [get]
";

fn archive(files: &[(&str, &str)]) -> Result<Vec<u8>> {
    archive_of("demo", files)
}

fn archive_of(chart: &str, files: &[(&str, &str)]) -> Result<Vec<u8>> {
    let mut builder = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    let appended = files.iter().try_for_each(|(name, text)| {
        image::append(&mut builder, &format!("{chart}/{name}"), 0o644, text.as_bytes())
    });
    let finished = appended.and_then(|()| builder.into_inner()).and_then(GzEncoder::finish);
    finished.doing(|| "pack the chart".to_owned())
}
