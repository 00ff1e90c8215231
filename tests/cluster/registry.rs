//! A real registry with TLS and users, and the real helm that pushes charts to it.

use std::fs;
use std::path::{Path, PathBuf};

use gardenlet::format::base64;
use serde_json::{Value, json};

use crate::chart;
use crate::cluster::{validity, write};
use crate::failure::{Doing, Failure, Result};
use crate::lab::Lab;
use crate::process::{self, Process};
use crate::tokens::{ISSUER, SERVICE, Tokens};
use crate::wait;
use support::pki::Authority;

/// Its port, which is not used otherwise in the sandbox.
pub(crate) const ADDRESS: &str = "127.0.0.1:15000";
/// The configuration of a registry, in its folder.
pub(crate) const CONFIG: &str = "config.yaml";
const USER: &str = "robot";
const PASSWORD: &str = "hunter2";
/// The line of that user from `htpasswd -B`.
const HTPASSWD: &str = "robot:$2a$04$YMQ/5YA.zpo6oPFXVwkma.s4QSwTs1C.inV8TpVtArgW8RHzpTWo.\n";

/// A running registry, ended when dropped.
pub(crate) struct Registry {
    process: Process,
    folder: PathBuf,
    /// The CAs of the registry and of its token service, PEM.
    authorities: String,
    /// The service to which it sends its users, if it does not authenticate them itself.
    pub(crate) tokens: Option<Tokens>,
}

impl Registry {
    /// Starts one that authenticates its users.
    pub(crate) fn start(lab: &Lab) -> Result<Self> {
        Self::start_with(lab, None)
    }

    /// Starts one whose users bring tokens of a service.
    pub(crate) fn start_with_tokens(lab: &Lab) -> Result<Self> {
        Self::start_with(lab, Some(Tokens::start(USER, PASSWORD)?))
    }

    fn start_with(lab: &Lab, tokens: Option<Tokens>) -> Result<Self> {
        let folder = lab.place.join("registry");
        fs::create_dir_all(&folder).doing(|| format!("create {}", folder.display()))?;
        let (from, until) = validity();
        let authority = Authority::new("registry-ca", from);
        let identity = authority.server(&[], from, until);
        let file = |name: &str, text: &str| write(&folder.join(name), text);
        let mut authorities = authority.certificate();
        authorities.extend(tokens.iter().map(Tokens::authority));
        file("ca.crt", &authorities)?;
        file("tls.crt", &identity.certificate)?;
        file("tls.key", &identity.key)?;
        file("htpasswd", HTPASSWD)?;
        let path = |name: &str| folder.join(name).display().to_string();
        let auth = match &tokens {
            None => json!({"htpasswd": {"realm": "charts", "path": path("htpasswd")}}),
            Some(tokens) => {
                file("keys.json", &tokens.keys.to_string())?;
                json!({"token": {"realm": tokens.realm(), "service": SERVICE, "issuer": ISSUER, "jwks": path("keys.json")}})
            }
        };
        let config = json!({
            "version": 0.1,
            "storage": {"filesystem": {"rootdirectory": path("data")}},
            "http": {"addr": ADDRESS, "tls": {"certificate": path("tls.crt"), "key": path("tls.key")}},
            "auth": auth,
        });
        file(CONFIG, &config.to_string())?;
        let process = serve(lab, "registry", &folder, ADDRESS)?;
        Ok(Self { process, folder, authorities, tokens })
    }

    /// Pushes the chart `demo` to it with helm; returns the digest of its manifest.
    pub(crate) fn push_demo(&self, lab: &Lab) -> Result<String> {
        self.push(lab, "demo", &chart::demo()?)
    }

    /// Pushes a chart to it with helm; returns the digest of its manifest.
    pub(crate) fn push(&self, lab: &Lab, name: &str, chart: &[u8]) -> Result<String> {
        let archive = self.folder.join(format!("{name}.tgz"));
        fs::write(&archive, chart).doing(|| format!("write {}", archive.display()))?;
        let mut helm = lab.command("helm")?;
        helm.arg("push").arg(&archive).arg(format!("oci://{ADDRESS}/charts"));
        helm.arg("--ca-file").arg(self.folder.join("ca.crt"));
        helm.args(["--username", USER, "--password", PASSWORD]);
        // It writes its messages to standard error.
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", "exec \"$@\" 2>&1", "sh"]).arg(helm.get_program()).args(helm.get_args());
        shell.env_clear().env("HOME", &self.folder).env("PATH", "/usr/bin:/bin");
        let told = process::run(&mut shell)?;
        let digest = told.split_whitespace().find(|word| word.starts_with("sha256:"));
        digest.map(str::to_owned).ok_or_else(|| Failure::new(format!("helm printed no digest: {told}")))
    }

    /// A file with the CAs by which it is trusted, for clients without a Secret of the garden.
    pub(crate) fn authority(&self) -> PathBuf {
        self.folder.join("ca.crt")
    }

    /// The repository of the chart `demo`.
    pub(crate) fn repository() -> String {
        format!("{ADDRESS}/charts/demo")
    }

    /// The Secrets in the garden with its CA and its login: `oci-ca` and `oci-pull`.
    pub(crate) fn secrets(&self) -> Vec<Value> {
        let login =
            json!({"auths": {ADDRESS: {"auth": base64::encode(format!("{USER}:{PASSWORD}").as_bytes())}}});
        let secret = |name: &str, role: &str, kind: &str, key: &str, value: &str| {
            json!({"apiVersion": "v1", "kind": "Secret", "type": kind,
                "metadata": {"name": name, "namespace": "garden", "labels": {"gardener.cloud/role": role}},
                "stringData": {key: value}})
        };
        let docker = "kubernetes.io/dockerconfigjson";
        vec![
            secret("oci-ca", "oci-ca-bundle", "Opaque", "bundle.crt", &self.authorities),
            secret("oci-pull", "helm-pull-secret", docker, ".dockerconfigjson", &login.to_string()),
        ]
    }

    /// Ends it.
    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }
}

/// Starts the program of a registry with the file [`CONFIG`] of a folder, and waits until it listens.
pub(crate) fn serve(lab: &Lab, name: &str, folder: &Path, address: &str) -> Result<Process> {
    let mut command = lab.command("registry")?;
    command.arg("serve").arg(folder.join(CONFIG));
    command.env_clear().env("OTEL_TRACES_EXPORTER", "none").env("HOME", folder);
    let mut process = Process::start(name, &lab.place, command)?;
    wait::until(&format!("registry {name} to listen"), 30, || {
        process.ensure_running()?;
        Ok::<_, Failure>(std::net::TcpStream::connect(address).ok().map(drop))
    })?;
    Ok(process)
}
