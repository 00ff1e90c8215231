"""Alerts and dashboard: Prometheus' own parser reads them, its engine tests when each alert fires, and real servers serve
their metrics."""
import json
import pathlib
import re
import socket
import ssl
import subprocess
import tempfile
import time
import urllib.request

from harness import CACHE, PATIENCE_S, ROOT, check, leave_out, patience, same, sh

MONITORING = ROOT / "packaging/monitoring"
PROMCHECK = CACHE / "bin/promcheck"
HOUR, DAY = 60, 24 * 60

OF_AGENT = 'job="gardenlet",seed="edge-1",instance="a:2729"'
OF_ETCD = 'namespace="shoot--p--s1",instance="b:2381"'


def agent(metric, labels="", instance="a:2729"):
    labels = f",{labels}" if labels else ""
    return f"{metric}{{{OF_AGENT.replace('a:2729', instance)}{labels}}}"


def shoot(metric, job, labels=""):
    return f'{metric}{{job="{job}",namespace="shoot--p--s1",instance="b"{"," + labels if labels else ""}}}'


def level(metric, labels, fires, not_fires, steps):
    """A gauge that always has one of two values."""
    return ({agent(metric, labels): f"{fires}x{steps}"}, {agent(metric, labels): f"{not_fires}x{steps}"}, steps)


def of_shoot(metric, job, labels, fires, not_fires, steps):
    return ({shoot(metric, job, labels): f"{fires}x{steps}"}, {shoot(metric, job, labels): f"{not_fires}x{steps}"}, steps)


def latency(metric, slow, labels=""):
    """Buckets of a histogram in which every answer is slow, or none is."""
    bounds = ["0.1", "1", "10", "+Inf"]
    counts = (0, 0, 60, 60) if slow else (60, 60, 60, 60)
    return {f'{metric.replace("}", f",le=@{b}@" + "}").replace("@", chr(34))}': f"0+{n}x90" for b, n in zip(bounds, counts)}


LEADER = 'name="gardenlet-leader-election"'
MASTER = "leader_election_master_status"
RECONCILED = "controller_runtime_reconcile_total"
INSTALLATIONS = "gardenlet_controller_installation_conditions"
# Each alert: series with which it fires after this number of minutes, and series with which it does not.
CASES = {
    "GardenletDown": level("up", "", 0, 1, 6),
    "GardenletAbsent": ({}, {agent("up"): "0x20"}, 20),
    "GardenletRestartsOften": (
        {agent("process_start_time_seconds"): "0 100 200 300 400x70"}, {agent("process_start_time_seconds"): "0 0 0 400x70"}, 20),
    "GardenletNoLeader": (
        {agent(MASTER, LEADER): "0x10", agent(MASTER, LEADER, "b"): "0x10", agent(MASTER, 'name="gardener-resource-manager"'): "1x10"},
        {agent(MASTER, LEADER): "0x10", agent(MASTER, LEADER, "b"): "1x10"}, 10),
    "GardenletTwoLeaders": (
        {agent(MASTER, LEADER): "1x10", agent(MASTER, LEADER, "b"): "1x10"},
        {agent(MASTER, LEADER): "1x10", agent(MASTER, 'name="gardener-resource-manager"'): "1x10"}, 10),
    "GardenletVersionsDiffer": (
        {agent("gardenlet_build_info", 'version="1"'): "1x70", agent("gardenlet_build_info", 'version="2"', "b"): "1x70"},
        {agent("gardenlet_build_info", 'version="1"'): "1x70", agent("gardenlet_build_info", 'version="1"', "b"): "1x70"}, 70),
    "GardenletMemoryNearLimit": level("process_resident_memory_bytes", "", 70 << 20, 20 << 20, 20),
    # The first panic creates the series, and later ones increase it. The alert ends an hour after the last panic.
    "GardenletPanics": (
        {agent("controller_runtime_reconcile_panics_total", 'controller="seed"'): "_x70 1x30"},
        {agent("controller_runtime_reconcile_panics_total", 'controller="seed"'): "1x200"}, 90),
    "GardenletReconcileErrors": (
        {agent("controller_runtime_reconcile_errors_total", 'controller="seed"'): "0+1x120"},
        {agent("controller_runtime_reconcile_errors_total", 'controller="seed"'): "0+1x30 30x90"}, 120),
    "GardenletWorkqueueStuck": (
        {agent("workqueue_depth", 'name="seed"'): "3x60", agent(RECONCILED, 'controller="seed",result="success"'): "5x60",
         agent(RECONCILED, 'controller="shoot",result="success"'): "0+1x60"},
        {agent("workqueue_depth", 'name="seed"'): "3x60", agent(RECONCILED, 'controller="seed",result="success"'): "0+1x60"}, 60),
    "GardenletReconcileTakesLong": level("workqueue_longest_running_processor_seconds", 'name="shoot"', 4000, 600, 10),
    "GardenletNotRegistered": (
        {agent("up"): "1x20"}, {agent("up"): "1x20", agent("gardenlet_seed_lease_age_seconds"): "2x20"}, 20),
    "GardenletLeaseNotRenewed": (
        {agent("gardenlet_seed_lease_age_seconds"): "100x10"},
        # Another agent leads now.
        {agent("gardenlet_seed_lease_age_seconds"): "0+60x10", agent("gardenlet_seed_lease_age_seconds", "", "b"): "2x10"}, 10),
    "GardenletGardenUnreachable": (
        # Another one has led before: what it knew does not count.
        {agent("gardenlet_api_reachable", 'peer="garden"'): "0x20", agent("gardenlet_api_reachable", 'peer="seed"'): "1x20",
         agent(MASTER, LEADER): "1x20", agent("gardenlet_api_reachable", 'peer="garden"', "b"): "1x20", agent(MASTER, LEADER, "b"): "0x20"},
        {agent("gardenlet_api_reachable", 'peer="garden"'): "0 0 1 0 0 1 0 0 0 1 0 0 0 1 0 0 1 0 0 0 1"}, 20),
    "GardenletSeedUnreachable": level("gardenlet_api_reachable", 'peer="seed"', 0, 1, 20),
    "GardenletApiSlow": (
        {agent("gardenlet_api_response_seconds", 'peer="garden"'): "1.8x20"},
        {agent("gardenlet_api_response_seconds", 'peer="garden"'): "1.8x20", agent(MASTER, LEADER): "0x20",
         agent("gardenlet_api_response_seconds", 'peer="garden"', "b"): "0.4x20", agent(MASTER, LEADER, "b"): "1x20"}, 20),
    "GardenletCertificateExpiresSoon": level("gardenlet_garden_certificate_expiration_timestamp_seconds", "", 7200, 5 * 3600, 20),
    "GardenletCertificateExpired": level("gardenlet_garden_certificate_expiration_timestamp_seconds", "", 300, 7200, 20),
    "GardenletClockSkew": level("gardenlet_clock_skew_seconds", "", -9, 3, 20),
    "GardenletMeteredBytes": (
        {agent("gardenlet_garden_bytes_per_day", f'direction="{d}"'): "150e6x70" for d in ("sent", "received")},
        {agent("gardenlet_garden_bytes_per_day", f'direction="{d}"'): "30e6x70" for d in ("sent", "received")}, 70),
    "GardenletObjectsSkipped": (
        {agent("gardenlet_api_skipped_objects_total", 'peer="shoot"'): "0+1x60"},
        {agent("gardenlet_api_skipped_objects_total", 'peer="shoot"'): "7x60"}, 60),
    "GardenletChartPullsFail": (
        {agent("gardenlet_chart_pulls_total", 'result="retry"'): "0+1x90"},
        {agent("gardenlet_chart_pulls_total", 'result="success"'): "0+1x90", agent("gardenlet_chart_pulls_total", 'result="final"'): "4x90"}, 90),
    "GardenletSeedConditionNotTrue": (
        {agent("gardenlet_seed_conditions", 'condition="GardenletReady",status="Unknown"'): "1x20"},
        {agent("gardenlet_seed_conditions", 'condition="GardenletReady",status="Unknown"'): "0x20",
         agent("gardenlet_seed_conditions", 'condition="EmergencyStopShootReconciliations",status="False"'): "1x20"}, 20),
    "GardenletEmergencyStop": level("gardenlet_seed_conditions", 'condition="EmergencyStopShootReconciliations",status="True"', 1, 0, 70),
    "GardenletInstallationUnhealthy": level(INSTALLATIONS, 'condition="Healthy",status="False"', 2, 0, 20),
    "GardenletInstallationStuck": (
        {agent(INSTALLATIONS, 'condition="Progressing",status="True"'): "1x70"},
        {agent(INSTALLATIONS, 'condition="Progressing",status="False"'): "1x70"}, 70),
    # An agent that led before still shows a Shoot as broken, although another agent has repaired it.
    "GardenletShootFailed": (
        {agent("gardenlet_shoots", 'state="Failed"'): "1x10"},
        {agent("gardenlet_shoots", 'state="Failed"'): "1x10", agent(MASTER, LEADER): "0x10",
         agent("gardenlet_shoots", 'state="Failed"', "b"): "0x10", agent(MASTER, LEADER, "b"): "1x10"}, 10),
    "GardenletShootError": (
        {agent("gardenlet_shoots", 'state="Error"'): "1x40"},
        {agent("gardenlet_shoots", 'state="Error"'): "1x20 0 1x18", agent("gardenlet_shoots", 'state="Processing"'): "9x40"}, 40),
    "GardenletShootApiServerUnavailable": level("gardenlet_shoot_conditions", 'condition="APIServerAvailable",status="False"', 1, 0, 10),
    "GardenletShootConditionFalse": level("gardenlet_shoot_conditions", 'condition="ControlPlaneHealthy",status="False"', 1, 0, 20),
    "GardenletShootConditionUnknown": level("gardenlet_shoot_conditions", 'condition="ControlPlaneHealthy",status="Unknown"', 1, 0, 70),
    "GardenletShootHealthzSlow": (
        latency(agent("gardenlet_shoot_healthz_seconds_bucket"), True), latency(agent("gardenlet_shoot_healthz_seconds_bucket"), False), 60),
    "GardenletEtcdSnapshotOld": (
        {agent("gardenlet_etcd_snapshot_timestamp_seconds"): f"0x{30 * HOUR}"},
        {agent("gardenlet_etcd_snapshot_timestamp_seconds"): f"0x{12 * HOUR} {12 * 3600}x{18 * HOUR}"}, 30 * HOUR),
    "GardenletEtcdDatabaseNearQuota": level("gardenlet_etcd_database_bytes", "", 7 << 30, 5 << 30, 70),
    "KubeEtcdMainDown": of_shoot("up", "etcd-main", "", 0, 1, 10),
    "KubeEtcdEventsDown": of_shoot("up", "etcd-events", "", 0, 1, 20),
    "KubeEtcd3MainNoLeader": of_shoot("etcd_server_has_leader", "etcd-main", "", 0, 1, 20),
    "KubeEtcd3EventsNoLeader": of_shoot("etcd_server_has_leader", "etcd-events", "", 0, 1, 20),
    "KubeEtcd3MainDbSizeLimitApproaching": of_shoot("etcd_mvcc_db_total_size_in_bytes", "etcd-main", "", 8e9, 7e9, 10),
    "KubeEtcd3MainDbSizeLimitCrossed": of_shoot("etcd_mvcc_db_total_size_in_bytes", "etcd-main", "", 8.6e9, 8e9, 10),
    "KubeEtcd3EventsDbSizeLimitApproaching": of_shoot("etcd_mvcc_db_total_size_in_bytes", "etcd-events", "", 8e9, 7e9, 10),
    "KubeEtcd3EventsDbSizeLimitCrossed": of_shoot("etcd_mvcc_db_total_size_in_bytes", "etcd-events", "", 8.6e9, 8e9, 10),
    "KubeApiserverDown": of_shoot("up", "kube-apiserver", "", 0, 1, 10),
    "KubeApiServerTooManyOpenFileDescriptors": (
        {shoot("process_open_fds", "kube-apiserver"): "900x40", shoot("process_max_fds", "kube-apiserver"): "1000x40"},
        {shoot("process_open_fds", "kube-apiserver"): "100x40", shoot("process_max_fds", "kube-apiserver"): "1000x40"}, 40),
    "KubeApiServerLatency": (
        latency(shoot("apiserver_request_duration_seconds_bucket", "kube-apiserver", 'verb="GET"'), True),
        latency(shoot("apiserver_request_duration_seconds_bucket", "kube-apiserver", 'verb="WATCH"'), True), 60),
    "KubeApiServerTooManyAuditlogFailures": (
        {shoot("apiserver_audit_error_total", "kube-apiserver", 'plugin="webhook"'): "0+6x60",
         shoot("apiserver_audit_event_total", "kube-apiserver"): "0+60x60"},
        {shoot("apiserver_audit_error_total", "kube-apiserver", 'plugin="log"'): "0+6x60",
         shoot("apiserver_audit_event_total", "kube-apiserver"): "0+60x60"}, 60),
    "ApiserverRequestsFailureRate": (
        {shoot("apiserver_request_total", "kube-apiserver", 'verb="GET",resource="pods",code="500"'): "0+20x60",
         shoot("apiserver_request_total", "kube-apiserver", 'verb="GET",resource="pods",code="200"'): "0+80x60"},
        {shoot("apiserver_request_total", "kube-apiserver", 'verb="GET",resource="pods",code="500"'): "0+1x60",
         shoot("apiserver_request_total", "kube-apiserver", 'verb="GET",resource="pods",code="200"'): "0+80x60"}, 60),
}
# Labels that Prometheus adds.
ADDED = {"job", "instance", "seed", "namespace", "alertstate"}


def expressions():
    panels = json.loads((MONITORING / "dashboard.json").read_text())["panels"]
    return [target["expr"].replace("$seed", ".*") for panel in panels for target in panel.get("targets", [])]


def ask(rules=None, expressions=(), cases=()):
    rules = (MONITORING / "rules.yaml").read_text() if rules is None else rules
    request = {"rules": rules, "expressions": list(expressions), "cases": [{"alert": alert, "series": series, "steps": steps} for alert, series, steps in cases]}
    done = subprocess.run([PROMCHECK], input=json.dumps(request), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def prometheus_reads_all_of_it():
    told = ask(expressions=expressions())
    same(told["errors"], [])
    assert len(told["uses"]) > 90, len(told["uses"])
    # The check finds errors.
    assert ask("groups: [{name: a, rules: [{alert: A, expr: 'rate(up)'}]}]")["errors"]
    assert ask(expressions=["sum(up"])["errors"]


def each_alert_fires_when_it_should_and_only_then():
    alerts = re.findall(r"^  - alert: (\S+)$", (MONITORING / "rules.yaml").read_text(), re.M)
    same(sorted(CASES), sorted(alerts), "alerts with a case")
    cases = [(alert, series, steps) for alert, (fires, silent, steps) in CASES.items() for series in (fires, silent)]
    told = ask(cases=cases)
    same(told["errors"], [])
    for at, alert in enumerate(CASES):
        loud, silent = told["fires"][2 * at : 2 * at + 2]
        same(len(loud), 1, f"{alert} fires")
        same(silent, [], f"{alert} does not fire")
        for text in loud[0]["texts"].values():
            assert "no value" not in text and "{{" not in text, text


def an_alert_waits_for_its_time():
    """An alert does not fire before the time in `for`."""
    series = {agent("up"): "1x10 0x10"}
    told = ask(cases=[("GardenletDown", series, steps) for steps in (14, 16)])
    same([len(fires) for fires in told["fires"]], [0, 1])


def samples(text):
    """Returns the metrics of a server with their labels."""
    found = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, labels = re.match(r"(\w+)(?:\{(.*)\} )?", line).groups()
            found.setdefault(name, set()).update(re.findall(r'(\w+)="', labels or ""))
        elif line.startswith("# TYPE "):
            found.setdefault(line.split()[2], set())
    return found


def until(what, attempt):
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            return attempt()
        except OSError as error:
            if time.monotonic() > end:
                raise AssertionError(f"{what}: {error}") from error
            time.sleep(0.1)


class Server:
    """Runs a program that serves metrics until the end of the block."""

    def __init__(self, folder, *command):
        self.log = pathlib.Path(folder) / f"{pathlib.Path(command[0]).name}.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen([str(word) for word in command], stdout=log, stderr=subprocess.STDOUT)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def get(self, url, token=""):
        assert self.process.poll() is None, self.log.read_text()[-3000:]
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
        trust = ssl._create_unverified_context()  # the server signs its own certificate
        return urllib.request.urlopen(request, timeout=patience(10), context=trust).read().decode()


def etcd(folder):
    client, peer, metrics = (f"http://127.0.0.1:{port}" for port in free_ports(3))
    server = Server(folder, CACHE / "bin/etcd", "--data-dir", f"{folder}/data", "--listen-client-urls", client, "--advertise-client-urls",
                    client, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}",
                    "--listen-metrics-urls", metrics)
    return server, client, f"{metrics}/metrics"


def are_served(family, served, least):
    """Returns the metrics of a family that the alerts use, with their labels."""
    named = [use for use in ask()["uses"] if use["metric"].startswith(family)]
    assert len({use["metric"] for use in named}) >= least, named
    for use in named:
        name = re.sub("_(bucket|sum|count)$", "", use["metric"])
        found = served.get(name, set()) | served.get(use["metric"], set())
        assert name in served, name
        same(set(use["labels"]) - ADDED - found, set(), name)


def a_real_etcd_serves_what_is_named():
    with tempfile.TemporaryDirectory() as folder:
        server, _, metrics = etcd(folder)
        with server:
            served = samples(until("etcd", lambda: server.get(metrics)))
    are_served("etcd_", served, 2)
    # Descriptions use these labels.
    assert any(name.startswith("etcd_disk_wal_fsync_duration_seconds") for name in served)


def a_real_api_server_serves_what_is_named():
    """Runs a kube-apiserver. Its audit webhook is unreachable, so that it counts errors."""
    with tempfile.TemporaryDirectory() as folder:
        store, client, _ = etcd(folder)
        key, tokens, policy, webhook = (pathlib.Path(folder) / name for name in ("sa.key", "tokens", "policy", "webhook"))
        sh("openssl", "genrsa", "-out", key, "2048")
        tokens.write_text("secret,admin,1,system:masters\n")
        policy.write_text(json.dumps({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "Metadata"}]}))
        nowhere = {"clusters": [{"name": "a", "cluster": {"server": "http://127.0.0.1:1"}}], "current-context": "a"}
        webhook.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", "contexts": [{"name": "a", "context": {"cluster": "a"}}]} | nowhere))
        [port] = free_ports(1)
        command = [CACHE / "bin/kube-apiserver", "--etcd-servers", client, "--secure-port", port, "--cert-dir", f"{folder}/certificates",
                   "--service-account-issuer", "https://test", "--service-account-key-file", key, "--service-account-signing-key-file", key,
                   "--service-cluster-ip-range", "10.0.0.0/24", "--token-auth-file", tokens, "--audit-policy-file", policy,
                   "--audit-webhook-config-file", webhook, "--audit-webhook-initial-backoff", "1ms", "--audit-webhook-batch-max-wait", "100ms"]
        with store, Server(folder, *command) as server:
            url = f"https://127.0.0.1:{port}"

            def read():
                server.get(f"{url}/api/v1/namespaces", "secret")
                served = samples(server.get(f"{url}/metrics", "secret"))
                if "apiserver_audit_error_total" not in served:
                    raise OSError("no audit event has failed yet")
                return served

            served = until("kube-apiserver", read)
    are_served("apiserver_", served, 4)
    assert {"process_open_fds", "process_max_fds"} <= set(served)


def free_ports(count):
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports


def what_is_written_by_render_is_up_to_date():
    sh(MONITORING / "render", "--check")
    sh(MONITORING / "render", "--chekc", code=2)


def each_alert_leads_to_its_runbook():
    """An address of docs/monitoring.md, with the anchor of the heading that names the alert."""
    text = (ROOT / "docs/monitoring.md").read_text()
    anchors = {name: re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-")
               for heading in re.findall(r"^### (.*)$", text, re.M) for name in heading.split(", ")}
    rules = (MONITORING / "rules.yaml").read_text().split("  - alert: ")[1:]
    links = {rule.split()[0]: re.findall(r"^      runbook_url: (\S+)$", rule, re.M) for rule in rules}
    begin = re.search(r"`(https://\S+/docs/)`", text)[1]
    same(links, {name: [f"{begin}monitoring.md#{anchors.get(name)}"] for name in CASES})


def run():
    check(what_is_written_by_render_is_up_to_date)
    check(each_alert_leads_to_its_runbook)
    # The setup of tests/run has built it already, so this is fast.
    built = subprocess.run([ROOT / "tests/cluster/tools/build", "promcheck"], capture_output=True, text=True, check=False)
    if built.returncode != 0:
        return leave_out(5, f"alerts: Prometheus' parser cannot be built here: {built.stderr}")
    check(prometheus_reads_all_of_it)
    check(each_alert_fires_when_it_should_and_only_then)
    check(an_alert_waits_for_its_time)
    if all((CACHE / "bin" / program).exists() for program in ("etcd", "kube-apiserver")):
        check(a_real_etcd_serves_what_is_named)
        check(a_real_api_server_serves_what_is_named)
    else:
        leave_out(2, "metrics of control planes: there is no etcd or no kube-apiserver, see setup")
