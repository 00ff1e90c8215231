//! Which units and files a node has.

use serde_json::Value;

use crate::base::json::json;
use crate::format::yaml::{self, Dialect};

use super::agent::{self, CA_FILE};
use super::content::{encoded, packed, placeholder, plain, program, units};
use super::pool::NodePool;
use super::{kubelet, sysctl};

/// The unit whose service restarts when the configuration of the agent changes.
const AGENT_UNIT: &str = "gardener-node-agent.service";
const USER_UNITS: [&str; 2] = ["gardener-user.service", "gardener-user.path"];
const SSHD_UNIT: &str = "sshd-ensurer.service";

/// The images of a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct NodeImages {
    /// The image with gardener-node-agent.
    pub(crate) agent: String,
    /// The image with the kubelet of the pool's version.
    pub(crate) kubelet: String,
    /// The image of the container that holds the namespaces of a pod.
    pub(crate) pause: String,
}

/// What the operating system of a pool's nodes depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeSources<'a> {
    pub(crate) pool: NodePool<'a>,
    /// The URL of the API server.
    pub(crate) server: &'a str,
    /// The CAs of the API server.
    pub(crate) ca: &'a [u8],
    /// The CAs of the clients of kubelets.
    pub(crate) kubelet_ca: &'a [u8],
    /// More CAs that the system trusts: `spec.caBundle` of the CloudProfile. May be empty.
    pub(crate) profile_ca: &'a str,
    /// The public keys that open the nodes by SSH, if they may be opened.
    pub(crate) ssh_keys: Option<&'a [String]>,
    /// The addresses of the DNS servers of pods.
    pub(crate) dns: &'a [String],
    /// The memory of the machine type, if its CloudProfile has it.
    pub(crate) memory: Option<&'a str>,
    pub(crate) images: &'a NodeImages,
}

/// Units and files, in upstream's order.
#[derive(Default)]
struct Content {
    units: Vec<Value>,
    files: Vec<Value>,
}

impl Content {
    fn add(&mut self, unit_names: &[&str], files: Vec<Value>) {
        self.units.extend(units(unit_names));
        self.files.extend(files);
    }

    /// Nodes can be opened by SSH, or cannot. The owner of a host decides this for it.
    fn add_ssh(&mut self, sources: &NodeSources<'_>) {
        if sources.pool.has_hosts {
            return;
        }
        let script = if sources.ssh_keys.is_some() { "sshd-on.sh" } else { "sshd-off.sh" };
        let ensurer = encoded("/var/lib/sshd-ensurer/run.sh", 0o755, packed(script).as_bytes());
        self.add(&[SSHD_UNIT], vec![ensurer]);
    }

    fn add_user(&mut self, sources: &NodeSources<'_>) {
        let Some(keys) = sources.ssh_keys.filter(|_| !sources.pool.has_hosts) else { return };
        let keys = encoded("/var/lib/gardener-user-authorized-keys", 0o644, keys.join("\n").as_bytes());
        let script = encoded("/var/lib/gardener-user/run.sh", 0o755, packed("gardener-user.sh").as_bytes());
        self.add(&USER_UNITS, vec![keys, script]);
    }

    fn into_spec(self, sources: &NodeSources<'_>, purpose: &str) -> Value {
        let image = &sources.pool.worker["machine"]["image"];
        let mut spec =
            json!({"type": image["name"], "purpose": purpose, "units": self.units, "files": self.files});
        if !image["providerConfig"].is_null() {
            spec["providerConfig"] = image["providerConfig"].clone();
        }
        spec
    }
}

/// The spec of the object that brings gardener-node-agent onto a new machine.
pub(crate) fn init(sources: &NodeSources<'_>) -> Value {
    let pool = sources.pool;
    let path = |name: &str| format!("{}/{name}", agent::FOLDER);
    let script = packed("init.sh").replace("IMAGE", &sources.images.agent);
    let mut content = Content::default();
    let files = vec![
        encoded(CA_FILE, 0o640, sources.ca),
        placeholder(&path("credentials/bootstrap-token"), 0o640, super::TOKEN_PLACEHOLDER),
        encoded(&path("init.sh"), 0o755, script.as_bytes()),
        placeholder(&path("machine-name"), 0o640, super::NAME_PLACEHOLDER),
        encoded(&agent::path(), 0o600, agent::configuration(pool, sources.server, true).as_bytes()),
    ];
    content.add(&["gardener-node-init.service"], files);
    content.add_user(sources);
    content.add_ssh(sources);
    let mut spec = content.into_spec(sources, "provision");
    if let Some(name) = pool.worker["cri"]["name"].as_str() {
        spec["criConfig"] = json!({ "name": name });
    }
    spec
}

/// The spec of the object that gardener-node-agent applies.
pub(crate) fn original(sources: &NodeSources<'_>) -> Value {
    let pool = sources.pool;
    let mut content = Content::default();
    if pool.worker["kubeletDataVolumeName"].is_string() {
        content.add(&["var-lib-kubelet.mount"], Vec::new());
    }
    content.add(&["updatecacerts.service"], authorities(sources));
    content.add(
        &["containerd-logrotate.service", "containerd-logrotate.timer", "containerd.service"],
        vec![plain("/etc/systemd/containerd.conf", 0o644, &packed("containerd.conf"))],
    );
    if !pool.has_hosts {
        content.add(&[], vec![plain("/etc/systemd/journald.conf", 0o644, &packed("journald.conf"))]);
    }
    let settings = plain("/etc/sysctl.d/99-k8s-general.conf", 0o644, &sysctl::file(pool));
    content.add(&["systemd-sysctl.service"], vec![settings]);
    content.add(&["kubelet.service"], kubelet_files(sources));
    content.add_ssh(sources);
    let agent_files = vec![
        encoded(&agent::path(), 0o600, agent::configuration(pool, sources.server, false).as_bytes()),
        encoded(CA_FILE, 0o640, sources.ca),
        program("/opt/bin/gardener-node-agent", &sources.images.agent, "/gardener-node-agent"),
    ];
    content.add(&[AGENT_UNIT], agent_files);
    content.add_user(sources);
    content.units.iter_mut().for_each(|unit| fill(unit, pool));
    let mut spec = content.into_spec(sources, "reconcile");
    if pool.worker["cri"]["name"] == "containerd" {
        spec["criConfig"] = json!({"name": "containerd", "cgroupDriver": "systemd",
            "containerd": {"sandboxImage": sources.images.pause}});
    } else if let Some(name) = pool.worker["cri"]["name"].as_str() {
        spec["criConfig"] = json!({ "name": name });
    }
    if pool.is_updated_in_place() {
        spec["inPlaceUpdates"] = in_place(pool);
    }
    spec
}

/// Writes what depends on the pool into a unit.
fn fill(unit: &mut Value, pool: NodePool<'_>) {
    if unit["name"] == "kubelet.service" {
        let text = unit["content"].as_str().unwrap_or_default();
        let flags = format!("\\\n    {}", kubelet::flags(pool).join(" \\\n    "));
        let text = text.replace("ENVIRONMENT", &kubelet::environment(pool.shoot)).replace("FLAGS", &flags);
        unit["content"] = json!(text);
    }
    if unit["name"] == AGENT_UNIT {
        unit["filePaths"][0] = json!(agent::path());
    }
}

/// The files with the CAs that the system of a node trusts.
fn authorities(sources: &NodeSources<'_>) -> Vec<Value> {
    let own = sources.pool.worker["caBundle"].as_str().unwrap_or_default();
    let cluster = String::from_utf8_lossy(sources.ca);
    let all: Vec<&str> =
        [sources.profile_ca, &cluster, own].into_iter().filter(|bundle| !bundle.is_empty()).collect();
    let bundle = all.join("\n");
    let script = packed("update-local-ca-certificates.sh");
    vec![
        encoded("/var/lib/ssl/update-local-ca-certificates.sh", 0o744, script.as_bytes()),
        encoded("/var/lib/ca-certificates-local/ROOTcerts.crt", 0o644, bundle.as_bytes()),
        encoded("/etc/pki/trust/anchors/ROOTcerts.pem", 0o644, bundle.as_bytes()),
    ]
}

fn kubelet_files(sources: &NodeSources<'_>) -> Vec<Value> {
    let configuration = kubelet::configuration(sources.pool, sources.dns, sources.memory);
    let text = yaml::emit(&configuration, Dialect::V4);
    vec![
        encoded("/var/lib/kubelet/ca.crt", 0o644, sources.kubelet_ca),
        encoded("/var/lib/kubelet/config/kubelet", 0o600, text.as_bytes()),
        program("/opt/bin/kubelet", &sources.images.kubelet, "/kubelet"),
    ]
}

/// What tells a node that is updated in place which state it has.
fn in_place(pool: NodePool<'_>) -> Value {
    // The owner of a host updates its system.
    let system = if pool.has_hosts {
        "*"
    } else {
        pool.worker["machine"]["image"]["version"].as_str().unwrap_or_default()
    };
    let mut updates = json!({"operatingSystemVersion": system, "kubelet": pool.version()});
    for kind in ["certificateAuthorities", "serviceAccountKey"] {
        if let Some(time) = pool.rotated(kind) {
            updates["credentialsRotation"][kind] = json!({ "lastInitiationTime": time });
        }
    }
    updates
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::content::text_of;
    use super::*;

    const SERVER: &str = "https://api.w1.p.internal.lab.local";

    fn golden(name: &str) -> Value {
        let text = match name {
            "init" => include_str!("../../tests/fixtures/osc/init.yaml"),
            _ => include_str!("../../tests/fixtures/osc/original.yaml"),
        };
        yaml::parse(text).unwrap()
    }

    fn shoot() -> Value {
        json!({"spec": {"kubernetes": {"version": "1.34.3",
                "kubeControllerManager": {"nodeMonitorGracePeriod": "40s"}, "kubeProxy": {"enabled": true, "mode": "IPTables"},
                "kubelet": {"failSwapOn": true, "imageGCHighThresholdPercent": 50, "imageGCLowThresholdPercent": 40,
                    "kubeReserved": {"cpu": "80m", "memory": "1Gi", "pid": "20k"}, "serializeImagePulls": true}},
            "networking": {"ipFamilies": ["IPv4"]}}})
    }

    fn worker() -> Value {
        json!({"name": "pool1", "cri": {"name": "containerd"}, "volume": {"size": "50Gi", "type": "fast"},
            "machine": {"architecture": "amd64", "type": "lab", "image": {"name": "lab", "version": "1.0.0"}}})
    }

    fn images() -> NodeImages {
        NodeImages {
            agent: "europe-docker.pkg.dev/gardener-project/releases/gardener/node-agent:v1.150.0".to_owned(),
            kubelet: "europe-docker.pkg.dev/gardener-project/releases/hyperkube:v1.34.3".to_owned(),
            pause: "registry.k8s.io/pause:3.10".to_owned(),
        }
    }

    fn with<T>(has_hosts: bool, ca: &[u8], act: impl FnOnce(&NodeSources<'_>) -> T) -> T {
        let (shoot, worker, images, dns) = (shoot(), worker(), images(), ["100.64.0.10".to_owned()]);
        let keys = ["key".to_owned()];
        let pool = NodePool { shoot: &shoot, worker: &worker, has_hosts };
        act(&NodeSources {
            pool,
            server: SERVER,
            ca,
            kubelet_ca: b"kubelet",
            profile_ca: "",
            ssh_keys: Some(&keys),
            dns: &dns,
            memory: Some("8Gi"),
            images: &images,
        })
    }

    fn content_of(file: &Value) -> String {
        text_of(file).unwrap()
    }

    /// The options of a unit, in order, without its description and comments.
    fn options(unit: &Value) -> Vec<String> {
        let text = unit["content"].as_str().unwrap_or_default();
        let is_option = |line: &&str| {
            !line.is_empty()
                && !line.starts_with('#')
                && !["Description=", "Documentation="].iter().any(|own| line.starts_with(own))
        };
        text.lines().map(str::trim).filter(is_option).map(str::to_owned).collect()
    }

    /// A configuration without the fields that only say that they have no value.
    fn without_defaults(value: &Value) -> Value {
        let Value::Object(fields) = value else { return value.clone() };
        let empty = [json!(""), json!(0), json!("0"), json!("0s"), json!({})];
        let kept = fields.iter().map(|(name, value)| (name.clone(), without_defaults(value)));
        let is_set = |name: &str, value: &Value| name == "imageMaximumGCAge" || !empty.contains(value);
        kept.filter(|(name, value)| is_set(name, value)).collect::<serde_json::Map<_, _>>().into()
    }

    fn by_name<'a>(spec: &'a Value, list: &str, name: &str) -> Vec<(String, &'a Value)> {
        let all = spec[list].as_array().unwrap().iter();
        all.map(|each| (each[name].as_str().unwrap().replace("v1.150.0-dev", "v1.150.0"), each)).collect()
    }

    #[test]
    fn units_are_the_golden_ones() {
        for (name, ours) in [("init", with(false, b"ca", init)), ("original", with(false, b"ca", original))] {
            let golden = golden(name);
            let (ours, golden) = (by_name(&ours, "units", "name"), by_name(&golden, "units", "name"));
            let names =
                |all: &[(String, &Value)]| all.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
            assert_eq!(names(&ours), names(&golden), "{name}");
            for ((unit, ours), (_, golden)) in ours.iter().zip(&golden) {
                for field in ["command", "enable"] {
                    assert_eq!(ours[field], golden[field], "{name} {unit} {field}");
                }
                let paths = golden["filePaths"].to_string().replace("v1.150.0-dev", "v1.150.0");
                assert_eq!(ours["filePaths"].to_string(), paths, "{name} {unit}");
                assert_eq!(options(ours), options(golden), "{name} {unit}");
            }
        }
    }

    #[test]
    fn files_are_the_golden_ones() {
        for (name, ours) in [("init", with(false, b"ca", init)), ("original", with(false, b"ca", original))] {
            let golden = golden(name);
            assert_eq!(ours["criConfig"], golden["criConfig"]);
            let (ours, golden) = (by_name(&ours, "files", "path"), by_name(&golden, "files", "path"));
            let names =
                |all: &[(String, &Value)]| all.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
            assert_eq!(names(&ours), names(&golden), "{name}");
            for ((path, ours), (_, golden)) in ours.iter().zip(&golden) {
                assert_eq!(ours["permissions"], golden["permissions"], "{path}");
                assert_eq!(
                    ours["content"]["transmitUnencoded"], golden["content"]["transmitUnencoded"],
                    "{path}"
                );
                let encoding = |file: &Value| file["content"]["inline"]["encoding"].clone();
                assert_eq!(encoding(ours), encoding(golden), "{path}");
                let reference = golden["content"]["imageRef"].to_string().replace("v1.150.0-dev", "v1.150.0");
                assert_eq!(ours["content"]["imageRef"].to_string(), reference, "{path}");
                let (ours, golden) = (content_of(ours), content_of(golden));
                let is_configuration = path.ends_with("/config/kubelet") || path.contains("/config-");
                if is_configuration {
                    let parse = |text: &str| without_defaults(&yaml::parse(text).unwrap());
                    assert_eq!(parse(&ours), parse(&golden), "{path}");
                } else if !path.ends_with(".sh")
                    && !["crt", "pem", "keys"].iter().any(|end| path.ends_with(end))
                {
                    assert_eq!(ours, golden, "{path}");
                }
            }
        }
    }

    /// gardener-node-agent demands fields that have no value.
    #[test]
    fn the_configuration_of_the_agent_is_the_golden_one() {
        let golden = golden("original");
        let (_, golden) = by_name(&golden, "files", "path")
            .into_iter()
            .find(|(path, _)| path.contains("/config-"))
            .unwrap();
        let ours = with(false, b"ca", |sources| agent::configuration(sources.pool, SERVER, false));
        assert_eq!(yaml::parse(&ours).unwrap(), yaml::parse(&content_of(golden)).unwrap());
    }

    #[test]
    fn a_host_keeps_its_ssh_server_and_its_journal() {
        let (machine, host) = (with(false, b"ca", original), with(true, b"ca", original));
        let left_out = |list: &str, name: &str| {
            let names = |spec: &Value| {
                by_name(spec, list, name).into_iter().map(|(name, _)| name).collect::<Vec<_>>()
            };
            let kept = names(&host);
            names(&machine).into_iter().filter(|name| !kept.contains(name)).collect::<Vec<_>>()
        };
        assert_eq!(left_out("units", "name"), [SSHD_UNIT, USER_UNITS[0], USER_UNITS[1]]);
        let files = [
            "/etc/systemd/journald.conf",
            "/var/lib/sshd-ensurer/run.sh",
            "/var/lib/gardener-user-authorized-keys",
            "/var/lib/gardener-user/run.sh",
        ];
        assert_eq!(left_out("files", "path"), files);
        assert_eq!(host["inPlaceUpdates"], json!({"operatingSystemVersion": "*", "kubelet": "1.34.3"}));
        assert_eq!(machine["inPlaceUpdates"], Value::Null);
        assert_eq!(with(true, b"ca", init)["units"].as_array().unwrap().len(), 1);
    }

    #[test]
    fn the_system_trusts_all_cas() {
        let (shoot, mut worker, images) = (shoot(), worker(), images());
        worker["caBundle"] = json!("own");
        let mut spec = Value::Null;
        with(false, b"cluster", |sources| {
            let pool = NodePool { shoot: &shoot, worker: &worker, has_hosts: false };
            spec = original(&NodeSources { pool, profile_ca: "profile", images: &images, ..*sources });
        });
        let files: BTreeMap<String, &Value> = by_name(&spec, "files", "path").into_iter().collect();
        for path in ["/var/lib/ca-certificates-local/ROOTcerts.crt", "/etc/pki/trust/anchors/ROOTcerts.pem"] {
            assert_eq!(content_of(files[path]), "profile\ncluster\nown", "{path}");
        }
        assert_eq!(content_of(files["/var/lib/kubelet/ca.crt"]), "kubelet");
    }
}
