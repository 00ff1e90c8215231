use serde_json::json;

use super::*;
use crate::chart::archive::tests::tgz;

fn chart(template: &str) -> Vec<u8> {
    tgz(&[
        ("c/Chart.yaml", b"apiVersion: v2\nname: c\nversion: 1.0.0\n"),
        ("c/values.yaml", b"a: 1\n"),
        ("c/templates/a.yaml", template.as_bytes()),
    ])
}

fn request() -> RenderRequest {
    RenderRequest {
        name: "reg".to_owned(),
        namespace: "extension-reg".to_owned(),
        values: json!({"b": 100_000}),
        resources: Json::Null,
        mix_in: ValuesTable::new(),
        kubernetes_version: "v1.33.4-gke.1".to_owned(),
        kubernetes_major: "1".to_owned(),
        kubernetes_minor: "33+".to_owned(),
        apart: false,
    }
}

const TEMPLATE: &str = "kind: ConfigMap\nmetadata: {name: x, namespace: {{ .Release.Namespace }}}\n\
                        data: {v: \"{{ .Values.a }} {{ .Values.b }} {{ with .Capabilities.KubeVersion }}{{ .Version }} {{ .Major }}.{{ .Minor }}{{ end }}\"}\n";

#[test]
fn charts_are_rendered_in_process() {
    let objects = Renderer::InProcess.render(&request(), &chart(TEMPLATE), &Stop::new()).unwrap();
    let expected = json!({
        "kind": "ConfigMap", "metadata": {"name": "x", "namespace": "extension-reg"},
        "data": {"v": "1 100000 v1.33.4-gke.1 1.33+"},
    });
    assert_eq!(objects["c_templates_a.yaml"], expected);
}

#[test]
fn values_are_expanded_before_others_are_mixed_in() {
    let values =
        json!({"a": "{{ .resources.r.data.k }}", "gardener": {"x": "{{ .resources.r.data.k }}", "y": 1}});
    let resources = json!({"resources": {"r": {"data": {"k": "v"}}}});
    let Json::Object(mix_in) = json!({"gardener": {"y": "{{ as it is }}"}}) else { unreachable!() };
    let request = RenderRequest { values, resources, mix_in, ..request() };
    let template =
        "kind: A\nmetadata: {}\nv: {{ .Values.a }} {{ .Values.gardener.x }} {{ .Values.gardener.y | quote }}";
    let objects = Renderer::InProcess.render(&request, &chart(template), &Stop::new()).unwrap();
    assert_eq!(objects["c_templates_a.yaml"]["v"], "v v \"{{ as it is }}\"");
    let wrong = RenderRequest { values: json!({"a": "{{ .nope }}"}), ..request };
    let error = Renderer::InProcess.render(&wrong, &chart(template), &Stop::new()).unwrap_err();
    assert!(matches!(&error, Error::Values(text) if text.starts_with("a: ")), "{error}");
}

#[test]
fn errors_of_a_chart_are_reported() {
    for (archive, message) in [
        (chart("{{ fail \"no\" }}"), "execution error at (c/templates/a.yaml:1:3): no"),
        (b"x".to_vec(), "cannot read the chart archive: "),
    ] {
        let error = Renderer::InProcess.render(&request(), &archive, &Stop::new()).unwrap_err();
        assert!(error.to_string().starts_with(message), "{error}");
    }
    let wrong = RenderRequest { values: json!([]), ..request() };
    let error = Renderer::InProcess.render(&wrong, &chart(""), &Stop::new()).unwrap_err();
    assert_eq!(error.to_string(), "values must be a map");
    let large = vec![0; 33_554_433];
    let result = Renderer::InProcess.render(&request(), &large, &Stop::new());
    assert!(matches!(result, Err(Error::ArchiveBytes(33_554_432))));
}

#[test]
fn an_archive_may_be_a_file() {
    let path = std::env::temp_dir().join(format!("gardenlet-render-{}", crate::base::random::hex(12)));
    std::fs::write(&path, chart(TEMPLATE)).unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let from_bytes = Renderer::InProcess.render(&request(), &chart(TEMPLATE), &Stop::new()).unwrap();
    assert_eq!(Renderer::InProcess.render(&request(), &file, &Stop::new()).unwrap(), from_bytes);
    file.set_len(33_554_433).unwrap();
    let result = Renderer::InProcess.render(&request(), &file, &Stop::new());
    assert!(matches!(result, Err(Error::ArchiveBytes(33_554_432))));
    std::fs::remove_file(&path).unwrap();
}

/// A shell in place of the agent's program.
fn ask_shell(script: &str, limit: Duration, stop: &Stop) -> Result<RenderedObjects, Error> {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", script]);
    ask(command, &request(), (&chart(TEMPLATE)).into(), limit, stop)
}

#[test]
fn the_child_hears_the_request_and_its_answer_counts() {
    let minute = Duration::from_secs(60);
    let stop = Stop::new();
    let objects = ask_shell("cat >/dev/null; echo '{\"objects\":{\"k\":{\"a\":1}}}'", minute, &stop).unwrap();
    assert_eq!(objects["k"], json!({"a": 1}));
    let error = ask_shell("echo '{\"error\":\"bad\"}'", minute, &stop).unwrap_err();
    assert!(matches!(error, Error::Chart(message) if message == "bad"));
    assert!(matches!(ask_shell("kill -9 $$", minute, &stop), Err(Error::Died(Some(_)))));
    assert!(matches!(ask_shell("echo nonsense", minute, &stop), Err(Error::Died(Some(_)))));
    let error = ask_shell("yes '        '", minute, &stop).unwrap_err();
    assert_eq!(error.to_string(), "the rendered objects have more than 4194304 bytes: split the chart");
    let error = ask_shell("kill -ABRT $$", minute, &stop).unwrap_err().to_string();
    assert!(error.ends_with(": it needed more than 96 MiB of memory, or nested too deeply"), "{error}");
    let missing = Renderer::Child { program: PathBuf::from("/nonexistent") };
    assert!(matches!(missing.render(&request(), b"x", &stop), Err(Error::Start(_))));
}

#[test]
fn a_hanging_child_is_killed() {
    // It neither reads nor writes: both ends would wait for ever.
    let started = Clock::system();
    let error = ask_shell("exec sleep 600", Duration::from_millis(200), &Stop::new()).unwrap_err();
    assert!(matches!(error, Error::Timeout(_)), "{error}");
    let stop = Stop::new();
    stop.stop();
    assert!(matches!(ask_shell("exec sleep 600", Duration::from_secs(600), &stop), Err(Error::Stopped)));
    assert!(started.mono() < Duration::from_secs(60));
}

#[test]
fn the_protocol_has_limits() {
    let mut length = u32::MAX.to_be_bytes().to_vec();
    length.extend_from_slice(b"{}");
    assert!(receive(&mut length.as_slice()).is_err());
    let body = serde_json::to_vec(&request()).unwrap();
    let mut input = u32::try_from(body.len()).unwrap().to_be_bytes().to_vec();
    input.extend_from_slice(&body);
    input.extend_from_slice(b"archive");
    let (request, archive) = receive(&mut input.as_slice()).unwrap();
    assert_eq!((request.name.as_str(), archive.as_slice()), ("reg", &b"archive"[..]));
    let mut values = String::new();
    values.extend(std::iter::repeat_n('x', 16 << 20));
    let large = RenderRequest { values: json!({"v": values}), ..request };
    let result = ask(Command::new("/bin/true"), &large, b"".into(), Duration::from_secs(60), &Stop::new());
    assert!(matches!(result, Err(Error::RequestBytes(16_777_216))));
}

#[test]
fn a_pull_without_a_turn_is_retried_instead_of_blocking_a_thread() {
    let (turns, stop) = (RenderTurns(AtomicUsize::new(0)), Stop::new());
    let first = turns.take(&stop).unwrap();
    let second = turns.take(&stop).unwrap();
    assert!(matches!(turns.take(&stop), Err(Error::Busy)));
    drop(first);
    let third = turns.take(&stop);
    assert!(third.is_ok());
    drop((second, third));
    assert_eq!(turns.0.load(Ordering::SeqCst), 0);
}
