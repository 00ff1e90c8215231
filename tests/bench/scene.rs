//! Garden and seed, simulated in this process, and extensions to install.

use std::path::{Path, PathBuf};

use flate2::{Compression, write::GzEncoder};
use gardenlet::base::clock::{Clock, Timestamp};
use serde_json::{Value, json};

use support::cluster::{Authorization, TestCluster};
use support::garden::Garden;
use support::garden::manager::Share;
use support::garden::prepare::{self, Preparation};
use support::http::record::Recorded;
use support::json::{list, text};
use support::shoot::{self, Listen, Site, object};
use support::{self, controllers};

pub(crate) const SEED: &str = "edge-1";
const QPS_DEFAULT: u32 = 50;
const GROUP: &str = "resources.gardener.cloud";
/// `system`, `cluster-identity`, `referenced-resources-edge-1`, and that of the Seed's provider.
const OWN: usize = 4;

/// A garden and a seed on the machine's own time, and a folder for the agent's files.
pub(crate) struct Scene {
    pub(crate) clock: Clock,
    pub(crate) garden: Garden,
    pub(crate) seed: TestCluster,
    directory: PathBuf,
    extensions: Vec<String>,
    /// The address of the agent's probes and its status page.
    port: u16,
    /// The agent's own limit of requests per second.
    qps: u32,
}

impl Scene {
    /// Prepared for the first start of an agent. `extensions` are installed as soon as it is ready.
    pub(crate) fn new(directory: &Path, extensions: usize) -> Self {
        Self::with(directory, extensions, QPS_DEFAULT)
    }

    /// The same without a limit of requests: there is much to do.
    pub(crate) fn crowded(directory: &Path, extensions: usize) -> Self {
        Self::with(directory, extensions, 5_000)
    }

    /// A seed at the edge that accepts Shoots, and a simulation of its node.
    pub(crate) fn for_shoots(directory: &Path) -> (Self, Site) {
        let scene = Self::new(directory, 0);
        object::prepare_garden(&scene.garden);
        object::prepare_seed(&scene.seed);
        let options = shoot::Options { listen: Listen::NodePort, ..shoot::Options::default() };
        let site = Site::in_process_with(&scene.seed, controllers::Share::default(), options);
        let mut config = scene.configuration();
        object::make_edge(&mut config);
        config["edge"]["exposure"] = json!({"type": "NodePort", "address": "127.0.0.1"});
        // Its log shows when a task is done.
        config["logLevel"] = json!("debug");
        config["logFormat"] = json!("json");
        std::fs::write(scene.config(), config.to_string()).unwrap();
        (scene, site)
    }

    fn with(directory: &Path, extensions: usize, qps: u32) -> Self {
        let clock = Clock::system();
        let garden = Garden::start(&clock);
        let preparation = Preparation::new(SEED, clock.now());
        garden.apply(&preparation.garden());
        garden.apply(&prepare::provider());
        garden.apply(&[prepare::promised_backups()]);
        let mut options = support::Options::new("seed", &clock);
        options.authorization = Authorization::Rbac;
        let seed = TestCluster::start(options);
        seed.apply(&[cluster_admin()]);
        seed.apply(&prepare::seed(&garden.bootstrap_kubeconfig(&preparation.token())));
        let extensions = (0..extensions).map(|n| format!("extension-{n}")).collect();
        let scene =
            Self { clock, garden, seed, directory: directory.to_owned(), extensions, port: free_port(), qps };
        scene.write_files();
        scene
    }

    fn write_files(&self) {
        std::fs::create_dir_all(&self.directory).unwrap();
        let account = self.seed.get("", "serviceaccounts", "garden", "gardenlet").unwrap();
        let token = self.seed.server().shared.tokens().issue(&account, &[], self.clock.now(), 86_400);
        std::fs::write(self.directory.join("seed.kubeconfig"), self.seed.bootstrap_kubeconfig(&token))
            .unwrap();
        std::fs::write(self.config(), self.configuration().to_string()).unwrap();
    }

    /// The port of the agent's status page, on loopback.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Stops all controllers of the garden.
    pub(crate) fn leave_alone(&self) {
        self.garden.set_manager_share(Share::none());
    }

    /// Path of the agent's configuration.
    pub(crate) fn config(&self) -> PathBuf {
        self.directory.join("config.json")
    }

    /// Path of the agent's log.
    pub(crate) fn log(&self) -> PathBuf {
        self.directory.join("agent.log")
    }

    fn configuration(&self) -> Value {
        let path = |name: &str| self.directory.join(name).display().to_string();
        let mut config = prepare::configuration(SEED);
        config["seedClientConnection"] = json!({"kubeconfig": path("seed.kubeconfig")});
        for connection in ["gardenClientConnection", "seedClientConnection"] {
            config[connection]["qps"] = json!(self.qps);
            config[connection]["burst"] = json!(2 * self.qps);
        }
        // Free ports from the kernel.
        config["server"] = json!({"healthProbes": {"bindAddress": "127.0.0.1", "port": self.port},
            "metrics": {"bindAddress": "127.0.0.1", "port": free_port()}});
        config["resources"] = json!({"capacity": {"shoots": "50"}});
        config["edge"] = json!({"stateDir": path("state")});
        config
    }

    /// Registers the extensions in the garden.
    pub(crate) fn extend(&self) {
        for name in &self.extensions {
            self.garden.apply(&prepare::extension(name, &chart(name), &json!({"name": name})));
        }
    }

    /// Whether the Seed is ready.
    pub(crate) fn is_ready(&self) -> bool {
        let ready = self.garden.seed_condition(SEED, "GardenletReady");
        ready.is_some_and(|ready| ready["status"] == "True")
    }

    /// Whether the Seed is ready and every extension is installed and healthy.
    pub(crate) fn is_settled(&self) -> bool {
        self.is_ready()
            && self.extensions.iter().all(|name| {
                let installed = self.garden.installations(name).pop();
                installed.is_some_and(|installation| is_rolled_out(&installation))
            })
    }

    /// Creates ManagedResources, each with a Secret that contains one ConfigMap.
    pub(crate) fn manage(&self, count: usize) {
        for n in 0..count {
            let metadata = json!({"name": format!("managed-{n}"), "namespace": "garden"});
            let object = json!({"apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": format!("managed-{n}"), "namespace": "default"}, "data": {"number": n.to_string()}});
            let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"object.json": object.to_string()}});
            self.seed.create("v1", "secrets", &secret);
            let managed = json!({"apiVersion": format!("{GROUP}/v1alpha1"), "kind": "ManagedResource", "metadata": metadata,
                "spec": {"class": "seed", "secretRefs": [{"name": format!("managed-{n}")}]}});
            self.seed.create(&format!("{GROUP}/v1alpha1"), "managedresources", &managed);
        }
    }

    /// Whether there are this many ManagedResources besides the Seed's own, all of them applied and healthy.
    pub(crate) fn are_managed(&self, count: usize) -> bool {
        let is = |managed: &Value, kind: &str| {
            let conditions = list(managed, "/status/conditions");
            conditions.iter().any(|c| text(c, "/type") == kind && text(c, "/status") == "True")
        };
        // Nothing is copied: this is called often, and the server waits meanwhile.
        let state = self.seed.store().read();
        let mut all = state.of(GROUP, "managedresources", "garden");
        all.all(|(_, one)| is(one, "ResourcesApplied") && is(one, "ResourcesHealthy"))
            && state.of(GROUP, "managedresources", "garden").count() == count + OWN
    }

    /// When the Seed's Lease was first written after `mark` among the garden's requests.
    pub(crate) fn first_beat(&self, mark: usize) -> Option<Timestamp> {
        let is_beat = |r: &&Recorded| {
            r.is_write()
                && r.status / 100 == 2
                && r.info.resource == "leases"
                && r.info.namespace.ends_with("seed-lease")
        };
        self.garden.requests_since(mark).iter().find(is_beat).map(|request| request.at)
    }

    /// The current watches at both servers.
    pub(crate) fn open_watches(&self) -> Vec<String> {
        let mut open = Vec::new();
        for (name, cluster) in self.clusters() {
            let watches = cluster.requests().into_iter().filter(|r| r.info.verb == "watch" && !r.ended);
            open.extend(watches.map(|r| format!("{name}/{}", r.info.resource)));
        }
        open
    }

    /// Both servers by name.
    pub(crate) fn clusters(&self) -> [(&'static str, &TestCluster); 2] {
        [("garden", &self.garden), ("seed", &self.seed)]
    }

    /// Makes both servers drop their history and cuts every connection: all informers list again.
    pub(crate) fn forget(&self) {
        for (_, cluster) in self.clusters() {
            cluster.compact();
            cluster.server().cut();
        }
    }
}

fn is_rolled_out(installation: &Value) -> bool {
    let conditions = list(installation, "/status/conditions");
    let is = |kind: &str, status: &str| {
        conditions.iter().any(|c| text(c, "/type") == kind && text(c, "/status") == status)
    };
    is("Valid", "True") && is("Installed", "True") && is("Healthy", "True") && is("Progressing", "False")
}

fn free_port() -> u16 {
    std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}

/// The role that every cluster has.
fn cluster_admin() -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "cluster-admin"},
        "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}, {"nonResourceURLs": ["*"], "verbs": ["*"]}]})
}

/// A chart of the size and shape of an extension's: eight objects, including an image vector of a few kilobytes.
fn chart(name: &str) -> Vec<u8> {
    let head = format!("apiVersion: v2\nname: {name}\nversion: 0.1.0\n");
    let mut files = vec![("Chart.yaml", head), ("templates/_helpers.tpl", HELPERS.to_owned())];
    files.extend(OBJECTS.iter().map(|(file, content)| (*file, (*content).to_owned())));
    files.push(("values.yaml", values()));
    let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
    for (path, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, format!("{name}/{path}"), content.as_bytes()).unwrap();
    }
    tar.into_inner().unwrap().finish().unwrap()
}

fn values() -> String {
    let mut text =
        "name: extension\nreplicas: 1\nresources:\n  requests: {cpu: 10m, memory: 64Mi}\nimages:\n"
            .to_owned();
    for n in 0..40 {
        text += &format!(
            "- name: image-{n}\n  repository: registry.example.org/team/image-{n}\n  tag: v1.{n}.0\n"
        );
    }
    text
}

const HELPERS: &str = r#"{{- define "labels" -}}
app.kubernetes.io/name: {{ .Values.name }}
app.kubernetes.io/instance: {{ .Release.Name | trunc 63 }}
{{- end -}}
"#;

const OBJECTS: [(&str, &str); 8] = [
    (
        "templates/deployment.yaml",
        r#"apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .Values.name }}
  namespace: {{ .Release.Namespace }}
  labels:
{{ include "labels" . | indent 4 }}
spec:
  replicas: {{ .Values.replicas }}
  revisionHistoryLimit: 2
  selector:
    matchLabels:
{{ include "labels" . | indent 6 }}
  template:
    metadata:
      annotations:
        checksum/images: {{ .Values.images | toYaml | sha256sum }}
      labels:
{{ include "labels" . | indent 8 }}
    spec:
      serviceAccountName: {{ .Values.name }}
      containers:
      - name: controller
        image: {{ (index .Values.images 0).repository }}:{{ (index .Values.images 0).tag }}
        args:
        - --config=/etc/controller/config.yaml
        - --seed={{ .Values.gardener.seed.name | default "none" }}
        env:
        - name: IMAGEVECTOR
          value: /images/images.yaml
        resources:
{{ toYaml .Values.resources | indent 10 }}
        volumeMounts:
        - {name: images, mountPath: /images}
      volumes:
      - name: images
        configMap: {name: {{ .Values.name }}-images}
"#,
    ),
    (
        "templates/images.yaml",
        r#"apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .Values.name }}-images
  namespace: {{ .Release.Namespace }}
data:
  images.yaml: |
{{ .Values.images | toYaml | indent 4 }}
"#,
    ),
    (
        "templates/account.yaml",
        "apiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: {{ .Values.name }}\n  namespace: {{ .Release.Namespace }}\n",
    ),
    (
        "templates/service.yaml",
        "apiVersion: v1\nkind: Service\nmetadata:\n  name: {{ .Values.name }}\n  namespace: {{ .Release.Namespace }}\nspec:\n  \
         selector: {app.kubernetes.io/name: {{ .Values.name }}}\n  ports:\n  - {name: metrics, port: 8080, protocol: TCP}\n",
    ),
    (
        "templates/budget.yaml",
        "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata:\n  name: {{ .Values.name }}\n  \
         namespace: {{ .Release.Namespace }}\nspec:\n  maxUnavailable: 1\n  selector:\n    matchLabels: \
         {app.kubernetes.io/name: {{ .Values.name }}}\n",
    ),
    (
        "templates/role.yaml",
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata:\n  name: {{ .Values.name }}\nrules:\n\
         {{- range list \"clusters\" \"extensions\" \"extensions/status\" }}\n- apiGroups: [extensions.gardener.cloud]\n  \
         resources: [{{ . }}]\n  verbs: [get, list, watch, patch]\n{{- end }}\n",
    ),
    (
        "templates/binding.yaml",
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata:\n  name: {{ .Values.name }}\nroleRef: \
         {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {{ .Values.name }}}\nsubjects:\n- \
         {kind: ServiceAccount, name: {{ .Values.name }}, namespace: {{ .Release.Namespace }}}\n",
    ),
    (
        "templates/election.yaml",
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata:\n  name: {{ .Values.name }}\n  \
         namespace: {{ .Release.Namespace }}\nrules:\n- {apiGroups: [coordination.k8s.io], resources: [leases], \
         verbs: [get, create, update]}\n",
    ),
];
