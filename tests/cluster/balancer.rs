//! Addresses for Services of type LoadBalancer, like those of a cloud or MetalLB. kube-proxy accepts packets to them
//! once they are in the status of a Service.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::process::Command;

use gardenlet::api::core::SERVICE;
use gardenlet::api::meta::{ALL_NAMESPACES, Key};
use gardenlet::kube::{Client, ListParams, Patch};
use serde_json::{Value, json};

use crate::failure::{Failure, Result};
use crate::process;
use crate::sandbox::ADDRESS;

/// For documentation: no network uses them.
pub(crate) const RANGE: &str = "203.0.113.0/24";
const FIRST: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
const COUNT: u32 = 254;

/// Makes the sandbox itself send packets to these addresses; they are translated after routing, like those of services.
pub(crate) fn prepare() -> Result<()> {
    process::run(Command::new("ip").args(["route", "replace", RANGE, "dev", "lo", "src", ADDRESS])).map(drop)
}

/// Gives an address to each Service that waits for one.
pub(crate) fn look(client: &Client) -> Result<()> {
    let services = client.list::<Value>(&SERVICE, ALL_NAMESPACES, &ListParams::default())?.items;
    for (namespace, name, address) in assignments(&services)? {
        let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": address}]}}});
        client.patch_status_blindly(&SERVICE, &Key::new(namespace, name), &Patch::Merge(status))?;
    }
    Ok(())
}

/// Namespace, name and address of the waiting Services: each gets the lowest free one.
fn assignments(services: &[Value]) -> Result<Vec<(&str, &str, Ipv4Addr)>> {
    let given =
        |service: &Value| service["status"]["loadBalancer"]["ingress"][0]["ip"].as_str()?.parse().ok();
    let mut taken: BTreeSet<Ipv4Addr> = services.iter().filter_map(given).collect();
    let waits = |service: &&Value| {
        let spec = &service["spec"];
        spec["type"] == "LoadBalancer" && spec["loadBalancerClass"].is_null() && given(service).is_none()
    };
    let mut assignments = Vec::new();
    for service in services.iter().filter(waits) {
        let mut all = (0..COUNT).map(|n| Ipv4Addr::from(u32::from(FIRST) + n));
        let address = all.find(|address| taken.insert(*address));
        let address = address.ok_or_else(|| Failure::new("the load balancer has no address left"))?;
        let text = |field: &str| service["metadata"][field].as_str().unwrap_or_default();
        assignments.push((text("namespace"), text("name"), address));
    }
    Ok(assignments)
}
