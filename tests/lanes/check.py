"""Tests of the lanes: what output means, and what a second chance changes."""
import contextlib
import io
import stat
import tempfile
import pathlib
import unittest

import main
import programs
import results
import table

LIBTEST = """
running 3 tests
test a::fails ... FAILED <0.120s>
test a::passes ... ok <1.500s>
test a::rests ... ignored

failures:

---- a::fails stdout ----
much before
thread 'a::fails' (7) panicked at tests/it/a.rs:3:5:
left is not right
note: run with `RUST_BACKTRACE=1`

failures:
    a::fails

test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 1.62s
"""
COUNTED = """ok        1.0 s  agent: a seed joins
FAILED   12.5 s  agent: a seed leaves
       waited 60 s for the end
       and saw nothing
ok        2.0 s  faults: none
LEFT OUT: a story needs root
2 passed, 1 failed, 1 skipped
"""


class Output(unittest.TestCase):
    def test_libtest(self):
        found = results.libtest("it", LIBTEST, "", 101)
        self.assertEqual((found.passed, found.skipped, list(found.failed)), (1, 1, ["a::fails"]))
        self.assertEqual(found.seconds["a::passes"], 1.5)
        reason = found.failed["a::fails"]
        self.assertTrue(reason.startswith("panicked at tests/it/a.rs:3:5:\nleft is not right"), reason)

    def test_figures_of_speed(self):
        err = "measured: gap: 6.1, at most 5.0\nother\nmeasured: a Shoot: awake: 0.2, at most 60.0\n"
        found = ["gap: 6.1, at most 5.0 SLOW", "a Shoot: awake: 0.2, at most 60.0"]
        self.assertEqual(results.counted("cluster", COUNTED, err, 1).measured, found)
        self.assertEqual(results.libtest("it", LIBTEST, err, 101).measured, found)

    def test_libtest_without_a_result(self):
        for out, code in [("", 0), ("running 3 tests\n", 101), (LIBTEST.replace("FAILED <", "ok <").replace("1 failed", "0 failed"), 101)]:
            self.assertEqual(list(results.libtest("it", out, "killed", code).failed), ["it"], out)

    def test_counted(self):
        found = results.counted("cluster", COUNTED, "", 1)
        self.assertEqual((found.passed, found.skipped, found.left_out), (2, 1, ["a story needs root"]))
        self.assertEqual(found.failed, {"agent: a seed leaves": "waited 60 s for the end\nand saw nothing"})
        self.assertEqual(found.seconds["faults: none"], 2.0)

    def test_a_failure_without_a_reason_below_it(self):
        out = "FAILED: the page\n  it is upside down\n0 passed, 1 failed, 0 skipped\n"
        self.assertIn("it is upside down", results.counted("page", out, "", 1).failed["the page"])

    def test_rows_of_tables(self):
        out = "memory of an agent      11 MB   FAILED\nx86_64-linux: FAILED, after 3 s\n5 passed, 2 failed, 0 skipped\n"
        self.assertEqual(list(results.counted("bench", out, "", 1).failed), ["memory of an agent      11 MB", "x86_64-linux"])

    def test_a_failure_without_a_name(self):
        for out, code in [("1 passed, 1 failed, 0 skipped\n", 1), ("2 passed, 0 failed, 0 skipped\n", 1), ("nothing\n", 0), ("", 0)]:
            self.assertEqual(len(results.counted("charts", out, "", code).failed), 1, out)


class SecondChance(unittest.TestCase):
    """With a program whose tests fail as often as a file says."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        programs.LOGS, self.logs = self.folder, programs.LOGS
        self.addCleanup(lambda: setattr(programs, "LOGS", self.logs))

    def program(self, lane, failures, by_name=True):
        """A program with the stories `one`, `two` ...; each fails as often as `failures` says."""
        path = self.folder / f"{lane}.sh"
        for story, times in failures.items():
            (self.folder / f"{lane}-{story}").write_text("x" * times)
        path.write_text(f"""#!/usr/bin/env bash
cd "$(dirname "$0")"; passed=0 failed=0
stories=({' '.join(failures)}); [ "${{1:-}}" != --exact ] || stories=("$2")
for story in "${{stories[@]}}"; do
  times=$(cat {lane}-$story)
  if [ -n "$times" ]; then echo "FAILED    1.0 s  $story"; echo "       $times left"; failed=$((failed + 1)); else echo "ok    1.0 s  $story"; passed=$((passed + 1)); fi
  printf %s "${{times#x}}" >{lane}-$story
done
echo "$passed passed, $failed failed, 0 skipped"; [ $failed -eq 0 ]
""")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return programs.Counted(lane, [path], by_name=by_name)

    def run_lanes(self, **lanes):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            run = main.Run()
            for lane, program in lanes.items():
                run.lane(lane, [program])
            run.second_chance()
            code = run.end()
        return code, out.getvalue()

    def test_a_story_that_fails_once_is_flaky_and_green(self):
        code, out = self.run_lanes(cluster=self.program("cluster", {"one": 0, "two": 1}))
        self.assertIn("FLAKY: cluster: two: x left", out)
        self.assertEqual((code, out.splitlines()[-1]), (0, "2 passed, 0 failed, 0 skipped"))
        self.assertEqual({path.name for path in self.folder.glob("*.log")}, {"cluster.log", "cluster-again-1.log"})

    def test_a_story_that_fails_twice_is_red(self):
        code, out = self.run_lanes(cluster=self.program("cluster", {"one": 0, "two": 2}))
        self.assertIn("FAILED: cluster: two\n           xx left", out)
        self.assertEqual((code, out.splitlines()[-1]), (1, "1 passed, 1 failed, 0 skipped"))

    def test_three_may_be_flaky_but_not_four(self):
        stories = {"one": 1, "two": 1, "three": 1, "four": 0}
        self.assertEqual(self.run_lanes(cluster=self.program("cluster", stories))[0], 0)
        code, out = self.run_lanes(cluster=self.program("cluster", stories | {"four": 1}))
        self.assertEqual((code, out.splitlines()[-1]), (1, "0 passed, 4 failed, 0 skipped"))

    def test_a_program_that_runs_only_whole_counts_as_one_story(self):
        stories = {name: 1 for name in ("one", "two", "three", "four")}
        code, out = self.run_lanes(page=self.program("page", stories, by_name=False))
        self.assertEqual((code, out.splitlines()[-1]), (0, "4 passed, 0 failed, 0 skipped"))

    def test_some_lanes_get_no_second_chance(self):
        for lane in ("unit", "lint", "sizes", "mutate", "build"):
            self.assertEqual(self.run_lanes(**{lane: self.program(lane, {"one": 1, "two": 0})})[0], 1, lane)

    def test_parts_get_a_second_chance_but_for_their_unit_tests(self):
        for part in ("moves", "crash", "crash-shoots", "crash-hosts", "servers", "seed", "shoots", "kubernetes", "gardener", "libc"):
            code, out = self.run_lanes(**{part: self.program(part, {"one": 1, "two": 0})})
            self.assertEqual((code, out.splitlines()[-1]), (0, "2 passed, 0 failed, 0 skipped"), out)
        self.assertFalse(main.has_second_chance("libc", "armv7-unit"))

    def test_a_run_without_a_test_is_red(self):
        self.assertEqual(self.run_lanes(cluster=self.program("cluster", {}))[0], 1)


class Flaky(unittest.TestCase):
    def test_the_listed_stories_have_a_program(self):
        self.assertEqual([place for place, *_ in main.flaky_list() if not main.program_at(place)], [])

    def test_each_program_is_found_at_its_place(self):
        for lanes in (table.LANES, table.PARTS):
            for lane, steps in lanes.items():
                for program in steps:
                    found = main.program_at(main.place(lane, program))
                    self.assertEqual(found and found.name, program.name, lane)
        self.assertEqual(main.program_at("charts/oracle").name, "oracle")
        self.assertEqual(main.program_at("shoots").command, ["cluster", "--part", "shoots"])

    def test_an_unknown_place_fails(self):
        for place in ("shots", "charts/none"):
            self.assertIn(f"is named {place}", list(main.Repeated(place, "one").run().failed.values())[0])


class Tables(unittest.TestCase):
    def test_names_agree(self):
        self.assertLessEqual(set(table.SECOND_CHANCE), set(table.LANES | table.PARTS))
        self.assertLessEqual(set(table.ONE_CHANCE), {program.name for steps in table.PARTS.values() for program in steps})
        self.assertLessEqual(set(table.NEEDS), set(table.LANES))
        self.assertLessEqual(set(table.PARTS_NEED), set(table.PARTS))

    def test_each_lane_and_part_is_in_the_help(self):
        text = (programs.ROOT / "tests/run").read_text().split("set -uo")[0].split()
        self.assertEqual([name for name in [*table.LANES, *table.PARTS] if name not in text], [])


if __name__ == "__main__":
    unittest.main()
