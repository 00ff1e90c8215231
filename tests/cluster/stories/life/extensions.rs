//! A Shoot with extensions that work for it. A program in the node of the seed (`tests/cluster/tools/extension`) does
//! the work for their objects, before and after the API server exists. Its errors are reported as upstream does.

use gardenlet::api::core::{DEPLOYMENT, POD};
use gardenlet::api::extensions::EXTENSION;
use gardenlet::api::gardener::{CONTROLLER_INSTALLATION, CONTROLLER_REGISTRATION, SHOOT, SHOOT_STATE};
use gardenlet::api::meta::{ALL_NAMESPACES, Key};
use gardenlet::base::clock::Timestamp;
use gardenlet::format::time::parse_rfc3339;
use gardenlet::kube::{Client, ListParams, Patch};
use serde_json::{Value, json};

use super::{Name, PROJECT, shoot, succeeded};
use crate::agent::Agent;
use crate::audit::Request;
use crate::failure::{Doing, Failure, Result, ensure, equal};
use crate::image;
use crate::lab::Lab;
use crate::node::Node;
use crate::stories::extension::registration_of;
use crate::stories::steps::{is_well, while_running};

/// Types of `Extension` objects, by the moment when their extension works.
const BEFORE: &str = "lab-before";
const AFTER: &str = "lab-after";
/// A type without a registration.
const UNKNOWN: &str = "nobody";
const CODE: &str = "ERR_CONFIGURATION_PROBLEM";
/// The time after which the report of an extension without a heartbeat no longer counts.
const SILENT_AFTER: &str = "20s";
/// The time until a condition of the Shoot reports it, including the period of care.
const TOLD_WITHIN_S: u64 = 150;
/// The time until an error of an extension is in the Shoot: the flow waits for half a minute.
const FAILED_WITHIN_S: u64 = 180;
/// The flow waits for the required extensions for a minute.
const MISSED_WITHIN_S: u64 = 240;

/// The participants of the story.
pub(super) struct Place<'a> {
    pub(super) lab: &'a Lab,
    pub(super) garden: &'a Client,
    pub(super) node: &'a Node,
    pub(super) name: Name,
}

/// The agent notices a silent extension earlier than usual.
pub(super) fn be_impatient(config: &mut Value) {
    let stale = json!({"enabled": true, "threshold": SILENT_AFTER});
    config["controllers"]["shootCare"] = json!({"syncPeriod": "10s", "staleExtensionHealthChecks": stale});
}

/// The care of Shoots has no settings.
pub(super) fn be_as_usual(config: &mut Value) {
    if let Some(controllers) = config["controllers"].as_object_mut() {
        controllers.remove("shootCare");
    }
}

/// The times of the last requests to both extensions, which they have completed since.
pub(super) fn asked(lab: &Lab, name: Name) -> Result<[Timestamp; 2]> {
    let seed = lab.seed.client()?;
    let of = |kind: &str| -> Result<Timestamp> {
        let object = seed.get::<Value>(&EXTENSION, &Key::new(name.plane(), kind))?;
        let (annotations, last) = (&object["metadata"]["annotations"], &object["status"]["lastOperation"]);
        let time = |value: &Value| parse_rfc3339(text(value)).doing(|| format!("{kind}: read {value}"));
        let (asked, done) = (time(&annotations["gardener.cloud/timestamp"])?, time(&last["lastUpdateTime"])?);
        // The extension removes the request, and reports the time without fractions.
        let is_done = annotations["gardener.cloud/operation"].is_null()
            && last["state"] == "Succeeded"
            && done.unix() >= asked.unix();
        ensure(is_done, || format!("{kind} has not completed the request: {annotations} {last}"))?;
        Ok(asked)
    };
    Ok([of(BEFORE)?, of(AFTER)?])
}

/// The same; both got another request.
pub(super) fn asked_since(lab: &Lab, name: Name, before: [Timestamp; 2]) -> Result<[Timestamp; 2]> {
    let now = asked(lab, name)?;
    let were_asked = now.iter().zip(&before).all(|(now, before)| now > before);
    ensure(were_asked, || format!("the requests to the extensions were at {before:?}, and now at {now:?}"))?;
    Ok(now)
}

/// The agent has deleted one extension's object before the API server, and the other one's after it.
pub(super) fn went_in_their_order(requests: &[Request], name: Name) -> Result<()> {
    let plane = name.plane();
    let order = [
        EXTENSION.object_path(&Key::new(&plane, BEFORE)),
        DEPLOYMENT.object_path(&Key::new(&plane, "kube-apiserver")),
        EXTENSION.object_path(&Key::new(&plane, AFTER)),
    ];
    let deleted = requests.iter().filter(|request| request.verb == "delete");
    let deleted: Vec<&str> = deleted
        .filter_map(|request| request.uri.split('?').next())
        .filter(|uri| uri.contains(&plane))
        .collect();
    let places: Option<Vec<usize>> =
        order.iter().map(|path| deleted.iter().position(|uri| uri == path)).collect();
    ensure(places.is_some_and(|places| places.is_sorted()), || {
        format!("not in the order {order:#?}: {deleted:#?}")
    })
}

impl Place<'_> {
    /// Registers the extension, and waits until it is healthy.
    pub(super) fn install(&self, agent: &mut Agent) -> Result<()> {
        self.node.import(&image::of_extension(&self.lab.environment, &self.lab.place)?)?;
        let resource = |kind: &str, moment: &str| {
            json!({"kind": "Extension", "type": kind, "workerlessSupported": true,
                "lifecycle": {"reconcile": moment, "delete": moment, "migrate": moment}})
        };
        let resources =
            json!([resource(BEFORE, "BeforeKubeAPIServer"), resource(AFTER, "AfterKubeAPIServer")]);
        self.lab.garden.apply(&registration_of("Always", &format!("{BEFORE},{AFTER}"), &resources)?)?;
        while_running("the extension to be healthy", 120, agent, || {
            let all = self
                .garden
                .list::<Value>(&CONTROLLER_INSTALLATION, ALL_NAMESPACES, &ListParams::default())?
                .items;
            let is_it = |i: &Value| i["spec"]["registrationRef"]["name"] == "dns-lab" && is_well(i);
            Ok(all.iter().any(is_it).then_some(()))
        })
    }

    /// The Shoot is created. One extension has worked before its API server started, the other one after.
    pub(super) fn succeed(&self, agent: &mut Agent) -> Result<()> {
        let mut wanted = shoot(self.name, image::API_SERVER.version());
        wanted["spec"]["extensions"] = json!([{"type": BEFORE}, {"type": AFTER}]);
        self.lab.garden.apply(&wanted)?;
        succeeded(self.lab, self.garden, agent, (self.name, "Create"))?;
        for kind in [BEFORE, AFTER] {
            let object = self.object(kind)?;
            equal(kind, &object["status"]["lastOperation"]["state"], &json!("Succeeded"))?;
        }
        let began = self.server_began()?;
        let asked = |object: &Value| text(&object["metadata"]["creationTimestamp"]).to_owned();
        let (early, late) = (asked(&self.object(BEFORE)?), asked(&self.object(AFTER)?));
        ensure(early <= began && began <= late, || format!("in the wrong order: {early} {began} {late}"))
    }

    /// Their states are in the ShootState.
    pub(super) fn are_kept_in_the_garden(&self, agent: &mut Agent) -> Result<()> {
        while_running("the states in the ShootState", 60, agent, || {
            let state = self.garden.get::<Value>(&SHOOT_STATE, &Key::new(PROJECT, self.name.0))?;
            let all = state["spec"]["extensions"].as_array().cloned().unwrap_or_default();
            let has = |kind: &str| all.iter().any(|one| one["name"] == kind && one["state"].is_object());
            Ok((has(BEFORE) && has(AFTER)).then_some(()))
        })
    }

    /// An extension reports an error with a code. The operation stops with it, and continues when the error is
    /// resolved.
    pub(super) fn fail_with_a_code(&self, agent: &mut Agent) -> Result<()> {
        let error = json!({"description": "the lab refuses this", "codes": [CODE]});
        self.configure(&json!({"error": error}))?;
        while_running("the error with its code", FAILED_WITHIN_S, agent, || {
            let shoot = self.shoot()?;
            let errors = shoot["status"]["lastErrors"].as_array().cloned().unwrap_or_default();
            let is_it = |error: &Value| {
                text(&error["description"]).contains("the lab refuses this")
                    && error["codes"] == json!([CODE])
            };
            Ok(errors.iter().any(is_it).then_some(()))
        })?;
        self.configure(&Value::Null)?;
        self.mended(agent)
    }

    /// An extension that does not renew its Lease: its report no longer counts.
    pub(super) fn are_silent(&self, agent: &mut Agent) -> Result<()> {
        self.condition(agent, "True", "")?;
        self.configure(&json!({"silent": true}))?;
        self.condition(agent, "Unknown", "ExtensionOutdatedHealthCheckReport")?;
        self.configure(&Value::Null)?;
        self.condition(agent, "True", "")?;
        self.mended(agent)
    }

    /// A type that no extension of this seed supports: the only one is for other seeds.
    pub(super) fn are_unknown(&self, agent: &mut Agent) -> Result<()> {
        self.lab.garden.apply(&json!({
            "apiVersion": CONTROLLER_REGISTRATION.api_version(), "kind": CONTROLLER_REGISTRATION.kind,
            "metadata": {"name": UNKNOWN},
            "spec": {
                "resources": [{"kind": "Extension", "type": UNKNOWN, "workerlessSupported": true}],
                "deployment": {"policy": "OnDemand", "seedSelector": {"matchLabels": {"for": "others"}}},
            },
        }))?;
        self.extend(&json!([{"type": BEFORE}, {"type": AFTER}, {"type": UNKNOWN}]))?;
        // Upstream's words, then the missing extension.
        let lacking = format!(
            "extension controllers missing or unready: no ControllerInstallation of this seed supports Extension/{UNKNOWN}:"
        );
        while_running("the unknown type", MISSED_WITHIN_S, agent, || {
            let shoot = self.shoot()?;
            let errors = shoot["status"]["lastErrors"].as_array().cloned().unwrap_or_default();
            let is_it = |error: &Value| {
                error["taskID"] == "Check required extensions"
                    && text(&error["description"]).contains(&lacking)
            };
            Ok(errors.iter().any(is_it).then_some(()))
        })?;
        self.extend(&json!([{"type": BEFORE}, {"type": AFTER}]))?;
        self.mended(agent)
    }

    fn shoot(&self) -> Result<Value> {
        Ok(self.garden.get::<Value>(&SHOOT, &Key::new(PROJECT, self.name.0))?)
    }

    fn object(&self, name: &str) -> Result<Value> {
        Ok(self.lab.seed.client()?.get::<Value>(&EXTENSION, &Key::new(self.name.plane(), name))?)
    }

    /// When the first pod of the API server was created.
    fn server_began(&self) -> Result<String> {
        let params = ListParams {
            label_selector: "app=kubernetes,role=apiserver".to_owned(),
            ..ListParams::default()
        };
        let pods = self.lab.seed.client()?.list::<Value>(&POD, &self.name.plane(), &params)?.items;
        let all = pods.iter().map(|pod| text(&pod["metadata"]["creationTimestamp"]));
        all.min().map(str::to_owned).ok_or_else(|| Failure::new("no pod of the API server"))
    }

    fn extend(&self, extensions: &Value) -> Result<()> {
        let patch = Patch::Merge(json!({"spec": {"extensions": extensions}}));
        Ok(self.garden.patch::<Value>(&SHOOT, &Key::new(PROJECT, self.name.0), &patch).map(drop)?)
    }

    /// Makes the later extension fail in this way.
    fn configure(&self, wish: &Value) -> Result<()> {
        let mut after = json!({"type": AFTER});
        if !wish.is_null() {
            after["providerConfig"] = wish.clone();
        }
        self.extend(&json!([{"type": BEFORE}, after]))
    }

    /// The earlier change of the spec has taken effect: it repeats an operation that had failed for good.
    fn mended(&self, agent: &mut Agent) -> Result<()> {
        succeeded(self.lab, self.garden, agent, (self.name, "Reconcile")).map(drop)
    }

    /// The condition of the Shoot for its control plane.
    fn condition(&self, agent: &mut Agent, status: &str, reason: &str) -> Result<()> {
        while_running(&format!("ControlPlaneHealthy={status}"), TOLD_WITHIN_S, agent, || {
            let shoot = self.shoot()?;
            let all = shoot["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let found = all.iter().find(|one| one["type"] == "ControlPlaneHealthy");
            let is_it =
                |one: &Value| one["status"] == status && (reason.is_empty() || one["reason"] == reason);
            if found.is_some_and(is_it) {
                return Ok(Some(()));
            }
            Err(Failure::new(format!("{}", found.unwrap_or(&Value::Null))))
        })
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
