"""The contents of the packages, read with the programs of the distributions."""
import gzip
import hashlib
import pathlib
import re
import shutil
import tarfile
import tempfile

from harness import ROOT, check, same, sh

DOC = "/usr/share/doc/gardenlet"
SHARE = "/usr/share/gardenlet"
# Path and mode of the files of every package; Debian has another folder for completions of zsh.
FILES = {
    "/etc/gardenlet/config.yaml": "rw-r--r--",
    "/usr/bin/gardenlet": "rwxr-xr-x",
    "/usr/lib/systemd/system/gardenlet.service": "rw-r--r--",
    "/usr/lib/systemd/system/gardenlet@.service": "rw-r--r--",
    "/usr/share/bash-completion/completions/gardenlet": "rw-r--r--",
    "/usr/share/fish/vendor_completions.d/gardenlet.fish": "rw-r--r--",
    "/usr/share/man/man1/gardenlet.1.gz": "rw-r--r--",
    f"{DOC}/CHANGELOG.md.gz": "rw-r--r--",
    f"{DOC}/LICENSE": "rw-r--r--",
    f"{SHARE}/bootstrap.conf": "rw-r--r--",
    f"{SHARE}/bootstrap@.conf": "rw-r--r--",
    f"{SHARE}/dashboard.json": "rw-r--r--",
    f"{SHARE}/rbac.yaml": "rw-r--r--",
    f"{SHARE}/rules.yaml": "rw-r--r--",
    f"{DOC}/gardenlet.cdx.json": "rw-r--r--",
    f"{DOC}/third-party.txt.gz": "rw-r--r--",
}
ZSH = "/usr/share/zsh/site-functions/_gardenlet"
ZSH_DEBIAN = "/usr/share/zsh/vendor-completions/_gardenlet"
# Architectures for which the test checks only the names of packages, without a binary.
NAMES = {"x86_64": ("amd64", "x86_64"), "aarch64": ("arm64", "aarch64"), "armv7": ("armhf", "armv7hl"),
         "armv6": ("armhf", "armv6hl"), "riscv64": ("riscv64", "riscv64")}


def make(binary, out, target):
    """Packs a binary as if it was built for a target."""
    with tempfile.TemporaryDirectory() as built:
        triple = {"armv7": "armv7-unknown-linux-musleabihf", "armv6": "arm-unknown-linux-musleabihf",
                  "riscv64": "riscv64gc-unknown-linux-musl"}.get(target, f"{target}-unknown-linux-musl")
        place = pathlib.Path(built) / triple / "shipping/gardenlet"
        place.parent.mkdir(parents=True)
        place.write_bytes(pathlib.Path(binary).read_bytes())
        place.chmod(0o755)
        sh(ROOT / "packaging/build", "--out", out, target, env={"CARGO_TARGET_DIR": built})


def one(folder, pattern):
    found = sorted(pathlib.Path(folder).glob(pattern))
    same(len(found), 1, f"{pattern} in {folder}")
    return found[0]


def sums(folder):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in pathlib.Path(folder).iterdir()}


def the_same_input_gives_the_same_bytes(binary, packages, target):
    with tempfile.TemporaryDirectory() as again:
        # The environment has no effect.
        command = f"umask 077; cd /; exec {ROOT}/packaging/build --out {again} {target}"
        sh("sh", "-c", command, env={"TZ": "Asia/Tokyo", "CARGO_TARGET_DIR": str(pathlib.Path(binary).parents[2])})
        same(sums(again), sums(packages))


def another_version_gives_other_packages(newer, packages):
    same(set(sums(newer)) & set(sums(packages)), {"SHA256SUMS"})


def checksums_are_right(packages):
    done = sh("sha256sum", "--check", "SHA256SUMS", cwd=packages)
    same(done.count(": OK"), len(sums(packages)) - 1)


def the_deb_has_what_belongs_into_it(binary, packages, target):
    deb = one(packages, "*.deb")
    fields = sh("dpkg-deb", "--show", "--showformat", "${Package} ${Version} ${Architecture} ${Depends}", deb)
    same(fields, f"gardenlet 0.1.0 {NAMES[target][0]} init-system-helpers")
    lines = [line.split() for line in sh("dpkg-deb", "--contents", deb).splitlines()]
    found = {line[5][1:]: line[0][1:] for line in lines if line[0][0] == "-"}
    same(found, FILES | {ZSH_DEBIAN: "rw-r--r--", f"{DOC}/copyright": "rw-r--r--", f"{DOC}/changelog.gz": "rw-r--r--"})
    same({line[1] for line in lines}, {"root/root"})
    same({line[0] for line in lines if line[0][0] == "d"}, {"drwxr-xr-x"})
    with tempfile.TemporaryDirectory() as folder:
        sh("dpkg-deb", "--raw-extract", deb, folder)
        folder = pathlib.Path(folder)
        same((folder / "usr/bin/gardenlet").read_bytes() == pathlib.Path(binary).read_bytes(), True, "the binary")
        same((folder / "DEBIAN/conffiles").read_text(), "/etc/gardenlet/config.yaml\n")
        sh("md5sum", "--check", "--quiet", "DEBIAN/md5sums", cwd=folder)
        the_changelog_is_debians(folder, deb)
        notices = gzip.decompress((folder / DOC[1:] / "third-party.txt.gz").read_bytes()).decode()
        bill = one(packages, "*.cdx.json").read_text()
        same((folder / DOC[1:] / "gardenlet.cdx.json").read_text(), bill)
        for word in ["rustls", "ring", "musl", "MIT License", "Apache License"]:
            assert word in notices, word


def the_changelog_is_debians(folder, deb):
    maintainer = sh("dpkg-deb", "--show", "--showformat", "${Maintainer}", deb)
    assert re.fullmatch(r"[^<>]+ <[^@\s]+@[^@\s]+\.[^@\s.]+>", maintainer), maintainer
    text = gzip.decompress((folder / DOC[1:] / "changelog.gz").read_bytes()).decode()
    first, last = text.splitlines()[0], text.splitlines()[-1]
    same(first, "gardenlet (0.1.0) stable; urgency=medium")
    assert re.fullmatch(rf" -- {re.escape(maintainer)}  \w{{3}}, \d\d \w{{3}} \d{{4}} \d\d:\d\d:\d\d [-+]\d{{4}}", last), last
    items = (ROOT / "CHANGELOG.md").read_text().split("\n## ")[1].count("\n- ")
    same(text.count("\n  * "), items)
    for word in ["](", "`", "**"]:
        assert word not in text, word
    same(max(map(len, text.splitlines()[1:-1])) <= 80, True)
    if shutil.which("dpkg-parsechangelog"):
        (folder / "changelog").write_text(text)
        same(sh("dpkg-parsechangelog", "--file", folder / "changelog", "--show-field", "Maintainer").strip(), maintainer)


def another_maintainer_is_in_the_packages(binary, target):
    with tempfile.TemporaryDirectory() as out:
        built = {"CARGO_TARGET_DIR": str(pathlib.Path(binary).parents[2])}
        pack = lambda maintainer, code: sh(ROOT / "packaging/build", "--out", out, "--maintainer", maintainer, target, env=built, code=code)
        pack("Edge Team <edge@example.org>", 0)
        same(sh("dpkg-deb", "--show", "--showformat", "${Maintainer}", one(out, "*.deb")), "Edge Team <edge@example.org>")
        same(sh("rpm", "--query", "--package", "--queryformat", "%{packager}", one(out, "*.rpm")), "Edge Team <edge@example.org>")
        pack("edge@example.org", 2)
        pack("Edge Team <edge@localhost>", 2)


def the_rpm_has_what_belongs_into_it(binary, packages, target):
    rpm = one(packages, "*.rpm")
    query = lambda *args: sh("rpm", "--query", "--package", *args, rpm)
    same(query("--queryformat", "%{name} %{version} %{release} %{arch} %{license}"),
         f"gardenlet 0.1.0 1 {NAMES[target][1]} Apache-2.0")
    listed = query("--queryformat", "[%{filemodes:perms} %{fileusername} %{filegroupname} %{fileflags:fflags} %{filenames}\n]")
    lines = [line.split() for line in listed.splitlines()]
    same({line[-1]: line[0][1:] for line in lines if line[0][0] == "-"}, FILES | {ZSH: "rw-r--r--"})
    same({(line[1], line[2]) for line in lines}, {("root", "root")})
    same([line[-1] for line in lines if line[3] == "cn"], ["/etc/gardenlet/config.yaml"], "configuration, not replaced")
    scripts = query("--scripts")
    for word in ["daemon-reload", "disable --now gardenlet.service", "try-restart gardenlet.service"]:
        assert word in scripts, f"{word} is not in {scripts}"
    with tempfile.TemporaryDirectory() as folder:
        sh("sh", "-c", f"rpm2cpio {rpm} | cpio --extract --quiet --make-directories", cwd=folder)
        same((pathlib.Path(folder) / "usr/bin/gardenlet").read_bytes() == pathlib.Path(binary).read_bytes(), True)


def the_archive_has_what_belongs_into_it(binary, packages):
    with tarfile.open(one(packages, "*.tar.gz")) as archive:
        entries = {"/" + entry.name.split("/", 1)[1]: entry for entry in archive}
        same(set(entries), set(FILES) | {ZSH})
        same({(entry.uid, entry.gid) for entry in entries.values()}, {(0, 0)})
        same(entries["/usr/bin/gardenlet"].mode, 0o755)
        same(archive.extractfile(entries["/usr/bin/gardenlet"]).read() == pathlib.Path(binary).read_bytes(), True)


def distributions_know_the_names_of_machines():
    """Checks only names: the packages contain a small program of this machine."""
    with tempfile.TemporaryDirectory() as folder:
        for target, (deb, rpm) in NAMES.items():
            out = pathlib.Path(folder) / target
            make("/bin/true", out, target)
            same(sh("dpkg-deb", "--field", one(out, "*.deb"), "Architecture").strip(), deb)
            same(sh("rpm", "--query", "--package", "--queryformat", "%{arch}", one(out, "*.rpm")), rpm)
            with tarfile.open(one(out, "*.tar.gz")) as archive:
                assert any(name.endswith("/usr/bin/gardenlet") for name in archive.getnames()), archive.getnames()


def unknown_targets_and_missing_binaries_are_told(folder):
    for target, words in [("m68k", "unknown target m68k; there are: x86_64"), ("riscv64", "run cross/build riscv64 first")]:
        try:
            sh(ROOT / "packaging/build", "--out", folder, target, env={"CARGO_TARGET_DIR": str(folder)})
        except AssertionError as error:
            assert words in str(error), error
        else:
            raise AssertionError(f"{target} was packed")


# --- manual and completions; a test of src/cli checks that they have all options ---


def the_manual_is_well_formed():
    same(sh("groff", "-man", "-ww", "-z", "-Tutf8", ROOT / "packaging/man/gardenlet.1", cwd="/"), "")


COMMANDS = [
    "config validate", "config print-defaults", "rebootstrap", "bootstrap-token", "rescue", "status", "doctor", "explain", "support-bundle", "bundle export", "bundle import",
    "bundle list", "node script", "node list", "node remove", "etcd install", "etcd start", "etcd snapshot", "etcd copy", "etcd list", "render", "completion", "version",
]


# What an agent on this machine tells.
NAMES_OF_AGENT = "#!/bin/sh\n[ \"$*\" = 'completion names' ] && echo shoot/garden-p/s1\n"


def by_bash(line, path=""):
    script = f"""
        PATH={path}:$PATH
        source {ROOT}/packaging/completions/gardenlet.bash
        compopt() {{ :; }}
        COMP_WORDS=({line}) COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
        _gardenlet
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    return sorted(sh("bash", "-c", script, cwd=ROOT / "packaging/deb").split())


def bash_completes(line, expected):
    same(by_bash(line), sorted(expected.split()))


def names_of_objects_are_completed():
    with tempfile.TemporaryDirectory() as folder:
        stub = pathlib.Path(folder) / "gardenlet"
        stub.write_text(NAMES_OF_AGENT)
        stub.chmod(0o755)
        same("shoot/garden-p/s1" in by_bash("gardenlet explain ''", folder), True)
        same(by_bash("gardenlet explain shoot/g", folder), ["shoot/garden-p/s1"])
        same(by_fish("gardenlet explain shoot/g", folder), ["shoot/garden-p/s1"])


def by_fish(line, path=""):
    script = f"set -x PATH {path or '/nowhere'} $PATH; source {ROOT}/packaging/completions/gardenlet.fish; complete -C '{line}'"
    with tempfile.TemporaryDirectory() as home:
        printed = sh("fish", "--no-config", "-c", script, cwd=ROOT / "packaging/deb", env={"HOME": home})
    return sorted(line.split("\t")[0] for line in printed.splitlines())


def fish_completes(line, expected):
    same(by_fish(line), sorted(expected.split()))


def options_of(binary, command):
    """The options that the help of a command lists."""
    text = sh(binary, "help", *command.split()).split("\nOptions:\n")[1].split("\n\n")[0]
    lines = [line.strip().split("  ")[0] for line in text.splitlines() if line.strip().startswith("-")]
    return {re.match("-+[a-z0-9-]+", name).group() for line in lines for name in line.split(", ")}


def bash_knows_the_options_of(command, binary):
    same(set(by_bash(f"gardenlet {command} -")) | {"-h"}, options_of(binary, command) | {"-h"})


def fish_knows_the_options_of(command, binary):
    same(set(by_fish(f"gardenlet {command} -")), options_of(binary, command))


def completions_are_printed(shell, binary):
    name = {"bash": "gardenlet.bash", "zsh": "_gardenlet", "fish": "gardenlet.fish"}[shell]
    same(sh(binary, "completion", shell), (ROOT / "packaging/completions" / name).read_text())


def zsh_reads_its_completions():
    """Checks the syntax and the loading of the function. A test with the keyboard would need a terminal."""
    sh("zsh", "-n", ROOT / "packaging/completions/_gardenlet")
    script = f"fpath=({ROOT}/packaging/completions $fpath); autoload -U compinit; compinit -u -D; print $_comps[gardenlet]"
    same(sh("zsh", "-f", "-c", script).strip(), "_gardenlet")


def run(binary, packages, newer, target):
    check(checksums_are_right, packages)
    check(the_same_input_gives_the_same_bytes, binary, packages, target)
    check(another_version_gives_other_packages, newer, packages)
    check(the_deb_has_what_belongs_into_it, binary, packages, target)
    check(another_maintainer_is_in_the_packages, binary, target)
    check(the_rpm_has_what_belongs_into_it, binary, packages, target)
    check(the_archive_has_what_belongs_into_it, binary, packages)
    check(distributions_know_the_names_of_machines)
    with tempfile.TemporaryDirectory() as empty:
        check(unknown_targets_and_missing_binaries_are_told, pathlib.Path(empty))
    check(the_manual_is_well_formed)
    commands = "run config rebootstrap bootstrap-token rescue status doctor explain support-bundle bundle etcd node render completion version help"
    kinds = "backupbucket/ backupentry/ bastion/ controllerinstallation/ managedresource/ managedseed/ seed/ shoot/"
    for command in COMMANDS:
        check(bash_knows_the_options_of, command, binary)
        check(fish_knows_the_options_of, command, binary)
    check(names_of_objects_are_completed)
    for shell in ["bash", "zsh", "fish"]:
        check(completions_are_printed, shell, binary)
    check(bash_completes, "gardenlet ''", f"{commands} --config --version --help")
    check(bash_completes, "gardenlet re", "rebootstrap render rescue")
    check(bash_completes, "gardenlet --config = po", "postinst postrm")
    check(bash_completes, "gardenlet config ''", "validate print-defaults --help")
    check(bash_completes, "gardenlet explain ''", kinds)
    check(bash_completes, "gardenlet explain se", "seed/")
    check(bash_completes, "gardenlet doctor -o ''", "json text yaml")
    check(bash_completes, "gardenlet bundle ex", "export")
    check(bash_completes, "gardenlet bundle import pos", "postinst postrm")
    check(bash_completes, "gardenlet bundle export -o pos", "postinst postrm")
    check(bash_completes, "gardenlet bundle list -o ''", "json text yaml")
    check(bash_completes, "gardenlet etcd list --s3 pos", "postinst postrm")
    check(bash_completes, "gardenlet render --sk", "--skip-crds --skip-tests --skip-schema-validation")
    check(bash_completes, "gardenlet render -f pos", "postinst postrm")
    check(bash_completes, "gardenlet completion ''", "bash zsh fish --help")
    check(bash_completes, "gardenlet help etcd ''", "install start snapshot copy list")
    check(fish_completes, "gardenlet ", commands)
    check(fish_completes, "gardenlet --v", "--version")
    check(fish_completes, "gardenlet config ", "validate print-defaults")
    check(fish_completes, "gardenlet explain ", kinds)
    check(fish_completes, "gardenlet doctor -o ", "json text yaml")
    check(fish_completes, "gardenlet bundle ex", "export")
    check(fish_completes, "gardenlet bundle list -o ", "json text yaml")
    check(fish_completes, "gardenlet render --sk", "--skip-crds --skip-tests --skip-schema-validation")
    check(fish_completes, "gardenlet doctor --config=pos", "--config=postinst --config=postrm")
    check(fish_completes, "gardenlet completion ", "bash zsh fish")
    check(fish_completes, "gardenlet help etcd ", "install start snapshot copy list")
    check(zsh_reads_its_completions)
