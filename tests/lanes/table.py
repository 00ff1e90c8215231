"""The lanes of a normal run, and the parts of `--long`: which programs each of them runs."""
import os

from programs import CACHE, ROOT, LOGS, Counted, Libtest, Step

MACHINE = os.uname().machine
BOARDS = [MACHINE, "armv7"]
ALL_BOARDS = ["x86_64", "aarch64", "armv7", "armv6", "riscv64"]
# Stories wait more than they compute: three for each processor.
THREADS = f"--test-threads={3 * (os.cpu_count() or 1)}"
# Each of these runs a garden and two seeds, many times over: more of them at once exhaust the processors, and then fail.
FEW_THREADS = f"--test-threads={os.cpu_count() or 1}"
ROLE_USES = LOGS / "role-uses"
HELM, KUBECTL = CACHE / "bin/helm", CACHE / "bin/kubectl"

# A failed story of these lanes and parts runs once more, alone, when all of them are done, except in these programs.
SECOND_CHANCE = (
    "it", "playground", "page", "charts", "boards", "packages", "cluster",
    "moves", "crash", "crash-shoots", "crash-hosts", "libc", "servers", "seed", "shoots", "kubernetes", "gardener",
)
ONE_CHANCE = ("armv7-unit",)
# These lanes print all figures of speed, the others only those above their limits.
PRINTS_SPEED = ("cluster", "servers", "seed", "shoots", "kubernetes", "gardener")
# What a lane needs besides the debug build: the Go programs (`tools`), the released binaries (`shipped`).
NEEDS = {
    "charts": ["tools"], "boards": ["shipped"], "sizes": ["tools", "shipped"], "packages": ["tools", "shipped"],
    "cluster": ["tools", "shipped"],
}
MOVES_OF_SHOOTS = ["story_shoot_move", "story_shoot_lost"]
CRASHES_OF_SHOOTS = [
    "story_shoot_crash", "story_shoot_sleep_crash", "story_shoot_rotation_crash", "story_shoot_move_crash",
    "a_kill_in_a_deletion",
]


def it(name="it", words=(), threads=THREADS):
    return Libtest(name, [threads, *words], {"GARDENLET_ROLE_USES": str(ROLE_USES)}, program="it")


def cluster(part):
    return Counted("cluster", ["cluster", "--part", part], by_name=True)


# In this order. A program that `build` has made is named without a path.
LANES = {
    "lint": [
        Step("fmt", ["cargo", "fmt", "--all", "--", "--check"]),
        Step("clippy", ["cargo", "clippy", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings"]),
        Libtest("tidy"),
        Step("lanes", ["python3", "-B", "tests/lanes/check.py"]),
        Step("roles", ["packaging/roles", "--check"]),
        Step("no-provider", ["packaging/no-provider/render", "--check"]),
        Step("monitoring", ["packaging/monitoring/render", "--check"]),
        Step("systemd", ["tests/packaging/systemd"], needs="systemd-analyze"),
    ],
    "unit": [Libtest("unit")],
    # Some story must use each rule of the agent's roles.
    "it": [it(), Step("roles-used", ["packaging/roles", "--unused", ROLE_USES])],
    "playground": [Step("playground", ["playground"])],
    "page": [Counted("page", ["tests/page/run"])],
    "mutate": [Counted("mutate", ["mutate"]), Counted("soak", ["soak"])],
    "charts": [
        Counted("compare", ["tests/charts/compare"], needs=HELM),
        Counted("oracle", ["oracle"], needs=HELM),
        Counted("kubectl", ["tests/playground/kubectl"], needs=KUBECTL),
    ],
    "boards": [Counted("boards", ["cross/try", *BOARDS])],
    "sizes": [Counted("bench", ["tests/bench/run", "--short"])],
    "packages": [Counted("packages", ["tests/packaging/run"])],
    "hosts": [Counted("hosts", ["tests/hosts/run"])],
    "cluster": [cluster("run")],
}

# Each part takes an hour at most. All of them run with GARDENLET_TESTS_LONG, except the stories on musl: all crash points on
# both libcs would take hours.
PARTS = {
    "doubles": [Libtest("doubles")],
    "it": [it(words=["--skip=changes_nothing", *(f"--skip={word}" for word in MOVES_OF_SHOOTS)])],
    "moves": [it("moves", [*MOVES_OF_SHOOTS, "--skip=changes_nothing"], FEW_THREADS)],
    "crash": [it("crash", ["changes_nothing", "--skip=story_shoot"])],
    "crash-shoots": [it("crash-shoots", [*CRASHES_OF_SHOOTS, "--skip=with_a_pool"])],
    "crash-hosts": [it("crash-hosts", ["with_a_pool", "--skip=story_shoot_pool", "--skip=story_shoot_move"])],
    "libc": [
        Libtest("musl", [THREADS], command=("env", "--unset=GARDENLET_TESTS_LONG", "cross/test-musl", "--it")),
        Libtest("armv7-unit", command=("cross/test-musl", "--target", "armv7", "--lib")),
    ],
    "boards": [Counted("boards", ["cross/try", *ALL_BOARDS]), Counted("reproduce", ["cross/reproduce", *ALL_BOARDS])],
    "random": [Counted("mutate", ["mutate"]), Counted("soak", ["soak"]), Counted("oracle", ["oracle"], needs=HELM)],
    "sizes": [Counted("bench", ["tests/bench/run", "--long"])],
    "packages": [Counted("packages", ["tests/packaging/run", "--long"])],
    "hosts": [Counted("hosts", ["tests/hosts/run", "--long"])],
    "servers": [cluster("servers")],
    "seed": [cluster("seed")],
    "shoots": [cluster("shoots")],
    "kubernetes": [cluster("kubernetes")],
    "gardener": [cluster("gardener")],
    "flaky": [],
}
PARTS_NEED = {
    "boards": ["all-shipped"], "random": ["tools"], "sizes": ["tools", "shipped"], "packages": ["tools", "shipped"],
    "servers": ["tools", "shipped"], "seed": ["tools", "shipped"], "shoots": ["tools", "shipped"],
    "kubernetes": ["tools", "shipped"], "gardener": ["tools", "shipped"], "flaky": ["tools", "shipped"],
}
