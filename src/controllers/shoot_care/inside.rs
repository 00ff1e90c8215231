//! Requests to the API server of a Shoot, and actions inside the Shoot.
//!
//! The applier's client is used if there is one, so that these checks cost no requests to the seed. If it gets no
//! answer, the address of the server is looked up again before the server is considered unavailable.

use serde_json::Value;

use crate::api::core::{MUTATING_WEBHOOK_CONFIGURATION, VALIDATING_WEBHOOK_CONFIGURATION};
use crate::api::crd::CUSTOM_RESOURCE_DEFINITION;
use crate::api::meta::{ALL_NAMESPACES, Key, Resource, text};
use crate::base::clock::Timestamp;
use crate::base::cut;
use crate::base::error::chain;
use crate::base::metrics::Metrics;
use crate::controllers::Site;
use crate::kube::{Client, Error, ListItem, ListParams, Patch, Shoot};
use crate::limits;
use crate::runtime::stale_pods;
use crate::shoot::client;

use super::decide::ServerHealth;
use super::remedy;
use super::webhooks::{self, WebhookProblem};

/// The duration of /healthz requests.
const LATENCY: (&str, &str) =
    ("gardenlet_shoot_healthz_seconds", "How long the API servers of Shoots took to answer /healthz.");
/// The maximum length of the answer in a message.
const BODY_CHARS_MAX: usize = 300;

const CONFIGURATIONS: [&Resource; 2] = [&VALIDATING_WEBHOOK_CONFIGURATION, &MUTATING_WEBHOOK_CONFIGURATION];

/// The state of a server between two checks.
#[derive(Debug, Default)]
pub(super) struct HeldClient {
    client: Option<Shoot>,
    /// The last request got no answer, so its address may be outdated.
    is_doubtful: bool,
}

/// The answer of a server, and the client that got it.
pub(super) struct ServerAnswer {
    pub(super) health: ServerHealth,
    pub(super) client: Option<Shoot>,
}

/// Checks whether the server is healthy. Errors: a request to the seed was not sent, which says
/// nothing about the server.
pub(super) fn ask(
    site: &Site,
    namespace: &str,
    held: &mut HeldClient,
    now: Timestamp,
    metrics: &Metrics,
) -> Result<ServerAnswer, client::Error> {
    let served = site.served.client(namespace, now);
    let known = served.clone().or_else(|| held.client.clone());
    if let Some(client) = known.filter(|_| !held.is_doubtful) {
        match healthz(&client, metrics) {
            Ok(health) => {
                if served.is_some() {
                    site.served.hear(namespace, now);
                }
                return Ok(ServerAnswer { health, client: Some(client) });
            }
            Err(why) => {
                log::debug!(namespace = namespace, err = why.as_str(); "No answer from /healthz");
            }
        }
    }
    held.is_doubtful = true;
    held.client = None;
    let client = match (site.shoots.connect(namespace), served) {
        (Ok(client), _) => client,
        // The seed lacks an object, but the applier has a working connection.
        (Err(error), Some(served)) if !error.is_of_server() => served,
        (Err(error), _) if error.postponed().is_some() => return Err(error),
        (Err(error), _) => {
            return Ok(ServerAnswer { health: ServerHealth::Unreached(chain(&error)), client: None });
        }
    };
    Ok(match healthz(&client, metrics) {
        Ok(health) => {
            *held = HeldClient { client: Some(client.clone()), is_doubtful: false };
            ServerAnswer { health, client: Some(client) }
        }
        Err(why) => ServerAnswer { health: ServerHealth::Silent(why), client: None },
    })
}

/// Ignores earlier failures of the server: this request determines its state.
fn healthz(client: &Shoot, metrics: &Metrics) -> Result<ServerHealth, String> {
    let begun = client.clock().mono();
    let answer = client.ungated().get_raw("/healthz").map_err(|error| chain(&error))?;
    let took = client.clock().mono().saturating_sub(begun);
    metrics.observe(LATENCY.0, LATENCY.1, &[], took.as_secs_f64());
    match answer.status {
        200 => Ok(ServerHealth::Well),
        // Other credentials may help.
        401 | 403 => Err(format!("the server does not let the agent in: status code {}", answer.status)),
        code => {
            let body = String::from_utf8_lossy(&answer.body);
            Ok(ServerHealth::Sick(code, body.trim().chars().take(BODY_CHARS_MAX).collect()))
        }
    }
}

/// The first problem of the owner's webhooks.
pub(super) fn problem(client: &Client) -> Result<Option<WebhookProblem>, Error> {
    for resource in CONFIGURATIONS {
        let mut first = None;
        let listed = each(client, resource, &mut |configuration| match configuration {
            None => first = None,
            Some(configuration) if first.is_none() && webhooks::is_foreign(&configuration) => {
                first = webhooks::problem(&resource.kind, &configuration);
            }
            Some(_) => {}
        });
        match (first, listed) {
            // A problem is one, whatever else cannot be read.
            (first @ Some(_), Ok(()) | Err(Error::Decode { .. })) => return Ok(first),
            (_, listed) => listed?,
        }
    }
    Ok(None)
}

/// The definitions with objects that cannot be read without a webhook.
pub(super) fn definitions(client: &Client) -> Result<Vec<String>, Error> {
    let mut names = Vec::new();
    each(client, &CUSTOM_RESOURCE_DEFINITION, &mut |definition| match definition {
        None => names.clear(),
        Some(definition) if needs_webhook(&definition) && names.len() < limits::SHOOT_NAMES_MAX => {
            let name = text(&definition["metadata"]["name"]);
            names.push(cut::head(name, limits::SHOOT_NAME_BYTES_MAX).to_owned());
        }
        Some(_) => {}
    })?;
    names.sort_unstable();
    Ok(names)
}

fn needs_webhook(definition: &Value) -> bool {
    definition["status"]["storedVersions"].as_array().is_some_and(|stored| stored.len() > 1)
        && definition["spec"]["conversion"]["strategy"] == "Webhook"
}

/// Changes the owner's webhooks that could keep the Shoot from waking up. Errors: a request fails. A
/// configuration that cannot be changed does not keep others from being changed.
pub(super) fn remediate(client: &Client, namespace: &str) -> Result<(), Error> {
    let mut first = Ok(());
    for resource in CONFIGURATIONS {
        let (mut patches, mut room) = (Vec::new(), limits::SHOOT_REMEDIES_BYTES_MAX);
        let listed = each(client, resource, &mut |configuration| match configuration {
            None => (room, _) = (limits::SHOOT_REMEDIES_BYTES_MAX, patches.clear()),
            Some(configuration) if remedy::is_open(&configuration) => {
                let Some(patch) = remedy::patch(&configuration) else { return };
                let name = text(&configuration["metadata"]["name"]).to_owned();
                if let Some(left) = room.checked_sub(name.len() + patch.to_string().len()) {
                    room = left;
                    patches.push((name, patch));
                }
            }
            Some(_) => {}
        });
        match listed {
            Err(error @ Error::Decode { .. }) => first = first.and(Err(error)),
            listed => listed?,
        }
        for (name, patch) in patches {
            let kind = &*resource.kind;
            log::info!(namespace = namespace, kind = kind, name = name.as_str(); "Changing a webhook of the Shoot's owner");
            let patched = client.patch_blindly(resource, &Key::cluster(&name), &Patch::Strategic(patch));
            match patched {
                Err(error) if !error.is_not_found() => first = first.and(Err(error)),
                _ => {}
            }
        }
    }
    first
}

/// Deletes pods that will never run again: in kube-system, and in all namespaces of a Shoot that is being deleted.
pub(super) fn collect(client: &Client, is_going: bool, now: Timestamp) -> Result<(), Error> {
    let namespace = if is_going { "" } else { "kube-system" };
    stale_pods::delete(client, namespace, &ListParams::default(), now)
}

/// Reads all objects of a kind, one by one. `None` means that earlier ones are void. Errors: a request fails;
/// [`Error::Decode`] after all others have been passed on, if an object cannot be read.
fn each(client: &Client, resource: &Resource, each: &mut dyn FnMut(Option<Value>)) -> Result<(), Error> {
    let (params, mut unread) = (ListParams::default(), None);
    client.list_each::<Value>(resource, ALL_NAMESPACES, &params, &mut |item| match item {
        ListItem::Object(object) => each(Some(object)),
        ListItem::Undecodable(object) => unread = Some(object),
        ListItem::Restart => {
            unread = None;
            each(None);
        }
    })?;
    unread.map_or(Ok(()), |object| {
        let key = object.key.to_string();
        let what = format!("{} {}", resource.kind, cut::head(&key, limits::SHOOT_NAME_BYTES_MAX));
        Err(Error::Decode { what, source: object.why })
    })
}
