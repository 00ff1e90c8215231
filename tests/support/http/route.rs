//! From a request to the answer of the API.

use std::sync::PoisonError;

use serde_json::Value;

use super::message::{Request, Response};
use super::protobuf;
use super::server::{Peer, Shared};
use crate::api::failure::Failure;
use crate::api::read::Query;
use crate::api::remove::Options;
use crate::api::request::Info;
use crate::api::table::Form;
use crate::api::write::Patch;
use crate::api::{Api, Target, User, authn, crd, discovery, eviction, openapi, review, subresource};

/// What is sent back.
pub enum Reply {
    Whole(Response),
    Watch(Box<(Target, Query)>),
}

impl From<Failure> for Reply {
    fn from(failure: Failure) -> Self {
        let mut response = Response::json(failure.code, &failure.status());
        if let Some(seconds) = failure.retry_after_s {
            response = response.header("Retry-After", seconds.to_string());
        }
        Self::Whole(response)
    }
}

/// The user of a request. An untrusted certificate or token is an error; without any it is the anonymous user.
pub fn authenticate(shared: &Shared, request: &Request, peer: Peer) -> Result<User, Failure> {
    if peer.is_front_proxy
        && let Some(name) = request.header("x-remote-user")
    {
        let groups = request.headers("x-remote-group");
        let uid = request.header("x-remote-uid").unwrap_or_default().to_owned();
        return Ok(authn::authenticated(User { name: name.to_owned(), uid, groups }));
    }
    if let Some(user) = peer.user {
        return Ok(authn::authenticated(user));
    }
    match request.header("authorization").and_then(|h| h.strip_prefix("Bearer ")) {
        Some(token) => shared.user_of(token.trim()).ok_or_else(Failure::unauthorized),
        None if peer.is_presented || request.header("authorization").is_some() => {
            Err(Failure::unauthorized())
        }
        None if !shared.takes_anonymous() => Err(Failure::unauthorized()),
        None => Ok(User::anonymous()),
    }
}

/// The user in whose name a request is made. Its own user must be allowed to do that.
pub fn impersonate(shared: &Shared, request: &Request, user: User) -> Result<User, Failure> {
    let Some(name) = request.header("impersonate-user") else { return Ok(user) };
    let groups = request.headers("impersonate-group");
    let of = |resource: &str, namespace: &str, name: &str| Info {
        verb: "impersonate".to_owned(),
        resource: resource.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        ..Info::default()
    };
    let account = name.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
    let mut all = vec![match account {
        Some((namespace, name)) => of("serviceaccounts", namespace, name),
        None => of("users", "", name),
    }];
    all.extend(groups.iter().map(|group| of("groups", "", group)));
    for info in &all {
        shared.decide(&user, info).map_err(|reason| forbidden(&user, info, &reason))?;
    }
    Ok(authn::impersonated(name, groups))
}

/// The refusal of an unauthorized request.
pub fn forbidden(user: &User, info: &Info, reason: &str) -> Failure {
    let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
    if info.resource.is_empty() {
        let message =
            format!("forbidden: User {:?} cannot {} path {:?}{reason}", user.name, info.verb, info.path);
        return Failure::new(403, "Forbidden", message);
    }
    let resource = match info.subresource.as_str() {
        "" => info.resource.clone(),
        sub => format!("{}/{sub}", info.resource),
    };
    // A namespace is in itself.
    let is_namespace = (info.group.as_str(), info.resource.as_str()) == ("", "namespaces");
    let scope = match if is_namespace { info.name.as_str() } else { info.namespace.as_str() } {
        "" => "at the cluster scope".to_owned(),
        namespace => format!("in the namespace {namespace:?}"),
    };
    let why = format!(
        "User {:?} cannot {} resource {resource:?} in API group {:?} {scope}{reason}",
        user.name, info.verb, info.group
    );
    Failure::forbidden(&info.group, &info.resource, &info.object_name(), &why)
}

/// Answers an authorized request. `stale`: reads see the state at that revision.
pub fn answer(shared: &Shared, request: &Request, info: &Info, user: &User, stale: Option<u64>) -> Reply {
    let is_health = ["/healthz", "/livez", "/readyz"].iter().any(|path| request.path.starts_with(path));
    let outcome = if request.method == "HEAD" && !is_health {
        Err(Failure::method_not_allowed())
    } else if info.resource.is_empty() {
        Ok(Reply::Whole(other(shared, request)))
    } else {
        resource(shared, request, info, user, stale)
    };
    outcome.unwrap_or_else(Reply::from)
}

fn other(shared: &Shared, request: &Request) -> Response {
    let path = request.path.trim_end_matches('/');
    let accept = request.header("accept").unwrap_or_default();
    let aggregated = accept.contains("as=APIGroupDiscoveryList") && accept.contains("v=v2;");
    let version = shared.version();
    let kinds = &shared.api.store.read().kinds.clone();
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    let found = match parts.as_slice() {
        ["healthz" | "livez" | "readyz", ..] => return shared.health(),
        ["version"] => Some(discovery::version(&version)),
        ["api"] | ["apis"] if aggregated => {
            let value = discovery::aggregated(kinds, parts == ["api"]);
            let media_type = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
            return Response::text(200, media_type, &value.to_string());
        }
        ["api"] if shared.serves_core => Some(discovery::core_versions(&shared.address())),
        ["apis"] => Some(discovery::groups(kinds, shared.serves_core)),
        ["api", version] => discovery::resources(kinds, "", version),
        ["apis", group] => discovery::one_group(kinds, group),
        ["apis", group, version] => discovery::resources(kinds, group, version),
        ["openapi", "v2"] if accept.contains("protobuf") => {
            // An empty body is a document without content.
            return Response::text(200, "application/com.github.proto-openapi.spec.v2.v1.0+protobuf", "");
        }
        ["openapi", "v2"] => Some(openapi::v2(&version)),
        ["openapi", "v3"] => Some(openapi::groups(kinds)),
        ["openapi", "v3", "api", group_version] => openapi::group(kinds, "", group_version),
        ["openapi", "v3", "apis", group, version] => openapi::group(kinds, group, version),
        _ => shared.document(path),
    };
    match found {
        Some(value) => Response::json(200, &value),
        None => Response::text(404, "text/plain; charset=utf-8", "404 page not found\n"),
    }
}

fn body(request: &Request) -> Result<Value, Failure> {
    if request.media_type() == "application/vnd.kubernetes.protobuf" {
        return protobuf::read(&request.body).map_err(|why| {
            Failure::bad_request(format!("this API server of the tests cannot read the object: {why}"))
        });
    }
    if !matches!(request.media_type(), "application/json" | "") {
        let accepted = [
            "application/json",
            "application/yaml",
            "application/vnd.kubernetes.protobuf",
            "application/cbor",
        ];
        return Err(Failure::unsupported_media_type(&accepted));
    }
    let text = String::from_utf8_lossy(&request.body);
    serde_json::from_str(&text)
        .map_err(|e| Failure::bad_request(format!("couldn't get version/kind; json parse error: {e}")))
}

fn patch(request: &Request) -> Result<Patch, Failure> {
    let json = || {
        serde_json::from_slice(&request.body)
            .map_err(|e| Failure::bad_request(format!("error decoding patch: {e}")))
    };
    match request.media_type() {
        "application/merge-patch+json" => Ok(Patch::Merge(json()?)),
        "application/json-patch+json" => Ok(Patch::Json(json()?)),
        "application/strategic-merge-patch+json" => Ok(Patch::Strategic(json()?)),
        "application/apply-patch+yaml" => {
            let message = "this API server of the tests has no server-side apply: leave out --server-side";
            Err(Failure::new(415, "UnsupportedMediaType", message))
        }
        _ => Err(Failure::unsupported_media_type(&[
            "application/json-patch+json",
            "application/merge-patch+json",
            "application/strategic-merge-patch+json",
        ])),
    }
}

fn target(shared: &Shared, info: &Info) -> Result<Target, Reply> {
    let state = shared.api.store.read();
    let kind = state.kinds.find(&info.group, &info.resource).filter(|k| k.versions.contains(&info.version));
    let Some(kind) = kind else {
        let known = state.kinds.groups().get(&info.group).is_some_and(|v| v.contains(&info.version));
        let compiled_in = known && !state.kinds.all().any(|k| k.group == info.group && k.custom);
        return Err(if compiled_in {
            Failure::no_resource().into()
        } else {
            Reply::Whole(Response::text(404, "text/plain; charset=utf-8", "404 page not found\n"))
        });
    };
    Ok(Target {
        kind,
        version: info.version.clone(),
        namespace: info.namespace.clone(),
        name: info.name.clone(),
        subresource: info.subresource.clone(),
    })
}

fn resource(
    shared: &Shared,
    request: &Request,
    info: &Info,
    user: &User,
    stale: Option<u64>,
) -> Result<Reply, Failure> {
    if request.header("accept").is_some_and(|a| !a.contains("json") && !a.contains("*/*")) {
        return Err(Failure::new(
            406,
            "NotAcceptable",
            "only the following media types are accepted: application/json",
        ));
    }
    if review::is_review(&info.group, &info.resource) && info.verb == "create" {
        let answer = review::answer(shared, &info.resource, body(request)?, user)?;
        return Ok(Reply::Whole(Response::json(201, &answer)));
    }
    let target = match target(shared, info) {
        Ok(target) => target,
        Err(reply) => return Ok(reply),
    };
    if !target.name.is_empty() && target.kind.namespaced == target.namespace.is_empty() {
        return Err(Failure::no_resource());
    }
    if !target.subresource.is_empty() && !serves(&target) {
        return Err(Failure::no_resource());
    }
    if target.kind.connects.iter().any(|(name, _)| *name == target.subresource) {
        if info.verb != "create" {
            return Err(Failure::method_not_allowed());
        }
        let answer = shared.connect(&target, body(request)?, user)?;
        return Ok(Reply::Whole(Response::json(201, &answer)));
    }
    if info.verb == "get" && ["log", "proxy"].contains(&target.subresource.as_str()) {
        let read = if target.subresource == "log" { subresource::log } else { subresource::kubelet };
        return Ok(Reply::Whole(Response::text(200, "text/plain", &read(&shared.api, &target)?)));
    }
    if ["token", "scale", "eviction"].contains(&target.subresource.as_str()) {
        return special(shared, request, info, &target, user);
    }
    plain(shared, request, info, target, user, stale)
}

fn serves(target: &Target) -> bool {
    match (target.subresource.as_str(), target.kind.kind.as_str()) {
        ("status", _) => target.kind.status,
        ("scale", _) => target.kind.scale,
        ("approval", "CertificateSigningRequest") | ("finalize", "Namespace") => true,
        ("token", "ServiceAccount") | ("eviction" | "log", "Pod") | ("proxy", "Node") => true,
        ("binding", _) => target.kind.binding,
        (sub, _) => target.kind.connects.iter().any(|(name, _)| *name == sub),
    }
}

fn special(
    shared: &Shared,
    request: &Request,
    info: &Info,
    target: &Target,
    user: &User,
) -> Result<Reply, Failure> {
    let api = &shared.api.asked(dry_run(request).as_deref(), None);
    let (status, value) = match (target.subresource.as_str(), info.verb.as_str()) {
        ("token", "create") => (201, subresource::token(api, &shared.tokens(), target, body(request)?)?),
        ("scale", "get") => (200, subresource::get_scale(api, target)?),
        ("scale", "patch") => (200, subresource::patch_scale(api, target, &patch(request)?, user)?),
        ("scale", "update") => {
            let new = body(request)?;
            let put = |scale: &mut Value| {
                *scale = new;
                Ok(())
            };
            (200, subresource::set_scale(api, target, put, user)?)
        }
        ("eviction", "create") => (201, eviction::evict(api, target, &body(request)?, user)?),
        _ => return Err(Failure::method_not_allowed()),
    };
    Ok(Reply::Whole(Response::json(status, &value)))
}

fn plain(
    shared: &Shared,
    request: &Request,
    info: &Info,
    target: Target,
    user: &User,
    stale: Option<u64>,
) -> Result<Reply, Failure> {
    let dry_run = dry_run(request);
    check_dry_run(dry_run.as_deref(), &info.verb)?;
    let api = &shared.api.asked(dry_run.as_deref(), request.parameter("fieldValidation").as_deref());
    let collection = target.namespace.is_empty() && target.kind.namespaced;
    let stays = collection || !target.kind.verbs().contains(&"deletecollection");
    let form = form(shared, request);
    let value = match info.verb.as_str() {
        "get" => match stale {
            Some(revision) => api.get_at(&target, revision)?,
            None => api.get(&target)?,
        },
        "list" | "watch" | "deletecollection" => {
            let mut query = Query::parse(&target.kind, |name| request.parameter(name))?;
            query.form = form.clone();
            match info.verb.as_str() {
                "watch" => return Ok(Reply::Watch(Box::new((target, query)))),
                "list" => return Ok(Reply::Whole(Response::json(200, &api.list(&target, &query, stale)?))),
                _ if stays => return Err(Failure::method_not_allowed()),
                _ => api.delete_collection(&target, &query.selector, &options(request, user)?)?,
            }
        }
        "create" if collection || !target.name.is_empty() => return Err(Failure::method_not_allowed()),
        "create" => {
            let created = api.create(&target, body(request)?, user)?;
            let created = crd::name_maker(api, &target, created, request.header("user-agent"));
            return Ok(Reply::Whole(warned(api, Response::json(201, &created))));
        }
        "update" if !target.name.is_empty() => api.update(&target, body(request)?, user)?,
        "patch" if !target.name.is_empty() => api.patch(&target, &patch(request)?, user)?,
        "delete" => api.delete(&target, &options(request, user)?)?,
        _ => return Err(Failure::method_not_allowed()),
    };
    let value = if info.verb == "delete" { value } else { form.one(&target.kind, &target.version, value) };
    Ok(Reply::Whole(warned(api, Response::json(200, &value))))
}

/// The answer with what was noticed about the request.
fn warned(api: &Api, response: Response) -> Response {
    let warnings = api.warnings.lock().unwrap_or_else(PoisonError::into_inner);
    warnings.iter().fold(response, |response, text| response.header("Warning", format!("299 - {:?}", text)))
}

/// The only dry run is that of everything.
fn check_dry_run(parameter: Option<&str>, verb: &str) -> Result<(), Failure> {
    let Some(other) = parameter.filter(|p| !["", "All"].contains(p)) else { return Ok(()) };
    let kind = match verb {
        "create" => "CreateOptions",
        "update" => "UpdateOptions",
        "patch" => "PatchOptions",
        _ => "DeleteOptions",
    };
    let why = format!("Unsupported value: [{other:?}]: supported values: \"All\"");
    Err(Failure::invalid("meta.k8s.io", kind, "", "dryRun", &why))
}

/// `dryRun` of the query. The body of a DELETE, if there is one, replaces the options of the query.
fn dry_run(request: &Request) -> Option<String> {
    if request.method != "DELETE" || request.body.is_empty() {
        return request.parameter("dryRun");
    }
    let body: Value = serde_json::from_slice(&request.body).ok()?;
    body["dryRun"][0].as_str().map(str::to_owned)
}

fn form(shared: &Shared, request: &Request) -> Form {
    let accept = request.header("accept").unwrap_or_default();
    Form::parse(accept, request.parameter("includeObject").as_deref(), &shared.api.clock)
}

fn options(request: &Request, user: &User) -> Result<Options, Failure> {
    let body = if request.body.is_empty() { Value::Null } else { body(request)? };
    let mut options = Options::parse(&body);
    options.user = Some(user.clone());
    options.propagation = options.propagation.or_else(|| request.parameter("propagationPolicy"));
    Ok(options)
}
