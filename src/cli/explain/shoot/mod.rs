//! A Shoot: whether the agent works on it, and the tasks of its operation with the last log lines of a pod.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::api::gardener::{ControllerRegistration, SEED};
use crate::api::meta::{Key, text};
use crate::base::clock::Timestamp;
use crate::base::error::chain;
use crate::base::workers::Workers;
use crate::config::Settings;
use crate::controllers::shoot::decide::{self, ShootDecision, ShootDecisionInput, WaitReason};
use crate::controllers::shoot::status;
use crate::extension::{self, EnabledExtension, ExtensionClass, ReconcileMoment};
use crate::flow::TaskOutline;
use crate::format::duration;
use crate::format::time::{parse_rfc3339, rfc3339};
use crate::kube::{Client, Error, Garden, Options, RequestGates, Seed};
use crate::operation::evidence::{Looker, Seen};
use crate::operation::found::departure::{self, Departure};
use crate::operation::{self, Operation, look, sleep};
use crate::shoot::client::{ShootConnector, ShootServers};
use crate::shoot::{ShootSeeds, has_foreign_workers};

use self::judge::State;
use super::super::moves;
use super::decide::{ExplainedTask, age};

mod judge;

/// Lines that only a Shoot has.
#[derive(Debug, Default)]
pub(super) struct ShootLines {
    pub(super) why: Vec<String>,
    pub(super) tasks: Vec<ExplainedTask>,
    pub(super) unread: Vec<String>,
}

/// Reads the data for these lines.
pub(super) fn tell(
    garden: Client,
    seed: Client,
    options: Options,
    settings: &Settings,
    shoot: &Value,
    now: Timestamp,
) -> Result<ShootLines, Error> {
    let (garden, seed) = (Garden(garden), Seed(seed));
    let mut told = ShootLines::default();
    let name = settings.seed_config.name.as_str();
    let of = garden.find::<Value>(&SEED, &Key::cluster(name))?.unwrap_or_default();
    // The Seed contains the identity of the agent.
    let agent = of["status"]["gardener"].clone();
    let departure = departure::look(&garden, &seed, shoot, &of);
    let obstacle = departure.as_ref().ok().and_then(Departure::obstacle);
    let (share, is_listed) = (0.0, false);
    let input = ShootDecisionInput {
        shoot,
        seed: &of,
        agent: &agent,
        settings: &settings.controllers.shoot,
        now,
        share,
        is_listed,
        host_types: &settings.edge.host_types,
        obstacle,
    };
    if let Err(error) = &departure {
        told.unread.push(format!("BackupEntries of the Shoot: {}", chain(error)));
    }
    let decision = decide::decide(&input);
    told.why.extend(stand(&decision, &input, name));
    told.why.extend(asleep(shoot));
    told.why.extend(movement(&garden, &input, settings));
    if decision == ShootDecision::Nothing || has_foreign_workers(shoot, input.host_types) {
        return Ok(told);
    }
    match look::registrations(&garden) {
        Ok(registrations) => told.why.extend(skipped(shoot, &registrations)),
        Err(error) => told.unread.push(format!("ControllerRegistrations: {}", chain(&error))),
    }
    let last = last_operation(shoot);
    let tasks = operation::outline(last, shoot, settings.edge.nodes());
    told.why.extend(judge::other_errors(&tasks, &shoot["status"]).into_iter().map(other_error));
    let shoots = ShootConnector::new(
        seed.clone(),
        options,
        &ShootServers::from_outside(RequestGates::new(&Workers::new(1))),
    );
    let looker = Looker {
        garden: &garden,
        seed: &seed,
        shoots: &shoots,
        settings,
        operation: last,
        of: &of,
        shoot,
        now,
    };
    told.tasks = walk(&tasks, &shoot["status"], now, &|task| looker.look(operation::evidence_of(last, task)));
    Ok(told)
}

/// The Shoot's current or last operation.
fn last_operation(shoot: &Value) -> Operation {
    match text(&shoot["status"]["lastOperation"]["type"]) {
        "Delete" => decide::operation(shoot),
        "Create" => Operation::Create,
        "Migrate" => Operation::Migrate,
        "Restore" => Operation::Restore,
        _ => Operation::Reconcile,
    }
}

/// The extensions of a Shoot without workers that wait for workers.
fn skipped(shoot: &Value, registrations: &[Arc<ControllerRegistration>]) -> Vec<String> {
    let class = ExtensionClass::of(shoot);
    let wanted = extension::enabled(&shoot["spec"]["extensions"], registrations, class).into_iter();
    let is_skipped = |each: &EnabledExtension| {
        class == ExtensionClass::Workerless && each.moment == ReconcileMoment::AfterWorker
    };
    let text = |each: EnabledExtension| {
        let name = each.name;
        format!(
            "extension {name} works after workers (AfterWorker): it is skipped, because the Shoot has none"
        )
    };
    wanted.filter(is_skipped).map(text).collect()
}

/// How it moves to another seed, and what keeps it from that. A Shoot that is deleted does not move.
fn movement(garden: &Garden, input: &ShootDecisionInput<'_>, settings: &Settings) -> Vec<String> {
    let (shoot, own) = (input.shoot, input.seed);
    let name = settings.seed_config.name.as_str();
    let moves = moves::of(shoot, name);
    if own.is_null() || has_foreign_workers(shoot, input.host_types) || decide::is_deleting(shoot) {
        return Vec::new();
    }
    let mut found: Vec<String> = moves.map(|moves| format!("it {}", moves.words())).into_iter().collect();
    found.extend(moves::lacks(own, settings, moves));
    found.extend(moves::awaited(shoot, name).and_then(|other| match moves::compare(garden, own, other) {
        Ok(obstacles) if obstacles.is_empty() => None,
        Ok(obstacles) => Some(format!("it cannot move: {}: {}", obstacles.join("; "), moves::REMEDY)),
        Err(why) => Some(format!("{why}: {}", moves::BY_HAND)),
    }));
    found
}

/// A hibernated Shoot lacks nothing.
fn asleep(shoot: &Value) -> Option<String> {
    sleep::is_asleep(shoot).then(|| {
        "it is hibernated: its control plane has no pods, and its API server does not answer until spec.hibernation.enabled of the \
         Shoot is false"
            .to_owned()
    })
}

fn other_error(error: &Value) -> String {
    let place = match text(&error["taskID"]) {
        status::INITIALIZE => "before the first task".to_owned(),
        "" => "outside of the tasks".to_owned(),
        task => format!("in task {task:?}, which this version does not have"),
    };
    format!("last error {place}: {}{}", text(&error["description"]), codes(&error["codes"]))
}

fn codes(codes: &Value) -> String {
    let all: Vec<&str> = codes.as_array().into_iter().flatten().map(text).collect();
    if all.is_empty() { String::new() } else { format!(" ({})", all.join(", ")) }
}

/// Whether the agent works on the Shoot, and the remedy if it does not.
fn stand(decision: &ShootDecision, input: &ShootDecisionInput<'_>, seed: &str) -> Vec<String> {
    let (shoot, now) = (input.shoot, input.now);
    let last = &shoot["status"]["lastOperation"];
    match decision {
        ShootDecision::Nothing => vec![match ShootSeeds::of(shoot).operates() {
            "" => {
                "it has no seed yet: gardener-scheduler has not found one; its last operation contains the reason"
                    .to_owned()
            }
            other if other == seed && input.seed.is_null() => {
                format!("the garden has no Seed {seed}: run gardenlet explain seed {seed}")
            }
            other if other == seed => {
                "it is being deleted, and its gardenlet is done: other controllers hold it".to_owned()
            }
            other if ShootSeeds::of(shoot).is_leaving() => {
                format!(
                    "seed {other} works on it until nothing of it is left there, and then this seed restores it: run explain with that \
                     seed's configuration to see the tasks"
                )
            }
            other => {
                format!("it is on seed {other}, and this is the configuration of seed {seed}: run explain with that seed's configuration")
            }
        }],
        ShootDecision::Later { why: WaitReason::UpToDate, after, .. } => {
            let after = after.map(|after| format!(" in {} at the earliest", duration::format(after)));
            let when = after.unwrap_or_default();
            vec![format!("{}{when}: {}", WaitReason::UpToDate.as_str(), WaitReason::UpToDate.remedy())]
        }
        ShootDecision::Later { why, .. } => vec![format!("left alone: {}: {}", why.as_str(), why.remedy())],
        ShootDecision::Blocked { why, .. } if has_foreign_workers(shoot, input.host_types) => {
            vec![format!("never reconciled: {why}")]
        }
        ShootDecision::Blocked { why, .. } if input.obstacle == Some(why.as_str()) => vec![why.clone()],
        ShootDecision::Blocked { why, .. } if decide::operation(shoot) == Operation::Migrate => vec![format!(
            "it stays here for now: {why}: gardener-controller-manager confirms the other Seed with constraint ReadyForMigration, \
             once that Seed has conditions GardenletReady and SeedSystemComponentsHealthy, and the status.gardener.version of this one"
        )],
        ShootDecision::Blocked { why, after } => {
            let remedy = "run gardenlet explain seed, and gardenlet doctor where the agent runs";
            vec![format!(
                "postponed: {why}: {remedy}; the agent looks again every {}",
                duration::format(*after)
            )]
        }
        ShootDecision::Now(_) => match text(&last["state"]) {
            "Error" => vec![format!("the agent tries again by itself{}", until(shoot, input))],
            "Processing" => stale(last, now).into_iter().collect(),
            _ => Vec::new(),
        },
    }
}

/// Until when the agent retries an operation.
fn until(shoot: &Value, input: &ShootDecisionInput<'_>) -> String {
    let since = parse_rfc3339(text(&shoot["status"]["retryCycleStartTime"])).ok();
    let end = since.map(|since| since.plus(input.settings.retry_duration));
    end.map_or(String::new(), |end| format!(", until {}", rfc3339(end)))
}

/// A report older than this is old: no task takes so long without an update.
const OLD: Duration = Duration::from_secs(900);

fn stale(last: &Value, now: Timestamp) -> Option<String> {
    let told = parse_rfc3339(text(&last["lastUpdateTime"])).ok()?;
    let is_old = now.since(told) > OLD;
    is_old.then(|| {
        "the last report is old: check whether the agent runs and reaches the garden (gardenlet doctor, /statusz)".to_owned()
    })
}

/// The tasks, with the findings about those that may not be done.
fn walk(
    tasks: &[TaskOutline],
    status: &Value,
    now: Timestamp,
    look: &dyn Fn(&str) -> Seen,
) -> Vec<ExplainedTask> {
    let states = judge::judge(tasks, status);
    let since = age(&status["lastOperation"]["lastUpdateTime"], now);
    let one = |(task, state): (&TaskOutline, &State)| {
        let (word, notes) = match state {
            State::Done => ("done", Vec::new()),
            State::Skipped => ("left out", Vec::new()),
            State::Waiting(needs) => ("waits", vec![waits(tasks, needs)]),
            State::Running => {
                let since = since.as_ref().map(|age| format!("for {age} or longer"));
                let before = judge::error_of(task.name, status).map(|error| {
                    format!("it failed before: {}{}", text(&error["description"]), codes(&error["codes"]))
                });
                ("running", since.into_iter().chain(seen(look(task.name))).chain(before).collect())
            }
            State::Failed(why, codes) => {
                let codes = if codes.is_empty() { String::new() } else { format!(" ({})", codes.join(", ")) };
                let notes = std::iter::once(format!("{why}{codes}")).chain(seen(look(task.name)));
                ("failed", notes.collect())
            }
            State::Ended | State::Unknown => match look(task.name) {
                Seen::There => {
                    ("done", vec!["the cluster shows it; the report does not contain it".to_owned()])
                }
                other => ("not known", seen(other)),
            },
        };
        ExplainedTask { name: task.name.to_owned(), state: word, notes }
    };
    tasks.iter().zip(&states).map(one).collect()
}

fn waits(tasks: &[TaskOutline], needs: &[usize]) -> String {
    let names: Vec<String> = needs.iter().map(|need| format!("{:?}", tasks[*need].name)).collect();
    if names.is_empty() {
        "for the operation to begin".to_owned()
    } else {
        format!("for {}", names.join(", "))
    }
}

fn seen(seen: Seen) -> Vec<String> {
    match seen {
        Seen::There => vec!["what it waits for exists now".to_owned()],
        Seen::Missing(why) => why,
        Seen::Nowhere => vec!["the clusters show nothing of this task: see the agent's log".to_owned()],
        Seen::Unread(why) => vec![format!("not read: {why}")],
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::settings::ShootController;

    const NOW: &str = "2026-01-05T10:00:00Z";
    const HOUR: Duration = Duration::from_secs(3_600);

    /// The lines about a Shoot on a good Seed, after a change of both.
    fn said(shoot: &Value, seed: &Value) -> String {
        said_of(shoot, seed, None)
    }

    fn said_of(shoot: &Value, seed: &Value, obstacle: Option<&str>) -> String {
        let settings = ShootController {
            workers: 20,
            dns_entry_ttl_seconds: 120,
            sync_period: HOUR,
            respect_sync_period_overwrite: true,
            reconcile_in_maintenance_only: false,
            retry_duration: 12 * HOUR,
            progress_report_period: Some(HOUR),
        };
        let agent = seed["status"]["gardener"].clone();
        let now = parse_rfc3339(NOW).unwrap();
        let input = ShootDecisionInput {
            shoot,
            seed,
            agent: &agent,
            settings: &settings,
            now,
            share: 0.0,
            is_listed: false,
            host_types: &[],
            obstacle,
        };
        stand(&decide::decide(&input), &input, "edge").join("\n")
    }

    fn seed() -> Value {
        let conditions = ["GardenletReady", "SeedSystemComponentsHealthy"]
            .map(|kind| json!({"type": kind, "status": "True"}));
        json!({"metadata": {"name": "edge"}, "status": {"gardener": {"id": "a", "name": "b", "version": "v1.150.0"},
            "conditions": conditions}})
    }

    #[test]
    fn it_is_said_whose_turn_it_is() {
        let shoot = |annotations: Value, spec: Value, status: Value| {
            let mut shoot = json!({"metadata": {"annotations": annotations}, "spec": spec, "status": status});
            shoot["spec"]["maintenance"] =
                json!({"timeWindow": {"begin": "220000+0000", "end": "230000+0000"}});
            shoot
        };
        let on = |spec: Value| {
            let mut spec = spec;
            spec["seedName"] = json!("edge");
            spec
        };
        let none = || json!({});
        let last = |state: &str| {
            json!({"lastOperation": {"type": "Reconcile", "state": state, "lastUpdateTime": "2026-01-05T08:00:00Z"},
                "gardener": {"version": "v1.150.0"}, "retryCycleStartTime": "2026-01-05T08:00:00Z"})
        };
        let workers = on(json!({"provider": {"workers": [{"name": "w"}]}}));
        let table = [
            (shoot(none(), none(), none()), "it has no seed yet"),
            (
                shoot(none(), json!({"seedName": "other"}), none()),
                "it is on seed other, and this is the configuration of seed edge",
            ),
            (
                shoot(none(), on(none()), json!({"seedName": "other"})),
                "seed other works on it until nothing of it is left there, and then this seed restores it",
            ),
            (
                shoot(none(), workers, none()),
                "never reconciled: This gardenlet does not serve Shoots with workers",
            ),
            (
                shoot(json!({"shoot.gardener.cloud/ignore": "true"}), on(none()), last("Succeeded")),
                "left alone: its annotation says that it is ignored: remove annotation shoot.gardener.cloud/ignore",
            ),
            (
                shoot(none(), on(none()), last("Failed")),
                "left alone: its last operation failed permanently: fix the problems",
            ),
            (shoot(none(), on(none()), last("Error")), "tries again by itself, until 2026-01-05T20:00:00Z"),
            (
                shoot(none(), on(none()), last("Processing")),
                "the last report is old: check whether the agent runs",
            ),
            (shoot(none(), on(none()), last("Succeeded")), ""),
            (
                shoot(none(), json!({"seedName": "other"}), json!({"seedName": "edge"})),
                "it stays here for now: waiting for confirmation that destination Seed is available",
            ),
        ];
        for (shoot, expected) in table {
            let said = said(&shoot, &seed());
            assert!(said.contains(expected) && said.is_empty() == expected.is_empty(), "{shoot}: {said}");
        }
        let half_restored = shoot(none(), json!({"seedName": "other"}), json!({"seedName": "edge"}));
        assert_eq!(said_of(&half_restored, &seed(), Some("bind it again")), "bind it again");
        let mut confined = shoot(none(), on(none()), last("Succeeded"));
        confined["spec"]["maintenance"]["confineSpecUpdateRollout"] = json!(true);
        let told = said(&confined, &seed());
        assert!(
            told.contains("in 12h0m0s at the earliest: annotate it with gardener.cloud/operation=reconcile"),
            "{told}"
        );
        let mut ill = seed();
        ill["status"]["conditions"][0]["status"] = json!("Unknown");
        let put_off = said(&shoot(none(), on(none()), none()), &ill);
        assert!(
            put_off.starts_with(
                "postponed: Shoot cannot be reconciled on seed: the Seed's condition GardenletReady"
            ),
            "{put_off}"
        );
        let mut stopped = seed();
        stopped["metadata"]["annotations"] =
            json!({"shoot.gardener.cloud/emergency-stop-reconciliations": "true"});
        assert!(said(&shoot(none(), on(none()), none()), &stopped).contains("remove annotation"));
        assert!(
            said(&shoot(none(), on(none()), none()), &Value::Null).starts_with("the garden has no Seed edge")
        );
    }

    #[test]
    fn tasks_say_what_was_seen_of_them() {
        let task = |name: &'static str, needs: &[usize], is_skipped| TaskOutline {
            name,
            needs: needs.to_vec(),
            is_skipped,
        };
        let tasks =
            [task("a", &[], false), task("b", &[0], false), task("c", &[1], false), task("x", &[0], true)];
        let now = parse_rfc3339(NOW).unwrap();
        let look = |name: &str| match name {
            "b" => Seen::Missing(vec!["no pod".to_owned()]),
            _ => Seen::There,
        };
        let told = |status: Value| {
            let line =
                |task: ExplainedTask| format!("{} {}: {}", task.state, task.name, task.notes.join("; "));
            walk(&tasks, &status, now, &look).into_iter().map(line).collect::<Vec<_>>()
        };
        let going = json!({"lastOperation": {"state": "Processing", "progress": 33, "description": "b",
            "lastUpdateTime": "2026-01-05T09:59:00Z"}, "lastErrors": [{"taskID": "b", "description": "old", "codes": ["ERR_X"]}]});
        let waits = "waits c: for \"b\"";
        assert_eq!(
            told(going),
            [
                "done a: ",
                "running b: for 1m0s or longer; no pod; it failed before: old (ERR_X)",
                waits,
                "left out x: "
            ]
        );
        let over = json!({"lastOperation": {"state": "Error", "description": "No"}, "lastErrors": [{"taskID": "b", "description": "no"}]});
        assert_eq!(told(over), ["done a: ", "failed b: no; no pod", waits, "left out x: "]);
        let other =
            json!({"lastOperation": {"state": "Processing", "progress": 50, "description": "theirs"}});
        assert_eq!(told(other.clone())[1], "not known b: no pod");
        assert_eq!(told(other)[0], "done a: the cluster shows it; the report does not contain it");
        assert_eq!(told(json!({}))[0], "waits a: for the operation to begin");
    }

    #[test]
    fn a_shoot_that_sleeps_is_asleep() {
        let shoot =
            |is: bool| json!({"spec": {"hibernation": {"enabled": true}}, "status": {"hibernated": is}});
        assert!(asleep(&shoot(true)).is_some_and(|said| said.starts_with("it is hibernated")));
        assert_eq!(asleep(&shoot(false)), None);
    }
}
