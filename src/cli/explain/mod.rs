//! `gardenlet explain`: explains whether an object is ready and, if not, why. It changes nothing.

use std::borrow::Cow;

use serde_json::Value;

use crate::api::extensions::SERVED;
use crate::api::gardener::{
    BACKUP_BUCKET, CONTROLLER_DEPLOYMENT, CONTROLLER_INSTALLATION, CONTROLLER_REGISTRATION, SEED, SHOOT,
};
use crate::api::meta::{ALL_NAMESPACES, Key, Resource};
use crate::api::resources::MANAGED_RESOURCE;
use crate::base::clock::Clock;
use crate::base::error::chain;
use crate::base::json::json;
use crate::base::near::nearest;
use crate::config::Settings;
use crate::kube::request::{ApiRequest, ListParams};
use crate::kube::{Client, Discovery, Error};
use crate::runtime::events;

use self::decide::{EVENTS, Gathered, Related, explain, name};
use self::objects::Survey;
use super::{Io, Variable, clusters, fail_as, print, print_text};

mod asked;
mod decide;
mod finalizers;
mod objects;
mod shoot;
mod verdict;

/// The object in question.
pub(super) struct Question {
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) namespace: String,
}

/// How many objects of a kind the explanation names; it counts the others.
const NAMED_MAX: usize = 5;
/// How many objects of a ManagedResource the command reads.
const OBJECTS_MAX: usize = 100;
/// core/v1 Events: a field selector finds those of an object.
const EVENT: Resource = Resource::new("", "v1", "Event", "events", true);
/// The kinds that belong to the garden. All others belong to the seed.
const OF_GARDEN: [Resource; 5] =
    [SEED, SHOOT, CONTROLLER_INSTALLATION, CONTROLLER_REGISTRATION, CONTROLLER_DEPLOYMENT];

pub(super) fn main(
    io: &mut Io<'_>,
    settings: &Settings,
    variable: Variable<'_>,
    question: &Question,
    as_json: bool,
) -> u8 {
    match (Explainer { settings, variable, related: Vec::new(), unread: Vec::new() }).gather(question) {
        Ok(gathered) => {
            let explanation = explain(&gathered);
            if as_json {
                return print(io, &format!("{}\n", explanation.json()));
            }
            let text = explanation.text(io.colour);
            print_text(io, &text)
        }
        Err(Refused { why, is_answer: true }) => fail_as(io, as_json, "explain", &why),
        Err(Refused { why, is_answer: false }) => {
            let hint = "Run gardenlet doctor to find out which hop fails.";
            fail_as(io, as_json, "explain", &format!("{why}\n{hint}"))
        }
    }
}

/// Why no explanation is possible.
struct Refused {
    why: String,
    /// The clusters have answered, so `doctor` would not find more.
    is_answer: bool,
}

impl From<String> for Refused {
    fn from(why: String) -> Self {
        Self { why, is_answer: false }
    }
}

/// Why an object was not read. The garden refuses requests for objects of other seeds, whether they exist or not.
fn not_read(resource: &Resource, place: &str, cluster: &str, seed: &str, error: &Error) -> Refused {
    let kind = &resource.kind;
    let why = match error.status_code() {
        Some(404) => format!("{kind} {place} is not in the {cluster}"),
        Some(403) if cluster == "garden" => {
            format!(
                "{kind} {place}: not found, or not of this seed ({seed}). The garden answered: {}",
                chain(error)
            )
        }
        _ => format!("read {kind} {place} of the {cluster}: {}", chain(error)),
    };
    Refused { why, is_answer: matches!(error.status_code(), Some(403 | 404)) }
}

/// Why a needed object was not read.
fn unread(what: &str, error: &Error) -> String {
    let hint = if error.status_code() == Some(403) { "not found, or not of this seed: " } else { "" };
    format!("{what}: {hint}{}", chain(error))
}

struct Explainer<'a> {
    settings: &'a Settings,
    variable: Variable<'a>,
    related: Vec<Related>,
    unread: Vec<String>,
}

impl Explainer<'_> {
    fn gather(mut self, question: &Question) -> Result<Gathered, Refused> {
        let client =
            |connection| Client::new(connection, clusters::options(self.variable)).map_err(|e| chain(&e));
        let seed = client(clusters::seed(self.settings, self.variable).map_err(|(text, _)| text)?)?;
        let wanted = question.kind.to_ascii_lowercase();
        // Some kinds of extensions have the same names as kinds of the garden. The suffix selects the kind of the
        // extension.
        let of_seed = wanted.strip_suffix(".extensions.gardener.cloud");
        let known = OF_GARDEN.into_iter().chain(asked::KINDS).find(|r| is_called(r, &wanted));
        let (cluster, client, resource) = match known {
            Some(resource) => {
                let garden =
                    clusters::garden(self.settings, self.variable, &seed).map_err(|(text, _)| text)?;
                ("garden", client(garden.connection)?, resource)
            }
            None => match find_kind(&seed, of_seed.unwrap_or(&wanted)).map_err(|e| chain(&e))? {
                Ok(found) => ("seed", seed.clone(), found),
                Err(near) => return Err(unknown_kind(&question.kind, near.as_deref())),
            },
        };
        let namespace = match (resource.namespaced, question.namespace.as_str()) {
            (false, _) => "",
            (true, "") => "garden",
            (true, namespace) => namespace,
        };
        let place = name(&json!({"metadata": {"namespace": namespace, "name": question.name}}));
        let ours = &self.settings.seed_config.name;
        let mut object = client
            .get::<Value>(&resource, &Key::new(namespace, &question.name))
            .map_err(|error| not_read(&resource, &place, cluster, ours, &error))?;
        object["kind"] = Value::from(&*resource.kind);
        if resource == CONTROLLER_INSTALLATION {
            self.installation(&seed, &client, &object);
        } else if resource == SEED {
            self.seed(&seed, &client, &question.name);
        } else if resource == MANAGED_RESOURCE {
            self.managed(&seed, &object);
        } else if cluster == "garden" && asked::KINDS.contains(&resource) {
            self.asked(&seed, &client, &resource, &object);
        }
        let now = Clock::system().now();
        let mut told = shoot::ShootLines::default();
        if resource == SHOOT {
            let options = clusters::options(self.variable);
            told = shoot::tell(client.clone(), seed, options, self.settings, &object, now)
                .map_err(|e| format!("read what the Shoot needs: {}", chain(&e)))?;
            self.unread.append(&mut told.unread);
        }
        // No seed may read the garden's Events.
        let events = match cluster {
            "garden" => Vec::new(),
            _ => self.events(&client, &resource, &object),
        };
        let Self { related, unread, .. } = self;
        let shoot::ShootLines { why, tasks, .. } = told;
        Ok(Gathered { cluster, object, related, events, unread, told: why, tasks, now })
    }

    /// Adds the ManagedResource, and the objects that need the extension.
    fn installation(&mut self, seed: &Client, garden: &Client, installation: &Value) {
        let name = installation["metadata"]["name"].as_str().unwrap_or_default();
        match seed.find::<Value>(&MANAGED_RESOURCE, &Key::new("garden", name)) {
            Ok(Some(object)) => {
                let what = "its ManagedResource".to_owned();
                self.related.push(Related::object(what, object.clone()));
                self.managed(seed, &object);
            }
            Ok(None) => self.lack(format!("it has no ManagedResource garden/{name} in the seed")),
            Err(error) => self.unread.push(format!("its ManagedResource: {}", chain(&error))),
        }
        let registration = installation.pointer("/spec/registrationRef/name").and_then(Value::as_str);
        match garden.get::<Value>(&CONTROLLER_REGISTRATION, &Key::cluster(registration.unwrap_or_default())) {
            Ok(registration) => {
                for served in
                    registration.pointer("/spec/resources").and_then(Value::as_array).into_iter().flatten()
                {
                    self.served(seed, served);
                }
            }
            Err(error) => self.unread.push(unread("its ControllerRegistration", &error)),
        }
    }

    /// Adds its objects. The command reads them one by one, because this needs no permission to list.
    fn managed(&mut self, seed: &Client, managed: &Value) {
        let going = !managed["metadata"]["deletionTimestamp"].is_null();
        let mut survey = Survey::new(going, Clock::system().now());
        let discovery = Discovery::new(seed.clone());
        let references = managed["status"]["resources"].as_array().map_or(&[][..], Vec::as_slice);
        let mut behind = references.len();
        for reference in references.iter().take(OBJECTS_MAX) {
            behind -= 1;
            let kind = reference["kind"].as_str().unwrap_or_default();
            match referred(seed, &discovery, reference) {
                Ok(found) => survey.add(kind, &name(&json!({"metadata": reference})), found),
                Err(error) => {
                    survey.not_read(1, || chain(&error));
                    // If one request gets no answer, the others will get none.
                    if matches!(error, Error::Transport { .. }) {
                        break;
                    }
                }
            }
        }
        survey.not_read(behind, || format!("more than {OBJECTS_MAX}"));
        let (related, unread) = survey.end();
        self.related.extend(related);
        self.unread.extend(unread);
    }

    fn served(&mut self, seed: &Client, served: &Value) {
        let (kind, type_name) = (&served["kind"], &served["type"]);
        let Some(resource) = SERVED.iter().find(|r| *kind == *r.kind) else { return };
        let params = ListParams::default();
        self.list("needed by", seed, resource, &params, &|object| object["spec"]["type"] == *type_name);
    }

    /// Adds the objects that prevent the deletion of a Seed. The deletion looks for the same objects.
    fn seed(&mut self, seed: &Client, garden: &Client, name: &str) {
        let own = |object: &Value| object["spec"]["seedName"] == name;
        let what = "in use by";
        let all = ListParams::default();
        let label_selector = format!("name.seed.gardener.cloud/{name}=true");
        self.list(what, garden, &SHOOT, &ListParams { label_selector, ..all.clone() }, &own);
        self.list(what, garden, &BACKUP_BUCKET, &all, &own);
        self.list(what, garden, &CONTROLLER_INSTALLATION, &with_seed_ref(name), &|_| true);
        self.list(what, seed, &MANAGED_RESOURCE, &all, &|object| object["spec"]["class"] == "seed");
    }

    fn tell(&mut self, what: String) {
        self.related.push(Related::note(what));
    }

    fn lack(&mut self, what: String) {
        self.related.push(Related::lack(what));
    }

    fn list(
        &mut self,
        what: &str,
        client: &Client,
        resource: &Resource,
        params: &ListParams,
        matches: &dyn Fn(&Value) -> bool,
    ) {
        let mut found = Vec::new();
        let listed = objects(client, resource, ALL_NAMESPACES, params, &mut |object| {
            if matches(&object) {
                let going = !object["metadata"]["deletionTimestamp"].is_null();
                found.push(format!("{}{}", name(&object), if going { " (being deleted)" } else { "" }));
            }
        });
        if let Err(error) = listed {
            return self.unread.push(format!("{}: {}", resource.plural, chain(&error)));
        }
        let more = found.len().saturating_sub(NAMED_MAX);
        if !found.is_empty() {
            found.truncate(NAMED_MAX);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            self.tell(format!("{what} {} {}{more}", resource.kind, found.join(", ")));
        }
    }

    fn events(&mut self, client: &Client, resource: &Resource, object: &Value) -> Vec<Value> {
        let metadata = &object["metadata"];
        let namespace = metadata["namespace"].as_str().unwrap_or("default");
        let name = metadata["name"].as_str().unwrap_or_default();
        let mut field_selector = format!("involvedObject.kind={},involvedObject.name={name}", resource.kind);
        // An earlier object with this name may have had Events, too.
        if let Some(uid) = metadata["uid"].as_str() {
            field_selector.push_str(",involvedObject.uid=");
            field_selector.push_str(uid);
        }
        let mut events = Vec::new();
        let params = ListParams { field_selector, ..ListParams::default() };
        let listed = objects(client, &EVENT, namespace, &params, &mut |event| events.push(event));
        if let Err(error) = listed {
            self.unread.push(format!("{EVENTS}{}", chain(&error)));
        }
        events.sort_by_key(|event| events::last_seen(event).to_owned());
        events
    }
}

/// Reads the object of a reference; none if the object or its kind does not exist.
fn referred(seed: &Client, discovery: &Discovery, reference: &Value) -> Result<Option<Value>, Error> {
    let text = |key: &str| reference[key].as_str().unwrap_or_default();
    let Some(resource) = discovery.resource_for(text("apiVersion"), text("kind"))? else { return Ok(None) };
    let mut found = seed.find::<Value>(&resource, &Key::new(text("namespace"), text("name")))?;
    if let Some(object) = &mut found {
        object["kind"] = reference["kind"].clone();
    }
    Ok(found)
}

/// Selects what belongs to a Seed.
fn with_seed_ref(name: &str) -> ListParams {
    ListParams { field_selector: format!("spec.seedRef.name={name}"), ..ListParams::default() }
}

/// Lists all objects; none if the cluster does not serve their kind.
fn objects(
    client: &Client,
    resource: &Resource,
    namespace: &str,
    params: &ListParams,
    each: &mut dyn FnMut(Value),
) -> Result<(), Error> {
    match client.list_all::<Value>(resource, namespace, params, each) {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}

fn is_called(resource: &Resource, wanted: &str) -> bool {
    resource.kind.eq_ignore_ascii_case(wanted) || *resource.plural == *wanted
}

fn unknown_kind(wanted: &str, near: Option<&str>) -> Refused {
    let hint = near.map(|near| format!("; did you mean {near:?}?")).unwrap_or_default();
    Refused { why: format!("the seed serves no kind {wanted:?}{hint}"), is_answer: true }
}

/// Finds a kind of the seed by its name, plural or short name, in the preferred version of the first group that has it.
/// If there is none, returns a similar name.
fn find_kind(seed: &Client, wanted: &str) -> Result<Result<Resource, Option<String>>, Error> {
    if is_called(&MANAGED_RESOURCE, wanted) {
        return Ok(Ok(MANAGED_RESOURCE));
    }
    let ask = |path: &str| seed.fetch::<Value>(&ApiRequest::get_raw(path));
    let groups = ask("/apis")?;
    let groups = groups["groups"].as_array().into_iter().flatten();
    let preferred = groups.filter_map(|group| group["preferredVersion"]["groupVersion"].as_str());
    let of_garden: Vec<String> = OF_GARDEN
        .iter()
        .chain(&asked::KINDS)
        .chain([&MANAGED_RESOURCE])
        .map(|r| r.kind.to_lowercase())
        .collect();
    let mut near = nearest(wanted, of_garden.iter().map(String::as_str)).map(str::to_owned);
    for version in std::iter::once("v1").chain(preferred) {
        let root = if version.contains('/') { "/apis" } else { "/api" };
        // If a group's server is gone, only the kinds of this group are missing.
        let Ok(list) = ask(&format!("{root}/{version}")) else { continue };
        let served = || list["resources"].as_array().into_iter().flatten();
        if let Some(found) = served().filter_map(|r| served_as(version, r, wanted)).next() {
            return Ok(Ok(found));
        }
        let names = served().filter_map(|r| r["singularName"].as_str()).filter(|name| !name.is_empty());
        near = nearest(wanted, near.as_deref().into_iter().chain(names)).map(str::to_owned);
    }
    Ok(Err(near))
}

fn served_as(api_version: &str, served: &Value, wanted: &str) -> Option<Resource> {
    let text = |key: &str| served[key].as_str().unwrap_or_default();
    let short = served["shortNames"].as_array().into_iter().flatten();
    let is_meant = [text("kind"), text("name"), text("singularName")]
        .into_iter()
        .chain(short.filter_map(Value::as_str))
        .any(|known| known.eq_ignore_ascii_case(wanted));
    if !is_meant || text("name").contains('/') {
        return None;
    }
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    Some(Resource {
        group: Cow::Owned(group.to_owned()),
        version: Cow::Owned(version.to_owned()),
        kind: Cow::Owned(text("kind").to_owned()),
        plural: Cow::Owned(text("name").to_owned()),
        namespaced: served["namespaced"] == true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_found_by_any_of_their_names() {
        let served = json!({"name": "deployments", "singularName": "deployment", "kind": "Deployment", "namespaced": true,
            "shortNames": ["deploy"]});
        for wanted in ["deployment", "deployments", "deploy"] {
            let found = served_as("apps/v1", &served, wanted).unwrap();
            assert_eq!(
                (found.api_version().as_str(), &*found.kind, found.namespaced),
                ("apps/v1", "Deployment", true)
            );
        }
        assert_eq!(served_as("apps/v1", &served, "pod"), None);
        let scale = json!({"name": "deployments/scale", "kind": "Scale"});
        assert_eq!(served_as("apps/v1", &scale, "scale"), None);
    }
}
