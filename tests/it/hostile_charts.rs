//! Charts made to do harm. The real program renders each of them in its child process. The child ends with a message
//! that names the problem, after a bounded processor time, and the parent process stays small.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use flate2::{Compression, write::GzEncoder};
use gardenlet::base::stop::Stop;
use gardenlet::chart::child::{RenderRequest, Renderer};
use gardenlet::chart::render::secret_text;
use serde_json::{Value, json};

use crate::charts;
use support::options::measured;

/// Memory of the parent process above its memory before.
const MEMORY_BYTES_MAX: u64 = 32 << 20;
/// Processor time of the child. Test builds are ten times slower than release builds.
const CPU_MS_MAX: f64 = 100_000.0;

/// A chart and a part of its error message. The part is empty if the chart renders.
struct Row {
    name: &'static str,
    archive: Vec<u8>,
    expected: &'static str,
}

fn row(name: &'static str, files: &[(&str, &str)], expected: &'static str) -> Row {
    Row { name, archive: charts::archive("bad", files), expected }
}

/// One template, which prints an object after its own text.
fn template(name: &'static str, text: &str, expected: &'static str) -> Row {
    let text = format!("{text}\nkind: A\nmetadata: {{name: a}}\n");
    row(name, &[("templates/a.yaml", &text)], expected)
}

const STEPS: &str = "rendering took more than 20000000 steps";
const MEMORY: &str = "it needed more than 96 MiB of memory";

fn output() -> Vec<Row> {
    let object = |body: &str| format!("kind: A\nmetadata: {{name: a}}\n{body}\n");
    let one = |name, body: &str, expected| row(name, &[("templates/a.yaml", &object(body))], expected);
    let names: Vec<String> = (0..8_000).map(|i| format!("templates/{i}{}.yaml", "n".repeat(900))).collect();
    let named: Vec<(&str, &str)> = names.iter().map(|n| (n.as_str(), "kind: A\nmetadata: {}\n")).collect();
    let containers = "spec: {containers: [{{ repeat 1001 \"{name: a},\" }}]}";
    vec![
        template("a message of 5 MB", "{{ fail (repeat 5000000 \"x\") }}", "bytes left out]"),
        template("a message of 33 MB", "{{ fail (repeat 33000000 \"x\") }}", ""),
        one("5 MB of text", "a: {{ repeat 5000000 \"x\" }}", "have more than 4194304 bytes: split the chart"),
        one("2 MB of text", "a: {{ repeat 2000000 \"x\" }}", "good"),
        one("28 MB of lists", "a: [{{ repeat 14000000 \"1,\" }}]", ""),
        one("many empty maps", "a: [{{ repeat 30000 \"{},\" }}]", "have too many fields"),
        one("many small maps", "a: [{{ repeat 30000 \"{a: b},\" }}]", "have too many fields"),
        one("deep lists", "a: {{ repeat 125 \"[\" }}{{ repeat 125 \"]\" }}", "nest deeper than 124 levels"),
        one("deeper lists", "a: {{ repeat 2000 \"[\" }}", "nested deeper than 128 levels"),
        one(
            "lists that YAML makes long",
            "a: {{ repeat 100 \"[\" }}{{ repeat 50000 \"1,\" }}{{ repeat 100 \"]\" }}",
            "a Secret holds at most 1048576: split the chart",
        ),
        one("many containers", containers, "a rendered pod has 1001 containers; the maximum is 1000"),
        row("long names", &named, "have more than 4194304 bytes: split the chart"),
    ]
}

fn memory() -> Vec<Row> {
    let hog = "{{ $l := list }}{{ range until 1000 }}{{ $l = append $l (repeat 10000000 \"x\") }}{{ end }}";
    let mut levels = String::new();
    for level in 0..40 {
        let items = format!("*a{}, ", level - 1).repeat(if level == 0 { 0 } else { 9 });
        let _infallible = writeln!(levels, "a{level}: &a{level} [{items}1]");
    }
    vec![
        template("a list of large texts", hog, MEMORY),
        row("aliases of YAML", &[("values.yaml", &levels)], "document contains excessive aliasing"),
        aliases(),
        row(
            "a deep path in import-values",
            &[
                ("charts/c/Chart.yaml", "apiVersion: v2\nname: c\nversion: 1.0.0\n"),
                ("charts/c/values.yaml", "t: {x: 1}\n"),
                (
                    "requirements.yaml",
                    &format!(
                        "dependencies:\n- name: c\n  version: 1.0.0\n  import-values:\n  - {{child: t, parent: \"{}\"}}\n",
                        ".".repeat(100_000)
                    ),
                ),
            ],
            "import-values has a parent with more than 30 steps in its path",
        ),
        Row {
            name: "a size near 2^64",
            archive: sized(u64::MAX - 100),
            expected: "cannot read the chart archive: size overflow",
        },
        Row { name: "a size of 2^63", archive: sized(1 << 63), expected: "larger than the maximum size" },
    ]
}

/// Sixteen levels of charts; each level includes the next one four times.
fn aliases() -> Row {
    let mut files: Vec<(String, String)> = Vec::new();
    for level in 0..16 {
        let folder = "charts/c/".repeat(level);
        let mut chart = String::new();
        for alias in if level < 15 { &["a", "b", "d", "e"][..] } else { &[] } {
            let _infallible = writeln!(chart, "- {{name: c, version: '*', alias: {alias}}}");
        }
        if !chart.is_empty() {
            chart = format!("dependencies:\n{chart}");
        }
        if level > 0 {
            files.push((
                format!("{folder}Chart.yaml"),
                "apiVersion: v2\nname: c\nversion: 1.0.0\n".to_owned(),
            ));
        }
        files.push((format!("{folder}requirements.yaml"), chart));
    }
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    row("aliases of dependencies", &files, "with all aliases there are more than 1000 charts")
}

/// An archive with a file whose header claims this many bytes.
fn sized(size: u64) -> Vec<u8> {
    use std::io::Write as _;
    let mut header = tar::Header::new_gnu();
    header.set_path("bad/Chart.yaml").unwrap();
    header.set_size(size);
    header.set_mode(0o644);
    header.set_cksum();
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(header.as_bytes()).unwrap();
    encoder.write_all(&[b'a'; 2_048]).unwrap();
    encoder.finish().unwrap()
}

fn work() -> Vec<Row> {
    let table = [
        (
            "sums of a large text",
            "{{ $t := repeat 10000000 \"x\" }}{{ range until 100000 }}{{ $x := sha256sum $t }}{{ end }}",
        ),
        (
            "sorting",
            "{{ $l := splitList \"\" (repeat 200000 \"ab\") }}{{ range until 1000 }}{{ $x := sortAlpha $l }}{{ end }}",
        ),
        ("each with each", "{{ $x := uniq (until 200000) }}"),
        (
            "searching a list",
            "{{ $l := until 100000 }}{{ range until 100000 }}{{ $x := has -1 $l }}{{ end }}",
        ),
        ("cutting by a long set", "{{ $x := trimAll (repeat 1000000 \"ab\") (repeat 1000000 \"ba\") }}"),
        ("a large expression", "{{ $x := regexMatch \"(a?){1000}b\" (repeat 30000000 \"a\") }}"),
        (
            "many expressions",
            "{{ range $i := until 1000000 }}{{ $x := regexMatch (printf \"%s%d\" (repeat 1000 \"\\\\pZ\") $i) \"a\" }}{{ end }}",
        ),
        (
            "comparing long texts in lists",
            "{{ $a := list (repeat 10000000 \"x\") }}{{ $b := list (repeat 10000000 \"x\") }}{{ range until 100000 }}{{ $x := deepEqual $a $b }}{{ end }}",
        ),
        ("far exponents", "{{ range until 1000000 }}{{ $x := divf 1e300 1e-300 }}{{ end }}"),
        (
            "signatures",
            "{{ $k := genPrivateKey \"rsa\" }}{{ range until 100000 }}{{ $x := genCAWithKey \"a\" 1 $k }}{{ end }}",
        ),
        (
            "aliases in a loop",
            "{{ $t := printf \"a: &a [%s]\\nb: [%s]\" (repeat 1000 \"1,\") (repeat 300 \"*a,\") }}{{ range until 100000 }}{{ $x := fromYaml $t }}{{ end }}",
        ),
    ];
    let mut rows: Vec<Row> = table.into_iter().map(|(name, text)| template(name, text, STEPS)).collect();
    rows.extend([
        files(
            "files that are counted",
            "{{ range until 20000 }}{{ $x := len $.Files }}{{ $x = index $.Files \"none\" }}{{ with $.Files }}{{ end }}{{ end }}",
            "good",
        ),
        files(
            "files that are copied",
            "{{ range until 100000 }}{{ range $name, $data := $.Files }}{{ end }}{{ end }}",
            STEPS,
        ),
        template("a text in letters", "{{ $x := splitList \"\" (repeat 200000 \"ä\") }}", "good"),
        template("many verbs", "{{ $x := printf (repeat 200000 \"%q\") 1 }}", "good"),
        template(
            "a long needle",
            "{{ $x := contains (print (repeat 100000 \"a\") \"b\") (repeat 3000000 \"a\") }}",
            "good",
        ),
        template(
            "itself",
            "{{ define \"a\" }}{{ template \"a\" . }}{{ end }}{{ template \"a\" . }}",
            "too deeply",
        ),
    ]);
    rows.extend(schemas());
    rows
}

/// A template of a chart with 16 MB of files.
fn files(name: &'static str, text: &str, expected: &'static str) -> Row {
    let (text, large) = (format!("{text}\nkind: A\nmetadata: {{name: a}}\n"), "x".repeat(4_000_000));
    let files = ["a", "b", "c", "d"].map(|name| (name, large.as_str()));
    row(name, &[&files[..], &[("templates/a.yaml", &text)]].concat(), expected)
}

fn schemas() -> Vec<Row> {
    let of = |name, schema: Value, values: &Value, expected| {
        let (schema, values) = (schema.to_string(), values.to_string());
        let object = ("templates/a.yaml", "kind: A\nmetadata: {name: a}\n");
        row(name, &[("values.schema.json", &schema), ("values.yaml", &values), object], expected)
    };
    const TOO_LONG: &str = "the schema takes too long to check";
    let numbers: Vec<usize> = (0..20_000).collect();
    let patterns: serde_json::Map<String, Value> =
        (0..20_000).map(|i| (format!("\\pL{{{}}}x{i}", i % 50 + 1), json!({}))).collect();
    let names: Vec<Value> = (0..5_000).map(|i| json!({"$anchor": format!("x{i}")})).collect();
    let references: Vec<Value> = (0..5_000).map(|i| json!({"$ref": format!("#x{i}")})).collect();
    vec![
        of(
            "a pattern of many classes",
            json!({"properties": {"a": {"pattern": "\\pL".repeat(100_000)}}}),
            &json!({"a": "x"}),
            "a regular expression has more than 262144 bytes with its classes",
        ),
        of("many patterns", json!({"patternProperties": patterns}), &json!({"a": "x"}), TOO_LONG),
        of(
            "many choices",
            json!({"properties": {"a": {"items": {"enum": numbers}}}}),
            &json!({"a": numbers.iter().map(|n| n + 20_000).collect::<Vec<_>>()}),
            TOO_LONG,
        ),
        of(
            "one name behind many numbers",
            json!({"a": vec![0; 500_000], "b": {"$anchor": "x"}, "properties": {"a": {"items": {"$ref": "#x"}}}}),
            &json!({"a": vec![0; 100_000]}),
            "good",
        ),
        of(
            "many names behind many numbers",
            json!({"a": vec![0; 500_000], "b": names, "properties": {"a": {"prefixItems": references}}}),
            &json!({"a": vec![0; 5_000]}),
            TOO_LONG,
        ),
    ]
}

fn numbers() -> Vec<Row> {
    let far = i64::MAX;
    [
        ("{{ $x := printf \"%.70000f\" 1.5 }}".to_owned(), "good"),
        (
            "{{ $x := printf \"%.999999d|%0999999d|%.999999e|%.999999x|%.999999U\" 1 1 1.5 1.5 1 }}"
                .to_owned(),
            "good",
        ),
        (format!("{{{{ $x := abbrevboth -{far} 10 (repeat 100 \"a\") }}}}"), "good"),
        (format!("{{{{ $x := abbrevboth {far} {far} \"a\" }}}}"), "good"),
        (format!("{{{{ $x := now.AddDate {far} 0 0 }}}}"), "date is out of range"),
        (format!("{{{{ $x := now.AddDate 0 {far} 0 }}}}"), "date is out of range"),
        (format!("{{{{ $x := now.AddDate 0 0 -{far} }}}}"), "date is out of range"),
        ("{{ $x := now | dateModify \"2562047h47m16.854775807s\" }}".to_owned(), "good"),
    ]
    .into_iter()
    .map(|(text, expected)| template("extreme numbers", &text, expected))
    .collect()
}

fn request() -> RenderRequest {
    RenderRequest {
        resources: Value::Null,
        mix_in: serde_json::Map::new(),
        name: "bad".to_owned(),
        namespace: "extension-bad".to_owned(),
        values: json!({}),
        kubernetes_version: "v1.34.1".to_owned(),
        kubernetes_major: "1".to_owned(),
        kubernetes_minor: "34".to_owned(),
        apart: false,
    }
}

/// A figure of this process, in bytes.
fn memory_of(field: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1_024
}

/// Processor time of the children that have ended.
fn children_ms() -> u64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    // The system counts in hundredths of a second.
    (fields[13].parse::<u64>().unwrap() + fields[14].parse::<u64>().unwrap()) * 10
}

/// Renders one chart and returns each broken expectation.
#[allow(clippy::print_stdout)] // the figures of each chart, for `--nocapture`
fn try_row(row: &Row) -> Result<(), String> {
    // Resets the peak.
    fs::write("/proc/self/clear_refs", "5").unwrap();
    let (before, cpu_ms) = (memory_of("VmRSS:"), children_ms());
    let renderer = Renderer::Child { program: PathBuf::from(env!("CARGO_BIN_EXE_gardenlet")) };
    let said = match renderer.render(&request(), &row.archive, &Stop::new()) {
        // The agent builds the Secret in the same way.
        Ok(objects) => {
            let bytes: usize = objects.into_values().map(|object| secret_text(&object).len()).sum();
            assert!(bytes > 0 || row.expected != "good");
            "good".to_owned()
        }
        Err(error) => error.to_string(),
    };
    let memory = memory_of("VmHWM:").saturating_sub(before);
    let cpu_ms = children_ms() - cpu_ms;
    println!("{}: {cpu_ms} ms, {} kB: {said:.160}", row.name, memory >> 10);
    if !said.contains(row.expected) || said.len() > 1_100 {
        return Err(format!("{}: {said:.1200}", row.name));
    }
    if memory > MEMORY_BYTES_MAX {
        return Err(format!("{}: {memory} bytes of memory", row.name));
    }
    measured(&format!("{}: milliseconds of processor time", row.name), cpu_ms as f64, CPU_MS_MAX)
}

/// Runs one test of this file in its own process, so that nothing else uses memory. Returns true within that process.
fn is_alone(test: &str) -> bool {
    const ALONE: &str = "GARDENLET_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([&format!("hostile_charts::{test}"), "--exact", "--nocapture", "--test-threads=1"]);
    let output = command.env(ALONE, "1").output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}\n{err}");
    assert!(out.contains("1 passed"), "{out}");
    false
}

fn try_all(test: &str, rows: fn() -> Vec<Row>) {
    if is_alone(test) {
        let failures: Vec<String> = rows().iter().filter_map(|row| try_row(row).err()).collect();
        assert!(failures.is_empty(), "{failures:#?}");
    }
}

#[test]
fn output_that_is_too_large_is_refused_in_the_child() {
    try_all("output_that_is_too_large_is_refused_in_the_child", output);
}

#[test]
fn rendering_of_charts_that_grow_is_stopped() {
    try_all("rendering_of_charts_that_grow_is_stopped", memory);
}

#[test]
fn work_is_counted() {
    try_all("work_is_counted", work);
}

#[test]
fn extreme_numbers_cause_no_crash() {
    try_all("extreme_numbers_cause_no_crash", numbers);
}

/// On the command line: the same limits, and files without an end.
#[test]
fn the_command_line_has_the_same_limits() {
    let folder = std::env::temp_dir().join(format!("gardenlet-hostile-{}", std::process::id()));
    fs::create_dir_all(folder.join("templates")).unwrap();
    fs::write(folder.join("Chart.yaml"), "apiVersion: v2\nname: c\nversion: 1.0.0\n").unwrap();
    let render = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gardenlet"));
        let output = command.arg("render").arg(&folder).args(more).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let hog = "{{ $l := list }}{{ range until 15 }}{{ $l = append $l (repeat 10000000 \"x\") }}{{ end }}";
    fs::write(folder.join("templates/a.yaml"), hog).unwrap();
    let (code, errors) = render(&[]);
    assert!(code.is_none() && errors.contains("memory allocation of"), "{code:?} {errors}");
    assert_eq!(render(&["--unlimited"]).0, Some(0));
    fs::write(folder.join("templates/a.yaml"), "").unwrap();
    let link = folder.join(".helmignore");
    for target in ["/dev/zero", "/dev/tty", "."] {
        std::os::unix::fs::symlink(target, &link).unwrap();
        let (code, errors) = render(&[]);
        assert!(code == Some(1) && errors.contains(".helmignore: not a regular file"), "{code:?} {errors}");
        fs::remove_file(&link).unwrap();
    }
    fs::write(&link, "a\n".repeat(40_000)).unwrap();
    assert!(render(&[]).1.contains("larger than 65536 bytes"));
    fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink("/dev/zero", folder.join("values.yaml")).unwrap();
    assert!(render(&[]).1.contains("values.yaml: not a regular file"));
    assert!(render(&["-f", "/dev/zero"]).1.contains("larger than 16777216 bytes"));
    fs::remove_dir_all(&folder).unwrap();
}
