"""What the lanes need before they run: the Go programs, the debug build, the released binaries. Nothing is built beside a
lane that runs stories."""
import dataclasses
import hashlib
import json
import os
import shutil
import subprocess
import time

import programs
import results
import table
from programs import CACHE, ENVIRONMENT, ROOT, TARGET, execute

# The test programs of each lane and part; `unit` and `doubles` are those in the libraries.
TESTS = {
    "lint": ["tidy"], "unit": ["unit"], "it": ["it"], "page": ["it"], "moves": ["it"], "crash": ["it"], "crash-shoots": ["it"], "crash-hosts": ["it"], "mutate": ["mutate", "soak"],
    "charts": ["oracle"], "random": ["mutate", "soak", "oracle"], "boards": ["boards"], "doubles": ["doubles"],
    "flaky": ["it", "cluster"],
} | dict.fromkeys(["cluster", "servers", "seed", "shoots", "kubernetes", "gardener"], ["cluster"])
UNUSED_DAYS = 2


def lanes(names, needs):
    """The lanes `setup` and `build` for the lanes with these names and needs."""
    ENVIRONMENT["PATH"] += ":/usr/sbin:/sbin:/usr/local/go/bin"
    os.environ["PATH"] = ENVIRONMENT["PATH"]   # also for shutil.which
    build = [Debug("debug", names)]
    machines = table.ALL_BOARDS if "all-shipped" in needs else table.BOARDS
    if needs & {"shipped", "all-shipped"}:
        ENVIRONMENT["GARDENLET_BUILD_CACHE"] = str(shared_builds())
        build += [Build("cross-build", ["cross/build", *machines]),
                  Build("image", ["packaging/image", "--output", TARGET / "image", table.MACHINE])]
    setup = [Build("tools", ["tests/cluster/tools/build"], needs="go"),
             Build("more-tools", ["tests/cluster/tools/build", "etcdutl-3.5", "promcheck"], needs="go")]
    return [("setup", setup if "tools" in needs else []), ("build", build)]


class Build(programs.Step):
    """A command that is no test: only its failure counts."""

    def run(self, name=None):
        result = super().run(name)
        return dataclasses.replace(result, passed=0)


class Debug:
    """The test programs, by cargo."""
    needs = ""

    def __init__(self, name, names):
        self.name, self.names = name, names

    def run(self):
        reuse_dependencies()
        tests = {test for name in self.names for test in TESTS.get(name, [])}
        ordinary = [word for test in sorted(tests - {"unit", "doubles"}) for word in ("--test", test)]
        calls = []
        if tests - {"doubles"}:
            calls.append(["test", "--no-run", *(["--lib"] if "unit" in tests else []), *ordinary])
        if "doubles" in tests:
            calls.append(["test", "--no-run", "--package", "gardenlet-test-support", "--lib"])
        if {"playground", "charts"} & set(self.names):
            calls.append(["build", "--bins", "--example", "playground"])
        if "sizes" in self.names and "GARDENLET_TESTS_LONG" not in ENVIRONMENT:
            calls.append(["bench", "--no-run", "--profile", "dev", "--bench", "bench"])
        for number, call in enumerate(calls):
            out, err, code = execute(f"build-{number}", ["cargo", *call, "--locked", "--message-format=json-render-diagnostics"])
            if code != 0:
                return results.Result(failed={" ".join(["cargo", *call]): results.tail(err)})
            programs.built |= dict(executables(out))
        return results.Result()


def executables(out):
    """Names and paths of the programs that cargo reports."""
    for line in out.splitlines():
        message = json.loads(line) if line.startswith("{") else {}
        if not message.get("executable"):
            continue
        target = message["target"]
        if "lib" in target["kind"]:
            yield {"gardenlet": "unit", "support": "doubles"}[target["name"]], message["executable"]
        elif target["kind"][0] in ("test", "example"):
            yield target["name"], message["executable"]


def versions(*more):
    """A name for what the compiled dependencies depend on: another compiler or another list gets another folder."""
    digest = hashlib.sha256(subprocess.run(["rustc", "-vV"], cwd=ROOT, capture_output=True, check=True).stdout)
    for name in ("Cargo.toml", "Cargo.lock", *more):
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()[:16]


def shared_builds():
    """One folder in which all clones build released binaries, because its path is part of the compiler's flags. Our own
    package is compiled again in each of them."""
    folder = only_version("dependencies-shipping", versions("cross/common"))
    folder.mkdir(parents=True, exist_ok=True)
    oldest = time.time() - UNUSED_DAYS * 86_400
    for path in folder.rglob("*gardenlet-*"):
        if path.exists() and path.stat().st_mtime < oldest:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return folder


def only_version(name, version):
    """The folder of a version below the cache, without those of other versions."""
    for other in CACHE.glob(f"{name}-*"):
        if other.name != f"{name}-{version}":
            shutil.rmtree(other)
    return CACHE / f"{name}-{version}"


def reuse_dependencies():
    """Gives a new clone the compiled dependencies. Cargo checks them by their versions and options, and compiles whatever
    does not fit. Copies, not links: cargo overwrites some of its files."""
    kept = CACHE / f"dependencies-debug-{versions('tests/support/Cargo.toml')}"
    if kept.is_dir() and not (TARGET / "debug").exists():
        shutil.copytree(kept, TARGET / "debug", symlinks=True)


def keep_dependencies():
    """Keeps them after a run that has built everything, without our own packages."""
    kept = only_version("dependencies-debug", versions("tests/support/Cargo.toml"))
    if kept.is_dir():
        return
    own = {"gardenlet", "support", "bench", "boards", "cluster", "it", "mutate", "oracle", "playground", "soak", "tidy"}
    is_own = lambda name: name.removeprefix("lib").split("-")[0] in own
    new = kept.with_suffix(".new")
    shutil.rmtree(new, ignore_errors=True)
    for part in (".fingerprint", "build", "deps"):
        shutil.copytree(TARGET / "debug" / part, new / part, symlinks=True,
                        ignore=lambda _, names: [name for name in names if is_own(name)])
    new.rename(kept)
