//! Environment variables that override the file (Gardener v1.150, `cmd/gardenlet/app`).

use std::path::PathBuf;

use super::control_plane::ExposureType;
use super::{ConfigProblem, Settings};

impl Settings {
    /// Applies `GARDEN_KUBECONFIG`, `KUBECONFIG` and `NAMESPACE`. Empty variables count as absent. Errors:
    /// `NAMESPACE=kube-system`, which selects another mode of the Go program.
    pub fn apply_environment(
        &mut self,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<(), ConfigProblem> {
        let value = |name| variable(name).filter(|value| !value.is_empty());
        if value("NAMESPACE").as_deref() == Some("kube-system") {
            let message = "kube-system means to serve a self-hosted shoot, which this agent does not support; to serve a seed, \
                run it in namespace garden";
            return Err(ConfigProblem::new("NAMESPACE", message));
        }
        if let Some(path) = value("GARDEN_KUBECONFIG") {
            self.garden_client_connection.connection.kubeconfig = Some(PathBuf::from(path));
        }
        if let Some(path) = value("KUBECONFIG") {
            self.seed_client_connection.kubeconfig = Some(PathBuf::from(path));
        }
        Ok(())
    }

    /// Checks that the garden can be reached, after the environment was applied. Errors: if there is neither
    /// a kubeconfig nor a Secret for one.
    pub fn check_garden_access(&self) -> Result<(), ConfigProblem> {
        let garden = &self.garden_client_connection;
        if garden.connection.kubeconfig.is_some() || garden.kubeconfig_secret.is_some() {
            return Ok(());
        }
        let message = "does not say how to reach the garden: set kubeconfigSecret (with bootstrapKubeconfig, to \
            join), or kubeconfig, or the variable GARDEN_KUBECONFIG";
        Err(ConfigProblem::new("gardenClientConnection", message))
    }

    /// Checks that the agent can reach the Services that it exposes, after the environment was applied. The
    /// agent runs in the seed's cluster if it uses the ServiceAccount of its pod, as in
    /// `kube::in_cluster::or_kubeconfig`. Errors: if the type is `ClusterIP` and the agent runs elsewhere.
    pub(crate) fn check_exposure(
        &self,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<(), ConfigProblem> {
        let is_in_pod = variable("KUBERNETES_SERVICE_HOST").is_some_and(|host| !host.is_empty());
        let is_inside = is_in_pod && self.seed_client_connection.kubeconfig.is_none();
        if is_inside || self.edge.exposure.kind != ExposureType::ClusterIp {
            return Ok(());
        }
        let message = "ClusterIP is an address that only pods of the seed reach, and this agent is not one of them (it has a \
            kubeconfig for the seed, or runs outside of a cluster): write NodePort or LoadBalancer, or run the agent in the seed";
        Err(ConfigProblem::new("edge.exposure.type", message))
    }

    /// Checks that the agent can find out its image if Shoots need it, after the environment was applied.
    /// Errors: if snapshots are enabled and no image is configured.
    pub(crate) fn check_snapshots(
        &self,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<(), ConfigProblem> {
        let is_set = |name: &str| variable(name).is_some_and(|value| !value.is_empty());
        let needs_image =
            self.edge.etcd.snapshots.as_ref().is_some_and(|snapshots| snapshots.image.is_none());
        if !needs_image || is_set("NAMESPACE") || is_set("IMAGEVECTOR_OVERWRITE") {
            return Ok(());
        }
        let message = "must name an image of this agent: pods of the seed run it to take and restore snapshots, and this agent \
            does not run in a pod whose image it could use (variable NAMESPACE is empty)";
        Err(ConfigProblem::new("edge.etcd.snapshots.image", message))
    }
}
