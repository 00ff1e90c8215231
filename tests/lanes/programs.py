"""Test programs: how each one is run, and run again."""
import dataclasses
import os
import pathlib
import subprocess
import sys

import results

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "packaging"))
from harness import CACHE, ROOT, TARGET, in_ci  # the same for all Python of the tests

LOGS = TARGET / "test-logs"
ENVIRONMENT = os.environ | {"CARGO_TERM_COLOR": "never"}

# Test programs of cargo that `build` has made: name -> path.
built = {}


def execute(name, command, environment=None, echoes=False):
    """Runs a command with its output in files; returns its output, its error output and its exit code."""
    out, err = LOGS / f"{name}.log", LOGS / f"{name}.err"
    command = [str(word) for word in command]
    with open(out, "wb") as log, open(err, "wb") as errors:
        try:
            process = subprocess.Popen(
                command, cwd=ROOT, env=ENVIRONMENT | (environment or {}), stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if echoes else log, stderr=errors)
        except OSError as error:
            return "", str(error), 127
        for line in process.stdout or ():
            log.write(line)
            log.flush()
            sys.stdout.write(f"           {line.decode(errors='replace')}")
            sys.stdout.flush()
        code = process.wait()
        if process.stdout:
            process.stdout.close()
    return out.read_text(errors="replace"), err.read_text(errors="replace"), code


@dataclasses.dataclass
class Step:
    """A command whose exit code is one test. `needs`: a program that may be missing here."""
    name: str
    command: list
    needs: str = ""

    def run(self, name=None):
        program, *words = self.command
        out, err, code = execute(name or self.name, [built.get(program, program), *words])
        return results.Result(passed=1) if code == 0 else results.Result(failed={self.name: results.tail(out + err)})

    def again(self, name, _):
        return self.run(name)


@dataclasses.dataclass
class Libtest:
    """A test program of cargo with Rust's own harness, or a command that runs one. A test of it runs again by its name."""
    name: str
    arguments: list = dataclasses.field(default_factory=list)
    environment: dict = None
    program: str = ""
    command: tuple = ()
    needs: str = ""

    def run(self, name=None, arguments=None):
        name, program = name or self.name, self.command or (built.get(self.program or self.name),)
        if None in program:
            return results.Result(failed={self.name: "it was not built"})
        # The times of single tests are an unstable option, which this variable allows.
        environment = {"RUSTC_BOOTSTRAP": "1"} | (self.environment or {})
        command = [*program, *(self.arguments if arguments is None else arguments), "-Zunstable-options", "--report-time"]
        return results.libtest(self.name, *execute(name, command, environment))

    def again(self, name, failed):
        return self.run(name, [failed, "--exact"])


@dataclasses.dataclass
class Counted:
    """A program whose last line is `N passed, N failed, N skipped`. With `by_name` a test of it runs again alone."""
    name: str
    command: list
    by_name: bool = False
    needs: str = ""

    def run(self, name=None, arguments=()):
        program, *words = self.command
        command = [built.get(program, program), *words, *arguments]
        return results.counted(self.name, *execute(name or self.name, command, echoes=True))

    def again(self, name, failed):
        return self.run(name, ["--exact", failed] if self.by_name else [])
