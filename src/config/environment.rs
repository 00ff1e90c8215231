//! Environment variables that count for more than the file (Gardener v1.150, `cmd/gardenlet/app`).

use std::path::PathBuf;

use super::{Problem, Settings};

impl Settings {
    /// Applies `GARDEN_KUBECONFIG`, `KUBECONFIG` and `NAMESPACE`. Empty variables are the same as absent ones.
    ///
    /// # Errors
    /// `NAMESPACE=kube-system`, which asks the Go program for another mode.
    pub fn apply_environment(&mut self, variable: impl Fn(&str) -> Option<String>) -> Result<(), Problem> {
        let value = |name| variable(name).filter(|value| !value.is_empty());
        if value("NAMESPACE").as_deref() == Some("kube-system") {
            let message = "kube-system means to serve a self-hosted shoot, which this agent cannot do; to serve a seed, \
                run it in namespace garden";
            return Err(Problem::new("NAMESPACE", message));
        }
        if let Some(path) = value("GARDEN_KUBECONFIG") {
            self.garden_client_connection.connection.kubeconfig = Some(PathBuf::from(path));
        }
        if let Some(path) = value("KUBECONFIG") {
            self.seed_client_connection.kubeconfig = Some(PathBuf::from(path));
        }
        Ok(())
    }

    /// Checks that there is a way to the garden, once the environment has been applied.
    ///
    /// # Errors
    /// That there is neither a kubeconfig nor a Secret for one.
    pub fn check_garden_access(&self) -> Result<(), Problem> {
        let garden = &self.garden_client_connection;
        if garden.connection.kubeconfig.is_some() || garden.kubeconfig_secret.is_some() {
            return Ok(());
        }
        let message = "names no way to the garden: set kubeconfigSecret (with bootstrapKubeconfig, to \
            join), or kubeconfig, or the variable GARDEN_KUBECONFIG";
        Err(Problem::new("gardenClientConnection", message))
    }
}
