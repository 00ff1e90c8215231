//! Changes of the servers of a control plane, for the report of a story that fails: of their pods, and of the endpoints
//! of the exposed Service.

use std::sync::Mutex;
use std::time::Duration;

use gardenlet::api::core::POD;
use gardenlet::api::meta::{Resource, text};
use gardenlet::base::clock::{Clock, Mono};
use gardenlet::base::stop::Stop;
use gardenlet::kube::{Client, ListParams};
use serde_json::Value;

use super::Name;
use crate::failure::{Failure, Result};
use crate::wait;
use support::shoot::scene::ENDPOINT_SLICE;

const PERIOD: Duration = Duration::from_millis(500);
const SERVICE: &str = "kube-apiserver-exposure";

/// One change: its time, and the new state.
pub(super) type Seen = (Mono, String);

/// Records changes until `over`.
pub(super) fn until(seed: &Client, name: Name, over: &Stop, seen: &Mutex<Vec<Seen>>) {
    let clock = Clock::system();
    let mut last = [const { String::new() }; 2];
    while !over.wait(&clock, PERIOD) {
        let looks = [pods(seed, name), endpoints(seed, name)];
        for (last, look) in last.iter_mut().zip(looks) {
            let now = look.unwrap_or_else(|failure| failure.to_string());
            if *last != now {
                last.clone_from(&now);
                seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((wait::now(), now));
            }
        }
    }
}

/// A failure, with everything that was seen.
pub(super) fn explained(failure: &Failure, seen: &[Seen], began: Mono) -> Failure {
    let line = |(at, state): &Seen| format!("\n{:6.1} s  {state}", at.saturating_sub(began).as_secs_f64());
    Failure::new(format!("{failure}{}", seen.iter().map(line).collect::<String>()))
}

fn list(seed: &Client, resource: &Resource, name: Name, selector: &str) -> Result<Vec<Value>> {
    let params = ListParams { label_selector: selector.to_owned(), ..ListParams::default() };
    Ok(seed.list::<Value>(resource, &name.plane(), &params)?.items)
}

fn pods(seed: &Client, name: Name) -> Result<String> {
    let mut lines = Vec::new();
    for pod in list(seed, &POD, name, "role in (apiserver, main, events)")? {
        let status = &pod["status"]["containerStatuses"][0];
        let leaves = !pod["metadata"]["deletionTimestamp"].is_null();
        let (id, address) = (text(&pod["metadata"]["name"]), text(&pod["status"]["podIP"]));
        let (ready, restarts, state) = (&status["ready"], &status["restartCount"], &status["state"]);
        lines.push(format!("{id} {address} ready={ready} restarts={restarts} leaves={leaves} {state}"));
    }
    Ok(format!("pods: {}", lines.join("; ")))
}

fn endpoints(seed: &Client, name: Name) -> Result<String> {
    let selector = format!("kubernetes.io/service-name={SERVICE}");
    let slices = list(seed, &ENDPOINT_SLICE, name, &selector)?;
    let all = slices.iter().flat_map(|slice| slice["endpoints"].as_array().into_iter().flatten());
    let lines: Vec<String> =
        all.map(|endpoint| format!("{} {}", endpoint["addresses"][0], endpoint["conditions"])).collect();
    Ok(format!("endpoints: {}", lines.join("; ")))
}
