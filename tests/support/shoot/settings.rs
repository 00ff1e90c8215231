//! The arguments and files of a kube-apiserver that its stand-in uses.

use std::collections::BTreeMap;

use gardenlet::format::yaml;
use serde_json::{Value, json};

use super::files::{Files, Find};
use crate::api::User;
use crate::api::authn::Accounts;
use crate::json::{list, text};
use crate::pki::Identity;

/// Where arguments name files.
const FOLDERS: [&str; 2] = ["/srv/", "/etc/"];

/// The settings of one start.
pub struct Settings {
    pub identity: Identity,
    /// CAs of client certificates, PEM.
    pub client_authorities: String,
    /// CAs of proxies that may authenticate users, PEM; empty: none.
    pub front_proxy: String,
    pub tokens: Vec<(String, User)>,
    pub accounts: Accounts,
    pub anonymous: bool,
    /// `v1.34.3`
    pub version: String,
    /// Groups with versions, or single resources, that are switched off: `apps/v1`.
    pub disabled: Vec<String>,
    /// The hosts of etcd.
    pub etcd: Vec<String>,
    /// The addresses of Services.
    pub service_range: String,
    /// The documents about the keys of ServiceAccounts, by path.
    pub documents: BTreeMap<String, Value>,
}

impl Settings {
    /// Reads the command line of the first container of a pod, and the files that it names.
    ///
    /// # Errors
    /// The error with which the program would end.
    pub fn read(spec: &Value, find: Find<'_>) -> Result<Self, String> {
        let files = Files::new(spec, find);
        let container = &list(spec, "/containers").first().ok_or("there is no container")?;
        let arguments = Arguments::of(container);
        for path in arguments.paths() {
            files.read(path).map_err(|why| format!("--{}: {why}", arguments.flag_of(path)))?;
        }
        let file = |name: &str| files.read(arguments.one(name)?).map_err(|why| format!("--{name}: {why}"));
        let image = text(container, "/image");
        let version = image_version(image).ok_or_else(|| format!("image {image:?} names no version"))?;
        let issuer = arguments.one("service-account-issuer")?.to_owned();
        let audiences = arguments.get("api-audiences").map_or_else(|| vec![issuer.clone()], split);
        let accounts = Accounts::new(
            &file("service-account-signing-key-file")?,
            &file("service-account-key-file")?,
            &issuer,
            &audiences,
        )
        .map_err(|why| format!("--service-account-signing-key-file: {why}"))?;
        let optional =
            |name: &str| if arguments.get(name).is_some() { file(name) } else { Ok(String::new()) };
        Ok(Self {
            identity: Identity { certificate: file("tls-cert-file")?, key: file("tls-private-key-file")? },
            client_authorities: file("client-ca-file")?,
            front_proxy: optional("requestheader-client-ca-file")?,
            tokens: token_file(&optional("token-auth-file")?),
            accounts,
            anonymous: takes_anonymous(&arguments, &optional("authentication-config")?)?,
            version,
            disabled: disabled(arguments.get("runtime-config").unwrap_or_default()),
            etcd: hosts(arguments.get("etcd-servers").unwrap_or_default()),
            service_range: arguments.get("service-cluster-ip-range").unwrap_or_default().to_owned(),
            documents: [
                (
                    "/.well-known/openid-configuration".to_owned(),
                    json!({"issuer": issuer, "jwks_uri": arguments.get("service-account-jwks-uri")}),
                ),
                ("/openid/v1/jwks".to_owned(), json!({"keys": [{"kid": issuer}]})),
            ]
            .into(),
        })
    }
}

/// The flags of a command line.
struct Arguments<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Arguments<'a> {
    fn of(container: &'a Value) -> Self {
        let words = ["/command", "/args"].into_iter().flat_map(|field| list(container, field));
        let flags = words.filter_map(Value::as_str).filter_map(|word| word.strip_prefix("--"));
        Self(flags.map(|flag| flag.split_once('=').unwrap_or((flag, "true"))).collect())
    }

    fn get(&self, name: &str) -> Option<&'a str> {
        self.0.iter().find(|(flag, _)| *flag == name).map(|(_, value)| *value)
    }

    fn one(&self, name: &str) -> Result<&'a str, String> {
        self.get(name).ok_or_else(|| format!("--{name} is not set"))
    }

    /// The files that are named.
    fn paths(&self) -> impl Iterator<Item = &'a str> {
        let values = self.0.iter().flat_map(|(_, value)| parts(value));
        values.filter(|value| FOLDERS.iter().any(|folder| value.starts_with(folder)))
    }

    fn flag_of(&self, path: &str) -> &'a str {
        let names_it = |(_, value): &&(&str, &str)| parts(value).any(|part| part == path);
        self.0.iter().find(names_it).map_or("", |(flag, _)| flag)
    }
}

/// The parts of a value; a certificate, its key and the names for which it is shown are one.
fn parts(value: &str) -> impl Iterator<Item = &str> {
    value.split(',').filter_map(|part| part.split(':').next())
}

fn split(text: &str) -> Vec<String> {
    text.split(',').filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

/// `https://etcd-main-client:2379,...`
fn hosts(servers: &str) -> Vec<String> {
    let host = |server: &str| {
        let rest = server.split_once("://").map_or(server, |(_, rest)| rest);
        rest.split([':', '/']).next().unwrap_or_default().to_owned()
    };
    servers.split(',').filter(|server| !server.is_empty()).map(host).collect()
}

fn disabled(runtime_config: &str) -> Vec<String> {
    split(runtime_config).iter().filter_map(|entry| entry.strip_suffix("=false").map(str::to_owned)).collect()
}

/// The tag of an image.
pub fn image_version(image: &str) -> Option<String> {
    let image = image.split('@').next()?;
    let (_, tag) = image.rsplit('/').next()?.split_once(':')?;
    tag.starts_with('v').then(|| tag.to_owned())
}

/// Lines of token, user, id and, in quotes, groups.
fn token_file(text: &str) -> Vec<(String, User)> {
    let line = |line: &str| {
        let mut fields = line.splitn(4, ',');
        let mut next = || fields.next().unwrap_or_default().to_owned();
        let (token, name, uid) = (next(), next(), next());
        (token, User { name, uid, groups: split(next().trim_matches('"')) })
    };
    text.lines().filter(|text| !text.trim().is_empty()).map(line).collect()
}

fn takes_anonymous(arguments: &Arguments<'_>, config: &str) -> Result<bool, String> {
    if config.is_empty() {
        return Ok(arguments.get("anonymous-auth") != Some("false"));
    }
    let config: Value = yaml::parse(config).map_err(|why| format!("--authentication-config: {why}"))?;
    Ok(config["anonymous"]["enabled"] != false)
}

/// The token with which a probe of the container asks.
pub fn probe_token(probe: &Value) -> Option<&str> {
    let headers = list(probe, "/httpGet/httpHeaders").iter();
    let mut values = headers.filter(|h| h["name"] == "Authorization").map(|h| text(h, "/value"));
    values.next()?.strip_prefix("Bearer ")
}

#[test]
fn a_command_line_says_what_is_served() {
    assert_eq!(
        image_version("registry.k8s.io:443/kube-apiserver:v1.34.3@sha256:00").as_deref(),
        Some("v1.34.3")
    );
    assert_eq!(image_version("localhost:5000/kube-apiserver"), None);
    assert!(parts("/srv/a.crt,/srv/a.key:b.c,d.e").eq(["/srv/a.crt", "/srv/a.key", "d.e"]));
    assert_eq!(hosts("https://etcd-main-client:2379,https://b.c:1"), ["etcd-main-client", "b.c"]);
    assert_eq!(disabled("apps/v1=false,batch/v1=true,policy/v1=false"), ["apps/v1", "policy/v1"]);
    let users = token_file("t,system:health,h,\nu,b,c,\"x,y\"\n");
    assert_eq!(users[0], ("t".to_owned(), User { uid: "h".to_owned(), ..User::new("system:health", &[]) }));
    assert_eq!(users[1].1.groups, ["x", "y"]);
}
