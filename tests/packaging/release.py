"""A release: one folder with a list of all its files, and a signature that becomes invalid when a file changes."""
import hashlib
import os
import pathlib
import re
import subprocess
import tempfile

from harness import ROOT, check, same, sh

SCRIPT = ROOT / "packaging/release"
UNLISTED = {"SHA256SUMS", "SHA256SUMS.sig"}


def make(binary, target, folder, *options, env=None):
    """Makes a release of one binary and returns its folder."""
    built = pathlib.Path(binary).parents[2]
    return sh(SCRIPT, "--built", "--output", folder, *options, target, env={"CARGO_TARGET_DIR": str(built), **(env or {})})


# For a site whose hosts are nodes.
HOSTS = [f"edge-hosts-{part}.yaml" for part in ("hosts", "project", "credentials", "shoot")]


def files(folder):
    return {path.name: path.read_bytes() for path in pathlib.Path(folder).iterdir()}


def everything_is_there_and_listed(release, target):
    names = set(files(release))
    triple = f"{target}-unknown-linux-musl"
    patterns = [f"gardenlet-0.1.0-{triple}", f"gardenlet-0.1.0-{triple}.cdx.json", f"gardenlet-0.1.0-{triple}.tar.gz", "gardenlet_0.1.0_*.deb",
                "gardenlet-0.1.0-1.*.rpm", "gardenlet-0.1.0-image.tar", "gardenlet-chart-0.1.0.tgz", "gardenlet-kustomize-0.1.0.tar.gz",
                "gardenlet-monitoring-0.1.0.tar.gz", "rbac.yaml", "no-provider-local.yaml", "example-project.yaml", "example-shoot.yaml", *HOSTS, "README.txt", "SHA256SUMS", "SHA256SUMS.sig",
                "signing-key.pub.pem"]
    expected = {path.name for pattern in patterns for path in release.glob(pattern)}
    same(len(expected), len(patterns), patterns)
    same(names, expected)
    listed = dict(reversed(line.split("  ")) for line in (release / "SHA256SUMS").read_text().splitlines())
    same(listed, {name: hashlib.sha256(content).hexdigest() for name, content in files(release).items() if name not in UNLISTED})
    sh("sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS", cwd=release)


def commands_of_the_readme(release):
    """The commands for verification; each is a line of its own."""
    text = (release / "README.txt").read_text()
    return re.findall(r"^    ((?:openssl|sha256sum) .*)$", text, re.M)


def verifies(release):
    return all(subprocess.run(command, shell=True, cwd=release, capture_output=True, check=False).returncode == 0
               for command in commands_of_the_readme(release))


def the_signature_is_right_until_something_changes(release, public):
    same(len(commands_of_the_readme(release)), 2)
    same(verifies(release), True)
    same((release / "signing-key.pub.pem").read_text(), public)
    digest = hashlib.sha256(subprocess.run(["openssl", "pkey", "-pubin", "-outform", "DER"], input=public.encode(), capture_output=True,
                                           check=True).stdout).hexdigest()
    assert digest in (release / "README.txt").read_text(), digest
    for name in ("rbac.yaml", "SHA256SUMS", "SHA256SUMS.sig", "gardenlet-chart-0.1.0.tgz"):
        path = release / name
        good = path.read_bytes()
        path.write_bytes(good[:-2] + bytes([good[-2] ^ 1]) + good[-1:])
        same(verifies(release), False, name)
        path.write_bytes(good)
    same(verifies(release), True)


def the_chart_renders_as_its_folder(release, binary):
    render = lambda chart: sh(binary, "render", "gardenlet", chart, "--namespace", "garden", "-f", ROOT / "packaging/chart/ci/bootstrap-values.yaml")
    same(render(release / "gardenlet-chart-0.1.0.tgz"), render(ROOT / "packaging/chart"))


def the_same_input_gives_the_same_bytes(binary, release, target, key):
    with tempfile.TemporaryDirectory() as again:
        folder = pathlib.Path(again) / "release"
        command = f"umask 077; cd /; exec {SCRIPT} --built --output {folder} --key {key} {target}"
        sh("sh", "-c", command, env={"TZ": "Asia/Tokyo", "CARGO_TARGET_DIR": str(pathlib.Path(binary).parents[2])})
        same(files(folder) == files(release), True, [n for n, c in files(folder).items() if c != files(release).get(n)])
        same({path.stat().st_mode & 0o777 for path in folder.iterdir()}, {0o644, 0o755})


def another_version_is_in_everything(binary, target):
    with tempfile.TemporaryDirectory() as folder:
        release = pathlib.Path(folder) / "release"
        make(binary, target, release, "--version", "0.2.0")
        unversioned = {"rbac.yaml", "no-provider-local.yaml", "example-project.yaml", "example-shoot.yaml", *HOSTS, "README.txt", "SHA256SUMS"}
        names = set(files(release)) - unversioned
        same({name for name in names if "0.2.0" not in name}, set())
        chart = sh(binary, "render", "gardenlet", release / "gardenlet-chart-0.2.0.tgz", "--namespace", "garden", "-f",
                   ROOT / "packaging/chart/ci/bootstrap-values.yaml")
        assert "gardenlet:0.2.0" in chart and "0.1.0" not in chart
        assert "not signed" in (release / "README.txt").read_text()
        same(verifies(release), True)


def wrong_usage_is_refused(binary, target):
    with tempfile.TemporaryDirectory() as folder:
        for options in (["--outptu", "x"], ["--key"], ["sparc"], ["--version", "1"], ["--version", "1.2.3-rc.1"]):
            sh(SCRIPT, *options, code=2)
        pathlib.Path(folder, "file").write_text("")
        sh(SCRIPT, "--built", "--output", folder, target, code=1)
        same(os.listdir(folder), ["file"])
        sh(SCRIPT, "--built", "--output", f"{folder}/new", "--key", f"{folder}/file", target, code=1)
    assert "--output" in sh(SCRIPT, "--help")


def run(binary, target):
    with tempfile.TemporaryDirectory() as folder:
        key, release = pathlib.Path(folder) / "key.pem", pathlib.Path(folder) / "release"
        sh("openssl", "genpkey", "-algorithm", "ed25519", "-out", key)
        make(binary, target, release, "--key", key)
        check(everything_is_there_and_listed, release, target)
        check(the_signature_is_right_until_something_changes, release, sh("openssl", "pkey", "-in", key, "-pubout"))
        check(the_chart_renders_as_its_folder, release, binary)
        check(the_same_input_gives_the_same_bytes, binary, release, target, key)
    check(another_version_is_in_everything, binary, target)
    check(wrong_usage_is_refused, binary, target)
