//! Container images as archives that `ctr images import` reads: one layer, no registry.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use crate::environment::Environment;
use crate::failure::{Doing, Failure, Result};
use crate::process;

/// The image of the container that holds a pod's namespaces.
pub(crate) const PAUSE: &str = "lab.local/pause:1";
/// An image whose container answers HTTP on port 8080, see `container.c`.
pub(crate) const SERVE: &str = "lab.local/serve:1";

/// The home folder of each user, as in the images of Gardener.
const HOME: &str = "/home/nonroot";

const PROGRAM: &str = include_str!("container.c");

/// A program of a control plane or of the node's own services, built from a Go module (`tools`). Its image has the name
/// from Gardener's image vector.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Component {
    /// Its name among the programs of the tools.
    pub(crate) program: &'static str,
    repository: &'static str,
    /// Its path in the image.
    path: &'static str,
    /// The source of its version: a module, and the line of it.
    versions: &'static str,
    module: &'static str,
}

pub(crate) const ETCD: Component = Component {
    program: "etcd-3.5",
    repository: "gcr.io/etcd-development/etcd",
    path: "/usr/local/bin/etcd",
    versions: include_str!("tools/etcd-3.5/go.mod"),
    module: "go.etcd.io/etcd/server/v3",
};
/// The tool that restores snapshots of [`ETCD`], among the programs of the tools.
pub(crate) const RESTORER: &str = "etcdutl-3.5";
pub(crate) const DNS: Component = Component {
    program: "coredns",
    repository: "registry.k8s.io/coredns/coredns",
    path: "/coredns",
    versions: include_str!("tools/coredns/go.mod"),
    module: "github.com/coredns/coredns",
};
pub(crate) const API_SERVER: Component = Component {
    program: "kube-apiserver",
    repository: "registry.k8s.io/kube-apiserver",
    path: "/usr/local/bin/kube-apiserver",
    versions: include_str!("tools/k8s/go.mod"),
    module: "k8s.io/kubernetes",
};
pub(crate) const CONTROLLERS: Component = Component {
    program: "kube-controller-manager",
    repository: "registry.k8s.io/kube-controller-manager",
    path: "/usr/local/bin/kube-controller-manager",
    ..API_SERVER
};
pub(crate) const SCHEDULER: Component = Component {
    program: "kube-scheduler",
    repository: "registry.k8s.io/kube-scheduler",
    path: "/usr/local/bin/kube-scheduler",
    ..API_SERVER
};
/// The tunnel to the nodes of a Shoot.
pub(crate) const TUNNEL_SERVER: Component = Component {
    program: "konnectivity-server",
    repository: "registry.k8s.io/kas-network-proxy/proxy-server",
    path: "/proxy-server",
    versions: include_str!("tools/konnectivity/go.mod"),
    module: "sigs.k8s.io/apiserver-network-proxy",
};
pub(crate) const PROXY: Component = Component {
    program: "kube-proxy",
    repository: "registry.k8s.io/kube-proxy",
    path: "/usr/local/bin/kube-proxy",
    ..API_SERVER
};
/// Where an agent of a node takes its kubelet from.
pub(crate) const KUBELET: Component = Component {
    program: "kubelet",
    repository: "europe-docker.pkg.dev/gardener-project/releases/hyperkube",
    path: "/kubelet",
    ..API_SERVER
};
/// Gardener's own agent of a node.
pub(crate) const NODE_AGENT: Component = Component {
    program: "gardener-node-agent",
    repository: "europe-docker.pkg.dev/gardener-project/releases/gardener/node-agent",
    path: "/gardener-node-agent",
    versions: include_str!("tools/node-agent/go.mod"),
    module: "github.com/gardener/gardener",
};
pub(crate) const METRICS_SERVER: Component = Component {
    program: "metrics-server",
    repository: "registry.k8s.io/metrics-server/metrics-server",
    path: "/metrics-server",
    versions: include_str!("tools/metrics-server/go.mod"),
    module: "sigs.k8s.io/metrics-server",
};
pub(crate) const TUNNEL_AGENT: Component = Component {
    program: "konnectivity-agent",
    repository: "registry.k8s.io/kas-network-proxy/proxy-agent",
    path: "/proxy-agent",
    ..TUNNEL_SERVER
};
/// Of the next minor version.
pub(crate) const NEXT_API_SERVER: Component = Component {
    program: "kube-apiserver-1.35",
    versions: include_str!("tools/k8s-1.35/go.mod"),
    ..API_SERVER
};
/// Of the next minor version.
pub(crate) const NEXT_CONTROLLERS: Component =
    Component { program: "kube-controller-manager-1.35", versions: NEXT_API_SERVER.versions, ..CONTROLLERS };
/// Of the next minor version.
pub(crate) const NEXT_SCHEDULER: Component =
    Component { program: "kube-scheduler-1.35", versions: NEXT_API_SERVER.versions, ..SCHEDULER };
/// Of the newest minor version that Gardener supports. It is built for `--long` only.
pub(crate) const NEWEST_API_SERVER: Component = Component {
    program: "kube-apiserver-1.36",
    versions: include_str!("tools/k8s-1.36/go.mod"),
    ..API_SERVER
};
/// Of the newest minor version.
pub(crate) const NEWEST_CONTROLLERS: Component = Component {
    program: "kube-controller-manager-1.36",
    versions: NEWEST_API_SERVER.versions,
    ..CONTROLLERS
};

impl Component {
    /// Its version, which is the tag of its image: a `v`, then numbers.
    pub(crate) fn version(&self) -> &'static str {
        let mut words = self.versions.split_whitespace();
        // A package follows `tool`, not a version.
        let version = |words: &mut std::str::SplitWhitespace<'static>| {
            words.find(|word| *word == self.module).and_then(|_| words.next())
        };
        std::iter::from_fn(|| version(&mut words)).find(|word| word.starts_with('v')).unwrap_or_default()
    }

    /// The name of its container and of its workload.
    pub(crate) fn name(&self) -> &'static str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    pub(crate) fn reference(&self) -> String {
        format!("{}:{}", self.repository, self.version())
    }

    /// Writes the archive of its image.
    pub(crate) fn write(&self, environment: &Environment, folder: &Path) -> Result<PathBuf> {
        self.image(environment)?.write(folder)
    }

    /// Its image, with what else belongs to it.
    pub(crate) fn image(&self, environment: &Environment) -> Result<Image<'static>> {
        let mut files = vec![(self.path.to_owned(), find(environment, self.program)?)];
        if self.program == PROXY.program {
            files.extend(packet_filter(environment)?);
        }
        if self.program == ETCD.program {
            // It is in the image of etcd, too.
            files.push(("/usr/local/bin/etcdutl".to_owned(), find(environment, RESTORER)?));
        }
        Ok(Image { reference: self.reference(), files, entrypoint: vec![self.path] })
    }
}

fn find(environment: &Environment, name: &str) -> Result<PathBuf> {
    environment.program(name).ok_or_else(|| Failure::new(format!("{name} not found")))
}

/// A shell, and the tools with which kube-proxy changes the rules of the kernel. As in its image, one program has many names.
fn packet_filter(environment: &Environment) -> Result<Vec<(String, PathBuf)>> {
    const NAMES: [&str; 6] =
        ["iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save", "ip6tables-restore"];
    let mut files = vec![("/bin/sh".to_owned(), find(environment, "busybox")?)];
    for name in NAMES {
        files.push((format!("/usr/sbin/{name}"), find(environment, name)?));
    }
    // It loads these by their path.
    let folders = EXTENSIONS_OF_IPTABLES.iter().flat_map(fs::read_dir);
    let extensions: Vec<PathBuf> = folders.flatten().flatten().map(|entry| entry.path()).collect();
    let libraries =
        process::run(environment.command("ldd")?.arg(find(environment, NAMES[0])?).args(&extensions))?;
    let libraries = libraries.split_whitespace().filter(|word| word.starts_with('/') && !word.ends_with(':'));
    let libraries: BTreeSet<PathBuf> = libraries.map(PathBuf::from).chain(extensions).collect();
    files.extend(libraries.into_iter().map(|path| (path.display().to_string(), path)));
    Ok(files)
}

/// Where distributions install them.
const EXTENSIONS_OF_IPTABLES: [&str; 2] =
    ["/usr/lib/x86_64-linux-gnu/xtables", "/usr/lib/aarch64-linux-gnu/xtables"];

/// An image with a shell and other small tools, whose container waits.
pub(crate) const TOOLS: &str = "lab.local/tools:1";

/// Writes the archive of [`TOOLS`].
pub(crate) fn of_tools(environment: &Environment, folder: &Path) -> Result<PathBuf> {
    tools(environment)?.write(folder)
}

/// The image [`TOOLS`].
pub(crate) fn tools(environment: &Environment) -> Result<Image<'static>> {
    let path = "/bin/busybox";
    // The first process of a container ignores what it does not handle.
    let entrypoint = vec![path, "sh", "-c", "trap exit TERM; sleep 86400 & wait"];
    let files = vec![(path.to_owned(), find(environment, "busybox")?)];
    Ok(Image { reference: TOOLS.to_owned(), files, entrypoint })
}

/// The image of an extension, whose chart is in the folder `extension`: the name of its program among those of the
/// tools, the image's name, and the program's path.
pub(crate) const EXTENSION: (&str, &str, &str) = ("extension", "lab.local/extension:1", "/extension");

/// Writes the archive of [`EXTENSION`].
pub(crate) fn of_extension(environment: &Environment, folder: &Path) -> Result<PathBuf> {
    let (program, reference, path) = EXTENSION;
    let files = vec![(path.to_owned(), find(environment, program)?)];
    Image { reference: reference.to_owned(), files, entrypoint: vec![path] }.write(folder)
}

/// What an image contains.
#[derive(Debug)]
pub(crate) struct Image<'a> {
    pub(crate) reference: String,
    /// Absolute path in the image, and the file on this machine.
    pub(crate) files: Vec<(String, PathBuf)>,
    pub(crate) entrypoint: Vec<&'a str>,
}

/// Writes the archives of [`PAUSE`] and [`SERVE`].
pub(crate) fn build_basic(environment: &Environment, folder: &Path) -> Result<Vec<PathBuf>> {
    basic(environment, folder)?.iter().map(|image| image.write(folder)).collect()
}

/// The images [`PAUSE`] and [`SERVE`], with a program that is compiled in `folder`.
pub(crate) fn basic(environment: &Environment, folder: &Path) -> Result<[Image<'static>; 2]> {
    let source = folder.join("container.c");
    let program = folder.join("container");
    fs::write(&source, PROGRAM).doing(|| format!("write {}", source.display()))?;
    let compiler = find(environment, "gcc")?;
    process::run(Command::new(compiler).args(["-static", "-O1", "-s", "-o"]).arg(&program).arg(&source))?;
    let image = |reference: &str, entrypoint: &[&'static str]| Image {
        reference: reference.to_owned(),
        files: vec![("/container".to_owned(), program.clone())],
        entrypoint: entrypoint.to_owned(),
    };
    Ok([image(PAUSE, &["/container", "pause"]), image(SERVE, &["/container", "serve", "8080"])])
}

/// The folder of the static programs for this machine.
fn static_programs() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap_or(Path::new("target"));
    target.join(format!("{}-unknown-linux-musl", std::env::consts::ARCH))
}

/// Whether there is a program for [`of_the_agent`].
pub(crate) fn can_be_made() -> bool {
    ["shipping", "debug"].iter().any(|profile| static_programs().join(profile).join("gardenlet").is_file())
}

/// The archive that `packaging/image` makes: of the released program for this machine, and of the one for ARM if it
/// exists; otherwise of a quickly built program.
pub(crate) fn of_the_agent(folder: &Path) -> Result<PathBuf> {
    let pack = |arguments: &[&str]| {
        let mut command = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/image"));
        process::run(command.arg("--output").arg(folder).args(arguments))
    };
    let machine = std::env::consts::ARCH;
    let packed = pack(&[machine, "armv7"]).or_else(|_| pack(&[machine])).or_else(|shipped| {
        pack(&["--check", machine]).map_err(|quick| Failure::new(format!("no image: {shipped}; {quick}")))
    });
    packed.map(|_| folder.join("gardenlet.tar"))
}

impl Image<'_> {
    /// Writes the archive to a folder and returns its path.
    pub(crate) fn write(&self, folder: &Path) -> Result<PathBuf> {
        let layer = self.layer().doing(|| format!("build {}", self.reference))?;
        let layer_digest = sha256(&layer);
        let config = self.config(&layer_digest);
        let config_name = format!("{}.json", sha256(config.as_bytes()));
        let layer_name = format!("{layer_digest}/layer.tar");
        let manifest = json!([{"Config": config_name, "RepoTags": [self.reference], "Layers": [layer_name]}])
            .to_string();
        let path = folder.join(format!("{}.tar", self.reference.replace(['/', ':'], "-")));
        let parts: [(&str, &[u8]); 3] = [
            (&config_name, config.as_bytes()),
            (&layer_name, &layer),
            ("manifest.json", manifest.as_bytes()),
        ];
        let written = archive(&parts).and_then(|bytes| fs::write(&path, bytes));
        written.doing(|| format!("write {}", path.display()))?;
        Ok(path)
    }

    /// Its configuration. The digest of its layer has hexadecimal digits.
    pub(crate) fn config(&self, layer_digest: &str) -> String {
        let architecture = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
        json!({
            "architecture": architecture,
            "os": "linux",
            "config": {"Entrypoint": self.entrypoint, "Env": [format!("HOME={HOME}")]},
            "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{layer_digest}")]},
        })
        .to_string()
    }

    /// Its files, not compressed.
    pub(crate) fn layer(&self) -> std::io::Result<Vec<u8>> {
        let mut layer = tar::Builder::new(Vec::new());
        for folder in ["tmp/", HOME.trim_start_matches('/')] {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(tar::EntryType::Directory);
            header.set_mode(0o1777);
            header.set_size(0);
            layer.append_data(&mut header, folder, std::io::empty())?;
        }
        for (path, file) in &self.files {
            append(&mut layer, path.trim_start_matches('/'), 0o755, &fs::read(file)?)?;
        }
        layer.into_inner()
    }
}

fn archive(parts: &[(&str, &[u8])]) -> std::io::Result<Vec<u8>> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, bytes) in parts {
        append(&mut builder, name, 0o644, bytes)?;
    }
    builder.into_inner()
}

/// Appends a file to an archive.
pub(crate) fn append<W: std::io::Write>(
    builder: &mut tar::Builder<W>,
    path: &str,
    mode: u32,
    bytes: &[u8],
) -> std::io::Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_mode(mode);
    header.set_size(bytes.len() as u64);
    builder.append_data(&mut header, path, bytes)
}

/// A digest in hexadecimal digits.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}
