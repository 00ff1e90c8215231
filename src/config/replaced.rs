//! Fields of older documentation and their replacements.

use serde_json::Value;

use super::{ConfigProblem, ConfigProblems};

/// Whether the agent can continue without the field.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Weight {
    Warning,
    Error,
}

use Weight::{Error, Warning};

const CREDENTIALS: &str = "was replaced by credentialsRef (apiVersion: v1, kind: Secret, namespace, name)";
const NO_SEED_SECRET: &str = "was removed: the agent reaches the seed from inside the cluster, or through \
    seedClientConnection.kubeconfig; the garden no longer holds a kubeconfig of the seed";

const REPLACED: [(&str, Weight, &str); 22] = [
    (
        "seedSelector",
        Error,
        "was removed: one process serves one seed. Run one process per seed, each with its own seedConfig",
    ),
    ("seedConfig.type", Error, "is not a field of a Seed: seedConfig.spec.provider.type has the type"),
    ("seedConfig.provider", Error, "belongs below seedConfig.spec"),
    ("seedConfig.secretRef", Error, NO_SEED_SECRET),
    ("seedConfig.spec.type", Error, "is not a field of a Seed: seedConfig.spec.provider.type has the type"),
    ("seedConfig.spec.secretRef", Warning, NO_SEED_SECRET),
    ("seedConfig.spec.cloud", Error, "was replaced by seedConfig.spec.provider"),
    ("seedConfig.spec.ingressDomain", Error, "was replaced by seedConfig.spec.ingress.domain"),
    ("seedConfig.spec.dns.ingressDomain", Error, "was replaced by seedConfig.spec.ingress.domain"),
    ("seedConfig.spec.dns.provider.secretRef", Warning, CREDENTIALS),
    ("seedConfig.spec.dns.provider.domains", Warning, "was removed"),
    ("seedConfig.spec.dns.provider.zones", Warning, "was removed"),
    ("seedConfig.spec.backup.secretRef", Warning, CREDENTIALS),
    ("seedConfig.spec.settings.shootDNS", Warning, "was removed: DNS of shoots is always on"),
    ("seedConfig.spec.settings.ownerChecks", Warning, "was removed"),
    (
        "seedConfig.spec.settings.dependencyWatchdog.endpoint",
        Warning,
        "was replaced by dependencyWatchdog.weeder",
    ),
    (
        "seedConfig.spec.settings.dependencyWatchdog.probe",
        Warning,
        "was replaced by dependencyWatchdog.prober",
    ),
    (
        "gardenClientConnection.gardenClusterCACert",
        Warning,
        "was removed: the CA comes from ConfigMap gardener-system-public/kube-root-ca.crt in the garden",
    ),
    ("kubernetesLogLevel", Warning, "was removed: logLevel applies to everything"),
    (
        "server.https",
        Error,
        "was removed: this agent serves probes and metrics by plain HTTP, so a probe by HTTPS would always fail. Set \
         server.healthProbes and server.metrics instead (port, bindAddress), and ask with scheme HTTP",
    ),
    ("logging.loki", Warning, "was replaced by logging.vali"),
    ("monitoring.remoteWrite", Warning, "was replaced by monitoring.shoot.remoteWrite"),
];

/// Reports fields of older documentation, in place of the report about unknown fields.
pub(super) fn check(document: &Value, problems: &mut ConfigProblems) {
    for (path, weight, message) in REPLACED {
        if path
            .split('.')
            .try_fold(document, |value, key| value.get(key))
            .is_some_and(|value| !value.is_null())
        {
            problems.warnings.retain(|problem| problem.path != path);
            let list = if weight == Error { &mut problems.errors } else { &mut problems.warnings };
            list.push(ConfigProblem::new(path, message));
        }
    }
}
