//! kubeconfig files: reads, merges and converts them into a [`Connection`], and writes the agent's own.
//!
//! Behaviour follows client-go's `clientcmd`: inline data takes precedence over files, the first of several files wins,
//! and paths are relative to their file.

pub(crate) mod exec;
mod file;

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;

use self::exec::ExecPlugin;
use self::file::{Cluster, Exec, File, User};
use super::connection::{
    AuthorizationSource, Certificate, Connection, Identity, InlineOrFile, ServerTrust, read_small,
};
use crate::base::json::json;
use crate::base::redact::Secret;
use crate::base::sorted::SortedMap;
use crate::format::{base64, view, yaml};
use crate::limits;

/// Why a kubeconfig, or a file that it names, is unusable.
#[derive(Debug)]
pub enum Error {
    /// A file cannot be read.
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The text is not a kubeconfig.
    Parse(String),
    /// A named cluster, user or context does not exist, or a setting is not supported.
    Invalid(String),
    /// A credential plugin failed.
    Exec {
        /// The command.
        command: String,
        /// The problem.
        problem: String,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read { path, .. } => write!(f, "read {}", path.display()),
            Self::Parse(problem) => write!(f, "not a kubeconfig: {problem}"),
            Self::Invalid(problem) => f.write_str(problem),
            Self::Exec { command, problem } => write!(f, "credential plugin {command}: {problem}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Read { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// A parsed kubeconfig; several can be merged.
#[derive(Clone, Debug, Default)]
pub struct Kubeconfig(File);

/// Parses a kubeconfig (YAML or JSON). Relative paths in it are relative to `directory`. Errors:
/// [`Error::Parse`], without any part of the text, because it holds secrets.
pub fn parse(text: &str, directory: &Path) -> Result<Kubeconfig, Error> {
    if text.len() > limits::CONFIG_FILE_BYTES_MAX {
        return Err(Error::Parse(format!("larger than {} bytes", limits::CONFIG_FILE_BYTES_MAX)));
    }
    let value = yaml::parse(text)
        .map_err(|error| Error::Parse(format!("line {}, column {}: bad YAML", error.line, error.column)))?;
    if value.is_null() {
        return Ok(Kubeconfig::default());
    }
    if !value.is_object() {
        return Err(Error::Parse("it is not a mapping".to_owned()));
    }
    if value.get("kind").is_some_and(|kind| kind != "Config") {
        return Err(Error::Parse("its kind is not Config".to_owned()));
    }
    let mut file =
        view::read::<File>(value).map_err(|error| Error::Parse(without_values(&error.to_string())))?;
    file.clusters.values_mut().for_each(|cluster| resolve(&mut cluster.certificate_authority, directory));
    for user in file.users.values_mut() {
        for path in [&mut user.client_certificate, &mut user.client_key, &mut user.token_file] {
            resolve(path, directory);
        }
        if let Some(exec) = &mut user.exec
            && exec.command.contains('/')
        {
            resolve(&mut exec.command, directory);
        }
    }
    Ok(Kubeconfig(file))
}

/// serde quotes the value that it found, which may be a secret.
fn without_values(error: &str) -> String {
    match error.split_once(": string \"") {
        Some((what, rest)) => {
            format!("{what}: a string{}", rest.rsplit_once('"').map_or("", |(_, tail)| tail))
        }
        None => error.to_owned(),
    }
}

fn resolve(path: &mut String, directory: &Path) {
    if !path.is_empty() {
        *path = directory.join(&*path).to_string_lossy().into_owned();
    }
}

/// Reads and merges several files, as `KUBECONFIG` lists them; skips missing files. Errors: errors of reading
/// and parsing; it is an error if all files are missing.
pub(crate) fn load(paths: &[PathBuf]) -> Result<Kubeconfig, Error> {
    let mut merged: Option<Kubeconfig> = None;
    for path in paths {
        let bytes = match read_small(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && paths.len() > 1 => continue,
            other => other.map_err(|source| Error::Read { path: path.clone(), source })?,
        };
        let text =
            String::from_utf8(bytes).map_err(|_| Error::Parse(format!("{} is not text", path.display())))?;
        // Relative to the file itself, even if it is named by a relative path.
        let absolute = fs::canonicalize(path).unwrap_or_else(|_| path.clone());
        let parsed =
            parse(&text, absolute.parent().unwrap_or(Path::new("/"))).map_err(|error| match error {
                Error::Parse(problem) => Error::Parse(format!("{}: {problem}", path.display())),
                other => other,
            })?;
        merged.get_or_insert_default().merge(parsed);
    }
    merged.ok_or_else(|| Error::Invalid("none of the kubeconfig files exists".to_owned()))
}

impl Kubeconfig {
    /// Merges another file: existing entries win.
    pub fn merge(&mut self, other: Self) {
        let File { current_context, clusters, users, contexts } = other.0;
        if self.0.current_context.is_empty() {
            self.0.current_context = current_context;
        }
        keep_first(&mut self.0.clusters, clusters);
        keep_first(&mut self.0.users, users);
        keep_first(&mut self.0.contexts, contexts);
    }

    /// The connection of the context that `current-context` names. Errors: as [`Self::select`].
    pub fn current(&self) -> Result<Connection, Error> {
        self.select(&self.0.current_context)
    }

    /// The connection of a context, or of `current-context` if it is empty. Errors: [`Error::Invalid`] for
    /// missing, contradictory or unsupported settings.
    pub fn select(&self, context: &str) -> Result<Connection, Error> {
        let name = if context.is_empty() { &self.0.current_context } else { context };
        if name.is_empty() {
            return Err(Error::Invalid("kubeconfig without current-context".to_owned()));
        }
        let missing = |what: &str, name: &str| Error::Invalid(format!("kubeconfig has no {what} {name:?}"));
        let context = self.0.contexts.get(name).ok_or_else(|| missing("context", name))?;
        let cluster =
            self.0.clusters.get(&context.cluster).ok_or_else(|| missing("cluster", &context.cluster))?;
        let none = User::default();
        let user = match context.user.as_str() {
            "" => &none,
            user => self.0.users.get(user).ok_or_else(|| missing("user", user))?,
        };
        if cluster.server.is_empty() {
            return Err(Error::Invalid(format!("cluster {:?} has no server", context.cluster)));
        }
        let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Ok(Connection {
            server: cluster.server.trim_end_matches('/').to_owned(),
            trust: trust(cluster)?,
            identity: Identity { certificate: certificate(user)?, credentials: credentials(user, cluster)? },
            tls_server_name: text(&cluster.tls_server_name),
            proxy_url: text(&cluster.proxy_url).map(Secret::new),
        })
    }
}

fn keep_first<T>(into: &mut SortedMap<String, T>, more: SortedMap<String, T>) {
    for (name, value) in more {
        into.entry(name).or_insert(value);
    }
}

/// Inline data takes precedence over a file.
fn material(what: &str, data: &str, path: &str) -> Result<Option<InlineOrFile>, Error> {
    if !data.is_empty() {
        let bytes = base64::decode(data.trim().as_bytes())
            .map_err(|_| Error::Invalid(format!("{what}-data is not Base64")))?;
        return Ok(Some(InlineOrFile::inline(bytes)));
    }
    Ok((!path.is_empty()).then(|| InlineOrFile::File(path.into())))
}

fn trust(cluster: &Cluster) -> Result<ServerTrust, Error> {
    let bundle = material(
        "certificate-authority",
        &cluster.certificate_authority_data,
        &cluster.certificate_authority,
    )?;
    match (cluster.insecure_skip_tls_verify, bundle) {
        (true, None) => Ok(ServerTrust::Insecure),
        (true, Some(_)) => Err(Error::Invalid(
            "certificate-authority and insecure-skip-tls-verify contradict each other".to_owned(),
        )),
        (false, Some(bundle)) => Ok(ServerTrust::Bundle(bundle)),
        (false, None) => Ok(ServerTrust::System),
    }
}

fn certificate(user: &User) -> Result<Option<Certificate>, Error> {
    let chain = material("client-certificate", &user.client_certificate_data, &user.client_certificate)?;
    let key = material("client-key", &user.client_key_data, &user.client_key)?;
    match (chain, key) {
        (Some(chain), Some(key)) => Ok(Some(Certificate { chain, key })),
        (None, None) => Ok(None),
        _ => Err(Error::Invalid("client-certificate and client-key need each other".to_owned())),
    }
}

fn credentials(user: &User, cluster: &Cluster) -> Result<AuthorizationSource, Error> {
    let refuse = |problem: &str| Err(Error::Invalid(problem.to_owned()));
    if user.auth_provider.is_some() {
        return refuse("auth-provider was removed from Kubernetes; use exec");
    }
    if !user.impersonate.is_empty() || !user.as_groups.is_empty() {
        return refuse("impersonation (as, as-groups) is not supported");
    }
    let has_token = !user.token.is_empty() || !user.token_file.is_empty();
    if has_token && !user.username.is_empty() {
        return refuse("token and username contradict each other");
    }
    // A token file takes precedence over a token, because it is read again.
    if !user.token_file.is_empty() {
        return Ok(AuthorizationSource::TokenFile(user.token_file.clone().into()));
    }
    if !user.token.is_empty() {
        return Ok(AuthorizationSource::Token(Secret::new(user.token.trim().to_owned())));
    }
    if !user.username.is_empty() {
        let password = Secret::new(user.password.clone());
        return Ok(AuthorizationSource::Basic { username: user.username.clone(), password });
    }
    match &user.exec {
        Some(exec) => Ok(AuthorizationSource::Exec(Arc::new(plugin(exec, cluster)?))),
        None => Ok(AuthorizationSource::None),
    }
}

fn plugin(exec: &Exec, cluster: &Cluster) -> Result<ExecPlugin, Error> {
    let refuse = |problem: String| Err(Error::Invalid(problem));
    if exec.command.is_empty() {
        return refuse("exec without command".to_owned());
    }
    if !matches!(
        exec.api_version.as_str(),
        "client.authentication.k8s.io/v1" | "client.authentication.k8s.io/v1beta1"
    ) {
        return refuse(format!("exec of apiVersion {:?} is not supported", exec.api_version));
    }
    if !matches!(exec.interactive_mode.as_str(), "" | "Never" | "IfAvailable") {
        return refuse(format!(
            "exec with interactiveMode {:?}: the agent cannot answer prompts",
            exec.interactive_mode
        ));
    }
    let config = cluster.extensions.iter().find(|e| e.name == "client.authentication.k8s.io/exec");
    Ok(ExecPlugin {
        command: exec.command.clone().into(),
        args: exec.args.clone(),
        env: exec.env.iter().map(|variable| (variable.name.clone(), variable.value.clone())).collect(),
        api_version: exec.api_version.clone(),
        provide_cluster_info: exec.provide_cluster_info,
        cluster_config: config.map(|extension| extension.extension.clone()),
        install_hint: exec.install_hint.clone(),
    })
}

/// The kubeconfig that the agent writes into its Secret: cluster, user and context are all `gardenlet`, all
/// data is inline. Unlike the original it keeps `tls-server-name` and `proxy-url`, which the connection
/// needs. Errors: [`Error::Read`] if a file that the connection names cannot be read; [`Error::Invalid`]
/// for an exec plugin.
pub fn render(connection: &Connection) -> Result<String, Error> {
    let mut cluster = json!({"server": connection.server});
    match &connection.trust {
        ServerTrust::System => {}
        ServerTrust::Insecure => cluster["insecure-skip-tls-verify"] = json!(true),
        ServerTrust::Bundle(bundle) => cluster["certificate-authority-data"] = encoded(bundle)?,
    }
    if let Some(name) = &connection.tls_server_name {
        cluster["tls-server-name"] = json!(name);
    }
    if let Some(url) = &connection.proxy_url {
        cluster["proxy-url"] = json!(url.expose());
    }
    let file = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "gardenlet", "cluster": cluster}],
        "users": [{"name": "gardenlet", "user": user(&connection.identity)?}],
        "contexts": [{"name": "gardenlet", "context": {"cluster": "gardenlet", "user": "gardenlet"}}],
        "current-context": "gardenlet",
    });
    Ok(yaml::emit(&file, yaml::Dialect::V4))
}

fn user(identity: &Identity) -> Result<Value, Error> {
    let mut user = json!({});
    if let Some(certificate) = &identity.certificate {
        user["client-certificate-data"] = encoded(&certificate.chain)?;
        user["client-key-data"] = encoded(&certificate.key)?;
    }
    match &identity.credentials {
        AuthorizationSource::None => {}
        AuthorizationSource::Token(token) => user["token"] = json!(token.expose()),
        AuthorizationSource::TokenFile(path) => user["tokenFile"] = json!(path),
        AuthorizationSource::Basic { username, password } => {
            user["username"] = json!(username);
            user["password"] = json!(password.expose());
        }
        AuthorizationSource::Exec(_) => {
            return Err(Error::Invalid("a credential plugin cannot be written into a Secret".to_owned()));
        }
    }
    Ok(user)
}

fn encoded(material: &InlineOrFile) -> Result<Value, Error> {
    let bytes = material.load().map_err(|source| {
        let path = if let InlineOrFile::File(path) = material { path.clone() } else { PathBuf::new() };
        Error::Read { path, source }
    })?;
    Ok(json!(base64::encode(&bytes)))
}

#[cfg(test)]
mod tests;
