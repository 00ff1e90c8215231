//! The tasks that delete a Shoot without workers, and their order. Names are upstream's; the tasks of Istio, logging
//! and monitoring have no counterpart here. Replicas are written together with a workload, so there are no tasks that
//! scale one.
//!
//! Independent tasks continue if one fails, and all errors are reported.

use crate::extension::Moment;
use crate::flow::{Attempt, Flow, TaskId};
use crate::shoot::cleaner::{Stage, Sweep};

use super::super::extensions;
use super::super::flow::{
    FIFTEEN_MINUTES, FIVE_MINUTES, FIVE_SECONDS, MINUTE, NINETY_SECONDS, SHORT, TEN_MINUTES, TEN_SECONDS,
    TWO_MINUTES, retried, wait,
};
use super::super::tasks::{self as run, Work};
use super::{Plan, tasks as delete};

/// The flow that deletes a Shoot.
pub(in super::super) fn build(plan: Plan) -> Flow<Work> {
    let mut flow = Flow::new("Shoot cluster deletion");
    let up = add_wake_up(&mut flow, plan);
    let cleaned = add_clean_up(&mut flow, plan, &up);
    let gone = add_what_is_around(&mut flow, plan, &cleaned);
    add_end(&mut flow, plan, &gone);
    flow
}

/// The tasks that the clean-up depends on.
struct Up {
    connected: TaskId,
    applier: TaskId,
    controllers: TaskId,
}

/// The clean-up needs a running API server, even for a hibernated Shoot.
fn add_wake_up(flow: &mut Flow<Work>, plan: Plan) -> Up {
    let skip = !plan.cleans;
    let settings =
        flow.task("Create botanist", delete::settings).skip_if(skip).retrying(TEN_SECONDS, MINUTE).add();
    let required = flow
        .task("Check required extensions exist", run::required_extensions)
        .after(&[settings])
        .retrying(FIVE_SECONDS, MINUTE)
        .add();
    let namespace =
        retried(flow, "Deploying Shoot namespace in Seed", run::namespace, &[required], !plan.has_namespace);
    let identity = retried(flow, "Ensuring Shoot cluster identity", run::identity, &[namespace], false);
    let service = retried(
        flow,
        "Deploying Kubernetes API server service in the Seed cluster",
        run::service,
        &[namespace, identity],
        skip,
    );
    let exposed = flow
        .task(
            "Waiting until Kubernetes API LoadBalancer in the Seed cluster has reported readiness",
            run::wait_exposed,
        )
        .after(&[service])
        .skip_if(skip)
        .within(TEN_MINUTES)
        .add();
    let secrets = flow
        .task("Initializing secrets management", run::secrets)
        .after(&[namespace, exposed])
        .skip_if(skip)
        .within(TEN_MINUTES)
        .add();
    flow.task("Ensuring advertised addresses for the Shoot", run::advertise)
        .after(&[secrets, exposed])
        .skip_if(skip)
        .add();
    let referenced = retried(flow, "Deploying referenced resources", run::referenced, &[namespace], skip);
    let mut is_deployed = false;
    let record = move |work: &mut Work, attempt: &Attempt| {
        run::record(work, "internal", (false, &mut is_deployed), attempt)
    };
    let record = flow
        .task("Deploying internal domain DNS record", record)
        .after(&[referenced, exposed])
        .skip_if(skip)
        .within(FIVE_MINUTES)
        .add();
    let server = add_server(flow, skip, (secrets, exposed));
    add_access(flow, skip, (secrets, record, server))
}

/// Starts etcd and the API server.
fn add_server(flow: &mut Flow<Work>, skip: bool, (secrets, exposed): (TaskId, TaskId)) -> TaskId {
    let etcd = retried(flow, "Deploying main and events etcd", run::etcds, &[secrets], skip);
    let stored = flow
        .task("Waiting until main and event etcd report readiness", run::wait_etcds)
        .after(&[etcd])
        .skip_if(skip)
        .within(FIVE_MINUTES)
        .add();
    // While a new encryption key is prepared, a rollout with the old key comes first.
    let server = flow
        .task("Deploying Kubernetes API server", delete::server)
        .after(&[secrets, etcd, stored, exposed])
        .skip_if(skip)
        .retrying(FIVE_SECONDS, FIVE_MINUTES)
        .add();
    flow.task("Waiting until Kubernetes API server reports readiness", run::wait_server)
        .after(&[server])
        .skip_if(skip)
        .within(FIVE_MINUTES)
        .add()
}

/// Lets the applier serve the cluster, and connects the agent to it.
fn add_access(flow: &mut Flow<Work>, skip: bool, (secrets, record, server): (TaskId, TaskId, TaskId)) -> Up {
    let applier =
        flow.task("Deploying gardener-resource-manager", run::applier).after(&[server]).skip_if(skip).add();
    let served = flow
        .task("Waiting until gardener-resource-manager reports readiness", run::wait_applier)
        .after(&[applier])
        .skip_if(skip)
        .within(FIVE_MINUTES)
        .add();
    let access =
        retried(flow, "Deploying Gardener shoot access resources", run::access, &[secrets, served], skip);
    let connected = flow
        .task("Initializing connection to Shoot", run::connect)
        .after(&[server, record, access])
        .skip_if(skip)
        .retrying(FIVE_SECONDS, TWO_MINUTES)
        .add();
    let controllers = retried(
        flow,
        "Deploying Kubernetes controller manager",
        run::controllers,
        &[secrets, connected],
        skip,
    );
    Up { connected, applier, controllers }
}

/// A task that deletes the content of the cluster.
fn sweep(flow: &mut Flow<Work>, name: &str, stage: Stage, after: &[TaskId], skip: bool) -> TaskId {
    let mut sweep = Sweep::new(stage);
    let act = move |work: &mut Work, _: &Attempt| delete::sweep(work, stage, &mut sweep);
    flow.task(name, act).after(after).skip_if(skip).retrying(FIVE_SECONDS, TEN_MINUTES).add()
}

/// Deletes everything in the cluster, and then its controllers.
fn add_clean_up(flow: &mut Flow<Work>, plan: Plan, up: &Up) -> Vec<TaskId> {
    let skip = !plan.cleans;
    let webhooks = sweep(flow, "Cleaning up webhooks", Stage::Webhooks, &[up.connected, up.applier], skip);
    let active = flow
        .task("Waiting until kube-controller-manager is active", delete::wait_active)
        .after(&[up.connected, webhooks, up.controllers])
        .skip_if(skip || !plan.has_controllers)
        .retrying(FIVE_SECONDS, NINETY_SECONDS)
        .add();
    let apis = sweep(
        flow,
        "Cleaning extended API groups",
        Stage::Apis,
        &[up.connected, active],
        skip || plan.skips_apis,
    );
    let resources = sweep(
        flow,
        "Cleaning Kubernetes resources",
        Stage::Resources,
        &[up.connected, apis, up.controllers, active],
        skip,
    );
    let managed = flow
        .task("Deleting managed resources", move |work: &mut Work, _: &Attempt| {
            delete::managed(work, plan.cleans)
        })
        .after(&[webhooks, apis, resources])
        .retrying(FIVE_SECONDS, SHORT)
        .add();
    let managed = wait(
        flow,
        "Waiting until managed resources have been deleted",
        delete::wait_managed,
        &[managed],
        TEN_MINUTES,
    );
    let [before, stale] = add_extensions(flow, plan, &[resources, managed]);
    vec![webhooks, apis, resources, managed, before, stale]
}

/// Deletes the extensions that must be deleted before the API server, and stale ones.
fn add_extensions(flow: &mut Flow<Work>, plan: Plan, needs: &[TaskId]) -> [TaskId; 2] {
    let before = retried(
        flow,
        "Deleting extension resources before kube-apiserver",
        |work, _| extensions::delete(work, Moment::Before),
        needs,
        false,
    );
    let before = flow
        .task(
            "Waiting until extension resources that should be handled before kube-apiserver have been deleted",
            move |work: &mut Work, attempt: &Attempt| {
                delete::release_going(work, plan.cleans)?;
                extensions::wait_deleted(work, Moment::Before, attempt)
            },
        )
        .after(&[before])
        .add();
    let stale =
        retried(flow, "Deleting stale extension resources", run::delete_stale_extensions, needs, false);
    let stale = flow
        .task(
            "Waiting until all stale extension resources have been deleted",
            move |work: &mut Work, attempt: &Attempt| {
                delete::release_going(work, plan.cleans)?;
                run::wait_stale_extensions(work, attempt)
            },
        )
        .after(&[stale])
        .add();
    [before, stale]
}

/// Deletes the API server and everything that works without it.
fn add_what_is_around(flow: &mut Flow<Work>, plan: Plan, cleaned: &[TaskId]) -> Vec<TaskId> {
    // Upstream deletes these early and waits for half a minute: extensions delete theirs with their own objects.
    let managed = flow
        .task(
            "Waiting until shoot managed resources have been deleted",
            move |work: &mut Work, _: &Attempt| delete::wait_all_managed(work, plan.cleans),
        )
        .after(cleaned)
        .retrying(FIVE_SECONDS, SHORT)
        .add();
    let mut needs = cleaned.to_vec();
    needs.push(managed);
    let server = retried(flow, "Deleting Kubernetes API server", delete::delete_server, &needs, false);
    let server = wait(
        flow,
        "Waiting until Kubernetes API server has been deleted",
        delete::wait_server_gone,
        &[server],
        FIVE_MINUTES,
    );
    let after = retried(
        flow,
        "Deleting extension resources after kube-apiserver",
        |work, _| extensions::delete(work, Moment::After),
        &[server],
        false,
    );
    let after = flow
        .task(
            "Waiting until extension resources that should be handled after kube-apiserver have been deleted",
            |work: &mut Work, attempt: &Attempt| extensions::wait_deleted(work, Moment::After, attempt),
        )
        .after(&[after])
        .add();
    let extensions = flow
        .task(
            "Waiting until all extension resources have been deleted",
            |work: &mut Work, attempt: &Attempt| extensions::wait_none(work, attempt),
        )
        .after(&[server])
        .add();
    retried(flow, "Destroying Kubernetes API server service", delete::services, &[server], false);
    flow.task("Destroying gardener-resource-manager", delete::resource_manager)
        .after(&[server])
        .retrying(FIVE_SECONDS, SHORT)
        .add();
    flow.task("Delete public service account signing keys from Garden cluster", delete::public_keys)
        .after(&[server])
        .retrying(FIVE_SECONDS, SHORT)
        .add();
    let mut needs = cleaned.to_vec();
    needs.push(server);
    let external = flow
        .task("Destroying external domain DNS record", delete::record("external"))
        .after(&needs)
        .skip_if(!plan.has_namespace)
        .add();
    vec![server, after, extensions, external]
}

/// The record of the API server is deleted late, because the server must be reachable until everything is clean.
fn add_end(flow: &mut Flow<Work>, plan: Plan, gone: &[TaskId]) {
    let internal = flow
        .task("Destroying internal domain DNS record", delete::record("internal"))
        .after(gone)
        .skip_if(!plan.has_namespace)
        .add();
    let referenced = flow
        .task("Deleting referenced resources", delete::referenced)
        .after(gone)
        .skip_if(!plan.has_namespace)
        .within(TWO_MINUTES)
        .add();
    let etcd = retried(flow, "Destroying main and events etcd", delete::etcds, gone, false);
    let etcd = wait(
        flow,
        "Waiting until main and event etcd have been destroyed",
        delete::wait_etcds_gone,
        &[etcd],
        FIVE_MINUTES,
    );
    let namespace = retried(
        flow,
        "Deleting shoot namespace in Seed",
        delete::namespace,
        &[internal, referenced, etcd],
        false,
    );
    wait(
        flow,
        "Waiting until shoot namespace in Seed has been deleted",
        delete::wait_namespace_gone,
        &[namespace],
        FIFTEEN_MINUTES,
    );
    retried(flow, "Deleting Shoot State", delete::state, &[namespace], false);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::Outline;

    fn names(plan: Plan) -> Vec<String> {
        build(plan).outline().into_iter().filter(|task| !task.is_skipped).map(|task| task.name).collect()
    }

    /// The golden run, except for tasks without a counterpart.
    #[test]
    fn tasks_are_those_of_a_go_gardenlet() {
        const LEFT_OUT: [&str; 14] = [
            "Reconcile Istio internal load balancing ConfigMap",
            "Scaling up etcd main and event",
            "Setting gardener-resource-manager replicas to 2",
            "Deploying Kubernetes API server service SNI settings in the Seed cluster",
            "Scaling up Kubernetes controller manager",
            "Destroying Kubernetes API server service SNI",
            "Deleting Shoot Alertmanager",
            "Deleting Plutono in Seed",
            "Destroying control plane blackbox-exporter",
            "Deleting Shoot Prometheus",
            "Deleting logging stack in Seed",
            "Deleting istio-basic-auth-server in Seed",
            "Scaling up Kubernetes API server",
            "Deleting external authorization server in Seed",
        ];
        let golden = include_str!("../../../../tests/fixtures/golden-shoot-deletion.txt");
        let mut golden: Vec<&str> = golden.lines().filter(|name| !LEFT_OUT.contains(name)).collect();
        // Upstream does these before its flow.
        golden.extend(["Create botanist", "Check required extensions exist"]);
        golden.sort_unstable();
        let plan = Plan { has_namespace: true, cleans: true, has_controllers: true, skips_apis: false };
        let mut found = names(plan);
        found.sort();
        assert_eq!(found, golden);
    }

    /// Whether a task starts only after another one has ended.
    fn waits(tasks: &[Outline], later: &str, earlier: &str) -> bool {
        let place = |name: &str| tasks.iter().position(|task| task.name == name).unwrap();
        let (mut open, earlier) = (vec![place(later)], place(earlier));
        while let Some(task) = open.pop() {
            if tasks[task].needs.contains(&earlier) {
                return true;
            }
            open.extend(&tasks[task].needs);
        }
        false
    }

    #[test]
    fn nothing_is_deleted_before_its_dependents() {
        const SERVER: &str = "Deleting Kubernetes API server";
        let plan = Plan { has_namespace: true, cleans: true, has_controllers: true, skips_apis: false };
        let tasks = build(plan).outline();
        let table = [
            ("Cleaning up webhooks", "Initializing connection to Shoot"),
            ("Cleaning extended API groups", "Cleaning up webhooks"),
            ("Cleaning Kubernetes resources", "Cleaning extended API groups"),
            ("Cleaning Kubernetes resources", "Waiting until kube-controller-manager is active"),
            ("Deleting managed resources", "Cleaning Kubernetes resources"),
            (SERVER, "Waiting until managed resources have been deleted"),
            (
                SERVER,
                "Waiting until extension resources that should be handled before kube-apiserver have been deleted",
            ),
            (SERVER, "Waiting until all stale extension resources have been deleted"),
            ("Deleting extension resources after kube-apiserver", SERVER),
            ("Destroying Kubernetes API server service", SERVER),
            (
                "Destroying internal domain DNS record",
                "Waiting until all extension resources have been deleted",
            ),
            ("Destroying main and events etcd", "Waiting until Kubernetes API server has been deleted"),
            ("Deleting shoot namespace in Seed", "Waiting until main and event etcd have been destroyed"),
            ("Deleting shoot namespace in Seed", "Destroying internal domain DNS record"),
            ("Deleting Shoot State", "Deleting shoot namespace in Seed"),
        ];
        for (later, earlier) in table {
            assert!(waits(&tasks, later, earlier), "{later:?} does not wait for {earlier:?}");
        }
        assert!(!waits(&tasks, SERVER, "Deleting Shoot State"));
    }

    #[test]
    fn a_cluster_that_never_ran_needs_no_client() {
        let short = names(Plan { has_namespace: true, ..Plan::default() });
        for name in
            ["Initializing connection to Shoot", "Cleaning up webhooks", "Initializing secrets management"]
        {
            assert!(!short.contains(&name.to_owned()), "{name}");
        }
        assert!(short.contains(&"Deleting managed resources".to_owned()));
        let gone = names(Plan::default());
        assert!(!gone.iter().any(|name| name.contains("DNS record")));
        assert_eq!(gone.last().unwrap(), "Deleting Shoot State");
    }
}
