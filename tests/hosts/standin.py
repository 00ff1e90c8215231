"""A stand-in for a host: an overlay of this machine's root folder in namespaces of its own, with stand-ins for programs.

A host consists of folders in memory, so it outlives the processes on it. Each `run` mounts them, runs the script of one
shell, and unmounts them.
"""
import os
import pathlib
import shutil
import stat
import subprocess

from harness import ROOT, sh

HERE = pathlib.Path(__file__).resolve().parent
SCRIPT = ROOT / "src/hosts/script"
PARTS = ("base.sh", "checks.sh", "join.sh", "leave.sh", "main.sh")
SHELLS = ("dash", "busybox sh")
SECONDS = 60
# What the script calls. In PATH, each of these is the wrapper.
PROGRAMS = (
    "awk base64 bash cat chmod cp ctr curl date find getent grep id ip ip6tables-restore ip6tables-save iptables iptables-restore"
    " iptables-save journalctl ln mkdir modprobe mount mv nft openssl printf readlink rm rmdir sed sh sleep sort sync systemctl"
    " timeout tr umount uname").split()
# Folders of which the host has nothing from this machine.
OPAQUE = "boot etc home opt root run srv sys tmp usr/lib/cni usr/libexec usr/local/share/ca-certificates var".split()
HIDDEN = [f"usr/sbin/{name}{end}" for name in ("iptables-legacy", "iptables-nft", "ip6tables-legacy", "ip6tables-nft")
          for end in ("", "-save", "-restore")]
CONFIG = 'version = 2\n# the owner\'s\n[plugins."io.containerd.grpc.v1.cri"]\n  enable_selinux = false\n'
FILES = {
    "etc/containerd/config.toml": CONFIG,
    "etc/fstab": "# the disk\n/dev/sda1 / ext4 defaults 0 1\n",
    "etc/hostname": "h1\n",
    "etc/resolv.conf": "nameserver 192.0.2.53\n",
    "etc/passwd": "root:x:0:0::/root:/bin/sh\n",
    "etc/modules-load.d/modules.conf": "",
    "etc/NetworkManager/conf.d/owner.conf": "[main]\n",
    "etc/ssl/certs/ca-certificates.crt": "the owner's CA\n",
    "etc/systemd/system/containerd.service.d/proxy.conf": "[Service]\nEnvironment=A=b\n",
    "etc/systemd/system/owner.service": "[Unit]\n",
    "usr/local/share/ca-certificates/owner.crt": "the owner's CA\n",
    "var/lib/dpkg/status": "Package: base\n",
    "var/log/syslog": "a line\n",
    "sys/fs/cgroup/cgroup.controllers": "cpuset cpu io memory pids\n",
    "sys/class/net/eth0/mtu": "1500\n",
}
FOLDERS = ("boot", "opt", "root", "tmp", "run", "home", "srv", "var/lib/containerd", "var/lib/systemd/timers", "usr/libexec",
           "etc/systemd/system/multi-user.target.wants", "sys/class/net/lo", "sys/module/overlay", "stub", "state")
PROGRAM_FILES = {
    "usr/sbin/logrotate": "#!/bin/sh\n",
    "usr/sbin/update-ca-certificates":
        "#!/bin/sh\ncat /usr/local/share/ca-certificates/*.crt >/etc/ssl/certs/ca-certificates.crt\n",
    **{f"usr/lib/cni/{name}": f"#!/bin/sh\n# {name}\n" for name in ("bridge", "host-local", "portmap", "loopback", "vlan")},
}
STATE = {
    "comm": "systemd\n",
    "swaps": "Filename\tType\tSize\tUsed\tPriority\n",
    "meminfo": "MemTotal:        2048000 kB\nMemFree: 1 kB\n",
    "filesystems": "nodev\ttmpfs\n\text4\n",
    "containers": "owners-container\n",
    "tasks": "owners-container 11 RUNNING\n",
    "images.default": "docker.io/library/owner:1\n",
    "images.k8s.io": "",
    "plugins": "TYPE ID PLATFORMS STATUS\nio.containerd.snapshotter.v1 overlayfs linux/amd64 ok\nio.containerd.grpc.v1 cri linux/amd64 ok\n",
    "addresses": "1: lo    inet 127.0.0.1/8 scope host lo\n2: eth0    inet 192.0.2.20/24 brd 192.0.2.255 scope global eth0\n"
                 "2: eth0    inet6 2001:db8::20/64 scope global\n",
    "routes": "default via 192.0.2.254 dev eth0\n192.0.2.0/24 dev eth0 proto kernel scope link src 192.0.2.20\n"
              "172.17.0.0/16 dev docker0 proto kernel scope link src 172.17.0.1 linkdown\n",
    "route-get": "192.0.2.1 dev eth0 src 192.0.2.20 uid 0\n    cache\n",
    "active/containerd.service": "",
    "run/systemd/system/.keep": "",
    "run/netns/owner": "",
    "proc-sys/kernel/hostname": "h1\n",
    "proc-sys/kernel/panic": "0\n",
    "proc-sys/net/core/somaxconn": "4096\n",
    "proc-sys/net/ipv4/tcp_rmem": "4096\t131072\t6291456\n",
}
# Files of /proc that the host does not share with this machine.
PROC = ("swaps", "meminfo", "filesystems")

MOUNTS = """
set -eu
mount --make-rprivate /
mount -t overlay -o "lowerdir=$LOWER,upperdir=$HOST/upper,workdir=$HOST/work" none "$HOST/root"
cd "$HOST/root"
mount -t proc none proc
for file in $PROC; do mount --bind "$HOST/state/$file" "proc/$file"; done
mount --bind "$HOST/state/comm" proc/1/comm
mount --bind "$HOST/state/proc-sys" proc/sys
mount --bind "$HOST/state/run" run
mount --bind "$HOST/state/tmp" tmp
mount --bind "$HOST/state" state
mount --bind "$STUBS" stub
mount --bind /dev dev
for place in $EXTRA_MOUNTS; do mkdir -p "./$place"; mount -t tmpfs none "./$place"; done
# Process 1 of the namespace cannot be killed from inside, so the script is another one, in a group of its own.
setsid --wait chroot . /usr/bin/env -i SHELL_OF_TEST="$SHELL_OF_TEST" PATH=/state/bin:/usr/sbin:/usr/bin:/sbin:/bin \
  $SHELL_OF_TEST /state/script "$@" </dev/null &
wait $!
"""


def stripped(text):
    """The script as the program may print it: without comments, indentation and empty lines."""
    lines = (line.lstrip(" ") for line in text.splitlines())
    return "".join(f"{line}\n" for line in lines if line and not line.startswith("#"))


def write(path, text, mode=0o644):
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(text, str):
        path.write_text(text)
        path.chmod(mode)
    else:
        text(path)


def whiteout(path):
    """The file does not exist on the host, whatever this machine has."""
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mknod(path, stat.S_IFCHR, 0)


def link(target):
    return lambda path: path.symlink_to(target)


def executable(text):
    def make(path):
        path.write_text(text)
        path.chmod(0o755)
    return make


class Site:
    """What all hosts share: the layer that makes this machine's root folder a host's, stand-ins, certificates."""

    def __init__(self, folder):
        self.folder = folder
        self.layer, self.stubs = folder / "layer", folder / "stubs"
        for name in FOLDERS:
            (self.layer / name).mkdir(parents=True, exist_ok=True)
        for name, text in FILES.items():
            write(self.layer / name, text)
        for name, text in PROGRAM_FILES.items():
            write(self.layer / name, text, 0o755)
        # Programs of this machine, and their libraries, are found by these.
        if os.path.isdir("/etc/alternatives"):
            shutil.copytree("/etc/alternatives", self.layer / "etc/alternatives", symlinks=True)
        if os.path.isfile("/etc/ld.so.cache"):
            shutil.copy("/etc/ld.so.cache", self.layer / "etc/ld.so.cache")
        for name in HIDDEN:
            whiteout(self.layer / name)
        for name in OPAQUE:
            os.setxattr(self.layer / name, "trusted.overlay.opaque", b"y")
        shutil.copytree(HERE / "stubs", self.stubs)
        applets = set(sh("busybox", "--list").split())
        (self.stubs / "applets").mkdir()
        for name in applets:
            (self.stubs / "applets" / name).write_text("")
        # busybox prefers its own applets to PATH, but not to functions.
        self.functions = "".join(f'{name}() {{ /state/bin/{name} "$@"; }}\n' for name in PROGRAMS
                                 if name in applets and name.isalnum() and name != "printf")
        self.certificates = self.stubs / "certificates"
        self.certificates.mkdir()
        for name in ("ca", "other"):
            self.key(name)
        self.leaf("agent", "/O=gardener.cloud:node-agents/CN=gardener.cloud:node-agent:machine:h1")
        self.leaf("kubelet", "/O=system:nodes/CN=system:node:h1")
        self.leaf("kubelet2", "/O=system:nodes/CN=system:node:h2")
        self.leaf("old", "/O=system:nodes/CN=system:node:h1", "-not_before", "20200101000000Z", "-not_after", "20200201000000Z")

    def key(self, name):
        sh("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "3650", "-subj",
           f"/CN={name}", "-keyout", self.certificates / f"{name}.key", "-out", self.certificates / f"{name}.crt")

    def leaf(self, name, subject, *dates):
        where = self.certificates
        sh("openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", subject,
           "-keyout", where / f"{name}.key", "-out", where / f"{name}.csr")
        if dates:
            # `openssl x509` of version 3.0 knows no dates; the small authority does.
            (where / "index").write_text("")
            (where / "serial").write_text("01\n")
            (where / "ca.conf").write_text(
                f"[ca]\ndefault_ca=c\n[c]\ndatabase={where}/index\nserial={where}/serial\nnew_certs_dir={where}\n"
                f"certificate={where}/ca.crt\nprivate_key={where}/ca.key\ndefault_md=sha256\npolicy=p\n"
                "[p]\ncommonName=supplied\norganizationName=optional\n")
            sh("openssl", "ca", "-batch", "-notext", "-config", where / "ca.conf", "-startdate", dates[1], "-enddate", dates[3],
               "-in", where / f"{name}.csr", "-out", where / f"{name}.crt")
        else:
            sh("openssl", "x509", "-req", "-in", where / f"{name}.csr", "-CA", where / "ca.crt", "-CAkey", where / "ca.key",
               "-CAcreateserial", "-days", "365", "-out", where / f"{name}.crt")

    def pem(self, name):
        return (self.certificates / f"{name}.crt").read_text()


def head(site, **settings):
    """The variables that the program prints, as words of a shell."""
    values = {
        "PROGRAM_VERSION": "0.1.0", "SHOOT": "garden-p/w1", "POOL": "pool1", "HOST_NAME": "h1", "EXPIRES": "4000000000",
        "SERVER": "https://192.0.2.1:30443", "SERVER_ADDRESS": "192.0.2.1", "SERVER_PORT": "30443", "TUNNEL_PORT": "30132",
        "SERVER_CA": site.pem("ca").strip(), "KUBERNETES_VERSION": "1.34.3", "NODE_RANGES": "192.0.2.0/24",
        "POD_RANGES": "10.99.0.0/16", "SERVICE_RANGES": "100.65.0.0/16", "RESERVED_MEMORY": str(1126 << 20), "NODE_ADDRESS": "",
        "REGISTRIES": "europe-docker.pkg.dev http://192.0.2.9:5000\nregistry.k8s.io http://192.0.2.9:5000",
        "AGENT_VERSION": "v1.150.0", "POOL_SECRET": "gardener-node-agent-pool1", "REJOIN": "",
    } | settings
    assert all("'" not in value for value in values.values())
    return "".join(f"{name}='{value}'\n" for name, value in values.items())


class Host:
    """One host with one shell. `files` are changes to it: text, a function that makes the file, or None for no file."""

    def __init__(self, site, shell, name, files=None, state=None):
        self.site, self.shell, self.folder = site, shell, site.folder / name
        for part in ("upper", "work", "root", "own", "state/active", "state/bin", "state/run", "state/tmp"):
            (self.folder / part).mkdir(parents=True)
        for path, text in (STATE | (state or {})).items():
            if text is not None:
                write(self.folder / "state" / path, text)
        shutil.copy(site.stubs / "tables.owner", self.folder / "state/tables.v4")
        self.hidden = []
        for path, text in (files or {}).items():
            if text is None:
                whiteout(self.folder / "own" / path)
                self.hidden.append(pathlib.Path(path).name)
            else:
                write(self.folder / "own" / path, text)
        for program in PROGRAMS:
            if program not in self.hidden:
                (self.folder / "state/bin" / program).symlink_to("/stub/wrap")

    def script(self, ca="ca", **settings):
        functions = self.site.functions if self.shell != "dash" else ""
        functions = "".join(line + "\n" for line in functions.splitlines() if line.split("(")[0] not in self.hidden)
        text = head(self.site, SERVER_CA=self.site.pem(ca).strip(), **settings)
        values = {"@CA@": self.site.pem(ca).strip(), "@NAME@": settings.get("HOST_NAME", "h1"),
                  "@SERVER@": settings.get("SERVER", "https://192.0.2.1:30443")}
        provider = (HERE / "stubs/provider").read_text()
        for word, value in values.items():
            provider = provider.replace(word, value)
        text += functions + f"provider_part() {{\ncat <<'PROVIDER'\n{provider}PROVIDER\n}}\n"
        parts = "".join((SCRIPT / part).read_text() for part in PARTS)
        return text + (parts if self.shell == "dash" else stripped(parts)) + 'main "$@"\n'

    def run(self, *arguments, code=0, kill="", mounts="", **settings):
        """Runs the script; returns what it prints. `kill` is `before N` or `after N`: calls of programs."""
        state = self.folder / "state"
        (state / "script").write_text(self.script(**settings))
        (state / "count").write_text("1\n")
        shutil.rmtree(state / "taken", ignore_errors=True)
        (state / "taken").mkdir()
        (state / "calls").write_text("")
        (state / "kill").unlink(missing_ok=True)
        if kill:
            (state / "kill").write_text(kill + "\n")
        lower = f"{self.folder / 'own'}:{self.site.layer}:/"
        environment = os.environ | {"HOST": str(self.folder), "LOWER": lower, "STUBS": str(self.site.stubs), "PROC": " ".join(PROC),
                                    "SHELL_OF_TEST": self.shell, "EXTRA_MOUNTS": mounts}
        done = subprocess.run(["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "sh", "-c", MOUNTS, "sh", *arguments],
                              env=environment, capture_output=True, text=True, timeout=SECONDS, check=False)
        output = done.stdout + done.stderr
        expected = 137 if kill else code
        if kill and done.returncode != 137:
            return None
        assert not (state / "leaks").exists(), (state / "leaks").read_text()
        assert done.returncode == expected, f"{arguments} ended with {done.returncode}, not {expected}:\n{output}"
        return output

    def calls(self):
        """Lines `NUMBER PROGRAM ARGUMENTS`; an argument may have more lines."""
        return [line for line in (self.folder / "state/calls").read_text().splitlines() if line.split(" ")[0].isdigit()]

    def count(self):
        return len(list((self.folder / "state/taken").iterdir()))

    def state(self, name):
        return (self.folder / "state" / name).read_text()

    def path(self, name):
        """Where a file of the host is now; None: it does not exist."""
        name = name.lstrip("/")
        for layer in (self.folder / "upper", self.folder / "own", self.site.layer):
            path = layer / name
            if path.is_symlink() or path.exists():
                mode = path.lstat()
                return None if stat.S_ISCHR(mode.st_mode) and mode.st_rdev == 0 else path
            if any(is_opaque(layer / parent) for parent in pathlib.PurePath(name).parents if (layer / parent).is_dir()):
                return None
        return None

    def text(self, name):
        path = self.path(name)
        return None if path is None or path.is_dir() else path.read_text()

    def changes(self):
        """What differs from the host at its beginning: path -> description."""
        upper, found = self.folder / "upper", {}
        for path in sorted(upper.rglob("*")):
            name = str(path.relative_to(upper))
            before = self.before(name)
            what = describe(path)
            if what == "nothing" and before is None:
                continue
            if before is None or describe(before) != what:
                found[name] = what
            elif path.is_dir() and not path.is_symlink() and is_opaque(path):
                names = {entry.name for layer in (self.folder / "own", self.site.layer) if (layer / name).is_dir()
                         for entry in (layer / name).iterdir()}
                for gone in names - {entry.name for entry in path.iterdir()}:
                    found[f"{name}/{gone}"] = "nothing"
        return found

    def before(self, name):
        for layer in (self.folder / "own", self.site.layer):
            path = layer / name
            if path.is_symlink() or path.exists():
                return path
            if any(is_opaque(layer / parent) for parent in pathlib.PurePath(name).parents if (layer / parent).is_dir()):
                return None
        path = pathlib.Path("/") / name
        return path if path.is_symlink() or path.exists() else None

    def around(self):
        """What is there beside files: settings, rules, links, containers, enabled units."""
        state = self.folder / "state"
        files = [*(state / "proc-sys").rglob("*"), *(state / name for name in STATE if name.startswith(("images", "containers", "tasks", "routes"))),
                 state / "tables.v4"]
        found = {str(path.relative_to(state)): path.read_text() for path in files if path.is_file()}
        for place in ("run", "tmp", "active"):
            found[place] = sorted(str(path.relative_to(state)) for path in (state / place).rglob("*")
                                  if "run/mount" not in str(path))
        return found

    def remove(self):
        shutil.rmtree(self.folder)


def is_opaque(path):
    try:
        return os.getxattr(path, "trusted.overlay.opaque") == b"y"
    except OSError:
        return False


def describe(path):
    mode = path.lstat()
    if stat.S_ISCHR(mode.st_mode) and mode.st_rdev == 0:
        return "nothing"
    if stat.S_ISLNK(mode.st_mode):
        return f"link to {os.readlink(path)}"
    kind = "folder" if stat.S_ISDIR(mode.st_mode) else repr(path.read_bytes())
    return f"{stat.S_IMODE(mode.st_mode):o} {mode.st_uid} {kind}"
