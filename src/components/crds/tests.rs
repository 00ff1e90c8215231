//! Properties of all our definitions, and their names.

use super::*;
use crate::base::json::json;
use crate::base::sorted::SortedSet;

/// The schema of a definition's only version.
fn schema(crd: &Value) -> &Value {
    &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
}

fn strings(value: &Value) -> Vec<&str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

#[test]
fn names_and_scopes_are_those_of_gardener() {
    let table = [
        ("BackupBucket", "backupbuckets", "bb", "Cluster"),
        ("BackupEntry", "backupentries", "be", "Cluster"),
        ("Bastion", "bastions", "", "Namespaced"),
        ("Cluster", "clusters", "", "Cluster"),
        ("ContainerRuntime", "containerruntimes", "cr", "Namespaced"),
        ("ControlPlane", "controlplanes", "cp", "Namespaced"),
        ("DNSRecord", "dnsrecords", "dns", "Namespaced"),
        ("Extension", "extensions", "ext", "Namespaced"),
        ("Infrastructure", "infrastructures", "infra", "Namespaced"),
        ("Network", "networks", "", "Namespaced"),
        ("OperatingSystemConfig", "operatingsystemconfigs", "osc", "Namespaced"),
        ("SelfHostedShootExposure", "selfhostedshootexposures", "exp", "Namespaced"),
        ("Worker", "workers", "", "Namespaced"),
    ];
    let crds: Vec<Value> = extensions().collect();
    assert_eq!(crds.len(), table.len());
    for (crd, (kind, plural, short, scope)) in crds.iter().zip(table) {
        check_names(crd, "extensions.gardener.cloud", kind, plural, short, scope);
    }

    let [crd] = &managed_resource().collect::<Vec<_>>()[..] else { panic!("one definition") };
    check_names(crd, "resources.gardener.cloud", "ManagedResource", "managedresources", "mr", "Namespaced");
}

fn check_names(crd: &Value, group: &str, kind: &str, plural: &str, short: &str, scope: &str) {
    assert_eq!(crd["apiVersion"], "apiextensions.k8s.io/v1");
    assert_eq!(crd["kind"], "CustomResourceDefinition");
    assert_eq!(crd["metadata"]["name"], format!("{plural}.{group}"));
    assert_eq!(crd["spec"]["group"], group);
    assert_eq!(crd["spec"]["scope"], scope);
    let names = &crd["spec"]["names"];
    assert_eq!(names["kind"], kind);
    assert_eq!(names["listKind"], format!("{kind}List"));
    assert_eq!(names["plural"], plural);
    assert_eq!(names["singular"], kind.to_lowercase());
    assert_eq!(strings(&names["shortNames"]), if short.is_empty() { vec![] } else { vec![short] }, "{kind}");
}

#[test]
fn every_definition_is_protected_and_has_one_served_version() {
    for crd in all() {
        let name = &crd["metadata"]["name"];
        assert_eq!(crd["metadata"]["labels"]["gardener.cloud/deletion-protected"], "true", "{name}");
        // The server sets the strategy: without it here, each comparison would find a difference.
        assert_eq!(crd["spec"]["conversion"]["strategy"], "None", "{name}");
        let versions = crd["spec"]["versions"].as_array().unwrap();
        assert_eq!(versions.len(), 1, "{name}");
        assert_eq!(versions[0]["name"], "v1alpha1", "{name}");
        assert_eq!(versions[0]["served"], true, "{name}");
        assert_eq!(versions[0]["storage"], true, "{name}");
        assert!(versions[0]["subresources"]["status"].is_object(), "{name}");
        let age = versions[0]["additionalPrinterColumns"].as_array().unwrap().last().unwrap();
        assert_eq!(age["jsonPath"], ".metadata.creationTimestamp", "{name}");
    }
}

#[test]
fn extension_kinds_share_their_common_fields() {
    let crds: Vec<Value> = extensions().collect();
    let model = schema(crds.iter().find(|c| c["spec"]["names"]["kind"] == "Extension").unwrap());
    for crd in crds.iter().filter(|c| c["spec"]["names"]["kind"] != "Cluster") {
        let (name, schema) = (&crd["metadata"]["name"], schema(crd));
        assert_eq!(strings(&schema["required"]), ["spec"], "{name}");
        for part in ["spec", "status"] {
            let common = model["properties"][part]["properties"].as_object().unwrap();
            assert!(common.len() >= 3);
            for (field, expected) in common {
                assert_eq!(
                    &schema["properties"][part]["properties"][field], expected,
                    "{name} {part}.{field}"
                );
            }
        }
        assert!(strings(&schema["properties"]["spec"]["required"]).contains(&"type"), "{name}");
    }
}

#[test]
fn schemas_are_structural() {
    for crd in all() {
        check_node(schema(&crd), crd["metadata"]["name"].as_str().unwrap());
    }
}

/// The programs that read these fields expect them.
#[test]
fn defaults_are_those_of_upstream() {
    fn collect(node: &Value, path: &str, all: &mut Vec<(String, Value)>) {
        all.extend(node.get("default").map(|value| (path.to_owned(), value.clone())));
        for (name, child) in node["properties"].as_object().into_iter().flatten() {
            collect(child, &format!("{path}.{name}"), all);
        }
        for (key, suffix) in [("items", "[]"), ("additionalProperties", "{}")] {
            if let Some(child) = node.get(key) {
                collect(child, &format!("{path}{suffix}"), all);
            }
        }
    }
    let foreign = foreign(Foreign { is_garden: false, vpa: true, machines: true, etcd: true });
    let mut found = Vec::new();
    for crd in all().chain(foreign) {
        collect(schema(&crd), crd["spec"]["names"]["kind"].as_str().unwrap(), &mut found);
    }
    let snapshot = "EtcdOpsTask.spec.config.onDemandSnapshot";
    let expected = [
        ("ManagedResource.spec.secretRefs[].name".to_owned(), json!("")),
        ("Worker.spec.pools[].userDataSecretRef.name".to_owned(), json!("")),
        (format!("{snapshot}.timeoutSecondsDelta"), json!(60)),
        (format!("{snapshot}.timeoutSecondsFull"), json!(900)),
        ("EtcdOpsTask.spec.ttlSecondsAfterFinished".to_owned(), json!(3600)),
    ];
    assert_eq!(found, expected);
}

/// Each node declares its type (or accepts anything), and requires only fields that it declares.
fn check_node(node: &Value, path: &str) {
    let open = node["x-kubernetes-preserve-unknown-fields"] == true;
    let number_or_text = node["x-kubernetes-int-or-string"] == true;
    assert!(node["type"].is_string() || open || number_or_text, "{path} has no type");

    let none = serde_json::Map::new();
    let properties = node["properties"].as_object().unwrap_or(&none);
    let known: SortedSet<&str> = properties.keys().map(String::as_str).collect();
    for required in strings(&node["required"]) {
        assert!(known.contains(required), "{path} requires the unknown {required}");
    }
    for (name, child) in properties {
        check_node(child, &format!("{path}.{name}"));
    }
    for (key, suffix) in [("items", "[]"), ("additionalProperties", "{}")] {
        if let Some(child) = node.get(key) {
            check_node(child, &format!("{path}{suffix}"));
        }
    }
    if node["type"] == "array" {
        assert!(node["items"].is_object(), "{path} has no items");
    }
}

#[test]
fn objects_of_others_are_kept_whole() {
    let fields = [
        ("Cluster", "/properties/spec/properties/shoot"),
        ("Extension", "/properties/spec/properties/providerConfig"),
        ("Extension", "/properties/status/properties/providerStatus"),
        ("Extension", "/properties/status/properties/state"),
        ("Worker", "/properties/spec/properties/pools/items/properties/providerConfig"),
        ("BackupEntry", "/properties/spec/properties/backupBucketProviderStatus"),
    ];
    let crds: Vec<Value> = extensions().collect();
    for (kind, pointer) in fields {
        let crd = crds.iter().find(|c| c["spec"]["names"]["kind"] == kind).unwrap();
        let node = schema(crd).pointer(pointer).unwrap();
        assert_eq!(node["x-kubernetes-preserve-unknown-fields"], true, "{kind} {pointer}");
    }
}

#[test]
fn the_operator_of_a_garden_installs_what_gardens_need() {
    let names = |is_garden| -> Vec<String> {
        own(is_garden).map(|d| d["spec"]["names"]["plural"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(false).len(), 14);
    let expected = [
        "bastions",
        "clusters",
        "containerruntimes",
        "controlplanes",
        "infrastructures",
        "networks",
        "operatingsystemconfigs",
        "selfhostedshootexposures",
        "workers",
    ];
    assert_eq!(names(true), expected);
}

#[test]
fn definitions_of_other_projects() {
    let all = Foreign { is_garden: false, vpa: true, machines: true, etcd: true };
    let names = |facts| -> Vec<String> {
        let name = |crd: Value| crd["metadata"]["name"].as_str().unwrap().to_owned();
        foreign(facts).map(name).collect()
    };
    let machines = [
        "machineclasses.machine.sapcloud.io",
        "machinedeployments.machine.sapcloud.io",
        "machines.machine.sapcloud.io",
        "machinesets.machine.sapcloud.io",
    ];
    assert_eq!(names(Foreign { is_garden: true, ..all }), machines);
    assert_eq!(names(Foreign { vpa: false, etcd: false, ..all }), machines);
    let mut expected = vec![
        "verticalpodautoscalercheckpoints.autoscaling.k8s.io".to_owned(),
        "verticalpodautoscalers.autoscaling.k8s.io".to_owned(),
    ];
    expected.extend(machines.map(str::to_owned));
    expected.extend(
        ["etcdcopybackupstasks", "etcdopstasks", "etcds"].map(|of| format!("{of}.druid.gardener.cloud")),
    );
    assert_eq!(names(all), expected);
    for crd in foreign(all) {
        let (name, spec) = (&crd["metadata"]["name"], &crd["spec"]);
        assert_eq!(
            *name,
            format!("{}.{}", spec["names"]["plural"].as_str().unwrap(), spec["group"].as_str().unwrap())
        );
        // An API server accepts definitions of this group only with a reference to their API review.
        let is_kubernetes = spec["group"] == "autoscaling.k8s.io";
        let approved = &crd["metadata"]["annotations"]["api-approved.kubernetes.io"];
        assert_eq!(approved.is_string(), is_kubernetes, "{name}");
        let stored = |version: &&Value| version["storage"] == true;
        assert_eq!(spec["versions"].as_array().unwrap().iter().filter(stored).count(), 1, "{name}");
    }
}
