//! Credential plugins (`client.authentication.k8s.io`): programs that print a token or a client certificate.

use std::fmt;
use std::io::{self, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::Error;
use crate::base::capped;
use crate::base::clock::{Clock, Timestamp};
use crate::base::json::json;
use crate::base::lock::IgnorePoison;
use crate::base::notify;
use crate::base::redact::Secret;
use crate::base::stop::Stop;
use crate::base::thread;
use crate::format::time::parse_rfc3339;
use crate::format::{base64, view};
use crate::kube::connection::{Connection, ServerTrust};
use crate::limits;
use crate::net::CertificatePair;

/// How to call a credential plugin.
#[derive(Clone, PartialEq, Default)]
pub struct ExecPlugin {
    /// The program: a path, or a name that is looked up in `PATH`.
    pub(crate) command: PathBuf,
    pub(crate) args: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    /// `client.authentication.k8s.io/v1` or `…/v1beta1`.
    pub(crate) api_version: String,
    /// Whether the plugin gets the cluster's information.
    pub(crate) provide_cluster_info: bool,
    /// Additional data for the plugin: the cluster's extension for plugins.
    pub(crate) cluster_config: Option<Value>,
    /// The hint for the user if the program is missing.
    pub(crate) install_hint: String,
}

impl fmt::Debug for ExecPlugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Arguments and environment may hold secrets.
        f.debug_struct("ExecPlugin").field("command", &self.command).finish_non_exhaustive()
    }
}

/// Timeout of a plugin.
const TIMEOUT: Duration = Duration::from_secs(60);
/// How often a terminating process is checked.
const LOOK: Duration = Duration::from_millis(10);

/// The last output of a plugin.
#[derive(Clone)]
struct Printed {
    token: Option<Secret<String>>,
    pair: Option<CertificatePair>,
    expires: Option<Timestamp>,
}

/// A plugin with its last output.
pub(in crate::kube) struct ExecCache {
    plugin: Arc<ExecPlugin>,
    connection: Connection,
    clock: Clock,
    printed: Mutex<Option<Printed>>,
    /// Stays valid for handshakes while the plugin runs again.
    pair: Mutex<Option<CertificatePair>>,
}

impl fmt::Debug for ExecCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.plugin.fmt(f)
    }
}

impl ExecCache {
    pub(in crate::kube) fn new(plugin: Arc<ExecPlugin>, connection: Connection, clock: Clock) -> Self {
        Self { plugin, connection, clock, printed: Mutex::new(None), pair: Mutex::new(None) }
    }

    /// The token, if there is one, and whether the client certificate has changed since the last call.
    pub(in crate::kube) fn token(&self) -> Result<(Option<Secret<String>>, bool), Error> {
        let mut printed = self.printed.lock().ignore_poison();
        if let Some(printed) = &*printed
            && printed.expires.is_none_or(|expires| self.clock.now() < expires)
        {
            return Ok((printed.token.clone(), false));
        }
        let new = self.run()?;
        let mut pair = self.pair.lock().ignore_poison();
        let bytes = |pair: &Option<CertificatePair>| pair.as_ref().map(|pair| Arc::clone(&pair.chain_pem));
        let changed = bytes(&pair) != bytes(&new.pair);
        pair.clone_from(&new.pair);
        let token = new.token.clone();
        *printed = Some(new);
        Ok((token, changed))
    }

    /// The client certificate that the plugin printed last.
    pub(in crate::kube) fn certificate(&self) -> Option<CertificatePair> {
        self.pair.lock().ignore_poison().clone()
    }

    /// The server refused the credentials: runs the plugin again next time.
    pub(in crate::kube) fn forget(&self) {
        *self.printed.lock().ignore_poison() = None;
    }

    fn error(&self, problem: impl Into<String>) -> Error {
        Error::Exec { command: self.plugin.command.display().to_string(), problem: problem.into() }
    }

    fn run(&self) -> Result<Printed, Error> {
        let mut child = self.start()?;
        let output = read_aside(child.stdout.take()).map_err(|error| self.error(error.to_string()))?;
        let complaint = read_aside(child.stderr.take()).map_err(|error| self.error(error.to_string()))?;
        let printed = output.recv_timeout(TIMEOUT);
        let status = wait_or_kill(&mut child, if printed.is_ok() { LOOK * 100 } else { Duration::ZERO });
        let Ok(bytes) = printed else {
            return Err(self.error(format!("no answer within {} s", TIMEOUT.as_secs())));
        };
        let bytes = bytes.map_err(|error| self.error(error.to_string()))?;
        match status {
            Ok(status) if status.success() => self.parse(&bytes),
            Ok(status) => {
                let text = complaint.recv_timeout(LOOK * 10).ok().and_then(Result::ok).unwrap_or_default();
                let text: String = String::from_utf8_lossy(&text).trim().chars().take(200).collect();
                Err(self.error(format!("{status}: {text}").trim_end_matches([':', ' '])))
            }
            Err(error) => Err(self.error(error.to_string())),
        }
    }

    fn start(&self) -> Result<Child, Error> {
        let info = json!({
            "apiVersion": self.plugin.api_version,
            "kind": "ExecCredential",
            "spec": self.spec(),
        });
        let mut command = Command::new(&self.plugin.command);
        command.args(&self.plugin.args).envs(self.plugin.env.iter().map(|(name, value)| (name, value)));
        command.env("KUBERNETES_EXEC_INFO", info.to_string());
        for variable in notify::VARIABLES {
            command.env_remove(variable);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().map_err(|error| {
            let hint =
                if error.kind() == io::ErrorKind::NotFound { self.plugin.install_hint.trim() } else { "" };
            self.error(format!("{error} {hint}").trim_end())
        })
    }

    fn spec(&self) -> Value {
        let mut spec = json!({"interactive": false});
        if self.plugin.provide_cluster_info {
            let mut cluster = json!({"server": self.connection.server});
            if let Some(name) = &self.connection.tls_server_name {
                cluster["tls-server-name"] = json!(name);
            }
            if let Some(url) = &self.connection.proxy_url {
                cluster["proxy-url"] = json!(url.expose());
            }
            match &self.connection.trust {
                ServerTrust::Insecure => cluster["insecure-skip-tls-verify"] = json!(true),
                ServerTrust::Bundle(material) => {
                    if let Ok(pem) = material.load() {
                        cluster["certificate-authority-data"] = json!(base64::encode(&pem));
                    }
                }
                ServerTrust::System => {}
            }
            if let Some(config) = &self.plugin.cluster_config {
                cluster["config"] = config.clone();
            }
            spec["cluster"] = cluster;
        }
        spec
    }

    fn parse(&self, bytes: &[u8]) -> Result<Printed, Error> {
        let credential: Credential = view::parse(bytes).map_err(|error| {
            self.error(format!("output is not an ExecCredential: {:?} in it", error.classify()))
        })?;
        if credential.kind != "ExecCredential" || credential.api_version != self.plugin.api_version {
            return Err(self.error(format!("output is not an ExecCredential of {}", self.plugin.api_version)));
        }
        let status = credential.status.ok_or_else(|| self.error("output has no status"))?;
        let pair = match (status.client_certificate_data.as_str(), status.client_key_data.as_str()) {
            ("", "") => None,
            ("", _) | (_, "") => {
                return Err(self.error("printed a certificate without key, or a key without certificate"));
            }
            (chain, key) => {
                Some(CertificatePair { chain_pem: chain.as_bytes().into(), key_pem: key.as_bytes().into() })
            }
        };
        let token = (!status.token.is_empty()).then(|| Secret::new(status.token));
        if token.is_none() && pair.is_none() {
            return Err(self.error("printed neither token nor certificate"));
        }
        let expires = match status.expiration_timestamp.as_str() {
            "" => None,
            text => Some(
                parse_rfc3339(text).map_err(|_| self.error(format!("bad expirationTimestamp {text:?}")))?,
            ),
        };
        Ok(Printed { token, pair, expires })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Credential {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    status: Option<CredentialStatus>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct CredentialStatus {
    expiration_timestamp: String,
    token: String,
    client_certificate_data: String,
    client_key_data: String,
}

/// Reads a pipe in a thread of its own, which ends with the pipe: a child of the plugin may keep it open.
fn read_aside(pipe: Option<impl Read + Send + 'static>) -> io::Result<Receiver<io::Result<Vec<u8>>>> {
    let (sender, receiver) = mpsc::channel();
    drop(thread::spawn("exec-output", limits::SMALL_STACK_BYTES, move || {
        // After the timeout, no receiver is left.
        let _ = sender.send(pipe.map_or_else(|| Ok(Vec::new()), read_output));
    })?);
    Ok(receiver)
}

fn read_output(mut pipe: impl Read) -> io::Result<Vec<u8>> {
    let max = limits::EXEC_OUTPUT_BYTES_MAX;
    capped::read(&mut pipe, max)?
        .ok_or_else(|| io::Error::new(io::ErrorKind::FileTooLarge, format!("output larger than {max} bytes")))
}

fn wait_or_kill(child: &mut Child, patience: Duration) -> io::Result<std::process::ExitStatus> {
    let (clock, never) = (Clock::system(), Stop::new());
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if clock.mono() >= patience {
            // It may have ended meanwhile; `wait` reports it.
            let _ = child.kill();
            return child.wait();
        }
        never.wait(&clock, LOOK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::Simulated;

    const V1: &str = "client.authentication.k8s.io/v1";

    fn cache(script: &str, clock: &Clock) -> ExecCache {
        let plugin = ExecPlugin {
            command: "/bin/sh".into(),
            args: vec!["-c".into(), script.to_owned()],
            env: vec![("MINE".into(), "env".into())],
            api_version: V1.into(),
            provide_cluster_info: true,
            cluster_config: Some(json!({"audience": "x"})),
            install_hint: "install it".into(),
        };
        let connection =
            Connection { tls_server_name: Some("kube".into()), ..Connection::new("https://h").with_ca("CA") };
        ExecCache::new(Arc::new(plugin), connection, clock.clone())
    }

    fn printing(status: &str) -> String {
        format!(r#"echo '{{"apiVersion":"{V1}","kind":"ExecCredential","status":{status}}}'"#)
    }

    fn token(cache: &ExecCache) -> Result<String, String> {
        cache.token().map(|(token, _)| token.unwrap().expose().clone()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_token_is_kept_until_it_expires_or_is_refused() {
        let counter = std::env::temp_dir().join(format!("gardenlet-test-{}", crate::base::random::hex(12)));
        let sim = Simulated::new(Timestamp::from_unix(1_735_787_000), 1);
        let script = format!(
            r#"echo x >>{0}; echo '{{"apiVersion":"{V1}","kind":"ExecCredential","status":{{"token":"'$(wc -l <{0} | tr -d ' ')'","expirationTimestamp":"2025-01-02T03:04:05Z"}}}}'"#,
            counter.display()
        );
        let cache = cache(&script, &Clock::new(sim.clone()));
        assert_eq!((token(&cache).unwrap(), token(&cache).unwrap()), ("1".into(), "1".into()));
        cache.forget();
        assert_eq!(token(&cache).unwrap(), "2");
        sim.advance(Duration::from_secs(46));
        assert_eq!(token(&cache).unwrap(), "3");
        std::fs::remove_file(counter).unwrap();
    }

    #[test]
    fn the_plugin_gets_the_cluster() {
        let script = format!(
            r#"[ "$MINE" = env ] || exit 3; printf '{{"apiVersion":"{V1}","kind":"ExecCredential","status":{{"token":"%s"}}}}' "$(printf %s "$KUBERNETES_EXEC_INFO" | sed 's/"/\\"/g')""#
        );
        let told: Value = serde_json::from_str(&token(&cache(&script, &Clock::system())).unwrap()).unwrap();
        let expected = json!({"apiVersion": V1, "kind": "ExecCredential", "spec": {"interactive": false, "cluster": {
            "server": "https://h", "tls-server-name": "kube", "certificate-authority-data": "Q0E=",
            "config": {"audience": "x"}}}});
        assert_eq!(told, expected);
    }

    #[test]
    fn a_changed_certificate_is_reported() {
        let path = std::env::temp_dir().join(format!("gardenlet-test-{}", crate::base::random::hex(12)));
        let write = |chain: &str| {
            let status = format!(r#"{{"clientCertificateData":"{chain}","clientKeyData":"KEY"}}"#);
            std::fs::write(&path, printing(&status)).unwrap();
        };
        let cache = cache(&format!(". {}", path.display()), &Clock::system());
        let mut changes = Vec::new();
        for chain in ["A", "A", "B"] {
            write(chain);
            changes.push(cache.token().unwrap().1);
            cache.forget();
        }
        assert_eq!(changes, [true, false, true]);
        let pair = cache.certificate().unwrap();
        assert_eq!((&*pair.chain_pem, &*pair.key_pem), (&b"B"[..], &b"KEY"[..]));
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_failing_plugin_is_an_error() {
        let table = [
            ("echo no access >&2; exit 1".to_owned(), "exit status: 1: no access"),
            ("exit 1".to_owned(), "exit status: 1"),
            ("echo hunter2".to_owned(), "output is not an ExecCredential: Syntax in it"),
            (printing("null"), "output has no status"),
            (printing("{}"), "printed neither token nor certificate"),
            (
                printing(r#"{"clientKeyData":"k"}"#),
                "printed a certificate without key, or a key without certificate",
            ),
            (printing(r#"{"token":"t","expirationTimestamp":"soon"}"#), "bad expirationTimestamp \"soon\""),
            (
                printing(r#"{"token":"t"}"#).replace("/v1", "/v1beta1"),
                "output is not an ExecCredential of client.authentication.k8s.io/v1",
            ),
            ("head -c 1048577 /dev/zero".to_owned(), "output larger than 1048576 bytes"),
        ];
        for (script, problem) in table {
            let error = token(&cache(&script, &Clock::system())).unwrap_err();
            assert_eq!(error, format!("credential plugin /bin/sh: {problem}"), "{script}");
        }
        let missing = ExecPlugin {
            command: "/nonexistent".into(),
            install_hint: "install it".into(),
            ..ExecPlugin::default()
        };
        let cache = ExecCache::new(Arc::new(missing), Connection::new("https://h"), Clock::system());
        assert!(token(&cache).unwrap_err().ends_with("install it"));
    }

    #[test]
    fn nothing_that_formats_shows_a_secret() {
        let cache = cache(&printing(r#"{"token":"hunter2"}"#), &Clock::system());
        let text = format!("{cache:?} {:?} {:?}", cache.plugin, cache.token());
        assert!(!text.contains("hunter2"), "{text}");
    }
}
