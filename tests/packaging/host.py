"""A package's life on a machine with systemd: installed, started, reloaded, upgraded, removed, purged.

The machine is tests/packaging/machine. Both API servers are in it, too: those of the playground, as a service.
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
# Two agents on one host: instances of gardenlet@.service.
SEEDS = ("edge-1", "edge-2")
INSTANCES = [f"gardenlet@{seed}.service" for seed in SEEDS]


class Host:
    """The machine, and its shared folder on this side."""

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
        """Runs a command and returns its output, whatever its exit code is."""
        done = subprocess.run(self.inside(*command), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        return done.stdout.strip()

    def show(self, *properties, unit=UNIT):
        lines = self.run("systemctl", "show", unit, "--property", ",".join(properties)).splitlines()
        found = dict(line.split("=", 1) for line in lines)
        return found[properties[0]] if len(properties) == 1 else [found[name] for name in properties]

    def path(self, inside):
        """Returns the path of a machine's file on this side; its links are relative to the machine."""
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


def both_clusters_are_there(host):
    serve_clusters(host, "clusters")
    # The steps of docs/install.md; the sample configuration is for another seed.
    config = host.path(CONFIG)
    config.write_text(config.read_text().replace("10.42.0.0/16", "10.51.0.0/16").replace("10.43.0.0/16", "10.52.0.0/16"))
    host.run("install", "-m", "600", "/run/clusters/seed.kubeconfig", "/run/clusters/bootstrap.kubeconfig", "/etc/gardenlet/")
    drop_in = "/etc/systemd/system/gardenlet.service.d/bootstrap.conf"
    host.run("install", "-D", "-m", "644", "/usr/share/gardenlet/bootstrap.conf", drop_in)
    host.run("systemctl", "daemon-reload")


def it_starts_and_says_when_it_is_ready(host):
    # The command ends when the agent sends READY=1 or fails.
    host.run("systemctl", "enable", "--now", UNIT)
    same(host.show("ActiveState", "SubState", "Type", "NRestarts"), ["active", "running", "notify", "0"])
    host.wait("a registered seed", lambda: 'Reconciled the Seed' in host.journal())
    journal = host.journal()
    assert 'from="file /run/credentials/gardenlet.service/bootstrap-kubeconfig"' in journal, journal
    name = host.run("uname", "--nodename").strip()
    assert f' holder={name}_' in journal, f"{name} is not in {journal}"
    # The text of people, and not JSON.
    same([line for line in journal.splitlines() if line.startswith("{")], [])


def the_sandbox_is_on(host):
    pid = host.show("MainPID")
    status = dict(line.split(":\t", 1) for line in host.run("cat", f"/proc/{pid}/status").splitlines() if ":\t" in line)
    same([status[name].strip() for name in ("CapEff", "CapBnd", "NoNewPrivs", "Seccomp")], ["0" * 16, "0" * 16, "1", "2"])
    assert status["Uid"].split()[0] not in ("0", "65534"), "a user of its own"
    mounts = [line.split() for line in host.run("cat", f"/proc/{pid}/mountinfo").splitlines()]
    writable = {line[4] for line in mounts if "ro" not in line[5].split(",")}
    same("/" in writable, False, "the root folder")
    assert "/var/lib/private/gardenlet" in writable, writable
    # The service cannot see other processes, devices, homes, or the kubeconfigs in /etc.
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


def a_reload_is_one_of_the_same_process(host):
    before = host.show("MainPID", "InvocationID")
    config = host.path(CONFIG)
    config.write_text(config.read_text() + "logLevel: debug\n")
    host.run("systemctl", "reload", UNIT)
    host.wait("the level of the log", lambda: "DEBUG " in host.journal())
    same(host.show("MainPID", "InvocationID"), before)
    same(host.show("ActiveState"), "active")


def a_refused_reload_fails_and_the_status_tells(host):
    before = host.show("MainPID", "InvocationID")
    config = host.path(CONFIG)
    good = config.read_text()
    config.write_text(good + "logLevel: loud\n")
    host.run("systemctl", "reload", UNIT, code=1)
    same(host.show("ActiveState", "ReloadResult"), ["active", "exit-code"])
    told = "configuration: the last good one is in use"
    host.wait("the problem", lambda: told in host.show("StatusText"))
    config.write_text(good)
    host.run("systemctl", "reload", UNIT)
    host.wait("the end of the problem", lambda: told not in host.show("StatusText"))
    same(host.show("MainPID", "InvocationID"), before)


def it_stops_and_is_not_killed(host):
    host.run("systemctl", "stop", UNIT)
    same(host.show("ActiveState", "Result", "ExecMainStatus"), ["inactive", "success", "0"])
    took_ms = (int(host.show("InactiveEnterTimestampMonotonic")) - int(host.show("ActiveExitTimestampMonotonic"))) / 1000
    print(f"           it took {took_ms:.0f} ms to stop")
    same(host.exists("/var/lib/gardenlet/state.json") or host.exists("/var/lib/private/gardenlet"), True, "its state")


def an_upgrade_leaves_a_stopped_one_alone(host, newer):
    host.run("dpkg", "--install", f"/mnt/{newer.name}")
    same(host.show("ActiveState"), "inactive")
    same(host.run("dpkg-query", "--show", "--showformat", "${Version}", "gardenlet"), "0.1.1")


def an_upgrade_restarts_a_running_one(host, deb):
    host.run("systemctl", "start", UNIT)
    before = host.show("InvocationID")
    # The way back is an upgrade, too. It keeps the edited configuration without a question.
    host.run("dpkg", "--install", f"/mnt/{deb.name}")
    same(host.show("ActiveState", "UnitFileState"), ["active", "enabled"])
    assert host.show("InvocationID") != before, "the old process still runs"
    assert "logLevel: debug" in host.path(CONFIG).read_text()


def removing_stops_it_and_keeps_what_is_the_operators(host):
    host.run("dpkg", "--remove", "gardenlet")
    same(host.show("ActiveState"), "inactive")
    kept = ["/etc/gardenlet/config.yaml", "/etc/gardenlet/seed.kubeconfig", "/var/lib/private/gardenlet"]
    gone = ["/usr/bin/gardenlet", "/usr/lib/systemd/system/gardenlet.service", "/usr/share/doc/gardenlet"]
    same([host.exists(path) for path in kept + gone], [True] * 3 + [False] * 3)
    same(host.ask("pgrep", "-x", "gardenlet"), "")


def installing_again_finds_it_all(host, deb):
    host.run("dpkg", "--install", f"/mnt/{deb.name}")
    same(host.show("ActiveState", "UnitFileState"), ["inactive", "enabled"])
    host.run("systemctl", "start", UNIT)
    same(host.show("ActiveState"), "active")


def serve_clusters(host, name, option="--serve"):
    """Runs a garden and a seed for one agent as a service of the machine; `option` is one of the playground."""
    host.run("mkdir", "-p", f"/run/{name}")
    host.run("systemd-run", "--quiet", f"--unit={name}", "/mnt/playground", option, f"/run/{name}")
    host.wait("the clusters", lambda: host.exists(f"/run/{name}/ready"))


def prepare_instance(host, at):
    """Writes configuration and kubeconfigs of one of several agents, based on the sample; each has its own ports."""
    seed, clusters = SEEDS[at], f"/run/clusters-{SEEDS[at]}"
    config = (ROOT / "packaging/systemd/config.yaml").read_text()
    for old, new in [("name: edge-1", f"name: {seed}"), ("edge-1.example", f"{seed}.example"),
                     ("10.42.0.0/16", "10.51.0.0/16"), ("10.43.0.0/16", "10.52.0.0/16"),
                     ("healthProbes: {", f"healthProbes: {{port: {2738 + 10 * at}, "), ("metrics: {", f"metrics: {{port: {2739 + 10 * at}, "),
                     ("stateDir: /var/lib/gardenlet", f"stateDir: /var/lib/gardenlet-{seed}")]:
        assert old in config, old
        config = config.replace(old, new)
    host.run("mkdir", "-p", f"/etc/gardenlet/{seed}")
    host.path(f"/etc/gardenlet/{seed}.yaml").write_text(config)
    host.run("install", "-m", "600", f"{clusters}/seed.kubeconfig", f"{clusters}/bootstrap.kubeconfig", f"/etc/gardenlet/{seed}/")


def several_agents_share_the_host(host):
    """Two instances and an agent without the name of a seed share nothing."""
    drop_in = "/etc/systemd/system/gardenlet@.service.d/bootstrap.conf"
    host.run("install", "-D", "-m", "644", "/usr/share/gardenlet/bootstrap@.conf", drop_in)
    host.run("systemctl", "daemon-reload")
    for at, unit in enumerate(INSTANCES):
        serve_clusters(host, f"clusters-{SEEDS[at]}")
        prepare_instance(host, at)
        host.run("systemctl", "enable", "--now", unit)
    for at, unit in enumerate(INSTANCES):
        host.wait("a registered seed", lambda unit=unit: 'Reconciled the Seed' in host.journal(unit))
        same(host.show("ActiveState", "NRestarts", unit=unit), ["active", "0"])
        same(host.exists(f"/var/lib/private/gardenlet-{SEEDS[at]}"), True, "its state")
        request = f"exec 3<>/dev/tcp/127.0.0.1/{2738 + 10 * at}; printf 'GET /livez HTTP/1.0\\r\\n\\r\\n' >&3; head -n 1 <&3"
        assert " 200 " in host.run("bash", "-c", request), "its port"
    same(host.show("ActiveState"), "active")
    users = [host.run("stat", "-c", "%U", f"/proc/{host.show('MainPID', unit=unit)}").strip() for unit in [UNIT, *INSTANCES]]
    same(len(set(users)), 3, users)


def an_upgrade_restarts_the_agents_that_run(host, newer):
    host.run("systemctl", "stop", INSTANCES[1])
    before = [host.show("InvocationID", unit=unit) for unit in (UNIT, INSTANCES[0])]
    host.run("dpkg", "--install", f"/mnt/{newer.name}")
    same([host.show("ActiveState", unit=unit) for unit in (UNIT, *INSTANCES)], ["active", "active", "inactive"])
    after = [host.show("InvocationID", unit=unit) for unit in (UNIT, INSTANCES[0])]
    same([a == b for a, b in zip(before, after)], [False, False], "the old process still runs")
    host.run("systemctl", "start", INSTANCES[1])


def purging_leaves_nothing(host):
    host.run("dpkg", "--purge", "gardenlet")
    wants = "/etc/systemd/system/multi-user.target.wants"
    gone = ["/etc/gardenlet", "/var/lib/gardenlet", "/var/lib/private/gardenlet", "/usr/bin/gardenlet", f"{wants}/{UNIT}"]
    for seed, unit in zip(SEEDS, INSTANCES):
        gone += [f"/var/lib/gardenlet-{seed}", f"/var/lib/private/gardenlet-{seed}", f"{wants}/{unit}"]
        same(host.show("ActiveState", unit=unit), "inactive")
    same([path for path in gone if host.exists(path)], [])
    same(host.ask("pgrep", "-x", "gardenlet"), "")
    same(host.ask("dpkg-query", "--show", "gardenlet"), "")


def the_rpm_does_the_same(host, rpm, newer):
    """Debian's rpm does not know the installed packages, so this test ignores dependencies."""
    force = ["--force-debian", "--nodeps"]
    host.run("rpm", "--install", *force, f"/mnt/{rpm.name}")
    same(host.show("LoadState", "ActiveState", "UnitFileState"), ["loaded", "inactive", "disabled"])
    host.run("install", "-m", "600", "/run/clusters/seed.kubeconfig", "/run/clusters/bootstrap.kubeconfig", "/etc/gardenlet/")
    prepare_instance(host, 0)
    units = [UNIT, INSTANCES[0]]
    host.run("systemctl", "enable", "--now", *units)
    before = [host.show("InvocationID", unit=unit) for unit in units]
    host.run("rpm", "--upgrade", *force, f"/mnt/{newer.name}")
    same([host.show("ActiveState", "UnitFileState", unit=unit) for unit in units], [["active", "enabled"]] * 2)
    after = [host.show("InvocationID", unit=unit) for unit in units]
    same([a == b for a, b in zip(before, after)], [False, False], "the old process still runs")
    host.run("rpm", "--erase", *force, "gardenlet")
    same([host.show("ActiveState", unit=unit) for unit in units], ["inactive"] * 2)
    same(host.exists(f"/etc/systemd/system/multi-user.target.wants/{INSTANCES[0]}"), False, "its link")
    same([host.exists(path) for path in ("/usr/bin/gardenlet", "/var/lib/private/gardenlet")], [False, True])


def take_playground(folder):
    """Puts the program for `serve_clusters` into the shared folder of a machine."""
    sh("cargo", "build", "--quiet", "--locked", "--example", "playground")
    shutil.copy(TARGET / "debug/examples/playground", folder)


def take(folder, packages, newer):
    """Puts the files for the machine into its shared folder."""
    take_playground(folder)
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
    """Calls `meanwhile` while the service runs. The agent notifies its watchdog twice a minute."""
    deb, newer_deb, rpm, newer_rpm = take(folder, packages, newer)
    host = start(folder)
    if host is None:
        return meanwhile()
    try:
        check(installing_starts_nothing, host, deb)
        check(both_clusters_are_there, host)
        check(it_starts_and_says_when_it_is_ready, host)
        fed = host.show("WatchdogTimestampMonotonic")
        check(the_sandbox_is_on, host)
        check(the_limits_hold, host)
        meanwhile()
        check(the_watchdog_is_fed, host, fed)
        check(a_reload_is_one_of_the_same_process, host)
        check(a_refused_reload_fails_and_the_status_tells, host)
        check(it_stops_and_is_not_killed, host)
        check(an_upgrade_leaves_a_stopped_one_alone, host, newer_deb)
        check(an_upgrade_restarts_a_running_one, host, deb)
        check(removing_stops_it_and_keeps_what_is_the_operators, host)
        check(installing_again_finds_it_all, host, deb)
        check(several_agents_share_the_host, host)
        check(an_upgrade_restarts_the_agents_that_run, host, newer_deb)
        check(purging_leaves_nothing, host)
        check(the_rpm_does_the_same, host, rpm, newer_rpm)
        if os.environ.get("GARDENLET_TESTS_JOURNAL"):
            pathlib.Path(os.environ["GARDENLET_TESTS_JOURNAL"]).write_text(host.ask("journalctl", "--no-pager"))
    finally:
        host.end()
