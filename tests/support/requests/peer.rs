//! Sends the requests of rows to a garden.

use std::time::Duration;

use gardenlet::base::clock::Clock;
use gardenlet::base::stop::Stop;
use gardenlet::kube::{Client, Method};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use serde_json::{Value, json};

use super::matrix;
use super::row::{Answer, Call, Row, Step, Stored};
use super::wire;
use crate::api::patch::merge;
use crate::encoding::base64;
use crate::json::text;
use crate::options::patience;

/// Which garden answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// The real Gardener.
    Real,
    /// The stand-in in this process.
    Inside,
    /// The stand-in behind a real kube-apiserver.
    Behind,
}

/// A garden, with a client of each user of the rows.
pub struct Peer<'a> {
    pub place: Place,
    pub admin: &'a Client,
    /// The agent of Seed `own`.
    pub seed: &'a Client,
    /// Account `extension-x` in `seed-own`.
    pub extension: &'a Client,
    /// Makes the server forget what has happened so far.
    pub compacts: &'a dyn Fn() -> Result<(), String>,
}

/// Kinds that rows name: group and version, kind, plural, whether it is namespaced.
const KINDS: [(&str, &str, &str, bool); 34] = [
    ("v1", "Secret", "secrets", true),
    ("v1", "ConfigMap", "configmaps", true),
    ("v1", "ServiceAccount", "serviceaccounts", true),
    ("v1", "Namespace", "namespaces", false),
    ("v1", "Event", "events", true),
    ("v1", "Pod", "pods", true),
    ("apps/v1", "Deployment", "deployments", true),
    ("coordination.k8s.io/v1", "Lease", "leases", true),
    ("certificates.k8s.io/v1", "CertificateSigningRequest", "certificatesigningrequests", false),
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "clusterrolebindings", false),
    ("rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles", false),
    ("authorization.k8s.io/v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", false),
    ("authorization.k8s.io/v1", "SelfSubjectRulesReview", "selfsubjectrulesreviews", false),
    ("authentication.k8s.io/v1", "SelfSubjectReview", "selfsubjectreviews", false),
    ("core.gardener.cloud/v1beta1", "Seed", "seeds", false),
    ("core.gardener.cloud/v1beta1", "Shoot", "shoots", true),
    ("core.gardener.cloud/v1beta1", "ShootState", "shootstates", true),
    ("core.gardener.cloud/v1beta1", "InternalSecret", "internalsecrets", true),
    ("core.gardener.cloud/v1beta1", "BackupBucket", "backupbuckets", false),
    ("core.gardener.cloud/v1beta1", "BackupEntry", "backupentries", true),
    ("core.gardener.cloud/v1beta1", "ControllerInstallation", "controllerinstallations", false),
    ("core.gardener.cloud/v1beta1", "ControllerRegistration", "controllerregistrations", false),
    ("core.gardener.cloud/v1", "ControllerDeployment", "controllerdeployments", false),
    ("core.gardener.cloud/v1beta1", "CloudProfile", "cloudprofiles", false),
    ("core.gardener.cloud/v1beta1", "NamespacedCloudProfile", "namespacedcloudprofiles", true),
    ("core.gardener.cloud/v1beta1", "ExposureClass", "exposureclasses", false),
    ("core.gardener.cloud/v1beta1", "Project", "projects", false),
    ("core.gardener.cloud/v1beta1", "Quota", "quotas", true),
    ("core.gardener.cloud/v1beta1", "SecretBinding", "secretbindings", true),
    ("security.gardener.cloud/v1alpha1", "CredentialsBinding", "credentialsbindings", true),
    ("security.gardener.cloud/v1alpha1", "WorkloadIdentity", "workloadidentities", true),
    ("operations.gardener.cloud/v1alpha1", "Bastion", "bastions", true),
    ("seedmanagement.gardener.cloud/v1alpha1", "ManagedSeed", "managedseeds", true),
    ("seedmanagement.gardener.cloud/v1alpha1", "Gardenlet", "gardenlets", true),
];

fn kind(resource: &str) -> (&'static str, &'static str, &'static str, bool) {
    let plural = resource.split('/').next().unwrap_or_default();
    *KINDS.iter().find(|k| k.2 == plural).unwrap_or_else(|| panic!("no kind {resource}"))
}

fn path(call: &Call, with_name: bool) -> String {
    if call.resource.starts_with('/') {
        return format!("{}{}", call.resource, call.query);
    }
    let (api_version, _, _, namespaced) = kind(&call.resource);
    let (plural, subresource) = call.resource.split_once('/').unwrap_or((&call.resource, ""));
    let mut path = format!("{}/{api_version}", if api_version == "v1" { "/api" } else { "/apis" });
    if namespaced && !call.place.0.is_empty() {
        path.push_str(&format!("/namespaces/{}", call.place.0));
    }
    path.push_str(&format!("/{plural}"));
    if with_name && !call.place.1.is_empty() {
        path.push_str(&format!("/{}", call.place.1));
    }
    if !subresource.is_empty() {
        path.push_str(&format!("/{subresource}"));
    }
    format!("{path}{}", call.query)
}

/// What came back.
#[derive(Clone, Debug)]
struct Got {
    code: u16,
    body: Value,
}

impl Got {
    fn answers(&self, expected: &Answer) -> bool {
        let reason = if self.code < 300 { "" } else { text(&self.body, "/reason") };
        self.code == expected.code
            && reason == expected.reason
            && text(&self.body, "/message").contains(&expected.says)
    }

    fn shown(&self) -> String {
        if self.code < 300 {
            return self.code.to_string();
        }
        format!("{} {:?}: {}", self.code, text(&self.body, "/reason"), text(&self.body, "/message"))
    }
}

/// What a pointer means; its part `key=value` is the item of a list that has this value.
fn at<'a>(value: &'a Value, pointer: &str) -> &'a Value {
    pointer.split('/').skip(1).fold(value, |value, part| {
        let found = match part.split_once('=') {
            Some((key, wanted)) => {
                let wanted = wanted.replace("~1", "/");
                value.as_array().and_then(|all| all.iter().find(|item| item[key] == *wanted))
            }
            None => value.pointer(&format!("/{part}")),
        };
        found.unwrap_or(&Value::Null)
    })
}

/// How many events of a watch a row looks at.
fn events(row: &Row) -> usize {
    let numbers =
        row.shows.iter().filter_map(|(pointer, _)| pointer.split('/').nth(1)?.parse::<usize>().ok());
    numbers.max().map_or(1, |last| last + 1)
}

/// How long the real resource graph may lag behind.
const LAG: Duration = Duration::from_secs(3);
const PERIOD: Duration = Duration::from_millis(50);

impl Peer<'_> {
    /// Does what a scene says. All of it must succeed.
    pub fn prepare(&self, scene: &[Row]) {
        for row in scene {
            self.before(row).unwrap_or_else(|why| panic!("{}: {why}", row.name));
        }
    }

    /// What is wrong with the answers to the rows.
    pub fn run(&self, rows: &[Row]) -> Vec<String> {
        rows.iter()
            .filter_map(|row| self.check(row).err().map(|why| format!("{}: {why}", row.name)))
            .collect()
    }

    /// The answers to the cases of a matrix, as its text has them.
    pub fn record(&self, table: &str) -> String {
        let line = |line: &str| {
            if line.starts_with('#') {
                return line.to_owned();
            }
            let head: Vec<&str> = line.split(' ').take(3).collect();
            let told = matrix::cases(line).into_iter().map(|(who, verb, call, _)| {
                let client = if who == "seed" { self.seed } else { self.extension };
                let got = self.send(client, &call).unwrap_or_else(|why| panic!("{line}: {why}"));
                let (reason, message) = (text(&got.body, "/reason"), text(&got.body, "/message"));
                format!("{verb}={}", matrix::told(got.code, reason, message))
            });
            format!("{} {}", head.join(" "), told.collect::<Vec<_>>().join(" "))
        };
        table.lines().map(line).collect::<Vec<_>>().join("\n")
    }

    fn before(&self, row: &Row) -> Result<(), String> {
        for step in &row.before {
            match step {
                Step::Does(call) => {
                    let mut got = self.send(self.admin, call)?;
                    // The real server may not have seen what another row has made.
                    self.until(LAG, || {
                        if got.code >= 400 {
                            got = self.send(self.admin, call)?;
                        }
                        Ok(got.code < 400)
                    })?;
                    if got.code >= 300 {
                        return Err(format!("before: {} {}: {}", call.method, path(call, true), got.shown()));
                    }
                }
                Step::Awaits(call) => {
                    self.until(Duration::from_secs(20), || Ok(self.send(self.admin, call)?.code == 200))?;
                }
                Step::Compacts => (self.compacts)()?,
            }
        }
        Ok(())
    }

    /// Repeats until it holds or the time is over.
    fn until(&self, limit: Duration, mut holds: impl FnMut() -> Result<bool, String>) -> Result<(), String> {
        let (clock, stop) = (Clock::system(), Stop::new());
        let deadline = clock.mono() + patience(limit);
        while !holds()? && clock.mono() < deadline {
            stop.wait(&clock, PERIOD);
        }
        Ok(())
    }

    fn check(&self, row: &Row) -> Result<(), String> {
        self.before(row)?;
        let (who, call) = row.asks.as_ref().ok_or("it asks nothing")?;
        let client = match who.as_str() {
            "seed" => self.seed,
            "extension" => self.extension,
            "admin" => self.admin,
            _ => return Err(format!("unknown user {who}")),
        };
        let apart = match self.place {
            Place::Real => "real",
            Place::Inside => "inside",
            Place::Behind => "behind",
        };
        let apart = row.apart.iter().find(|(stand_in, _)| stand_in == apart);
        // The text of a row that is apart is a reason, not a part of a message.
        let own = apart.map(|(_, answer)| Answer { says: String::new(), ..answer.clone() });
        let expected = own.as_ref().unwrap_or(&row.answer);
        let ask = || {
            if call.method == "WATCH" {
                self.watch(client, call, events(row))
            } else {
                self.send(client, call)
            }
        };
        let mut got = ask()?;
        // A refusal changes nothing, and may come from a graph that lags behind.
        self.until(LAG, || {
            if got.answers(expected) || got.code < 300 {
                return Ok(true);
            }
            got = ask()?;
            Ok(got.answers(expected))
        })?;
        if !got.answers(expected) {
            return Err(format!("answered {}, expected {expected:?}", got.shown()));
        }
        if own.is_some() {
            return Ok(());
        }
        for (pointer, value) in &row.shows {
            let found = at(&got.body, pointer);
            let fits = value.as_ref().map_or(!found.is_null(), |value| found == value);
            if !fits {
                let expected = value.as_ref().map_or("something".to_owned(), Value::to_string);
                return Err(format!("the answer has {found} at {pointer}, expected {expected}"));
            }
        }
        row.stored.iter().try_for_each(|stored| self.look(stored))
    }

    fn look(&self, stored: &Stored) -> Result<(), String> {
        let got = self.send(self.admin, &get(&stored.resource, stored.place.clone()))?;
        let what = format!("{} {}/{}", stored.resource, stored.place.0, stored.place.1);
        let Some(pointer) = &stored.pointer else {
            return if got.code == 404 { Ok(()) } else { Err(format!("{what} is there: {}", got.body)) };
        };
        let found = got.body.pointer(pointer).unwrap_or(&Value::Null);
        if *found == stored.value {
            return Ok(());
        }
        Err(format!("{what} has {found} at {pointer}, expected {}", stored.value))
    }

    fn send(&self, client: &Client, call: &Call) -> Result<Got, String> {
        let (method, media_type) = match call.method.as_str() {
            // The agent sends no HEAD.
            "GET" | "HEAD" => (Method::Get, ""),
            "POST" => (Method::Post, "application/json"),
            "PUT" => (Method::Put, "application/json"),
            "DELETE" => (Method::Delete, "application/json"),
            "MERGE" => (Method::Patch, "application/merge-patch+json"),
            "STRATEGIC" => (Method::Patch, "application/strategic-merge-patch+json"),
            "JSON" => (Method::Patch, "application/json-patch+json"),
            "APPLY" => (Method::Patch, "application/apply-patch+yaml"),
            other => return Err(format!("unknown method {other}")),
        };
        let filled = self.fill(&call.body)?;
        let mut body: Option<Value> = match filled.as_str() {
            "" => None,
            text => Some(serde_json::from_str(text).map_err(|e| format!("{text}: {e}"))?),
        };
        let is_create = method == Method::Post && !call.resource.contains('/');
        if is_create || method == Method::Put {
            body = Some(self.whole(call, body.unwrap_or_else(|| json!({})))?);
        }
        let bytes = body.map(|b| b.to_string().into_bytes());
        let place = (call.place.0.clone(), self.fill(&call.place.1)?);
        let call = Call { place, query: self.fill(&call.query)?, ..call.clone() };
        let path = path(&call, !is_create);
        if call.method == "HEAD" || !call.acts_as.is_empty() {
            let headers = [("Content-Type", media_type), ("Impersonate-User", &call.acts_as)];
            let method = if call.method == "HEAD" { "HEAD" } else { method.as_str() };
            let (code, body) = wire::send(client, method, &path, &headers, bytes.as_deref())?;
            return Ok(Got { code, body });
        }
        let got =
            client.raw(method, &path, bytes.as_deref(), media_type).map_err(|e| format!("{path}: {e}"))?;
        let body = serde_json::from_slice(&got.body).unwrap_or(Value::Null);
        Ok(Got { code: got.status, body })
    }

    /// The first events of a watch.
    fn watch(&self, client: &Client, call: &Call, count: usize) -> Result<Got, String> {
        // The first one of two parameters counts.
        let query = self.fill(&format!("{}&watch=true&timeoutSeconds=10", call.query))?;
        let query = format!("?{}", query.trim_start_matches(['?', '&']));
        let (code, body) = wire::watch(client, &path(&Call { query, ..call.clone() }, true), count)?;
        Ok(Got { code, body })
    }

    /// A new object, or the stored one with changes.
    fn whole(&self, call: &Call, body: Value) -> Result<Value, String> {
        let (api_version, kind, _, _) = kind(&call.resource);
        let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {}});
        if call.method == "PUT" {
            object = self.send(self.admin, &get(&call.resource, call.place.clone()))?.body;
        } else if !call.place.1.is_empty() {
            object["metadata"]["name"] = self.fill(&call.place.1)?.into();
        }
        merge(&mut object, &body);
        Ok(object)
    }

    /// Replaces `{uid|RESOURCE|PLACE}`, `{version|RESOURCE|PLACE}`, `{next|RESOURCE|PLACE}` (the end of a page of one),
    /// `{csr|ORGANIZATION|COMMON_NAME}` and `{bytes|NUMBER}`.
    fn fill(&self, text: &str) -> Result<String, String> {
        let mut filled = text.to_owned();
        let fields = [
            ("uid", "/metadata/uid", ""),
            ("version", "/metadata/resourceVersion", ""),
            ("next", "/metadata/continue", "?limit=1"),
        ];
        for (what, field, query) in fields {
            while let Some((start, end, rest)) = placeholder(&filled, what) {
                let (resource, at) = rest.split_once('|').ok_or("a placeholder without a place")?;
                let place = at.split_once('/').unwrap_or(("", at.trim_start_matches('-')));
                let call = get(resource, (place.0.to_owned(), place.1.to_owned()));
                let call = Call { query: query.to_owned(), ..call };
                let object = self.send(self.admin, &call)?.body;
                filled.replace_range(start..end, crate::json::text(&object, field));
            }
        }
        while let Some((start, end, rest)) = placeholder(&filled, "csr") {
            let (organization, name) = rest.split_once('|').ok_or("a request without a name")?;
            filled.replace_range(start..end, &request(organization, name));
        }
        while let Some((start, end, number)) = placeholder(&filled, "bytes") {
            let number = number.parse().map_err(|e| format!("{number}: {e}"))?;
            filled.replace_range(start..end, &"x".repeat(number));
        }
        Ok(filled)
    }
}

fn get(resource: &str, place: (String, String)) -> Call {
    Call {
        method: "GET".into(),
        resource: resource.to_owned(),
        place,
        query: String::new(),
        acts_as: String::new(),
        body: String::new(),
    }
}

/// Begin and end of a placeholder, and what it contains.
fn placeholder(text: &str, what: &str) -> Option<(usize, usize, String)> {
    let begin = format!("{{{what}|");
    let start = text.find(&begin)?;
    let end = start + text[start..].find('}')?;
    Some((start, end + 1, text[start + begin.len()..end].to_owned()))
}

/// A certificate request as an object contains it.
fn request(organization: &str, name: &str) -> String {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, organization);
    params.distinguished_name.push(DnType::CommonName, name);
    let pem = params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap();
    base64(pem.as_bytes())
}
