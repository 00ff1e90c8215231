//! The real etcd-druid of a seed, and the images of the etcds that it makes: the real etcd-backup-restore, and a stand-in for
//! etcd-wrapper (`tools/etcd-wrapper`), whose module is not served.

use serde_json::json;

use crate::cluster::{self, Cluster};
use crate::environment::Environment;
use crate::failure::{Failure, Result};
use crate::image::{ETCD, Image};
use crate::lab::Lab;
use crate::node::Node;
use crate::process::Process;

const PROGRAM: &str = "etcd-druid";
/// Programs of the tools: the path of each in its image, and the image that this etcd-druid uses for etcd 3.5.
const WRAPPER: (&str, &str, &str) = (
    "etcd-wrapper",
    "/etcd-wrapper",
    "europe-docker.pkg.dev/gardener-project/public/gardener/etcd-wrapper:v0.8.1",
);
const BACKUP_RESTORE: (&str, &str, &str) = (
    "etcd-backup-restore",
    "/etcdbrctl",
    "europe-docker.pkg.dev/gardener-project/public/gardener/etcdbrctl:v0.44.1",
);
/// All programs that an etcd-druid needs.
pub(crate) const PROGRAMS: &[&str] = &[PROGRAM, WRAPPER.0, BACKUP_RESTORE.0];

/// It ends when dropped.
#[derive(Debug)]
pub(crate) struct Druid {
    process: Process,
}

impl Druid {
    /// Starts it for a seed that has its definitions, and gives a node its images. It serves its metrics at a port of the sandbox.
    pub(crate) fn start(lab: &Lab, seed: &Cluster, node: &Node, port: u16) -> Result<Self> {
        for archive in images(lab)? {
            node.import(&archive)?;
        }
        let name = format!("{}-druid", seed.role.name);
        let config = lab.place.join(format!("{name}.yaml"));
        let settings = json!({
            "apiVersion": "config.druid.gardener.cloud/v1alpha1",
            "kind": "OperatorConfiguration",
            "server": {"metrics": {"bindAddress": "127.0.0.1", "port": port}},
            "controllers": {"etcd": {"etcdStatusSyncPeriod": "5s"}, "etcdCopyBackupsTask": {"enabled": true}},
            "featureGates": {"UpgradeEtcdVersion": true},
        });
        cluster::write(&config, &settings.to_string())?;
        let mut command = lab.command(PROGRAM)?;
        command.arg(format!("--config={}", config.display())).env("KUBECONFIG", seed.kubeconfig());
        Ok(Self { process: Process::start(&name, &lab.place, command)? })
    }

    pub(crate) fn ensure_running(&mut self) -> Result<()> {
        self.process.ensure_running()
    }
}

/// Writes the archives of both images.
fn images(lab: &Lab) -> Result<[std::path::PathBuf; 2]> {
    let Environment { .. } = &lab.environment;
    let file = |name: &str| {
        lab.environment.program(name).ok_or_else(|| Failure::new(format!("{name} not found")))
    };
    let (wrapper, wrapper_path, wrapper_image) = WRAPPER;
    let (sidecar, sidecar_path, sidecar_image) = BACKUP_RESTORE;
    let with_etcd = Image {
        reference: wrapper_image,
        files: vec![
            (wrapper_path.to_owned(), file(wrapper)?),
            ("/usr/local/bin/etcd".to_owned(), file(ETCD.program)?),
        ],
        entrypoint: vec![wrapper_path],
    };
    let beside = Image {
        reference: sidecar_image,
        files: vec![(sidecar_path.to_owned(), file(sidecar)?)],
        entrypoint: vec![sidecar_path],
    };
    Ok([with_etcd.write(&lab.place)?, beside.write(&lab.place)?])
}
