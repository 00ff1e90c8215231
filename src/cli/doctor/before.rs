//! What a garden needs before an agent joins it. Only an administrator of the garden may read it.

use std::path::PathBuf;

use serde_json::Value;

use crate::api::bootstrap_token;
use crate::api::core::SECRET;
use crate::base::clock::Clock;
use crate::base::error::chain;
use crate::base::json::json;
use crate::deployer::token;
use crate::extension::credentials::CredentialsReference;
use crate::extension::required;
use crate::format::time::parse_rfc3339;
use crate::kube::Garden;
use crate::operation::look;

use super::super::arguments::CONFIG;
use super::super::clusters;
use super::Doctor;
use super::finding::{Finding, State};

/// Without an administrator's kubeconfig.
pub(super) const UNASKED: &str =
    "set GARDEN_KUBECONFIG to a kubeconfig of an administrator to check the garden";
/// Instead of a configuration that is not written yet. Only its defaults are used.
pub(super) const UNWRITTEN: &str = include_str!("unwritten.yaml");

/// What takes the place of the checks of a configuration.
pub(super) fn unwritten() -> Vec<Finding> {
    let text = format!("there is no {CONFIG} yet, so defaults are used");
    let remedy = "name a configuration with --config to compare it with the seed and the garden";
    vec![Finding::new("", "configuration", State::NotReached, text).with(remedy)]
}

const TOKEN: &str = "make another one with gardenlet bootstrap-token";

impl Doctor<'_> {
    /// Tries the way to the garden with an administrator's kubeconfig, and checks the objects that the Seed needs.
    pub(super) fn before(&mut self, path: PathBuf) {
        const PLACE: &str = "garden";
        let named = format!("kubeconfig {}", path.display());
        let connection = match clusters::garden_of(path) {
            Ok(connection) => connection,
            Err((text, remedy)) => return self.say(PLACE, "configuration", State::Broken, text, remedy),
        };
        self.say(PLACE, "identity", State::Good, named, "");
        self.weakness(PLACE, &connection);
        let Some(client) = self.reach(PLACE, &connection) else { return };
        self.gardener(&client);
        if self.is_unwritten {
            return;
        }
        let garden = Garden(client);
        self.extensions(&garden);
        self.credentials(&garden);
        self.token(&garden);
    }

    fn extensions(&mut self, garden: &Garden) {
        let registrations = match look::registrations(garden) {
            Ok(registrations) => registrations,
            Err(error) => {
                return self.say("garden", "extensions", State::Broken, chain(&error), ADMINISTRATOR);
            }
        };
        let seed = json!({"spec": self.settings.seed_config.spec});
        let missing = required::unregistered(&required::of_seed(&seed, &registrations), &registrations);
        let (state, text, remedy) = match &missing[..] {
            [] => (State::Good, String::new(), ""),
            missing => (
                State::Broken,
                format!("no ControllerRegistration supports {}", missing.join(", ")),
                "install an extension; for a site without a cloud, packaging/no-provider/render prints one that runs nothing",
            ),
        };
        self.say("garden", "extensions", state, text, remedy);
    }

    /// The Secrets that the spec of the Seed names.
    fn credentials(&mut self, garden: &Garden) {
        let spec = &self.settings.seed_config.spec;
        let defaults = spec["dns"]["defaults"].as_array().into_iter().flatten();
        let named = [&spec["dns"]["internal"], &spec["dns"]["provider"], &spec["backup"]];
        let mut wrong: Vec<String> = Vec::new();
        for reference in named.into_iter().chain(defaults).map(|owner| &owner["credentialsRef"]) {
            let found = CredentialsReference::read(reference)
                .and_then(|it| it.find(garden, "credentialsRef of the Seed"));
            wrong.extend(found.err().map(|failed| failed.text).filter(|_| !reference.is_null()));
        }
        wrong.dedup();
        let state = if wrong.is_empty() { State::Good } else { State::Broken };
        let remedy = if wrong.is_empty() {
            ""
        } else {
            "create what the message names; without a cloud it may be an empty Secret"
        };
        self.say("garden", "credentials", state, wrong.join("; "), remedy);
    }

    fn token(&mut self, garden: &Garden) {
        let key = token::key("garden", &self.settings.seed_config.name);
        let found = garden.find::<Value>(&SECRET, &key);
        let (state, text, remedy) = match found {
            Ok(Some(secret)) => {
                let (end, now) = (bootstrap_token::expiration(&secret), Clock::system().now());
                match parse_rfc3339(&end) {
                    Ok(at) if at > now => (State::Good, format!("{key} is valid until {end}"), ""),
                    Ok(_) => (State::Broken, format!("{key} expired at {end}"), TOKEN),
                    Err(_) => (State::Odd, format!("{key} never expires"), TOKEN),
                }
            }
            Ok(None) => {
                (State::Odd, format!("the garden has no {key}"), "make one with gardenlet bootstrap-token")
            }
            Err(error) => (State::Odd, chain(&error), ADMINISTRATOR),
        };
        self.say("garden", "bootstrap token", state, text, remedy);
    }
}

const ADMINISTRATOR: &str = "let GARDEN_KUBECONFIG name a kubeconfig of an administrator of the garden";
