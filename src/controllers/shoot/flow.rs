//! The tasks of a Shoot without workers, and their order (Gardener's `reconciler_reconcile.go`).
//!
//! Names are upstream's: they are the ids of errors in the Shoot's status. Tasks of workers do not exist yet; comments
//! mark their places. Tasks of Istio, logging and monitoring have no counterpart here.

use std::time::Duration;

use serde_json::Value;

use crate::flow::{Attempt, Failed, Flow, Step, TaskId};

use super::tasks::{self as run, Work};
use super::{backups, encryption, frame, sleep};

/// The input of the flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Plan {
    /// `spec.hibernation.enabled`.
    pub(super) is_hibernated: bool,
    /// Annotation `shoot.gardener.cloud/skip-readiness`: do not wait for readiness.
    pub(super) skips_readiness: bool,
    /// The garden publishes the public keys of service accounts.
    pub(super) publishes_keys: bool,
    /// The rotation of the key of service accounts is being prepared.
    pub(super) prepares_service_account_key: bool,
    /// The rotation of the key of service accounts is being completed.
    pub(super) completes_service_account_key: bool,
    /// The rotation of CAs is being prepared.
    pub(super) prepares_authorities: bool,
    /// The rotation of the encryption key is being prepared.
    pub(super) prepares_encryption_key: bool,
    /// Stored objects must be rewritten: the key or the encrypted kinds have changed.
    pub(super) rewrites_objects: bool,
    /// The label of rewritten objects must be removed.
    pub(super) ends_rewrite: bool,
    /// The seed has backups.
    pub(super) has_backup: bool,
    /// Task `restartControlPlanePods` is requested.
    pub(super) restarts_pods: bool,
}

const SECOND: Duration = Duration::from_secs(1);
pub(super) const FIVE_SECONDS: Duration = Duration::from_secs(5);
pub(super) const TEN_SECONDS: Duration = Duration::from_secs(10);
pub(super) const MINUTE: Duration = Duration::from_secs(60);
/// How long upstream retries transient failures.
pub(super) const SHORT: Duration = Duration::from_secs(30);
pub(super) const NINETY_SECONDS: Duration = Duration::from_secs(90);
pub(super) const TWO_MINUTES: Duration = Duration::from_secs(120);
pub(super) const FIVE_MINUTES: Duration = Duration::from_secs(300);
pub(super) const TEN_MINUTES: Duration = Duration::from_secs(600);
pub(super) const FIFTEEN_MINUTES: Duration = Duration::from_secs(900);

/// A task that the garden may request with an annotation, and the name of the task that performs it.
struct OnRequest {
    asked: &'static str,
    name: &'static str,
}

const INTERNAL_RECORD: OnRequest =
    OnRequest { asked: "deployDNSRecordInternal", name: "Deploying internal domain DNS record" };
const EXTERNAL_RECORD: OnRequest =
    OnRequest { asked: "deployDNSRecordExternal", name: "Deploying external domain DNS record" };
const RESTART: OnRequest =
    OnRequest { asked: "restartControlPlanePods", name: "Restarting control plane pods" };

/// The tasks that the garden had requested at the start of the flow (in `shoot`) and that the flow has done.
pub(super) fn done_on_request(shoot: &Value, is_done: impl Fn(&str) -> bool) -> Vec<&'static str> {
    let all = [INTERNAL_RECORD, EXTERNAL_RECORD, RESTART].into_iter();
    let done = all.filter(|task| frame::asks(shoot, task.asked) && is_done(task.name));
    done.map(|task| task.asked).collect()
}

pub(super) type Act = fn(&mut Work, &Attempt) -> Result<Step, Failed>;

/// The flow that creates a Shoot or brings it up to date.
pub(super) fn build(plan: Plan) -> Flow<Work> {
    let mut flow = Flow::new("Shoot cluster reconciliation");
    let first = add_preparation(&mut flow, plan);
    let server = add_server(&mut flow, plan, &first);
    let inside = add_what_is_inside(&mut flow, plan, (&first, server));
    add_end(&mut flow, plan, (&first, &inside));
    flow
}

/// A task whose errors are retried for half a minute.
pub(super) fn retried(flow: &mut Flow<Work>, name: &str, act: Act, after: &[TaskId], skip: bool) -> TaskId {
    flow.task(name, act).after(after).skip_if(skip).retrying(FIVE_SECONDS, SHORT).add()
}

/// A task that waits, with a time limit.
pub(super) fn wait(
    flow: &mut Flow<Work>,
    name: &str,
    act: Act,
    after: &[TaskId],
    within: Duration,
) -> TaskId {
    flow.task(name, act).after(after).within(within).add()
}

/// The results that later tasks need.
struct Preparation {
    namespace: TaskId,
    identity: TaskId,
    referenced: TaskId,
    secrets: TaskId,
    service: TaskId,
    records: [TaskId; 2],
}

fn add_preparation(flow: &mut Flow<Work>, plan: Plan) -> Preparation {
    // Upstream creates all components before its flow, in a step of this name, and retries for ten minutes.
    let settings = flow.task("Create botanist", run::settings).retrying(TEN_SECONDS, MINUTE).add();
    let required = flow
        .task("Check required extensions", run::required_extensions)
        .after(&[settings])
        .retrying(FIVE_SECONDS, MINUTE)
        .add();
    let namespace = flow.task("Deploying control plane namespace", run::namespace).after(&[required]).add();
    let identity = retried(flow, "Ensuring Shoot cluster identity", run::identity, &[namespace], false);
    // Cloud provider account secret: only with workers.
    let referenced = retried(flow, "Deploying referenced resources", run::referenced, &[namespace], false);
    // Shoot infrastructure: only with workers.
    let service = retried(
        flow,
        "Deploying Kubernetes API server service in the Seed cluster",
        run::service,
        &[namespace, identity],
        false,
    );
    let exposed = wait(
        flow,
        "Waiting until Kubernetes API server service in the Seed cluster has reported readiness",
        run::wait_exposed,
        &[service],
        TEN_MINUTES,
    );
    // Upstream creates the server certificate with its Deployment. Here the certificate contains the address of the
    // Service.
    let secrets = wait(flow, "Initializing secrets management", run::secrets, &[exposed], TEN_MINUTES);
    let advertised = flow
        .task("Ensuring advertised addresses for the Shoot", run::advertise)
        .after(&[secrets, exposed])
        .add();
    let mut record = |role: &'static str, task: &OnRequest| {
        let (asked, mut is_deployed) = (task.asked, false);
        let act = move |work: &mut Work, attempt: &Attempt| {
            let is_asked = frame::asks(&work.shoot, asked);
            run::record(work, role, (is_asked, &mut is_deployed), attempt)
        };
        flow.task(task.name, act)
            .after(&[referenced, exposed, advertised])
            .skip_if(plan.is_hibernated)
            .within(FIVE_MINUTES)
            .add()
    };
    let internal = record("internal", &INTERNAL_RECORD);
    let external = record("external", &EXTERNAL_RECORD);
    Preparation { namespace, identity, referenced, secrets, service: exposed, records: [internal, external] }
}

/// The tasks from etcd to a reachable API server.
fn add_server(flow: &mut Flow<Work>, plan: Plan, first: &Preparation) -> TaskId {
    let is_waiting = !plan.skips_readiness;
    // Source backup entry and copies of backups: only when a Shoot is migrated from another seed.
    let entry = flow
        .task("Deploying BackupEntry for ETCD data", backups::deploy)
        .after(&[first.namespace])
        .skip_if(!plan.has_backup)
        .add();
    let kept = flow
        .task("Waiting until the BackupEntry for ETCD data has been reconciled", backups::wait)
        .after(&[entry])
        .skip_if(!plan.has_backup || plan.skips_readiness)
        .add();
    let etcd = retried(
        flow,
        "Deploying main and events ETCDs",
        run::etcds,
        &[first.secrets, first.referenced, kept],
        false,
    );
    let stored = flow
        .task("Waiting until main and event ETCDs have been reconciled", run::wait_etcds)
        .after(&[etcd])
        .skip_if(!is_waiting || plan.is_hibernated)
        .within(FIVE_MINUTES)
        .add();
    let before = retried(
        flow,
        "Deploying extension resources before kube-apiserver",
        run::extensions_before,
        &[first.secrets, first.referenced],
        plan.is_hibernated,
    );
    let ready = flow
        .task(
            "Waiting until extension resources handled before kube-apiserver are ready",
            run::wait_extensions_before,
        )
        .after(&[before])
        .skip_if(plan.is_hibernated || !is_waiting)
        .add();
    // While a new encryption key is prepared, a rollout with the old key comes first.
    let within = if plan.prepares_encryption_key { FIVE_MINUTES } else { SHORT };
    let server = flow
        .task("Deploying Kubernetes API server", run::server)
        .after(&[first.secrets, etcd, stored, first.service, ready])
        .retrying(FIVE_SECONDS, within)
        .add();
    // Rewritten objects must not reach a server that still encrypts with the old key.
    let is_needed = is_waiting || plan.rewrites_objects;
    flow.task("Waiting until Kubernetes API server rolled out", run::wait_server)
        .after(&[server])
        .skip_if(plan.is_hibernated || !is_needed)
        .within(FIVE_MINUTES)
        .add()
}

/// The tasks that the last ones depend on.
struct Inside {
    connected: TaskId,
    controllers: TaskId,
    extensions: TaskId,
    /// Tasks that must not write any more when the control plane is shut down.
    deployed: [TaskId; 2],
}

/// The task names of extensions that need the API server: after its start, or before it is hibernated.
const fn after_server(is_hibernated: bool) -> [&'static str; 2] {
    if is_hibernated {
        return [
            "Hibernating extension resources before kube-apiserver hibernation",
            "Waiting until extension resources hibernated before kube-apiserver hibernation are ready",
        ];
    }
    [
        "Deploying extension resources after kube-apiserver",
        "Waiting until extension resources handled after kube-apiserver are ready",
    ]
}

/// The tasks from the applier that serves the Shoot to the objects in it.
fn add_what_is_inside(flow: &mut Flow<Work>, plan: Plan, (first, server): (&Preparation, TaskId)) -> Inside {
    let is_waiting = !plan.is_hibernated && !plan.skips_readiness;
    // The applier is part of this program: this wakes it, and it starts to serve.
    let manager =
        flow.task("Deploying gardener-resource-manager", run::applier).after(&[first.secrets, server]).add();
    let served = flow
        .task("Waiting until gardener-resource-manager reports readiness", run::wait_applier)
        .after(&[manager])
        .skip_if(!is_waiting)
        .within(FIVE_MINUTES)
        .add();
    let served = retried(
        flow,
        "Renewing shoot access secrets after creation of new ServiceAccount signing key",
        run::renew_tokens,
        &[served],
        !plan.prepares_service_account_key,
    );
    let namespaces =
        retried(flow, "Deploying shoot namespaces system component", run::namespaces, &[served], false);
    flow.task("Waiting until shoot namespaces have been reconciled", run::wait_namespaces)
        .after(&[namespaces])
        .skip_if(!is_waiting)
        .within(TWO_MINUTES)
        .add();
    let access = retried(flow, "Deploying Gardener shoot access resources", run::access, &[served], false);
    let connected = flow
        .task("Initializing connection to Shoot", run::connect)
        .after(&[first.records[0], access])
        .retrying(FIVE_SECONDS, TWO_MINUTES)
        .add();
    flow.task("Sync public service account signing keys to Garden cluster", run::publish_keys)
        .after(&[connected])
        .skip_if(plan.is_hibernated || !plan.publishes_keys)
        .add();
    // The flow does not wait for the API server of a Shoot that is being hibernated, and its controllers must not be
    // newer than the server.
    let before = if plan.is_hibernated { connected } else { served };
    let controllers =
        retried(flow, "Deploying Kubernetes controller manager", run::controllers, &[before], false);
    let rotates = plan.prepares_service_account_key || plan.prepares_authorities;
    let ready = flow
        .task("Waiting until kube-controller-manager reports readiness", run::wait_controllers)
        .after(&[controllers])
        // Old controllers would fill new Secrets with tokens that the old key has signed.
        .skip_if(!rotates || (plan.skips_readiness && !plan.prepares_service_account_key))
        .within(Duration::from_secs(180))
        .add();
    add_rewrite(flow, plan, connected);
    add_accounts(flow, plan, &[connected, ready]);
    let [name, wait_name] = after_server(plan.is_hibernated);
    let after = retried(flow, name, run::extensions_after, &[first.referenced, connected], false);
    let extensions =
        flow.task(wait_name, run::wait_extensions_after).after(&[after]).skip_if(plan.skips_readiness).add();
    Inside { connected, controllers: ready, extensions, deployed: [namespaces, controllers] }
}

/// Rewrites stored objects after a change of their encryption.
fn add_rewrite(flow: &mut Flow<Work>, plan: Plan, connected: TaskId) {
    let labels = flow
        .task(
            "Labeling resources after modification of encryption config or to encrypt them with new ETCD encryption key",
            encryption::label,
        )
        .after(&[connected])
        .skip_if(!plan.rewrites_objects || plan.is_hibernated)
        .retrying(SHORT, TEN_MINUTES)
        .add();
    flow.task(
        "Removing label from resources after modification of encryption config or rotation of ETCD encryption key",
        encryption::unlabel,
    )
    .after(&[connected, labels])
    .skip_if(!plan.ends_rewrite || plan.is_hibernated)
    .retrying(SHORT, TEN_MINUTES)
    .add();
}

/// Renews ServiceAccount tokens that do not expire.
fn add_accounts(flow: &mut Flow<Work>, plan: Plan, needs: &[TaskId]) {
    flow.task(
        "Creating new ServiceAccount secrets after creation of new signing key",
        encryption::renew_accounts,
    )
    .after(needs)
    .skip_if(!plan.prepares_service_account_key || plan.is_hibernated)
    .retrying(SHORT, TEN_MINUTES)
    .add();
    flow.task(
        "Deleting old ServiceAccount secrets after rotation of signing key",
        encryption::clean_accounts,
    )
    .after(needs)
    .skip_if(!plan.completes_service_account_key || plan.is_hibernated)
    .retrying(SHORT, TEN_MINUTES)
    .add();
}

/// The tasks that depend on all others.
fn add_end(flow: &mut Flow<Work>, plan: Plan, (first, inside): (&Preparation, &Inside)) {
    // Worker pools, machine controllers, network plugin, CoreDNS, kube-proxy and VPN: only with workers.
    flow.task("Deploying shoot system resources", run::system)
        .after(&[first.referenced, inside.extensions, inside.connected])
        .skip_if(plan.is_hibernated)
        .retrying(FIVE_SECONDS, SHORT)
        .add();
    retried(
        flow,
        "Deploying shoot cluster identity",
        run::identity_inside,
        &[first.identity, inside.connected],
        plan.is_hibernated,
    );
    add_sleep(flow, plan, inside);
    let stale = retried(
        flow,
        "Deleting stale extension resources",
        run::delete_stale_extensions,
        &[first.namespace, inside.connected],
        false,
    );
    flow.task("Waiting until stale extension resources are deleted", run::wait_stale_extensions)
        .after(&[stale])
        .skip_if(plan.is_hibernated || plan.skips_readiness)
        .add();
    flow.task(RESTART.name, run::restart_pods)
        .after(&[inside.controllers])
        .skip_if(!plan.restarts_pods)
        .within(SECOND)
        .add();
}

/// Hibernates the Shoot.
fn add_sleep(flow: &mut Flow<Work>, plan: Plan, inside: &Inside) {
    let is_awake = !plan.is_hibernated;
    let [namespaces, controllers] = inside.deployed;
    let asleep = flow
        .task("Hibernating control plane", sleep::control_plane)
        .after(&[inside.connected, inside.extensions, inside.controllers, namespaces, controllers])
        .skip_if(is_awake)
        .retrying(FIVE_SECONDS, TEN_MINUTES)
        .add();
    let name = "Hibernating extension resources after kube-apiserver hibernation";
    let extensions = retried(flow, name, sleep::extensions, &[asleep], is_awake);
    flow.task(
        "Waiting until extension resources hibernated after kube-apiserver hibernation are ready",
        sleep::wait_extensions,
    )
    .after(&[extensions])
    .skip_if(is_awake || plan.skips_readiness)
    .add();
    // A Shoot without workers has no record of an ingress domain.
    let records: [(&str, Act); 2] = [
        ("Destroying internal domain DNS record if hibernated", sleep::internal_record),
        ("Destroying external domain DNS record if hibernated", sleep::external_record),
    ];
    for (name, act) in records {
        flow.task(name, act).after(&[asleep]).skip_if(is_awake).retrying(FIVE_SECONDS, FIVE_MINUTES).add();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// In the order in which the Go gardenlet finished them, without the tasks of components that are not deployed
    /// here.
    const HIBERNATES: [&str; 20] = [
        "Deploying control plane namespace",
        "Ensuring Shoot cluster identity",
        "Deploying referenced resources",
        "Deploying Kubernetes API server service in the Seed cluster",
        "Initializing secrets management",
        "Ensuring advertised addresses for the Shoot",
        "Deploying main and events ETCDs",
        "Deploying Kubernetes API server",
        "Deploying gardener-resource-manager",
        "Deploying shoot namespaces system component",
        "Deploying Gardener shoot access resources",
        "Deploying Kubernetes controller manager",
        "Initializing connection to Shoot",
        "Hibernating extension resources before kube-apiserver hibernation",
        "Deleting stale extension resources",
        "Waiting until extension resources hibernated before kube-apiserver hibernation are ready",
        "Hibernating control plane",
        "Hibernating extension resources after kube-apiserver hibernation",
        "Destroying internal domain DNS record if hibernated",
        "Destroying external domain DNS record if hibernated",
    ];

    #[test]
    fn a_hibernating_shoot_has_the_tasks_of_upstream() {
        let all = build(Plan { is_hibernated: true, ..Plan::default() }).outline();
        let own = ["Create botanist", "Check required extensions"];
        let kept = "Waiting until Kubernetes API server service in the Seed cluster has reported readiness";
        let last = "Waiting until extension resources hibernated after kube-apiserver hibernation are ready";
        let mut expected: Vec<&str> = own.into_iter().chain([kept]).chain(HIBERNATES).chain([last]).collect();
        let mut done: Vec<&str> =
            all.iter().filter(|task| !task.is_skipped).map(|task| task.name.as_str()).collect();
        let place = |name: &str| HIBERNATES.iter().position(|known| *known == name);
        for task in all.iter().filter(|task| !task.is_skipped) {
            for need in task.needs.iter().map(|need| all[*need].name.as_str()) {
                let is_later = place(need).zip(place(&task.name)).is_some_and(|(need, own)| need > own);
                // Controllers must not be newer than a server that was not waited for.
                let is_ours = task.name == "Deploying Kubernetes controller manager";
                assert!(!is_later || is_ours, "{} needs {need}", task.name);
            }
        }
        expected.sort_unstable();
        done.sort_unstable();
        assert_eq!(done, expected);
        let awake = build(Plan::default()).outline();
        let of_sleep = |name: &str| name.contains("ibernat");
        assert!(awake.iter().filter(|task| of_sleep(&task.name)).all(|task| task.is_skipped));
    }

    #[test]
    fn requested_tasks_are_removed_once_done() {
        let names = [INTERNAL_RECORD, EXTERNAL_RECORD, RESTART].map(|task| task.name);
        let all =
            "restartControlPlanePods,deployDNSRecordInternal, deployDNSRecordExternal,deployInfrastructure";
        let table = [
            (
                all,
                &names[..],
                &["deployDNSRecordInternal", "deployDNSRecordExternal", "restartControlPlanePods"][..],
            ),
            // The others were requested after the flow had started.
            ("restartControlPlanePods", &names, &["restartControlPlanePods"]),
            // It is hibernated.
            (all, &names[2..], &["restartControlPlanePods"]),
            (all, &[], &[]),
            ("", &names, &[]),
        ];
        for (asked, done, expected) in table {
            let shoot = json!({"metadata": {"annotations": {frame::TASKS: asked}}});
            assert_eq!(done_on_request(&shoot, |name| done.contains(&name)), expected, "{asked} {done:?}");
        }
        let asleep = build(Plan { is_hibernated: true, restarts_pods: true, ..Plan::default() }).outline();
        let skipped = names.map(|name| asleep.iter().find(|task| task.name == name).unwrap().is_skipped);
        assert_eq!(skipped, [true, true, false]);
    }
}
