//! Address families: the real API server starts where the agent expects it to start, and refuses where it would without
//! the agent's argument. Each case has a network namespace of its own, with the addresses of a pod.

use std::fs;

use gardenlet::shoot::addresses;
use serde_json::json;

use crate::failure::{Doing, Failure, Result, equal};
use crate::lab::Lab;
use crate::process::Process;
use crate::wait;

const IPV4_RANGE: &str = "100.64.0.0/13";
const IPV6_RANGE: &str = "fd00:9::/108";
/// What Kubernetes says (`validation.go`).
const REFUSAL: &str = "must match public address family";
const SERVES: &str = "Serving securely on";

/// `$1`: addresses and routes, one command of `ip` a line; `$2`: folder. Then the arguments of the API server.
const POD: &str = r#"set -e
    ip link set lo up; ip link add pod type veth peer name node; ip link set pod up; ip link set node up
    printf '%s\n' "$1" | while read -r words; do [ -z "$words" ] || ip $words; done
    folder=$2; shift 2
    etcd --data-dir="$folder/etcd" --log-level=error --unsafe-no-fsync &
    exec kube-apiserver "$@""#;

/// The addresses of a pod by the families of the seed.
fn network(families: &[&str]) -> String {
    let mut all = String::new();
    for family in families {
        all += match *family {
            "IPv4" => "address add 192.0.2.9/24 dev pod\nroute add default via 192.0.2.1\n",
            _ => "-6 address add 2001:db8::9/64 dev pod nodad\n-6 route add default via 2001:db8::1\n",
        };
    }
    all
}

/// Whether the server starts.
fn starts(lab: &Lab, name: &str, families: &[&str], more: &[String]) -> Result<bool> {
    let folder = lab.place.join(name);
    fs::create_dir_all(&folder).doing(|| format!("create {}", folder.display()))?;
    let mut command = lab.command("unshare")?;
    command.args(["--net", "--pid", "--fork", "--kill-child", "sh", "-c", POD, "pod", &network(families)]);
    command.arg(&folder).args([
        "--etcd-servers=http://127.0.0.1:2379",
        "--bind-address=::",
        "--secure-port=6443",
        "--authorization-mode=RBAC",
        "--service-account-issuer=https://api.example.org",
    ]);
    command.arg(format!("--cert-dir={}", folder.join("certificates").display()));
    command.args(lab.seed.signing_arguments()).args(more);
    let mut pod = Process::start(name, &folder, command)?;
    wait::until(&format!("{name}: the server to start or to refuse"), 60, || {
        let log = pod.log_text();
        match pod.ended() {
            Some(_) if log.contains(REFUSAL) => Ok(Some(false)),
            Some(status) => Err(Failure::new(format!("{name}: ended with {status}: {log}"))),
            None => Ok(log.contains(SERVES).then_some(true)),
        }
    })
}

/// See the module.
pub(crate) fn servers_start(lab: &mut Lab) -> Result<()> {
    let seeds: [&[&str]; 3] = [&["IPv4"], &["IPv4", "IPv6"], &["IPv6"]];
    for families in seeds {
        let address = if families[0] == "IPv4" { "10.1.0.9" } else { "fd00::9" };
        let service = json!({"spec": {"clusterIP": address, "ipFamilies": families}});
        for (range, short) in [(IPV4_RANGE, "v4"), (IPV6_RANGE, "v6")] {
            let name = |how: &str| format!("{how}-{}-services-{short}", families.join("-"));
            let services = format!("--service-cluster-ip-range={range}");
            let writes = addresses::writes_endpoints(&[range.to_owned()], None, &service);
            let plain = name("plain");
            equal(&plain, &starts(lab, &plain, families, std::slice::from_ref(&services))?, &writes)?;
            if !writes {
                let (ours, none) = (name("ours"), "--endpoint-reconciler-type=none".to_owned());
                equal(&ours, &starts(lab, &ours, families, &[services, none])?, &true)?;
            }
        }
    }
    Ok(())
}
