//! Addresses of Services, of the families that the cluster has.

use serde_json::{Value, json};

use super::rules::Write;
use crate::json::{list, text};

/// The families of a Service: those that it names; all of the cluster, if it prefers both; otherwise the first one.
pub fn families(service: &Value, write: &Write<'_>) -> Vec<String> {
    let named = list(service, "/spec/ipFamilies");
    if !named.is_empty() {
        return named.iter().filter_map(Value::as_str).map(str::to_owned).collect();
    }
    let is_dual = matches!(text(service, "/spec/ipFamilyPolicy"), "PreferDualStack" | "RequireDualStack");
    let all = of_cluster(write);
    let wanted = if is_dual { all.len() } else { 1 };
    all.into_iter().take(wanted).map(str::to_owned).collect()
}

/// The families of the ranges in ServiceCIDR `kubernetes`; without it, the cluster has IPv4 only.
fn of_cluster(write: &Write<'_>) -> Vec<&'static str> {
    let ranges = write.state.get("networking.k8s.io", "servicecidrs", "", "kubernetes");
    let ranges = ranges.map(|it| list(it, "/spec/cidrs").to_vec()).unwrap_or_else(|| vec![json!("")]);
    let family = |range: &Value| if text(range, "").contains(':') { "IPv6" } else { "IPv4" };
    ranges.iter().map(family).collect()
}

/// An address within a range that the Seeds of the tests declare, that no Service has.
pub fn free(family: &str, write: &Write<'_>) -> String {
    let taken = |address: &str| {
        let mut services = write.state.of("", "services", "");
        services.any(|(_, service)| list(service, "/spec/clusterIPs").iter().any(|it| it == address))
    };
    let any = || {
        let [first, second] = gardenlet::base::random::bytes::<2>();
        let last = second.max(2);
        if family == "IPv6" {
            format!("fd00:52::{first:x}:{last:x}")
        } else {
            format!("10.52.{first}.{last}")
        }
    };
    std::iter::repeat_with(any).find(|address| !taken(address)).unwrap_or_default()
}
