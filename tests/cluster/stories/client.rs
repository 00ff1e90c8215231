//! The agent's own Kubernetes client against a real API server.

use gardenlet::api::certificates::CERTIFICATE_SIGNING_REQUEST;
use gardenlet::api::core::{CONFIG_MAP, DEPLOYMENT, NAMESPACE, SECRET, SERVICE_ACCOUNT};
use gardenlet::api::meta::{CLUSTER_SCOPED, Key, Metadata, Resource};
use gardenlet::format::base64;
use gardenlet::kube::request::ApiRequest;
use gardenlet::kube::{
    Client, DeleteParams, Error, ErrorVerdict, ListParams, Patch, UndecodableObject, Watch, WatchEvent,
    WatchParams,
};
use gardenlet::pki::{Certificate, PrivateKey, request};
use rcgen::{CertificateParams, DnType, KeyPair};
use serde_json::{Value, json};

use crate::cluster::{Cluster, Server};
use crate::failure::{Doing, Failure, Result, ensure, equal};
use crate::lab::Lab;
use crate::wait;
use crate::world::World;

const NAME: &str = "client";

/// Objects are created, read, listed page by page, patched in three ways, replaced and deleted.
pub(crate) fn objects(lab: &mut Lab) -> Result<()> {
    let client = fresh_namespace(&lab.seed)?;
    create_and_list(&client)?;
    patch(&client)?;
    replace_and_delete(&client)?;
    let version = client.version()?;
    equal("the version", version.git_version.as_str(), "v1.34.3")
}

fn create_and_list(client: &Client) -> Result<()> {
    for n in 0..7 {
        client.create::<Value>(&CONFIG_MAP, NAME, &config_map(&format!("list-{n}"), "listed"))?;
    }
    let selected =
        ListParams { label_selector: "story=listed".to_owned(), limit: 3, ..ListParams::default() };
    let page = client.list::<Metadata>(&CONFIG_MAP, NAME, &selected)?;
    equal("a page", &page.items.len(), &3)?;
    ensure(!page.metadata.continue_token.is_empty(), || "the first of three pages has no next".to_owned())?;
    for metadata_only in [false, true] {
        let mut names = Vec::new();
        let params = ListParams { metadata_only, ..selected.clone() };
        let version = client
            .list_all::<Metadata>(&CONFIG_MAP, NAME, &params, &mut |item| names.push(item.metadata.name))?;
        let expected: Vec<String> = (0..7).map(|n| format!("list-{n}")).collect();
        equal("all pages", &names, &expected)?;
        ensure(version.parse::<u64>().is_ok(), || format!("no resourceVersion: {version:?}"))?;
    }
    Ok(())
}

fn patch(client: &Client) -> Result<()> {
    let deployment: Value = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "patched"},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": {
            "metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "one", "image": "one:1"}, {"name": "two", "image": "two:1"}]},
        }},
    });
    client.create::<Value>(&DEPLOYMENT, NAME, &deployment)?;
    let containers = |object: &Value| {
        let list = object["spec"]["template"]["spec"]["containers"].as_array().cloned().unwrap_or_default();
        list.iter().map(|c| c["image"].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    let with = |containers: Value| json!({"spec": {"template": {"spec": {"containers": containers}}}});
    let key = Key::new(NAME, "patched");
    let strategic = Patch::Strategic(with(json!([{"name": "two", "image": "two:2"}])));
    let patched: Value = client.patch(&DEPLOYMENT, &key, &strategic)?;
    equal("strategic", &sorted(containers(&patched)), &["one:1".to_owned(), "two:2".to_owned()].to_vec())?;
    let merge = Patch::Merge(with(json!([{"name": "two", "image": "two:3"}])));
    let patched: Value = client.patch(&DEPLOYMENT, &key, &merge)?;
    equal("merge", &containers(&patched), &["two:3".to_owned()].to_vec())?;
    let image = "/spec/template/spec/containers/0/image";
    let steps = Patch::Json(json!([{"op": "replace", "path": image, "value": "two:4"}]));
    let patched: Value = client.patch(&DEPLOYMENT, &key, &steps)?;
    equal("json", &containers(&patched), &["two:4".to_owned()].to_vec())?;
    let status = Patch::Merge(json!({"status": {"observedGeneration": 77}}));
    let patched: Value = client.patch_status(&DEPLOYMENT, &key, &status)?;
    equal("status", &patched["status"]["observedGeneration"], &json!(77))
}

fn sorted(mut words: Vec<String>) -> Vec<String> {
    words.sort();
    words
}

fn replace_and_delete(client: &Client) -> Result<()> {
    let key = Key::new(NAME, "replaced");
    let first: Value = client.create(&CONFIG_MAP, NAME, &config_map("replaced", "one"))?;
    let mut second = first.clone();
    second["data"] = json!({"key": "two"});
    let second: Value = client.replace_object(&CONFIG_MAP, &key, &second)?;
    equal("replaced", &second["data"], &json!({"key": "two"}))?;
    let stale = client.replace_object::<Value>(&CONFIG_MAP, &key, &first);
    verdict("a replace with an old resourceVersion", stale, ErrorVerdict::Conflict)?;
    let other = DeleteParams {
        uid: Some("00000000-0000-0000-0000-000000000000".to_owned()),
        ..DeleteParams::default()
    };
    let refused = client.delete(&CONFIG_MAP, &key, &other);
    verdict("a delete of another uid", refused, ErrorVerdict::Conflict)?;
    let uid = first["metadata"]["uid"].as_str().map(str::to_owned);
    client.delete(&CONFIG_MAP, &key, &DeleteParams { uid, ..DeleteParams::default() })?;
    let gone = client.delete(&CONFIG_MAP, &key, &DeleteParams::default());
    verdict("a second delete", gone, ErrorVerdict::NotFound)?;
    ensure(client.find::<Value>(&CONFIG_MAP, &key)?.is_none(), || "found after its delete".to_owned())
}

/// The refusals of a real API server become the right verdicts.
pub(crate) fn verdicts(lab: &mut Lab) -> Result<()> {
    let client = fresh_namespace(&lab.seed)?;
    let map = config_map("twice", "x");
    let (twice, absent) = (Key::new(NAME, "twice"), Key::new(NAME, "absent"));
    client.create::<Value>(&CONFIG_MAP, NAME, &map)?;
    verdict("a second create", client.create::<Value>(&CONFIG_MAP, NAME, &map), ErrorVerdict::AlreadyExists)?;
    verdict("an absent object", client.get::<Value>(&CONFIG_MAP, &absent), ErrorVerdict::NotFound)?;
    let unknown = Resource::new("example.org", "v1", "Thing", "things", true);
    verdict("an absent kind", client.get::<Value>(&unknown, &absent), ErrorVerdict::NotFound)?;
    let invalid = client.create::<Value>(&CONFIG_MAP, NAME, &config_map("Not A Name", "x"));
    verdict("an invalid name", invalid, ErrorVerdict::Invalid)?;
    let nowhere = client.create::<Value>(&CONFIG_MAP, "no-such-namespace", &map);
    verdict("an absent namespace", nowhere, ErrorVerdict::NotFound)?;
    let stranger = lab.seed.client_of("stranger", None)?;
    verdict("a user without permissions", stranger.get::<Value>(&CONFIG_MAP, &twice), ErrorVerdict::Denied)?;
    let unknown = lab.seed.client_with_token("abcdef.0123456789abcdef")?;
    verdict("an unknown token", unknown.get::<Value>(&CONFIG_MAP, &twice), ErrorVerdict::Denied)?;
    lab.seed.kill(Server::Api);
    verdict("a server that is down", client.get::<Value>(&CONFIG_MAP, &twice), ErrorVerdict::Unreachable)?;
    lab.seed.start(Server::Api)?;
    lab.seed.wait_ready()?;
    client.get::<Value>(&CONFIG_MAP, &twice).map(drop).map_err(Failure::from)
}

/// A watch returns the changes since a list, continues after an interruption, and reports when its version is too old.
pub(crate) fn watches(lab: &mut Lab) -> Result<()> {
    let client = fresh_namespace(&lab.seed)?;
    let list = ListParams { label_selector: "story=watched".to_owned(), ..ListParams::default() };
    let version = client.list_all::<Metadata>(&CONFIG_MAP, NAME, &list, &mut |_| ())?;
    let mut watch = watch_from(&client, &version)?;
    client.create::<Value>(&CONFIG_MAP, NAME, &config_map("a", "watched"))?;
    client.create::<Value>(&CONFIG_MAP, NAME, &config_map("b", "not watched"))?;
    let patch = Patch::Merge(json!({"data": {"key": "value"}}));
    client.patch::<Value>(&CONFIG_MAP, &Key::new(NAME, "a"), &patch)?;
    equal("first", event(&mut watch)?.0.as_str(), "added a")?;
    let (modified, resume) = event(&mut watch)?;
    equal("second", modified.as_str(), "modified a")?;
    watch.handle().close();
    client.delete(&CONFIG_MAP, &Key::new(NAME, "a"), &DeleteParams::default())?;
    let mut watch = watch_from(&client, &resume)?;
    equal("after the break", event(&mut watch)?.0.as_str(), "deleted a")?;
    // The API server restarts: the running watch ends, and another one continues.
    lab.seed.kill(Server::Api);
    lab.seed.start(Server::Api)?;
    lab.seed.wait_ready()?;
    wait::until_true("the end of the watch", 30, || !matches!(watch.next(), Some(Ok(_))))?;
    too_old(&client)
}

/// Version 1 is long compacted. Servers report that with a status or with an event.
fn too_old(client: &Client) -> Result<()> {
    let params =
        WatchParams { resource_version: "1".to_owned(), timeout_seconds: 10, ..WatchParams::default() };
    let error = match client.watch::<Metadata>(&CONFIG_MAP, NAME, &params) {
        Err(error) => Some(error),
        Ok(mut watch) => watch.next().and_then(std::result::Result::err),
    };
    verdict("version 1", error.map_or(Ok(()), Err), ErrorVerdict::Gone)
}

fn watch_from(client: &Client, version: &str) -> Result<Watch<Metadata>> {
    let params = WatchParams {
        label_selector: "story=watched".to_owned(),
        resource_version: version.to_owned(),
        bookmarks: true,
        timeout_seconds: 60,
        ..WatchParams::default()
    };
    client.watch(&CONFIG_MAP, NAME, &params).map_err(Failure::from)
}

/// The next event that is not a bookmark, and the version from which to continue.
fn event(watch: &mut Watch<Metadata>) -> Result<(String, String)> {
    loop {
        let next = watch.next().ok_or_else(|| Failure::new("the watch ended"))??;
        let (what, object) = match next {
            WatchEvent::Added(object) => ("added", object.metadata),
            WatchEvent::Modified(object) => ("modified", object.metadata),
            WatchEvent::Deleted(last) => ("deleted", last),
            WatchEvent::Bookmark(_) => continue,
            WatchEvent::Undecodable(UndecodableObject { key, why, .. }) => {
                return Err(Failure::new(format!("undecodable {key}: {why}")));
            }
        };
        return Ok((format!("{what} {}", object.name), object.resource_version));
    }
}

/// From a bootstrap token to a certificate: request, approval by the stand-in garden, signature; the client changes its identity in place.
pub(crate) fn identity(lab: &mut Lab) -> Result<()> {
    let admin = lab.garden.client()?;
    let world = World::build(lab)?;
    let client = lab.garden.client_with_token(&world.preparation.token())?;
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name.push(DnType::CommonName, "gardener.cloud:system:seed:edge-1");
    params.distinguished_name.push(DnType::OrganizationName, "gardener.cloud:system:seeds");
    let request = params.serialize_request(&key)?.pem()?;
    client.create::<Value>(
        &CERTIFICATE_SIGNING_REQUEST,
        CLUSTER_SCOPED,
        &json!({
            "apiVersion": "certificates.k8s.io/v1",
            "kind": "CertificateSigningRequest",
            "metadata": {"name": "client"},
            "spec": {
                "request": base64::encode(request.as_bytes()),
                "signerName": "kubernetes.io/kube-apiserver-client",
                "usages": ["digital signature", "key encipherment", "client auth"],
                "expirationSeconds": 3_600,
            },
        }),
    )?;
    let asked: Value = admin.get(&CERTIFICATE_SIGNING_REQUEST, &Key::cluster("client"))?;
    let user = format!("system:bootstrap:{}", world.preparation.token_id());
    equal("the user of the request", &asked["spec"]["username"], &json!(user))?;
    let certificate = wait::until("the certificate", 20, || -> std::result::Result<_, Error> {
        let request: Value = client.get(&CERTIFICATE_SIGNING_REQUEST, &Key::cluster("client"))?;
        Ok(request["status"]["certificate"].as_str().map(str::to_owned))
    })?;
    let certificate = base64::decode(certificate.as_bytes()).doing(|| "decode the certificate".to_owned())?;
    verdict(
        "secrets for a token",
        client.get::<Value>(&NAMESPACE, &Key::cluster("garden")),
        ErrorVerdict::Denied,
    )?;
    let connection = lab.garden.connection().with_certificate(certificate, key.serialize_pem());
    client.replace(connection)?;
    client.get::<Metadata>(&NAMESPACE, &Key::cluster("garden"))?;
    Ok(())
}

/// A handwritten request with all possible kinds of names: the servers read it, and the next request repeats the signed
/// names unchanged.
pub(crate) fn own_names(lab: &mut Lab) -> Result<()> {
    let admin = lab.garden.client()?;
    let der = |tag: u8, parts: &[&[u8]]| {
        let content = parts.concat();
        [&[tag, u8::try_from(content.len()).unwrap_or(0)][..], &content].concat()
    };
    let attribute =
        |kind: u8, tag: u8, text: &str| der(0x30, &[&[6, 3, 0x55, 4, kind], &der(tag, &[text.as_bytes()])]);
    let set = |attributes: &[&[u8]]| der(0x31, attributes);
    let (c, o, cn) = (6, 10, 3);
    let groups = [attribute(o, 12, "site-operators"), attribute(o, 12, "gardener.cloud:system:seeds")];
    let country = set(&[&attribute(c, 19, "DE")]);
    let common_name = set(&[&attribute(cn, 12, "gardener.cloud:system:seed:own")]);
    let first = request::Subject {
        common_name: "gardener.cloud:system:seed:own".to_owned(),
        organizations: vec!["site-operators".to_owned(), "gardener.cloud:system:seeds".to_owned()],
        name: der(0x30, &[&country, &set(&[&groups[0]]), &set(&[&groups[1]]), &common_name]),
        alternative_names: [&[0x30, 18, 0x82, 16][..], b"edge.example.org"].concat(),
    };
    let issued = signed(&admin, "own-names-1", &first)?;
    let sorted = |mut names: Vec<String>| {
        names.sort();
        names
    };
    equal("the groups", &sorted(issued.organizations.clone()), &sorted(first.organizations.clone()))?;
    equal("the alternative names", &issued.alternative_names, &first.alternative_names)?;
    let again = signed(&admin, "own-names-2", &issued)?;
    equal("the names after a restart", &again, &issued)
}

/// The names in the certificate that an administrator has had signed for this subject.
fn signed(admin: &Client, name: &str, subject: &request::Subject) -> Result<request::Subject> {
    let made = request::build(subject, &PrivateKey::generate()?)?;
    let csr = json!({
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
        "spec": {
            "request": base64::encode(made.pem.as_bytes()),
            "signerName": "kubernetes.io/kube-apiserver-client",
            "usages": ["digital signature", "key encipherment", "client auth"],
        },
    });
    admin.create::<Value>(&CERTIFICATE_SIGNING_REQUEST, CLUSTER_SCOPED, &csr)?;
    let condition = json!({"type": "Approved", "status": "True", "reason": "ByHand", "message": "m"});
    let approved = Patch::Merge(json!({"status": {"conditions": [condition]}}));
    let key = Key::cluster(name);
    let approval = CERTIFICATE_SIGNING_REQUEST.subresource_path(&key, "approval");
    admin.fetch::<Value>(&ApiRequest::patch(approval, &approved))?;
    let certificate = wait::until("the certificate", 20, || -> std::result::Result<_, Error> {
        let request: Value = admin.get(&CERTIFICATE_SIGNING_REQUEST, &key)?;
        Ok(request["status"]["certificate"].as_str().map(str::to_owned))
    })?;
    admin.delete(&CERTIFICATE_SIGNING_REQUEST, &key, &DeleteParams::default())?;
    let pem = base64::decode(certificate.as_bytes()).doing(|| "decode the certificate".to_owned())?;
    Ok(Certificate::parse_pem(&String::from_utf8_lossy(&pem))?.subject)
}

/// A token for a service account is created through its subresource, and the server accepts it.
pub(crate) fn tokens(lab: &mut Lab) -> Result<()> {
    let client = fresh_namespace(&lab.seed)?;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}});
    client.create::<Value>(&SERVICE_ACCOUNT, NAME, &account)?;
    let request = json!({
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": 3_600},
    });
    let answer: Value = client.create_sub(&SERVICE_ACCOUNT, &Key::new(NAME, "robot"), "token", &request)?;
    let token = answer["status"]["token"].as_str().ok_or_else(|| Failure::new("no token"))?;
    let robot = lab.seed.client_with_token(token)?;
    let review =
        Resource::new("authentication.k8s.io", "v1", "SelfSubjectReview", "selfsubjectreviews", false);
    let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let me: Value = robot.create(&review, CLUSTER_SCOPED, &body)?;
    equal("who am I", &me["status"]["userInfo"]["username"], &json!("system:serviceaccount:client:robot"))?;
    verdict("a secret", robot.get::<Value>(&SECRET, &Key::new(NAME, "any")), ErrorVerdict::Denied)
}

/// An administrator's client and an empty namespace. The one of an earlier story may still be terminating.
fn fresh_namespace(cluster: &Cluster) -> Result<Client> {
    let client = cluster.client()?;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAME}});
    match client.delete(&NAMESPACE, &Key::cluster(NAME), &DeleteParams::default()) {
        Err(error) if error.is_not_found() => (),
        other => other?,
    }
    wait::until("an empty namespace", 60, || {
        match client.create::<Value>(&NAMESPACE, CLUSTER_SCOPED, &namespace) {
            Ok(_) => Ok(Some(())),
            Err(error) => Err(error),
        }
    })?;
    Ok(client)
}

fn config_map(name: &str, story: &str) -> Value {
    let labels = json!({"story": story.replace(' ', "-")});
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels}})
}

/// Fails unless a call failed with this verdict.
fn verdict<T>(what: &str, result: std::result::Result<T, Error>, expected: ErrorVerdict) -> Result<()> {
    match result {
        Ok(_) => Err(Failure::new(format!("{what}: succeeded, expected {expected:?}"))),
        Err(error) => ensure(error.verdict() == expected, || {
            format!("{what}: {:?}, expected {expected:?}: {error}", error.verdict())
        }),
    }
}
