//! Separate namespaces for the whole run.
//!
//! The program starts itself again as `unshare --net --pid --mount`. The network has only a loopback device, so no
//! packet leaves the machine. When the first process of the PID namespace ends, the kernel ends all others in it,
//! including containers and shims. Mounts end with the mount namespace. `/run`, `/var/lib` and `/var/log` are empty
//! file systems in memory, for files that the servers write outside of their state folder. The kernel settings that a
//! kubelet changes are copies.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::time::Duration;

use gardenlet::base::random;
use gardenlet::base::signal;
use gardenlet::base::stop::Stop;
use gardenlet::base::thread;

use crate::environment::{Environment, STATE_VARIABLE};
use crate::failure::{Doing, Failure, Result};
use crate::wait;

/// The address on loopback that servers advertise: they refuse 127.0.0.1.
pub(crate) const ADDRESS: &str = "10.77.0.1";

/// The prefix of the folders of runs.
const PREFIX: &str = "gardenlet-lab-";
/// The longest duration of a run, and the age after which a folder is unused.
const RUN_MAX_S: u64 = 7_200;
const GROUPS_END_WITHIN_S: u64 = 20;
const ABANDONED: Duration = Duration::from_secs(3 * 3_600);

/// The first process of the namespaces. It remains the parent of the harness and reaps orphans.
const FIRST: &str = r#"
set -e
ip link set lo up
ip addr add 10.77.0.1/32 dev lo
for folder in /run /var/lib /var/log; do mount -t tmpfs sandbox "$folder"; done
for setting in kernel/panic kernel/panic_on_oops kernel/keys/root_maxkeys kernel/keys/root_maxbytes vm/overcommit_memory; do
  copy="/run/settings/$setting"
  mkdir -p "${copy%/*}"
  cat "/proc/sys/$setting" > "$copy"
  mount --bind "$copy" "/proc/sys/$setting"
done
"$@" && exit 0
exit $?
"#;

/// Runs this program again inside the sandbox and cleans up after it.
pub(crate) fn enter(environment: &Environment) -> Result<ExitCode> {
    let name = format!("{PREFIX}{}", random::hex(8));
    let state = environment.temporary().join(&name);
    remove_abandoned(environment.temporary());
    fs::create_dir_all(&state).doing(|| format!("create {}", state.display()))?;
    let result = run_inside(environment, &state);
    let ended = end_cgroups(&name);
    fs::remove_dir_all(&state).doing(|| format!("remove {}", state.display()))?;
    let status = result?;
    ended?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Removes the folders of runs whose outer process was killed and could not remove them.
fn remove_abandoned(temporary: &Path) {
    let entries = fs::read_dir(temporary).into_iter().flatten().flatten();
    let age = |entry: &fs::DirEntry| entry.metadata().and_then(|m| m.modified()).ok()?.elapsed().ok();
    for entry in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX)) {
        if age(&entry).is_some_and(|age| age > ABANDONED) {
            // Another run may remove it at the same time.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn run_inside(environment: &Environment, state: &Path) -> Result<ExitStatus> {
    let stop = Stop::new();
    let watch = signal::stop_on_signal(&stop, || ()).doing(|| "watch signals".to_owned())?;
    let myself = std::env::current_exe().doing(|| "find this program".to_owned())?;
    let unshare = environment.program("unshare").ok_or_else(|| Failure::new("no unshare"))?;
    let mut child = Command::new(unshare)
        .args([
            "--net",
            "--pid",
            "--mount",
            "--fork",
            "--kill-child",
            "--mount-proc",
            "sh",
            "-c",
            FIRST,
            "sandbox",
        ])
        .arg(myself)
        .args(std::env::args().skip(1))
        .env("PATH", environment.search_path())
        .env(STATE_VARIABLE, state)
        // The write end of this pipe closes when this process ends, in whatever way.
        .stdin(Stdio::piped())
        .process_group(0)
        .spawn()
        .doing(|| "start unshare".to_owned())?;
    let mut keyboard = child.stdin.take();
    if environment.arguments.keep {
        // Enter is for the harness inside.
        let forward = move || keyboard.as_mut().map(|pipe| std::io::copy(&mut std::io::stdin(), pipe));
        drop(thread::spawn("keyboard", 64 << 10, forward)?);
    }
    let status = wait::until("the end of the run", RUN_MAX_S, || match child.try_wait() {
        Ok(None) if stop.is_stopped() => Ok(Some(Err(Failure::new("stopped by a signal")))),
        other => other.map(|ended| ended.map(Ok)),
    });
    // Ends the namespaces; has no effect if they have ended already.
    let _ = child.kill();
    let _ = child.wait();
    drop(watch);
    status?
}

/// Ends this process when the outer one is gone, and with it everything in the sandbox.
pub(crate) fn end_with_outside(keep: bool) -> std::io::Result<()> {
    if keep {
        return Ok(());
    }
    thread::spawn("outside", 64 << 10, || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        #[allow(clippy::disallowed_methods)] // the run was abandoned: nothing is left to report to
        std::process::exit(1);
    })
    .map(drop)
}

/// Removes the control groups at this path of each hierarchy, as soon as the last of their processes have ended.
pub(crate) fn end_cgroups(path: &str) -> Result<()> {
    let root = Path::new("/sys/fs/cgroup");
    wait::until_true(&format!("the end of control groups {path}"), GROUPS_END_WITHIN_S, || {
        remove_cgroups(root, path);
        let hierarchies = fs::read_dir(root).into_iter().flatten().flatten().map(|entry| entry.path());
        !hierarchies.chain([root.to_owned()]).any(|hierarchy| hierarchy.join(path).exists())
    })
}

/// Removes the control groups below any folder called `name`, deepest first. They are empty: their processes ended.
pub(crate) fn remove_cgroups(root: &Path, name: &str) {
    let folders = |path: &Path| -> Vec<PathBuf> {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        entries.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path()).collect()
    };
    fn remove(path: &Path, folders: &dyn Fn(&Path) -> Vec<PathBuf>) {
        folders(path).iter().for_each(|inner| remove(inner, folders));
        let _ = fs::remove_dir(path);
    }
    for hierarchy in folders(root).into_iter().chain([root.to_owned()]) {
        let ours = hierarchy.join(name);
        if ours.is_dir() {
            remove(&ours, &folders);
        }
    }
}
