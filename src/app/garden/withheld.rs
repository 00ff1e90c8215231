//! Handles a garden that does not let its seed read the CAs and the version, which every garden should allow. The agent
//! continues without them, reports it, and asks again.

use crate::api::core::{CONFIG_MAP, ConfigMap};
use crate::api::meta::Key;
use crate::app::status::complain;
use crate::app::versions;
use crate::base::clock::Mono;
use crate::base::error::chain;
use crate::base::sorted::SortedMap;

use super::trust::CA_LOOK;
use super::{BringUp, Error, failed};

/// Name of this part on the status page.
const PART: &str = "garden permissions";
const NAMESPACE: &str = versions::NAMESPACE;

/// A ConfigMap, and the consequence if it cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Published {
    name: &'static str,
    without: &'static str,
}

pub(super) const CA: Published =
    Published { name: "kube-root-ca.crt", without: "the CA that the kubeconfig trusts is not renewed" };
pub(super) const INFO: Published =
    Published { name: versions::INFO, without: "the versions of garden and agent are not compared" };

/// ConfigMaps that cannot be read now, each with the error.
#[derive(Debug, Default)]
pub(super) struct Withheld {
    errors: SortedMap<Published, String>,
    /// When to ask for the version again.
    due: Mono,
}

impl Withheld {
    /// The sentence for the Seed's condition. It omits the error, which may change with each try.
    fn remark(&self) -> Option<String> {
        let one = |Published { name, without }: &Published| {
            format!("The garden does not let the agent read ConfigMap {NAMESPACE}/{name}: {without}.")
        };
        let all: Vec<String> = self.errors.keys().map(one).collect();
        (!all.is_empty()).then(|| all.join(" "))
    }
}

impl BringUp {
    /// Forgets reports of an earlier term.
    pub(super) fn forget_withheld(&mut self) {
        self.withheld = Withheld::default();
        self.shared.status.recovered(PART);
        self.shared.status.garden_remark(None);
    }

    /// Records that the ConfigMap cannot be read.
    pub(super) fn withheld(&mut self, what: Published, error: &(dyn std::error::Error + 'static)) {
        let (shared, err) = (self.shared.clone(), chain(error));
        let Published { name, without } = what;
        if self.withheld.errors.insert(what, err.clone()).is_none() {
            log::warn!(name, err = err.as_str(), without; "Continuing without a ConfigMap that the garden publishes");
        }
        shared.status.doing(PART, "reading the garden's published ConfigMaps");
        shared.status.problem(PART, &format!("{without}: {err}"));
        shared.status.garden_remark(self.withheld.remark());
    }

    /// Records that the ConfigMap can be read.
    pub(super) fn given(&mut self, what: Published) {
        if self.withheld.errors.remove(&what).is_none() {
            return;
        }
        log::info!(name = what.name; "The agent can read a ConfigMap that the garden publishes");
        let status = &self.shared.status;
        match self.withheld.errors.first_key_value() {
            Some((left, err)) => drop(status.problem(PART, &format!("{}: {err}", left.without))),
            None => status.recovered(PART),
        }
        status.garden_remark(self.withheld.remark());
    }

    /// The garden's version information; `None` if the agent may not read it.
    pub(super) fn gardener_info(&mut self) -> Result<Option<ConfigMap>, Error> {
        let Published { name, .. } = INFO;
        match self.garden()?.controllers.get::<ConfigMap>(&CONFIG_MAP, &Key::new(NAMESPACE, name)) {
            Ok(info) => {
                self.given(INFO);
                Ok(Some(info))
            }
            Err(error) if error.status_code() == Some(403) => {
                self.withheld(INFO, &error);
                self.withheld.due = self.shared.env.clock.mono().saturating_add(CA_LOOK);
                Ok(None)
            }
            Err(error) => Err(failed(format!("read config map {NAMESPACE}/{name} of the garden"))(error)),
        }
    }

    /// Compares the versions as soon as possible. The running controllers continue whatever the result; the
    /// next start decides again.
    pub(super) fn read_again(&mut self) {
        let now = self.shared.env.clock.mono();
        if !self.withheld.errors.contains_key(&INFO) || now < self.withheld.due {
            return;
        }
        self.withheld.due = now.saturating_add(CA_LOOK);
        if let Err(error) = self.compare_versions() {
            complain(&self.shared.status, PART, &error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remark_names_what_is_missing_and_what_follows() {
        let remark = |missing: &[Published]| {
            let errors = missing.iter().map(|one| (*one, "forbidden".to_owned())).collect();
            Withheld { errors, ..Withheld::default() }.remark()
        };
        let ca = "The garden does not let the agent read ConfigMap gardener-system-public/kube-root-ca.crt: the CA that \
                  the kubeconfig trusts is not renewed.";
        let info = "The garden does not let the agent read ConfigMap gardener-system-public/gardener-info: the versions \
                    of garden and agent are not compared.";
        assert_eq!(remark(&[]), None);
        assert_eq!(remark(&[CA]).unwrap(), ca);
        assert_eq!(remark(&[CA, INFO]).unwrap(), format!("{info} {ca}"));
    }
}
