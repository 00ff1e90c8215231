"""Runs checks, counts them and prints failures."""
import os
import pathlib
import subprocess
import sys
import time
import traceback

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CACHE = pathlib.Path(os.environ.get("GARDENLET_TEST_CACHE", pathlib.Path.home() / ".cache/gardenlet-tests"))
TARGET = (ROOT / (os.environ.get("CARGO_TARGET_DIR") or "target")).resolve()
# How much of an error is printed beside the name of the test.
REASON_LINES = 5


class Counts:
    passed = failed = skipped = 0


def in_ci():
    return os.environ.get("CI", "false") not in ("", "false")


def patience(seconds):
    """How long to wait for what must happen and is not measured: four times as long in CI, where the machine may be slow."""
    return seconds * 4 if in_ci() else seconds


# For steps that may take long on a busy machine.
PATIENCE_S = patience(120)


def leave_out(count, reason):
    """A test that cannot run here: a failure in CI."""
    if in_ci():
        Counts.failed += count
        print(f"FAILED, because CI must run everything: {reason}")
    else:
        Counts.skipped += count
        print(f"LEFT OUT: {reason}")


def reason(error):
    """The first lines of an error. A bare assertion has no text, but a line of code."""
    text = str(error) or traceback.extract_tb(error.__traceback__)[-1].line
    if not isinstance(error, AssertionError):
        text = f"{type(error).__name__}: {text}"
    return text.strip().splitlines()[:REASON_LINES]


def check(function, *args):
    """One test. The reason of a failure follows its name; the traceback is written to the error output."""
    case = args[0] if args and isinstance(args[0], str) else ""
    name = f"{function.__name__.replace('_', ' ')} {case}".strip()
    began = time.monotonic()
    try:
        function(*args)
    except Exception as error:  # whatever it is, the next test runs
        Counts.failed += 1
        print("\n       ".join([f"FAILED: {name}", *reason(error)]), flush=True)
        print(f"error: {name}\n{traceback.format_exc()}", file=sys.stderr, flush=True)
    else:
        Counts.passed += 1
        print(f"{time.monotonic() - began:6.1f} s  {name}", flush=True)


def sh(*command, code=0, cwd=ROOT, env=None, text=True):
    """Runs a command, expects its exit code (None: any but 0) and returns its output."""
    environment = os.environ | {"LC_ALL": "C"} | (env or {})
    command = [str(word) for word in command]
    done = subprocess.run(command, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=text, check=False)
    if done.returncode != code and (code is not None or done.returncode == 0):
        raise AssertionError(f"`{' '.join(command)}` ended with {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def same(found, expected, what=""):
    assert found == expected, f"{what}\nfound    {found!r}\nexpected {expected!r}"


def finish():
    print(f"{Counts.passed} passed, {Counts.failed} failed, {Counts.skipped} skipped")
    sys.exit(1 if Counts.failed else 0)
