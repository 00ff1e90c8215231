"""From nothing to a Shoot: a reader copies the commands of README.md, and has only the folder of a release.

The reader works in a machine of tests/packaging/machine: it is the reader's own, and the node of the seed. Garden and seed
are those of the playground.
"""
import os
import re
import shutil

import release
from harness import CACHE, ROOT, check, leave_out, patience
from host import serve_clusters, start, take_playground

SECTION = re.compile(r"^## From nothing to a Shoot$(.*?)^## ", re.M | re.S)
BLOCK = re.compile(r"^ *```sh\n(.*?)^ *```$", re.M | re.S)
FOLDER = "/mnt/release"
# What a reader changes in the configuration: the networks of the seed.
EDITS = {"10.42.0.0/16": "10.51.0.0/16", "10.43.0.0/16": "10.52.0.0/16"}
# The packages of other machines have other names.
MACHINES = {"aarch64": "arm64"}
SUCCEEDED = "--for=jsonpath={.status.lastOperation.state}=Succeeded"


def steps():
    """The commands of each block."""
    text = (ROOT / "README.md").read_text()
    blocks = BLOCK.findall(SECTION.search(text)[1])
    package = MACHINES.get(os.uname().machine, "amd64")
    here = lambda line: line.replace("_amd64", f"_{package}").replace("-x86_64-", f"-{os.uname().machine}-")
    return [[here(line.strip()) for line in block.splitlines()] for block in blocks]


class Reader:
    def __init__(self, host):
        self.host = host
        # The reader is root already, on a machine that may not have sudo.
        sudo = self.path("/mnt/bin/sudo")
        sudo.write_text('#!/bin/sh\nexec env "$@"\n')
        sudo.chmod(0o755)

    def path(self, inside):
        return self.host.path(inside)

    def type(self, line):
        """One line in the reader's terminal."""
        return self.host.run("env", "PATH=/mnt/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "bash", "-c",
                             f"set -o pipefail; cd {FOLDER} && {line}")

    def all(self, lines):
        return "".join(self.type(line) for line in lines)


def clusters_are_new(host):
    serve_clusters(host, "bare", "--serve-bare")
    host.run("sh", "-c", f"cp /run/bare/*.kubeconfig {FOLDER}/")


def the_garden_is_prepared(reader, lines):
    reader.all(lines)
    made = reader.path(f"{FOLDER}/bootstrap.kubeconfig").read_text()
    assert re.search(r"^ *token: [a-z0-9]{6}\.[a-z0-9]{16}$", made, re.M), made


def the_agent_is_installed(reader, lines):
    reader.all(lines)
    config = reader.path("/etc/gardenlet/config.yaml")
    for old, new in EDITS.items():
        assert old in config.read_text(), old
        config.write_text(config.read_text().replace(old, new))


def the_agent_starts(reader, lines):
    reader.all(lines)
    garden = f"kubectl --kubeconfig garden.kubeconfig wait --timeout={patience(120)}s"
    reader.host.wait("the Seed", lambda: "edge-1" in reader.type("kubectl --kubeconfig garden.kubeconfig get seeds 2>&1"))
    reader.type(f"{garden} --for=condition=GardenletReady seed/edge-1")


def it_says_that_it_is_well(reader, lines):
    status, doctor = lines
    reader.host.wait("a healthy agent", lambda: reader.type(f"{{ {status}\n}} || true").startswith("healthy\n"))
    told = reader.type(doctor)
    assert told.endswith("\nEverything works.\n"), told


def a_shoot_is_created(reader, lines):
    *commands, explain = lines
    reader.all(commands)
    reader.type(f"kubectl --kubeconfig garden.kubeconfig wait --timeout={patience(240)}s --namespace=garden-p {SUCCEEDED} shoot/s1")
    told = reader.type(explain)
    assert told.startswith("Shoot garden-p/s1"), told


def its_owner_uses_it(reader, lines):
    told = reader.all(lines)
    assert re.search(r"^kube-system +Active ", told, re.M), told


def run(folder, binary, machine):
    kubectl = CACHE / "bin/kubectl"
    if not kubectl.is_file() or not shutil.which("jq"):
        leave_out(6, "the commands of README.md: kubectl, which tests/cluster/tools/build builds, or jq is missing")
        return
    take_playground(folder)
    (folder / "bin").mkdir()
    shutil.copy(kubectl, folder / "bin")
    release.make(binary, machine, folder / "release")
    host = start(folder)
    if host is None:
        return
    try:
        reader = Reader(host)
        garden, agent, start_it, looks, shoot, owner = steps()
        check(clusters_are_new, host)
        check(the_garden_is_prepared, reader, garden)
        check(the_agent_is_installed, reader, agent)
        check(the_agent_starts, reader, start_it)
        check(it_says_that_it_is_well, reader, looks)
        check(a_shoot_is_created, reader, shoot)
        check(its_owner_uses_it, reader, owner)
    finally:
        host.end()
