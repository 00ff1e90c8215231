//! The base of `packaging/kustomize`, built and applied by the real program.

use std::process::Command;

use gardenlet::format::yaml;
use serde_json::{Value, json};

use crate::cluster;
use crate::failure::{Doing, Failure, Result, ensure, equal};
use crate::lab::Lab;
use crate::process;

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/kustomize/example");

/// A real seed accepts the example, which equals the output of the chart with the same values.
pub(crate) fn is_the_chart(lab: &mut Lab) -> Result<()> {
    lab.seed.kubectl(&["apply", "--kustomize", EXAMPLE])?;
    let built = objects(&lab.seed.kubectl(&["kustomize", EXAMPLE])?)?;
    let generated = |object: &&Value| ["ConfigMap", "Secret"].iter().any(|kind| object["kind"] == *kind);
    equal("what is generated", &built.iter().filter(generated).count(), &2)?;
    let (built, charted) = (normal(built), normal(chart(lab)?));
    let missing = |one: &[Value], other: &[Value]| {
        one.iter().filter(|object| !other.contains(object)).map(Value::to_string).collect::<Vec<_>>()
    };
    equal("only with kustomize", &missing(&built, &charted), &Vec::new())?;
    equal("only in the chart", &missing(&charted, &built), &Vec::new())?;
    ensure(built.len() > 10, || format!("there are only {} objects", built.len()))
}

/// The chart with the values of the example.
fn chart(lab: &Lab) -> Result<Vec<Value>> {
    let file = |name: &str| {
        let path = format!("{EXAMPLE}/{name}");
        std::fs::read_to_string(&path).doing(|| format!("read {path}"))
    };
    let mut config = objects(&file("config.yaml")?)?.pop().unwrap_or_default();
    config["gardenClientConnection"]["bootstrapKubeconfig"]["kubeconfig"] =
        json!(file("bootstrap.kubeconfig")?);
    let values = json!({
        "image": {"repository": "registry.example.org/edge/gardenlet", "tag": "0.1.0"},
        "stateVolume": {"hostPath": {"path": "/var/lib/gardenlet", "type": "Directory"}},
        "config": config,
    });
    let path = lab.place.join("values.yaml");
    cluster::write(&path, &values.to_string())?;
    let mut command = Command::new(lab.environment.agent());
    command.args(["render", "gardenlet", concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/chart")]);
    objects(&process::run(command.args(["--namespace", "garden", "--values"]).arg(path))?)
}

fn objects(text: &str) -> Result<Vec<Value>> {
    let all = yaml::parse_all(text).into_iter();
    let all = all.map(|document| document.value.map_err(|err| Failure::new(format!("YAML: {err}"))));
    let mut all = all.collect::<Result<Vec<_>>>()?;
    all.retain(|object| !object.is_null());
    Ok(all)
}

/// Without the intended differences: the namespace, the label of the tool, the configuration and how pods follow its
/// changes, and the number of instances.
fn normal(mut objects: Vec<Value>) -> Vec<Value> {
    objects.retain(|object| !["Namespace", "ConfigMap", "Secret"].iter().any(|kind| object["kind"] == *kind));
    for object in &mut objects {
        for at in ["/metadata", "/spec/template/metadata"] {
            let Some(metadata) = object.pointer_mut(at).and_then(Value::as_object_mut) else { continue };
            for (field, made) in
                [("labels", "heritage"), ("annotations", "reference.resources.gardener.cloud/")]
            {
                let Some(words) = metadata.get_mut(field).and_then(Value::as_object_mut) else { continue };
                words.retain(|name, _| !name.starts_with(made));
                if words.is_empty() {
                    metadata.remove(field);
                }
            }
        }
        if object["kind"] == "Deployment" {
            object["spec"]["replicas"] = Value::Null;
            object["spec"]["template"]["spec"]["volumes"][0]["configMap"] = Value::Null;
        }
    }
    objects
}
