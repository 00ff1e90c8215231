//! The input of a reconciliation: the live Seed, and facts about the seed cluster.

use serde_json::Value;

use crate::api::core::{CONFIG_MAP, ConfigMap, NAMESPACE};
use crate::api::meta::{Key, Metadata};

use super::SeedReconciler;
use super::decide::{self, Observed};
use super::error::{Error, kube_error};

impl SeedReconciler {
    pub(super) fn observe(&self, live: Value) -> Result<Observed, Error> {
        let version = self.site.seed.version().map_err(kube_error("read the version of the seed"))?;
        let cluster_identity = match decide::cluster_identity(&live) {
            Some(identity) => identity.to_owned(),
            None => self.cluster_identity()?,
        };
        Ok(Observed {
            live,
            agent: self.site.agent.clone(),
            kubernetes_version: version.git_version,
            cluster_identity,
            certificate_expiry: (self.site.certificate_expiry)(),
            capacity: self.site.settings.resources.capacity.clone(),
            reserved: self.site.settings.resources.reserved.clone(),
        })
    }

    /// The identity of the seed cluster, or the uid of its namespace `kube-system` if it has none.
    fn cluster_identity(&self) -> Result<String, Error> {
        let failed = || kube_error("read the identity of the seed cluster");
        let key = Key::new("kube-system", "cluster-identity");
        let found = self.site.seed.find::<ConfigMap>(&CONFIG_MAP, &key).map_err(failed())?;
        let identity = found.and_then(|map| map.data.get("cluster-identity").cloned());
        if let Some(identity) = identity.filter(|identity| !identity.is_empty()) {
            return Ok(identity);
        }
        let namespace =
            self.site.seed.get::<Metadata>(&NAMESPACE, &Key::cluster("kube-system")).map_err(failed())?;
        Ok(namespace.metadata.uid)
    }
}
