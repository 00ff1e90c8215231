use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write as _;

use super::*;

const CHART_YAML: &str = "apiVersion: v2\nname: demo\nversion: 1.0.0\n";

/// A tar archive with these exact file names, including `..`.
pub(in crate::chart) fn tgz(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut tar = Vec::new();
    for (name, data) in files {
        let mut header = tar::Header::new_gnu();
        header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_size(u64::try_from(data.len()).unwrap());
        header.set_entry_type(tar::EntryType::Regular);
        header.set_cksum();
        tar.extend_from_slice(header.as_bytes());
        tar.extend_from_slice(data);
        tar.resize(tar.len().div_ceil(512) * 512, 0);
    }
    tar.resize(tar.len() + 1_024, 0);
    gzip(&tar)
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn names(files: &[File]) -> Vec<&str> {
    files.iter().map(|f| f.name.as_str()).collect()
}

#[test]
fn files_go_where_they_belong() {
    let child = tgz(&[("x/Chart.yaml", b"apiVersion: v2\nname: packed\nversion: 1.0.0\n")]);
    let files: Vec<(&str, &[u8])> = vec![
        ("any/Chart.yaml", CHART_YAML.as_bytes()),
        ("any/values.yaml", b"\xef\xbb\xbfa: 1\n---\nb: 2\n"),
        ("any/values.schema.json", b"{}"),
        ("any/Chart.lock", b"dependencies: []"),
        ("any/templates/a.yaml", b"a"),
        ("any/crds/c.yaml", b"c"),
        ("any/README.md", b"r"),
        ("any/charts/packed-1.0.0.tgz", &child),
        ("any/charts/folder/Chart.yaml", b"name: folder\nversion: 1.0.0\n"),
        ("any/charts/folder/requirements.yaml", b"dependencies: [{name: q}]"),
        ("any/charts/_hidden/Chart.yaml", b"no"),
        ("any/charts/README.md/x", b"apiVersion: v1"),
        ("any/charts/p.prov", b"x"),
    ];
    let without_loose: Vec<_> = files.iter().filter(|f| !f.0.contains("charts/README")).copied().collect();
    let chart = load(&tgz(&without_loose)).unwrap();
    assert_eq!(chart.name(), "demo");
    assert_eq!(serde_json::to_string(&chart.values).unwrap(), r#"{"a":1.0,"b":2.0}"#);
    assert_eq!(names(&chart.templates), ["templates/a.yaml"]);
    assert_eq!(names(&chart.files), ["crds/c.yaml", "README.md", "charts/p.prov"]);
    let children: Vec<&str> = chart.children.iter().map(Chart::name).collect();
    assert_eq!(children, ["folder", "packed"]);
    assert_eq!(chart.children[0].metadata.api_version, "v1");
    assert_eq!(chart.children[0].metadata.dependencies.len(), 1);
    assert_eq!(names(&chart.children[0].files), ["requirements.yaml"]);
    let error = load(&tgz(&files)).unwrap_err().to_string();
    assert_eq!(error, "error unpacking subchart README.md in demo");
}

#[test]
fn hostile_paths_are_refused() {
    for (name, message) in [
        ("x//etc/passwd", "chart illegally contains absolute paths"),
        ("x/../../etc", "chart illegally references parent directory"),
        ("x/a/../../../etc", "chart illegally references parent directory"),
        ("x", "chart illegally contains content outside the base directory: \"x\""),
        ("Chart.yaml", "chart yaml not in base directory"),
        ("x/c:/foo", "chart contains illegally named files"),
        ("x\\..\\y", "chart illegally references parent directory"),
    ] {
        let error = load(&tgz(&[(name, b"x")])).unwrap_err();
        assert_eq!(error.to_string(), message, "{name}");
    }
    let chart =
        load(&tgz(&[("x\\Chart.yaml", CHART_YAML.as_bytes()), ("x\\templates\\a.yaml", b"a")])).unwrap();
    assert_eq!(names(&chart.templates), ["templates/a.yaml"]);
}

#[test]
fn invalid_charts_are_refused() {
    assert!(matches!(load(b"no archive"), Err(Error::Archive(_))));
    assert!(matches!(
        load(&gzip(b"no tar, but longer than one block".repeat(40).as_slice())),
        Err(Error::Archive(_))
    ));
    assert!(matches!(load(&tgz(&[])), Err(Error::Empty)));
    assert!(matches!(load(&tgz(&[("x/a", b"a")])), Err(Error::NoChartYaml)));
    for (file, data) in [("x/values.yaml", "- a"), ("x/Chart.lock", "a: ["), ("x/Chart.yaml", "name: 1")] {
        let files = [("x/Chart.yaml", CHART_YAML.as_bytes()), (file, data.as_bytes())];
        let result = load(&tgz(&files[usize::from(file == "x/Chart.yaml")..]));
        assert!(matches!(result, Err(Error::File { .. })), "{file}");
    }
    let new = tgz(&[("x/Chart.yaml", b"apiVersion: v3\nname: x\nversion: 1.0.0")]);
    assert!(matches!(load(&new), Err(Error::ApiVersion(_))));
    let cut = tgz(&[("x/Chart.yaml", CHART_YAML.as_bytes()), ("x/big", &[7; 9_000])]);
    assert!(matches!(load(&cut[..cut.len() - 20]), Err(Error::Archive(_))));
}

#[test]
fn large_charts_are_refused() {
    let big = vec![0; 5_242_881];
    let error = load(&tgz(&[("x/Chart.yaml", CHART_YAML.as_bytes()), ("x/a", &big)])).unwrap_err();
    assert_eq!(
        error.to_string(),
        "decompressed chart file \"x/a\" is larger than the maximum file size 5242880"
    );
    let part = vec![0; 5_242_880];
    let names: Vec<String> = (0..20).map(|i| format!("x/{i}")).collect();
    let files: Vec<(&str, &[u8])> = names.iter().map(|n| (n.as_str(), part.as_slice())).collect();
    let with_one_more: Vec<_> = files.iter().copied().chain([("x/last", &b"1"[..])]).collect();
    assert!(matches!(load(&tgz(&with_one_more)), Err(Error::Size(104_857_600))));

    let names: Vec<String> = (0..20_001).map(|i| format!("x/{i}")).collect();
    let files: Vec<(&str, &[u8])> = names.iter().map(|n| (n.as_str(), &b""[..])).collect();
    assert!(matches!(load(&tgz(&files)), Err(Error::FileCount(20_000))));

    let mut chart = tgz(&[("x/Chart.yaml", CHART_YAML.as_bytes())]);
    for _ in 0..17 {
        chart = tgz(&[("x/Chart.yaml", CHART_YAML.as_bytes()), ("x/charts/a.tgz", &chart)]);
    }
    let mut error = load(&chart).unwrap_err();
    while let Error::Child { source, .. } = error {
        error = *source;
    }
    assert!(matches!(error, Error::Depth(16)), "{error}");
}

#[test]
fn folders_are_read_without_what_helmignore_names() {
    let folder = std::env::temp_dir().join(format!("gardenlet-chart-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("templates")).unwrap();
    for (name, data) in [
        ("Chart.yaml", CHART_YAML),
        (".helmignore", "*.bak\n"),
        ("a.bak", ""),
        ("templates/.hidden.yaml", ""),
        ("templates/a.yaml", "a"),
    ] {
        std::fs::write(folder.join(name), data).unwrap();
    }
    let chart = load_path(&folder).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(
        (names(&chart.templates), names(&chart.files)),
        (vec!["templates/a.yaml"], vec![".helmignore"])
    );
    assert!(matches!(load_path(&folder), Err(Error::Read { .. })));
}
