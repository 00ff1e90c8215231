//! Rendering in a child process of the real program.

use std::path::PathBuf;

use gardenlet::base::stop::Stop;
use gardenlet::chart::child::{Error, RenderRequest, Renderer};
use serde_json::json;

use crate::charts;

fn child() -> Renderer {
    Renderer::Child { program: PathBuf::from(env!("CARGO_BIN_EXE_gardenlet")) }
}

fn request() -> RenderRequest {
    RenderRequest {
        resources: serde_json::Value::Null,
        mix_in: serde_json::Map::new(),
        name: "echo".to_owned(),
        namespace: "extension-echo".to_owned(),
        values: json!({"greeting": "hi"}),
        kubernetes_version: "v1.34.1".to_owned(),
        kubernetes_major: "1".to_owned(),
        kubernetes_minor: "34".to_owned(),
        apart: false,
    }
}

#[test]
fn a_child_renders_what_a_thread_renders() {
    let archive = charts::extension();
    let (by_child, by_thread) = (child(), Renderer::InProcess);
    let objects = by_child.render(&request(), &archive, &Stop::new()).unwrap();
    assert!(objects.len() >= 6);
    assert_eq!(objects, by_thread.render(&request(), &archive, &Stop::new()).unwrap());
}

#[test]
fn the_child_returns_the_error_of_a_chart() {
    let archive = charts::archive("bad", &[("templates/a.yaml", "{{ fail \"no\" }}")]);
    let error = child().render(&request(), &archive, &Stop::new()).unwrap_err();
    assert_eq!(error.to_string(), "execution error at (bad/templates/a.yaml:1:3): no");
}

#[test]
fn a_chart_that_needs_too_much_memory_kills_only_the_child() {
    // 10 GB: a thousand times ten megabytes.
    let template =
        "{{ $l := list }}{{ range until 1000 }}{{ $l = append $l (repeat 10000000 \"x\") }}{{ end }}";
    let archive = charts::archive("hog", &[("templates/a.yaml", template)]);
    let error = child().render(&request(), &archive, &Stop::new()).unwrap_err();
    assert!(matches!(error, Error::Died(Some(_))), "{error}");
}

#[test]
fn a_stop_ends_the_child() {
    let template = "{{ range until 100000 }}{{ range until 100000 }}{{ end }}{{ end }}";
    let archive = charts::archive("slow", &[("templates/a.yaml", template)]);
    let stop = Stop::new();
    stop.stop();
    assert!(matches!(child().render(&request(), &archive, &stop), Err(Error::Stopped)));
}
