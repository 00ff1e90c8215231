"""Runs lanes, gives failed stories a second chance, and prints one summary line. tests/run starts it."""
import argparse
import random
import resource
import shutil
import sys
import time

import builds
import programs
import results
import table
from programs import LOGS, ROOT, in_ci

SLOWEST = {"it", "moves", "crash", "crash-shoots", "crash-hosts", "musl", "cluster"}
SLOWEST_SHOWN = 10
# A run with more failed stories than this is red, whatever happens when they run again.
FLAKY_MAX = 3
REPEATS = 20


class Run:
    """The state of a run: the sum of all results, and the failed stories with their lane and program."""

    def __init__(self):
        self.total = results.Result()
        self.failures = []
        self.flaky = []

    def lane(self, name, steps):
        """Runs the programs of a lane, and prints one line with what is below it."""
        began, used = time.monotonic(), processor_seconds()
        found = [(program, one(program)) for program in steps]
        passed, failed = sum(r.passed for _, r in found), sum(len(r.failed) for _, r in found)
        skipped = sum(r.skipped for _, r in found)
        print(f"{name:10} {time.monotonic() - began:5.0f} s, {processor_seconds() - used:5.0f} s of processors   "
              f"{passed} passed, {failed} failed, {skipped} skipped", flush=True)
        for program, result in found:
            self.total.passed += result.passed
            self.total.skipped += result.skipped
            self.total.left_out += result.left_out
            for test, reason in result.failed.items():
                self.failures.append((name, program, test, reason))
                print(indented(f"FAILED: {test}\n{reason}"), flush=True)
            for text in result.measured:
                if name in table.PRINTS_SPEED or text.endswith(" SLOW"):
                    print(f"           measured: {text}", flush=True)
            if program.name in SLOWEST:
                for story, seconds in sorted(result.seconds.items(), key=lambda story: -story[1])[:SLOWEST_SHOWN]:
                    print(f"           {seconds:6.1f} s  {story}", flush=True)
        return failed == 0

    def second_chance(self):
        """Runs the failed stories once more, with nothing beside them."""
        # A program that cannot run one of its tests alone runs whole: its failures are one story.
        stories = {}
        for failure in self.failures:
            lane, program, test, _ = failure
            is_one = isinstance(program, programs.Libtest) or getattr(program, "by_name", False)
            stories.setdefault((lane, program.name, test if is_one else ""), []).append(failure)
        if len(stories) > FLAKY_MAX or not all(has_second_chance(lane, program) for lane, program, _ in stories):
            return
        for number, failed in enumerate(stories.values(), start=1):
            lane, program, test, reason = failed[0]
            result = program.again(f"{program.name}-again-{number}", test)
            if result.failed or not result.passed:
                print(f"again      FAILED: {test}\n{indented(''.join(result.failed.values()))}", flush=True)
                continue
            for failure in failed:
                self.failures.remove(failure)
            self.total.passed += len(failed)
            self.flaky.append((place(lane, program), test, reason))

    def end(self):
        """Prints what a reader must know, and the summary as the last line; returns the exit code."""
        for text in self.total.left_out:
            print(f"LEFT OUT: {text}")
        known = [f"{place} | {name}" for place, name, _, _ in flaky_list()]
        for place, test, reason in self.flaky:
            remark = " (in tests/flaky.txt)" if f"{place} | {test}" in known else ""
            print(f"FLAKY: {place}: {test}{remark}: {reason}")
        for lane, _, test, reason in self.failures:
            print(f"FAILED: {lane}: {test}\n{indented(reason)}")
        failed = len(self.failures)
        print(f"{self.total.passed} passed, {failed} failed, {self.total.skipped} skipped")
        return 0 if failed == 0 and self.total.passed > 0 else 1


def one(program):
    """The result of a program. One that cannot run here has failed in CI, and is left out elsewhere."""
    if not program.needs or shutil.which(program.needs):
        return program.run()
    reason = f"{program.name}: {program.needs} is missing"
    if in_ci():
        return results.Result(failed={program.name: f"CI must run everything: {reason}"})
    return results.Result(skipped=1, left_out=[reason])


def has_second_chance(lane, program):
    return lane in table.SECOND_CHANCE and program not in table.ONE_CHANCE


def place(lane, program):
    """Where the list of flaky stories finds a program: the lane or part, and the program if it is not the first one there."""
    return lane if (table.LANES | table.PARTS).get(lane, [program])[0].name == program.name else f"{lane}/{program.name}"


def program_at(place):
    """The program at a place, or None. A lane comes before the part of the same name."""
    lane, _, name = place.partition("/")
    found = [p for steps in (table.LANES.get(lane, []), table.PARTS.get(lane, [])) for p in steps if p.name == name or not name]
    return found[0] if found else None


def indented(text):
    return "\n".join(f"           {line}" for line in text.splitlines())


def processor_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def flaky_list():
    """The stories of tests/flaky.txt: place, name, date, cause."""
    lines = (ROOT / "tests/flaky.txt").read_text().splitlines()
    return [tuple(line.split(" | ", 3)) for line in lines if line and not line.startswith("#")]


def repeats():
    """The listed stories, each as a program that runs it often."""
    return [Repeated(place, name) for place, name, _, _ in flaky_list()]


class Repeated:
    """A story that has failed by chance, many times alone."""
    needs = ""

    def __init__(self, place, story):
        self.name, self.place, self.story = f"{place}: {story}", place, story

    def run(self):
        program = program_at(self.place)
        if not program:
            return results.Result(failed={self.name: f"no lane, part or program is named {self.place}"})
        total = results.Result()
        for number in range(1, REPEATS + 1):
            result = program.again(f"repeated-{number}", self.story)
            if result.failed or not result.passed:
                total.failed[f"{self.name}, time {number} of {REPEATS}"] = "\n".join(result.failed.values())
            else:
                total.passed += 1
        return total


def arguments():
    parser = argparse.ArgumentParser(prog="tests/run", add_help=False)
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--seed", type=int)
    parser.add_argument("names", nargs="*")
    given = parser.parse_args()
    known = list(table.PARTS if given.long else table.LANES)
    for name in given.names:
        if name not in known:
            parser.error(f"unknown {'part' if given.long else 'lane'} {name}; there are: {' '.join(known)}")
    given.names = [name for name in known if name in given.names or not given.names]
    return given


def main():
    given = arguments()
    LOGS.mkdir(parents=True, exist_ok=True)
    if given.long:
        programs.ENVIRONMENT["GARDENLET_TESTS_LONG"] = "1"
        given.seed = given.seed or random.SystemRandom().randrange(1, 1 << 32)
    if given.seed is not None:
        programs.ENVIRONMENT["GARDENLET_TESTS_SEED"] = str(given.seed)
        print(f"seed {given.seed}; repeat with: tests/run --seed {given.seed} {'--long ' if given.long else ''}{' '.join(given.names)}")
    shutil.rmtree(table.ROLE_USES, ignore_errors=True)
    table.ROLE_USES.mkdir(parents=True)
    steps, needs = (table.PARTS | {"flaky": repeats()}, table.PARTS_NEED) if given.long else (table.LANES, table.NEEDS)
    run = Run()
    needed = {need for name in given.names for need in needs.get(name, [])}
    # What was not built cannot be tested.
    if all([run.lane(name, build) for name, build in builds.lanes(given.names, needed)]):
        for name in given.names:
            run.lane(name, steps[name])
        # Without clippy's part, or after a build that failed, they would be incomplete, and never be completed.
        if not given.long and {"lint", "it"} <= set(given.names):
            builds.keep_dependencies()
    run.second_chance()
    return run.end()


if __name__ == "__main__":
    sys.exit(main())
