"""A package's life on a machine with systemd: installed, started, reloaded, upgraded, removed, purged.

The machine is tests/packaging/machine. It also runs both API servers of the playground as a service.
"""
import os
import pathlib
import shutil
import signal
import subprocess
import time

from harness import PATIENCE_S, ROOT, TARGET, check, leave_out, same, sh

UNIT = "gardenlet.service"
CONFIG = "/etc/gardenlet/config.yaml"


class Host:
    """The machine, and the outer path of its shared folder."""

    def __init__(self, folder):
        self.folder = folder
        self.log = (folder / "machine.log").open("w")
        self.process = subprocess.Popen([ROOT / "tests/packaging/machine", folder], stdin=subprocess.DEVNULL,
                                        stdout=self.log, stderr=subprocess.STDOUT)
        self.wait("systemd", lambda: (folder / "pid").is_file() or self.process.poll() is not None)
        if self.process.poll() is not None:
            raise AssertionError(f"no machine: {(folder / 'machine.log').read_text()}")
        self.pid = int((folder / "pid").read_text())
        self.wait("systemd's answer", lambda: self.ask("systemctl", "is-system-running") in ("running", "degraded"))

    def inside(self, *command):
        return ["nsenter", "--target", str(self.pid), "--all", "--wdns=/", "env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
                "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C", *command]

    def run(self, *command, code=0):
        return sh(*self.inside(*command), code=code, cwd="/")

    def ask(self, *command):
        """Its output, whatever its exit code is."""
        done = subprocess.run(self.inside(*command), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        return done.stdout.strip()

    def show(self, *properties, unit=UNIT):
        lines = self.run("systemctl", "show", unit, "--property", ",".join(properties)).splitlines()
        found = dict(line.split("=", 1) for line in lines)
        return found[properties[0]] if len(properties) == 1 else [found[name] for name in properties]

    def path(self, inside):
        """The outer path of a file of the machine; absolute links in it are not resolved inside."""
        return pathlib.Path(f"/proc/{self.pid}/root{inside}")

    def exists(self, inside):
        return self.ask("sh", "-c", f"if [ -e '{inside}' ]; then echo yes; fi") == "yes"

    def journal(self, unit=UNIT):
        return self.ask("journalctl", "--no-pager", "--output=cat", "--unit", unit)

    def wait(self, what, condition):
        end = time.monotonic() + PATIENCE_S
        while not condition():
            if time.monotonic() > end:
                raise AssertionError(f"{what} did not come")
            time.sleep(0.1)

    def end(self):
        os.kill(self.pid, signal.SIGKILL)
        self.process.wait(PATIENCE_S)
        self.log.close()


# --- the chapters, in this order ---


def installing_starts_nothing(host, deb):
    host.run("dpkg", "--install", f"/mnt/{deb.name}")
    same(host.show("LoadState", "ActiveState", "UnitFileState"), ["loaded", "inactive", "disabled"])
    same(host.run("dpkg", "--verify", "gardenlet"), "")
    same(host.run("gardenlet", "--version").split()[0], "gardenlet")


def both_clusters_run(host):
    host.run("mkdir", "/run/clusters")
    host.run("systemd-run", "--quiet", "--unit=clusters", "/mnt/playground", "--serve", "/run/clusters")
    host.wait("the clusters", lambda: host.exists("/run/clusters/ready"))
    # As the README describes; the sample is for another seed.
    config = host.path(CONFIG)
    config.write_text(config.read_text().replace("10.42.0.0/16", "10.51.0.0/16").replace("10.43.0.0/16", "10.52.0.0/16"))
    host.run("install", "-m", "600", "/run/clusters/seed.kubeconfig", "/run/clusters/bootstrap.kubeconfig", "/etc/gardenlet/")
    drop_in = "/etc/systemd/system/gardenlet.service.d/bootstrap.conf"
    host.run("install", "-D", "-m", "644", "/usr/share/doc/gardenlet/examples/bootstrap.conf", drop_in)
    host.run("systemctl", "daemon-reload")


def it_starts_and_reports_when_it_is_ready(host):
    # Ends when the agent sends READY=1, or fails.
    host.run("systemctl", "enable", "--now", UNIT)
    same(host.show("ActiveState", "SubState", "Type", "NRestarts"), ["active", "running", "notify", "0"])
    host.wait("a registered seed", lambda: '"Reconciled the Seed"' in host.journal())
    journal = host.journal()
    assert '"from":"file /run/credentials/gardenlet.service/bootstrap-kubeconfig"' in journal, journal
    name = host.run("uname", "--nodename").strip()
    assert f'"holder":"{name}_' in journal, f"{name} is not in {journal}"


def the_sandbox_is_on(host):
    pid = host.show("MainPID")
    status = dict(line.split(":\t", 1) for line in host.run("cat", f"/proc/{pid}/status").splitlines() if ":\t" in line)
    same([status[name].strip() for name in ("CapEff", "CapBnd", "NoNewPrivs", "Seccomp")], ["0" * 16, "0" * 16, "1", "2"])
    assert status["Uid"].split()[0] not in ("0", "65534"), "a user of its own"
    mounts = [line.split() for line in host.run("cat", f"/proc/{pid}/mountinfo").splitlines()]
    writable = {line[4] for line in mounts if "ro" not in line[5].split(",")}
    same("/" in writable, False, "the root folder")
    assert "/var/lib/private/gardenlet" in writable, writable
    # Not visible to it: other processes, devices, homes, the kubeconfigs as they are stored in /etc.
    seen = host.run("nsenter", "--target", pid, "--mount", "--", "sh", "-c", "ls /dev | sort | tr '\\n' ' '; ls /home /root | wc -l")
    assert " sd" not in seen and "vda" not in seen, seen
    same(host.run("stat", "-c", "%a %U", "/etc/gardenlet/seed.kubeconfig").strip(), "600 root")


def the_limits_hold(host):
    group = host.show("ControlGroup")
    memory = host.ask("sh", "-c", f"cat /sys/fs/cgroup{group}/memory.max /sys/fs/cgroup/memory{group}/memory.limit_in_bytes")
    tasks = host.ask("sh", "-c", f"cat /sys/fs/cgroup{group}/pids.max /sys/fs/cgroup/pids{group}/pids.max")
    same((memory, tasks), (str(256 << 20), "128"))


def the_watchdog_is_fed(host, since):
    same(host.show("WatchdogUSec"), "1min")
    host.wait("food for the watchdog", lambda: host.show("WatchdogTimestampMonotonic") != since)
    same(host.show("NRestarts"), "0")


def a_reload_keeps_the_process(host):
    before = host.show("MainPID", "InvocationID")
    config = host.path(CONFIG)
    config.write_text(config.read_text() + "logLevel: debug\n")
    host.run("systemctl", "reload", UNIT)
    host.wait("the level of the log", lambda: '"level":"debug"' in host.journal())
    same(host.show("MainPID", "InvocationID"), before)
    same(host.show("ActiveState"), "active")


def it_stops_and_is_not_killed(host):
    host.run("systemctl", "stop", UNIT)
    same(host.show("ActiveState", "Result", "ExecMainStatus"), ["inactive", "success", "0"])
    took_ms = (int(host.show("InactiveEnterTimestampMonotonic")) - int(host.show("ActiveExitTimestampMonotonic"))) / 1000
    print(f"           it took {took_ms:.0f} ms to stop")
    same(host.exists("/var/lib/gardenlet/state.json") or host.exists("/var/lib/private/gardenlet"), True, "its state")


def an_upgrade_does_not_start_a_stopped_service(host, newer):
    host.run("dpkg", "--install", f"/mnt/{newer.name}")
    same(host.show("ActiveState"), "inactive")
    same(host.run("dpkg-query", "--show", "--showformat", "${Version}", "gardenlet"), "0.1.1")


def an_upgrade_restarts_a_running_service(host, deb):
    host.run("systemctl", "start", UNIT)
    before = host.show("InvocationID")
    # A downgrade is an upgrade, too; the configuration was edited, and the package asks no question.
    host.run("dpkg", "--install", f"/mnt/{deb.name}")
    same(host.show("ActiveState", "UnitFileState"), ["active", "enabled"])
    assert host.show("InvocationID") != before, "the old process continues"
    assert "logLevel: debug" in host.path(CONFIG).read_text()


def removing_stops_it_and_keeps_the_operators_files(host):
    host.run("dpkg", "--remove", "gardenlet")
    same(host.show("ActiveState"), "inactive")
    kept = ["/etc/gardenlet/config.yaml", "/etc/gardenlet/seed.kubeconfig", "/var/lib/private/gardenlet"]
    gone = ["/usr/bin/gardenlet", "/usr/lib/systemd/system/gardenlet.service", "/usr/share/doc/gardenlet"]
    same([host.exists(path) for path in kept + gone], [True] * 3 + [False] * 3)
    same(host.ask("pgrep", "-x", "gardenlet"), "")


def installing_again_finds_these_files(host, deb):
    host.run("dpkg", "--install", f"/mnt/{deb.name}")
    same(host.show("ActiveState", "UnitFileState"), ["inactive", "enabled"])
    host.run("systemctl", "start", UNIT)
    same(host.show("ActiveState"), "active")


def purging_deletes_everything(host):
    host.run("dpkg", "--purge", "gardenlet")
    wanted = "/etc/systemd/system/multi-user.target.wants/gardenlet.service"
    gone = ["/etc/gardenlet", "/var/lib/gardenlet", "/var/lib/private/gardenlet", "/usr/bin/gardenlet", wanted]
    same([path for path in gone if host.exists(path)], [])
    same(host.ask("dpkg-query", "--show", "gardenlet"), "")


def the_rpm_does_the_same(host, rpm, newer):
    """Without dependencies, because Debian's rpm does not know the installed packages."""
    force = ["--force-debian", "--nodeps"]
    host.run("rpm", "--install", *force, f"/mnt/{rpm.name}")
    same(host.show("LoadState", "ActiveState", "UnitFileState"), ["loaded", "inactive", "disabled"])
    host.run("install", "-m", "600", "/run/clusters/seed.kubeconfig", "/run/clusters/bootstrap.kubeconfig", "/etc/gardenlet/")
    host.run("systemctl", "enable", "--now", UNIT)
    before = host.show("InvocationID")
    host.run("rpm", "--upgrade", *force, f"/mnt/{newer.name}")
    same(host.show("ActiveState", "UnitFileState"), ["active", "enabled"])
    assert host.show("InvocationID") != before, "the old process continues"
    host.run("rpm", "--erase", *force, "gardenlet")
    same(host.show("ActiveState"), "inactive")
    same([host.exists(path) for path in ("/usr/bin/gardenlet", "/var/lib/private/gardenlet")], [False, True])


def take(folder, packages, newer):
    """Copies the files that the machine needs into its shared folder."""
    sh("cargo", "build", "--quiet", "--locked", "--example", "playground")
    shutil.copy(TARGET / "debug/examples/playground", folder)
    kinds = [(kind, place) for kind in ("deb", "rpm") for place in (packages, newer)]
    return [pathlib.Path(shutil.copy(next(place.glob(f"*.{kind}")), folder)) for kind, place in kinds]


def start(folder):
    if os.getuid() != 0:
        return leave_out(1, "a machine with systemd: only root has namespaces")
    try:
        return Host(folder)
    except AssertionError as error:
        return leave_out(1, f"a machine with systemd: {error}")


def run(folder, packages, newer, meanwhile):
    """Calls `meanwhile` while the service runs: the agent feeds its watchdog twice a minute."""
    deb, newer_deb, rpm, newer_rpm = take(folder, packages, newer)
    host = start(folder)
    if host is None:
        return meanwhile()
    try:
        check(installing_starts_nothing, host, deb)
        check(both_clusters_run, host)
        check(it_starts_and_reports_when_it_is_ready, host)
        fed = host.show("WatchdogTimestampMonotonic")
        check(the_sandbox_is_on, host)
        check(the_limits_hold, host)
        meanwhile()
        check(the_watchdog_is_fed, host, fed)
        check(a_reload_keeps_the_process, host)
        check(it_stops_and_is_not_killed, host)
        check(an_upgrade_does_not_start_a_stopped_service, host, newer_deb)
        check(an_upgrade_restarts_a_running_service, host, deb)
        check(removing_stops_it_and_keeps_the_operators_files, host)
        check(installing_again_finds_these_files, host, deb)
        check(purging_deletes_everything, host)
        check(the_rpm_does_the_same, host, rpm, newer_rpm)
        if os.environ.get("GARDENLET_TESTS_JOURNAL"):
            pathlib.Path(os.environ["GARDENLET_TESTS_JOURNAL"]).write_text(host.ask("journalctl", "--no-pager"))
    finally:
        host.end()
