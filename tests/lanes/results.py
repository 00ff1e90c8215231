"""The results of a test program, read from what it prints."""
import dataclasses
import re

REASON_LINES = 12
LINE_CHARACTERS = 600
TAIL_LINES = 40

LIBTEST_LINE = re.compile(r"test (\S+)(?: - should panic)? \.\.\. (ok|FAILED|ignored)(?:.*<(\d+\.\d+)s>)?$")
LIBTEST_COUNTS = re.compile(r"test result: \S+ (\d+) passed; (\d+) failed; (\d+) ignored;")
COUNTS = re.compile(r"(\d+) passed, (\d+) failed, (\d+) skipped$")
# `FAILED  12.3 s  name`, `FAILED: name`, and a row of a table that ends with FAILED.
FAILED_LINE = re.compile(r"FAILED:? +(?:\d+\.\d+ s +)?(.+)$")
FAILED_ROW = re.compile(r"(\S.*?)[ :]+FAILED(?:, .*)?$")
# What support::options::measured prints.
MEASURED_LINE = re.compile(r"measured: (.*: ([-\d.]+), at most ([-\d.]+))$", re.MULTILINE)
TIMED_LINE = re.compile(r"(?:ok +)?(\d+\.\d+) s  (\S.*)$")


@dataclasses.dataclass
class Result:
    """How many tests passed and were skipped; the failed ones with their reasons; the seconds of each story; and figures of
    speed, each with a mark if it is above its limit."""
    passed: int = 0
    failed: dict = dataclasses.field(default_factory=dict)
    skipped: int = 0
    seconds: dict = dataclasses.field(default_factory=dict)
    measured: list = dataclasses.field(default_factory=list)
    left_out: list = dataclasses.field(default_factory=list)


def libtest(name, out, err, code):
    """Of a program with Rust's own harness. Without a result, or with an error and no failed test, the program failed."""
    result, ended = Result(measured=measured(err)), False
    for line in out.splitlines():
        if found := LIBTEST_LINE.match(line):
            test, verdict, seconds = found.groups()
            if seconds:
                result.seconds[test] = float(seconds)
            if verdict == "FAILED":
                result.failed[test] = panic_of(test, out)
        elif found := LIBTEST_COUNTS.match(line):
            ended = True
            result.passed += int(found[1])
            result.skipped += int(found[3])
    if not ended or (code != 0 and not result.failed):
        result.failed[name] = f"ended with {code}\n{tail(out + err)}"
    return result


def panic_of(test, out):
    """The place and message of a test's panic: what the test printed before does not hide it."""
    start = out.find(f"---- {test} stdout ----")
    block = out[start:].split("\n---- ", 1)[0] if start >= 0 else ""
    at = block.find(" panicked at ")
    return shortened(block[at + 1:] if at >= 0 else block)


def counted(name, out, err, code):
    """Of a program whose last line is `N passed, N failed, N skipped`."""
    result, lines = Result(measured=measured(err)), out.splitlines()
    for number, line in enumerate(lines):
        if found := FAILED_LINE.match(line):
            result.failed[found[1]] = below(lines[number + 1:]) or tail(out + err)
        elif found := FAILED_ROW.match(line):
            result.failed[found[1]] = below(lines[number + 1:])
        elif found := TIMED_LINE.match(line):
            result.seconds[found[2]] = float(found[1])
        if "LEFT OUT: " in line:
            result.left_out.append(line.split("LEFT OUT: ", 1)[1])
    counts = COUNTS.match(lines[-1]) if lines else None
    if not counts:
        result.failed[name] = f"ended with {code} and without a result\n{tail(out + err)}"
        return result
    result.passed, failed, result.skipped = map(int, counts.groups())
    if failed == 0 and code == 0:
        result.failed = {}
    # A test that is not named has failed, too; so has a program that says otherwise only by its exit code.
    missing = failed - len(result.failed) if failed else int(code != 0 and not result.failed)
    for number in range(missing):
        result.failed[f"{name}, failure {number + 1} without a name"] = tail(out + err) if number == 0 else ""
    return result


def measured(err):
    return [f"{text}{' SLOW' if float(figure) > float(limit) else ''}" for text, figure, limit in MEASURED_LINE.findall(err)]


def below(lines):
    """The indented lines of a reason, which follow the name."""
    reason = []
    for line in lines:
        if not line.startswith("       "):
            break
        reason.append(line.strip())
    return shortened("\n".join(reason))


def shortened(text):
    lines = [line[:LINE_CHARACTERS] for line in text.strip().splitlines()]
    return "\n".join(lines[:REASON_LINES] + ["..."] * (len(lines) > REASON_LINES))


def tail(text):
    return "\n".join(line[:LINE_CHARACTERS] for line in text.strip().splitlines()[-TAIL_LINES:])
