//! The real etcd-druid of a seed, with the images of the etcds that it makes: the real etcd-backup-restore, and a stand-in for
//! etcd-wrapper (`tools/etcd-wrapper`), whose module is not served.

use crate::cluster::Cluster;
use crate::failure::{Failure, Result, equal};
use crate::image::{ETCD, Image};
use crate::lab::Lab;
use crate::node::Node;
use crate::site;

const MANIFEST: &str = include_str!("druid.yaml");
const STARTED_WITHIN_S: u64 = 120;

/// An image with a program of the tools.
struct Packed {
    program: &'static str,
    path: &'static str,
    /// The name of the image. This version of etcd-druid uses those of the two others for etcd 3.5.
    reference: &'static str,
}

const DRUID: Packed =
    Packed { program: "etcd-druid", path: "/etcd-druid", reference: "lab.local/etcd-druid:1" };
const WRAPPER: Packed = Packed {
    program: "etcd-wrapper",
    path: "/etcd-wrapper",
    reference: "europe-docker.pkg.dev/gardener-project/public/gardener/etcd-wrapper:v0.8.1",
};
const BACKUP_RESTORE: Packed = Packed {
    program: "etcd-backup-restore",
    path: "/etcdbrctl",
    reference: "europe-docker.pkg.dev/gardener-project/public/gardener/etcdbrctl:v0.44.1",
};
/// All programs that an etcd-druid needs.
pub(crate) const PROGRAMS: &[&str] = &[DRUID.program, WRAPPER.program, BACKUP_RESTORE.program];

/// Installs it in a seed that has its definitions, and waits until it works.
pub(crate) fn install(lab: &Lab, seed: &Cluster, node: &Node) -> Result<()> {
    let file =
        |name: &str| lab.environment.program(name).ok_or_else(|| Failure::new(format!("{name} not found")));
    for Packed { program, path, reference } in [DRUID, WRAPPER, BACKUP_RESTORE] {
        let mut files = vec![(path.to_owned(), file(program)?)];
        if program == WRAPPER.program {
            files.push(("/usr/local/bin/etcd".to_owned(), file(ETCD.program)?));
        }
        node.import(
            &Image { reference: reference.to_owned(), files, entrypoint: vec![path] }.write(&lab.place)?,
        )?;
    }
    seed.apply(&site::list_of(&MANIFEST.replace("${image}", DRUID.reference))?)?;
    works(seed)
}

/// It runs, and has not ended since its start.
pub(crate) fn works(seed: &Cluster) -> Result<()> {
    seed.rolled_out("garden", "deployment/etcd-druid", STARTED_WITHIN_S)?;
    let restarts = "jsonpath={.items[*].status.containerStatuses[*].restartCount}";
    let found = seed.kubectl(&[
        "get",
        "pods",
        "--namespace=garden",
        "--selector=app=etcd-druid",
        "--output",
        restarts,
    ])?;
    equal("restarts of etcd-druid", &found.as_str(), &"0")
}
