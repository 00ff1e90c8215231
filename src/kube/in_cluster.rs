//! The connection of a process that runs in a pod.

use std::path::Path;

use super::connection::{AuthorizationSource, Connection, Identity, InlineOrFile, ServerTrust};
use super::kubeconfig::{self, Error};
use crate::format::address::authority;

/// The kubelet's mount path of the ServiceAccount.
pub(crate) const SERVICE_ACCOUNT_DIRECTORY: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The connection from `KUBERNETES_SERVICE_HOST` (which may be an IPv6 address), `KUBERNETES_SERVICE_PORT` and the
/// directory with `token` and `ca.crt`. Both files are read again while the program runs.
pub(crate) fn connection(host: &str, port: &str, directory: &Path) -> Connection {
    let server = format!("https://{}", authority(host, port));
    let identity =
        Identity { certificate: None, credentials: AuthorizationSource::TokenFile(directory.join("token")) };
    Connection { identity, ..Connection::new(server) }
        .with_trust(ServerTrust::Bundle(InlineOrFile::File(directory.join("ca.crt"))))
}

/// The connection to a cluster in which the program may run: the kubeconfig if one is named, and its context,
/// else the pod's ServiceAccount; `None` outside of a pod. Errors: if the kubeconfig is unusable.
pub(crate) fn or_kubeconfig(
    kubeconfig: Option<&Path>,
    context: &str,
    variable: &dyn Fn(&str) -> Option<String>,
    directory: &Path,
) -> Result<Option<Connection>, Error> {
    if let Some(path) = kubeconfig {
        return kubeconfig::load(&[path.to_owned()]).and_then(|config| config.select(context)).map(Some);
    }
    let set = |name| variable(name).filter(|value| !value.is_empty());
    let port = set("KUBERNETES_SERVICE_PORT").unwrap_or_else(|| "443".to_owned());
    Ok(set("KUBERNETES_SERVICE_HOST").map(|host| connection(&host, &port, directory)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_both_families_work() {
        for (host, server) in [("10.0.0.1", "https://10.0.0.1:443"), ("fd00::1", "https://[fd00::1]:443")] {
            let made = connection(host, "443", Path::new("/sa"));
            assert_eq!(made.server, server);
            assert_eq!(made.trust, ServerTrust::Bundle(InlineOrFile::File("/sa/ca.crt".into())));
            assert_eq!(made.identity.credentials, AuthorizationSource::TokenFile("/sa/token".into()));
        }
    }
}
