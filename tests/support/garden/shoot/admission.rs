//! Admission of a Shoot: what project, profile, exposure class and seed add, and what they refuse.

use serde_json::{Value, json};

use super::{defaults, moving};
use crate::api::failure::Failure;
use crate::api::rules::Write;
use crate::garden::kinds::CORE;
use crate::garden::placement;
use crate::garden::rules::refuse;
use crate::json::{default, list, map, set, text};

/// The network of pods where a Seed has none for its Shoots.
const PODS: &str = "100.96.0.0/11";

/// What a Shoot refers to.
pub struct Surroundings<'a> {
    project: &'a Value,
    /// The spec of the profile.
    profile: &'a Value,
    class: Option<&'a Value>,
    seed: Option<&'a Value>,
}

fn forbid(write: &Write<'_>, shoot: &Value, why: &str) -> Failure {
    Failure::forbidden(&write.kind.group, &write.kind.plural, text(shoot, "/metadata/name"), why)
}

/// An object that the Shoot refers to; none if it refers to none.
fn referred<'a>(
    write: &Write<'a>,
    shoot: &Value,
    (plural, namespace, name): (&str, &str, &str),
) -> Result<Option<&'a Value>, Failure> {
    if name.is_empty() {
        return Ok(None);
    }
    let found = write.state.get(CORE, plural, namespace, name).map(|o| &**o);
    let singular = plural.strip_suffix('s').unwrap_or(plural);
    let missing = || match plural {
        "seeds" => Failure::new(
            500,
            "",
            format!(
                "error retrieving default domains: Internal error occurred: could not get seed {name}: \
                 seed.core.gardener.cloud {name:?} not found"
            ),
        ),
        "exposureclasses" => forbid(write, shoot, &Failure::not_found(CORE, plural, name).message),
        _ => Failure::internal(&format!(
            "could not find referenced cloud profile: {singular}.core.gardener.cloud {name:?} not found"
        )),
    };
    found.map(Some).ok_or_else(missing)
}

impl<'a> Surroundings<'a> {
    /// Looks up what must be there.
    pub fn find(shoot: &Value, write: &Write<'a>) -> Result<Self, Failure> {
        let namespace = text(shoot, "/metadata/namespace");
        let mut projects = write.state.of(CORE, "projects", "").map(|(_, p)| &**p);
        let project = projects.find(|p| text(p, "/spec/namespace") == namespace);
        let no_project = || forbid(write, shoot, &format!("namespace {namespace:?} belongs to no project"));
        let project = project.ok_or_else(no_project)?;
        let name = text(shoot, "/spec/cloudProfile/name");
        let profile = if text(shoot, "/spec/cloudProfile/kind") == "NamespacedCloudProfile" {
            let found = referred(write, shoot, ("namespacedcloudprofiles", namespace, name))?;
            found.map(|p| &p["status"]["cloudProfileSpec"])
        } else {
            referred(write, shoot, ("cloudprofiles", "", name))?.map(|p| &p["spec"])
        };
        let profile =
            profile.ok_or_else(|| refuse(write, shoot, "spec.cloudProfile.name", "Required value"))?;
        let class = referred(write, shoot, ("exposureclasses", "", text(shoot, "/spec/exposureClassName")))?;
        let seed = referred(write, shoot, ("seeds", "", text(shoot, "/spec/seedName")))?;
        Ok(Self { project, profile, class, seed })
    }

    /// Fills in what depends on them.
    pub fn complete(&self, shoot: &mut Value, write: &Write<'_>) -> Result<(), Failure> {
        defaults::version(shoot, self.profile, write.now);
        defaults::images(shoot, self.profile);
        if let Some(class) = self.class {
            self.follow_class(shoot, class);
        }
        let Some(seed) = self.seed else { return Ok(()) };
        if text(shoot, "/spec/networking/services").is_empty() {
            let services = placement::services(shoot, seed).to_owned();
            if services.is_empty() {
                return Err(refuse(write, shoot, "spec.networking.services", "Required value"));
            }
            set(shoot, "/spec/networking/services", services);
        }
        if !super::is_workerless(shoot) {
            let pods = text(seed, "/spec/networks/shootDefaults/pods");
            default(shoot, "/spec/networking/pods", if pods.is_empty() { PODS } else { pods });
        }
        default(shoot, "/spec/dns", json!({}));
        let domain = text(seed, "/spec/dns/defaults/0/domain");
        if !domain.is_empty() {
            let (name, project) = (text(shoot, "/metadata/name"), text(self.project, "/metadata/name"));
            default(shoot, "/spec/dns/domain", format!("{name}.{project}.{domain}"));
        }
        Ok(())
    }

    /// An exposure class says where its Shoots are scheduled.
    fn follow_class(&self, shoot: &mut Value, class: &Value) {
        for (key, value) in
            class["scheduling"]["seedSelector"]["matchLabels"].as_object().into_iter().flatten()
        {
            map(shoot, "/spec/seedSelector/matchLabels").insert(key.clone(), value.clone());
        }
        let mut tolerations = list(shoot, "/spec/tolerations").to_vec();
        let more = list(class, "/scheduling/tolerations").iter();
        tolerations.extend(more.filter(|t| !list(shoot, "/spec/tolerations").contains(t)).cloned());
        if !tolerations.is_empty() {
            set(shoot, "/spec/tolerations", tolerations);
        }
    }

    /// Checks the Shoot against them.
    pub fn check(&self, shoot: &Value, write: &Write<'_>) -> Result<(), Failure> {
        let (name, project) = (text(shoot, "/metadata/name"), text(self.project, "/metadata/name"));
        if name.len() + project.len() > 21 {
            let why = "the length of the shoot name and the project name must not exceed 21 characters";
            return Err(Failure::bad_request(format!("{why} (project: {project}; shoot: {name})")));
        }
        if !text(self.project, "/metadata/deletionTimestamp").is_empty() && write.subresource.is_empty() {
            return Err(forbid(write, shoot, &format!("project {project:?} is already marked for deletion")));
        }
        let refused = self.of_profile(shoot, write.now).or_else(|| unknown_extension(shoot, write));
        if let Some(why) = refused.or_else(|| self.of_seed(shoot, write)) {
            return Err(forbid(write, shoot, &why));
        }
        Ok(())
    }

    /// What the profile does not have.
    fn of_profile(&self, shoot: &Value, now: &str) -> Option<String> {
        let (kind, kinds) = (text(shoot, "/spec/provider/type"), text(self.profile, "/type"));
        if kind != kinds {
            return Some(format!(
                "spec.provider.type: Invalid value: {kind:?}: the cloud profile is of type {kinds:?}"
            ));
        }
        let region = text(shoot, "/spec/region");
        if !list(self.profile, "/regions").iter().any(|r| text(r, "/name") == region) {
            return Some(format!("spec.region: Unsupported value: {region:?}"));
        }
        if let Some(why) = self.of_machines(shoot) {
            return Some(why);
        }
        let version = text(shoot, "/spec/kubernetes/version");
        let mut known = list(self.profile, "/kubernetes/versions").iter();
        match known.find(|v| text(v, "/version") == version) {
            None => Some(format!("spec.kubernetes.version: Unsupported value: {version:?}")),
            Some(known) if defaults::is_expired(known, now) => {
                Some(format!("spec.kubernetes.version: Invalid value: {version:?}: it has expired"))
            }
            Some(_) => None,
        }
    }

    /// Machines that the profile does not have.
    fn of_machines(&self, shoot: &Value) -> Option<String> {
        let has =
            |all: &str, name: &str| list(self.profile, all).iter().any(|known| text(known, "/name") == name);
        let unknown = |(index, worker): (usize, &Value)| {
            let machine = format!("spec.provider.workers[{index}].machine");
            for (all, field) in [("/machineTypes", "type"), ("/machineImages", "image.name")] {
                let name = text(worker, &format!("/machine/{}", field.replace('.', "/")));
                if !has(all, name) {
                    return Some(format!("{machine}.{field}: Unsupported value: {name:?}"));
                }
            }
            None
        };
        list(shoot, "/spec/provider/workers").iter().enumerate().find_map(unknown)
    }

    /// Why the Shoot may not be on its Seed.
    fn of_seed(&self, shoot: &Value, write: &Write<'_>) -> Option<String> {
        let seed = self.seed?;
        let name = text(seed, "/metadata/name");
        let before = |pointer: &str| self.stored(shoot, write).map_or("", |old| text(old, pointer));
        if before("/spec/seedName") == name {
            return None;
        }
        if !text(seed, "/metadata/deletionTimestamp").is_empty() {
            return Some(format!("seed {name:?} is already marked for deletion"));
        }
        if let Some((own, other)) = placement::overlap(shoot, seed) {
            return Some(format!(
                "spec.networking.{own}: Invalid value: {:?}: must not overlap with the seed's {other} network",
                text(shoot, &format!("/spec/networking/{own}"))
            ));
        }
        if !placement::is_tolerated(shoot, seed) {
            return Some("forbidden to use a seed whose taints are not tolerated by the shoot".to_owned());
        }
        if !placement::is_selected(&self.profile["seedSelector"], seed) {
            return Some(format!("the seed selector of the cloud profile does not match seed {name:?}"));
        }
        let shoots = write.state.of(CORE, "shoots", "").filter(|(_, s)| text(s, "/spec/seedName") == name);
        if !placement::has_room(seed, shoots.count()) {
            return Some(format!("seed {name:?} already has the maximum number of shoots"));
        }
        let left = write.state.get(CORE, "seeds", "", before("/spec/seedName"))?;
        moving::between(shoot, left, seed)
    }

    /// The Shoot as it was.
    fn stored(&self, shoot: &Value, write: &Write<'a>) -> Option<&'a Value> {
        let (namespace, name) = (text(shoot, "/metadata/namespace"), text(shoot, "/metadata/name"));
        write.state.get(CORE, "shoots", namespace, name).map(|s| &**s)
    }
}

/// Extensions and DNS providers that nobody has registered, or not for a Shoot like this one.
fn unknown_extension(shoot: &Value, write: &Write<'_>) -> Option<String> {
    let is_registered = |kind: &str, kind_type: &str| {
        let mut resources =
            write.state.of(CORE, "controllerregistrations", "").flat_map(|(_, r)| list(r, "/spec/resources"));
        resources.any(|r| {
            let for_it =
                kind != "Extension" || !super::is_workerless(shoot) || r["workerlessSupported"] == true;
            r["kind"] == kind && r["type"] == kind_type && for_it
        })
    };
    let providers = list(shoot, "/spec/dns/providers").iter().filter(|p| p["primary"] == true);
    let providers =
        providers.map(|p| ("DNSRecord", text(p, "/type"))).filter(|(_, kind)| *kind != "unmanaged");
    let extensions = list(shoot, "/spec/extensions").iter().map(|e| ("Extension", text(e, "/type")));
    let missing = providers.chain(extensions).find(|(kind, kind_type)| !is_registered(kind, kind_type))?;
    Some(format!("given Shoot uses non-registered extension type: {} {:?}", missing.0, missing.1))
}
