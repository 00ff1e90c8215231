"""Hosts on which a check fails, and hosts that are accepted."""
from dataclasses import dataclass, field

from standin import CONFIG, STATE, executable, link


@dataclass
class Case:
    """`files`, `state` and `settings` make the host; the output contains `texts`."""
    texts: tuple
    files: dict = field(default_factory=dict)
    state: dict = field(default_factory=dict)
    settings: dict = field(default_factory=dict)
    written: dict = field(default_factory=dict)
    # The shell that can see it: busybox has some programs itself.
    only: str = ""


def disabled(text):
    return {"etc/containerd/config.toml": text}


ROUTES = STATE["routes"]
PANIC = "sys/fs/cgroup/cgroup.controllers"
ARGUMENTS = "/var/lib/kubelet/extra_args"
LOOPBACK = "nameserver 127.0.0.53\n"

REFUSALS = {
    "systemd": Case(('process 1: it is "init", not systemd',), state={"comm": "init\n"}),
    "d-bus": Case(("systemctl: systemd does not answer", "dbus"), state={"no-systemd": ""}),
    "host name": Case(('host name: this host is "box", but the script is for "h1"', "hostnamectl set-hostname h1"),
                      state={"proc-sys/kernel/hostname": "box\n"}),
    "host name after a reboot": Case(('/etc/hostname: after a reboot this host is "box"',), {"etc/hostname": "box\n"}),
    "memory controller": Case(("controller for memory", "Add cgroup_enable=memory to GRUB_CMDLINE_LINUX"), {PANIC: "cpuset cpu pids\n"}),
    "memory controller of a board": Case(("Add cgroup_enable=memory to the line in /boot/firmware/cmdline.txt",),
                                         {PANIC: "cpu\n", "boot/firmware/cmdline.txt": "quiet\n"}),
    "cgroups of version 1": Case(("Kubernetes 1.35.0 needs version 2", "systemd.unified_cgroup_hierarchy=1"),
                                 {PANIC: None, "sys/fs/cgroup/memory/tasks": ""}, settings={"KUBERNETES_VERSION": "1.35.0"}),
    "memory controller of version 1": Case(("/sys/fs/cgroup/memory: ", "cgroup_enable=memory"), {PANIC: None}),
    "swap now": Case(("/proc/swaps: swap is active on /dev/sda2, /swap", "swapoff -a"),
                     state={"swaps": "Filename\n/dev/sda2 partition 1 0 -2\n/swap file 1 0 -3\n"}),
    "swap in fstab": Case(("/etc/fstab line 2: swap comes back at the next boot",),
                          {"etc/fstab": "#/old none swap sw\n/dev/sda2 none swap sw 0 0\n/x none swap noauto 0 0\n"}),
    "swap unit": Case(("dev-zram0.swap: this unit", "systemctl mask dev-zram0.swap"),
                      state={"run/systemd/generator/dev-zram0.swap": "[Swap]\n", "run/systemd/generator/x.swap": "SourcePath=/etc/fstab\n"}),
    "swap service": Case(("dphys-swapfile: this service", "systemctl disable --now dphys-swapfile"),
                         {"etc/systemd/system/multi-user.target.wants/dphys-swapfile.service": link("/lib/systemd/system/x")}),
    "zram-generator": Case(("/etc/systemd/zram-generator.conf: zram-generator",), {"etc/systemd/zram-generator.conf": "[zram0]\n"}),
    "memory": Case(("memory: this host has 2000 MiB, and pool pool1 reserves 4096 MiB",), settings={"RESERVED_MEMORY": str(4 << 30)}),
    "containerd is off": Case(("containerd: it does not answer", "systemctl enable --now containerd"), state={"active/containerd.service": None}),
    "cri is off": Case(("/etc/containerd/config.toml line 3: disabled_plugins",), disabled(
        '# disabled_plugins = ["cri"]\n\ndisabled_plugins = ["cri"]\n')),
    "cri is off in a list of lines": Case(("/etc/containerd/config.toml line 4: ",), disabled(
        'version = 2\ndisabled_plugins = [\n  "aufs",\n  "io.containerd.grpc.v1.cri",\n]\n')),
    "cri is off in an import": Case(("/etc/containerd/conf.d/a.toml line 1: ",), {"etc/containerd/conf.d/a.toml": "disabled_plugins = ['cri']\n"}),
    "cri has failed": Case(('containerd: its plugin CRI is "error"',), state={"plugins": "io.containerd.grpc.v1 cri linux/amd64 error\n"}),
    "no cri": Case(('containerd: its plugin CRI is "missing"',), state={"plugins": "io.containerd.grpc.v1 images - ok\n"}),
    "cni plugins": Case(("/opt/cni/bin: CNI plugins are missing: host-local portmap.", "containernetworking-plugins"),
                        {"usr/lib/cni/portmap": None, "usr/lib/cni/host-local": None}),
    "bash": Case(("bash: the program is missing",), {"usr/bin/bash": None}),
    "ctr": Case(("ctr: the program is missing",), {"usr/bin/ctr": None}),
    "iptables": Case(("iptables: the program is missing",), {"usr/sbin/iptables": None}),
    "ip": Case(("ip: the program is missing. Install the package iproute2",), {"usr/sbin/ip": None, "usr/bin/ip": None}, only="dash"),
    "logrotate": Case(("/usr/sbin/logrotate: the program is missing", "package logrotate"), {"usr/sbin/logrotate": None}),
    "update-ca-certificates": Case(("/usr/sbin/update-ca-certificates: the program is missing",), {"usr/sbin/update-ca-certificates": None}),
    "modules": Case(("module br_netfilter: the kernel does not have it",), state={"no-modules": "br_netfilter\n"}),
    "modules of flannel": Case(("module vxlan: the kernel does not have it",), state={"no-modules": "vxlan\n"}, settings={"NETWORK": "flannel"}),
    "architecture": Case(("processor: its architecture is aarch64, but pool pool1 is for amd64",), state={"machine": "aarch64\n"},
                         settings={"ARCHITECTURE": "amd64"}),
    "architecture of a board": Case(("processor: its architecture is armv7l, but pool pool1 is for arm64",), state={"machine": "armv7l\n"},
                                    settings={"ARCHITECTURE": "arm64"}),
    "token": Case(("https://192.0.2.1:30443: it does not accept the token", "`gardenlet node script garden-p/w1 pool1 --name=h1`"),
                  state={"token": "401\n"}),
    "server that is not well": Case(("https://192.0.2.1:30443: its answer to the token of this script was 503",), state={"token": "503\n"}),
    "default route": Case(("default route: this host has none",), state={"routes": "192.0.2.0/24 dev eth0\n"}),
    "route to the server": Case(("192.0.2.1: this host has no route to the API server",), state={"route-get": ""}),
    "node address": Case(("192.0.2.99: no interface",), settings={"NODE_ADDRESS": "192.0.2.99"}),
    "route in the network of pods": Case(("route 10.99.3.0/24: it overlaps the network of pods 10.99.0.0/16",),
                                         state={"routes": ROUTES + "10.99.3.0/24 via 192.0.2.7 dev eth0\n"}),
    "route around the network of services": Case(("route 100.64.0.0/10: it overlaps the network of services 100.65.0.0/16",),
                                                 state={"routes": ROUTES + "100.64.0.0/10 dev tailscale0\n"}),
    "docker": Case(("route 172.17.0.0/16: it overlaps the network of pods 172.16.0.0/12",), settings={"POD_RANGES": "172.16.0.0/12"}),
    "address in the network of pods": Case(("address 10.99.0.5: ",), state={
        "addresses": STATE["addresses"] + "3: eth1    inet 10.99.0.5/32 scope global eth1\n"}),
    "address of IPv6 in the network of pods": Case(("address 2001:db8::20: it overlaps the network of pods 2001:db8::/64",),
                                                   settings={"POD_RANGES": "10.99.0.0/16 2001:db8::/64"}),
    "server in the network of services": Case(("API-server 192.0.2.1: ",), state={
        "routes": "default via 198.51.100.1 dev eth0\n198.51.100.0/24 dev eth0\n", "addresses": "2: eth0    inet 198.51.100.2/24 scope global eth0\n",
        "route-get": "192.0.2.1 via 198.51.100.1 dev eth0 src 198.51.100.2\n"},
        files={"etc/resolv.conf": "nameserver 198.51.100.53\n"}, settings={"SERVICE_RANGES": "192.0.2.0/25"}),
    "resolver in the network of services": Case(("resolver 100.65.0.10: ",), {"etc/resolv.conf": "nameserver 100.65.0.10\n"}),
    "resolver on the host": Case(("/etc/resolv.conf: it lists only resolvers on this host itself",), {"etc/resolv.conf": LOOPBACK}),
    "two stubs": Case(("/etc/resolv.conf: ",), {"etc/resolv.conf": LOOPBACK}, {"run/systemd/resolve/resolv.conf": "nameserver ::1\n"}),
    "no resolver": Case(("/etc/resolv.conf: ",), {"etc/resolv.conf": "search local\n"}),
    "mtu": Case(("interface eth0: its MTU is 1200",), {"sys/class/net/eth0/mtu": "1200\n"}),
    "port of the server": Case(("192.0.2.1 port 30443: this host cannot connect to the API server",), state={"closed": "30443\n"}),
    "port of the tunnel": Case(("192.0.2.1 port 30132: this host cannot connect to the tunnel",), state={"closed": "30132\n"}),
    "clock": Case(("clock: this host's clock differs from the API server's by", "timedatectl"), state={"skew": "-4000\n"}),
    "ca of the server": Case(("https://192.0.2.1:30443: the CA of Shoot garden-p/w1 did not sign",), state={"foreign-ca": ""}),
    "registry": Case(("registry http://192.0.2.9:5000: it does not answer. It stands for europe-docker.pkg.dev",), state={"dead": "192.0.2.9\n"},
                     settings={"REGISTRIES": "europe-docker.pkg.dev http://192.0.2.9:5000"}),
    "k3s": Case(("k3s-agent: this host is a node of another cluster",), state={"active/k3s-agent.service": ""}),
    "kubeadm": Case(("/etc/kubernetes/kubelet.conf: ", "kubeadm reset"), {"etc/kubernetes/kubelet.conf": ""}),
}

STUB_ROUTE = {"routes": "default via 203.0.113.1 dev eth1\n192.0.2.0/24 dev eth0\n",
              "addresses": STATE["addresses"] + "3: eth1    inet 203.0.113.9/24 scope global eth1\n"}
ACCEPTED = {
    "a plain one": Case((), written={ARGUMENTS: None}),
    "with a name in capitals": Case((), {"etc/hostname": "H1\n"}, {"proc-sys/kernel/hostname": "H1\n"}),
    "with cgroups of version 1": Case((), {PANIC: None, "sys/fs/cgroup/memory/tasks": ""}),
    "with swap that the pool allows": Case((), state={"swaps": "F\n/dev/sda2 partition 1 0 -2\n"}, settings={"SWAP_ALLOWED": "yes"}),
    "with masked swap": Case((), {"etc/systemd/system/dev-zram0.swap": link("/dev/null")}, {"run/systemd/generator/dev-zram0.swap": "[Swap]\n"}),
    "behind a stub": Case((), {"etc/resolv.conf": LOOPBACK}, {"run/systemd/resolve/resolv.conf": "nameserver 192.0.2.53\n"},
                          written={ARGUMENTS: 'KUBELET_EXTRA_ARGS="--resolv-conf=/run/systemd/resolve/resolv.conf"\n'}),
    "with a chosen address": Case((), {"etc/resolv.conf": LOOPBACK}, {"run/systemd/resolve/resolv.conf": "nameserver 192.0.2.53\n"},
                                  {"NODE_ADDRESS": "192.0.2.20"}, {
        ARGUMENTS: 'KUBELET_EXTRA_ARGS="--resolv-conf=/run/systemd/resolve/resolv.conf --node-ip=192.0.2.20"\n'}),
    "with two interfaces": Case(("The Node gets 192.0.2.20.",), state=STUB_ROUTE, written={ARGUMENTS: 'KUBELET_EXTRA_ARGS="--node-ip=192.0.2.20"\n'}),
    "with firewalld": Case(("firewalld is active", "what the network of pods needs", "30443 and 30132"), state={"active/firewalld.service": ""}),
    "with firewalld and flannel": Case(("firewalld is active", "8472/udp"), state={"active/firewalld.service": ""}, settings={"NETWORK": "flannel"},
                                       written={"/etc/modules-load.d/gardenlet-host.conf": "br_netfilter\noverlay\nvxlan\n"}),
    "without vxlan": Case((), state={"no-modules": "vxlan\n"}),
    "that may only see the version": Case((), state={"token": "403\n"}),
    "of another architecture": Case((), state={"machine": "aarch64\n"}, settings={"ARCHITECTURE": "arm64"}),
    "of a small architecture": Case((), state={"machine": "armv6l\n"}, settings={"ARCHITECTURE": "arm"}),
    "with ufw": Case(("ufw is active",), {"etc/ufw/ufw.conf": "ENABLED=yes\n"}),
    "with a small mtu": Case(("MTU of interface eth0 is 1400",), {"sys/class/net/eth0/mtu": "1400\n"}),
    "outside of the network of nodes": Case(("is not in the Shoot's network of nodes",), settings={"NODE_RANGES": "198.51.100.0/24"}),
    "with plugins in place": Case((), {f"opt/cni/bin/{name}": executable("#!/bin/sh\n") for name in ("bridge", "host-local", "portmap", "loopback")}),
    "without a tunnel and mirrors": Case((), state={"closed": "30132\n"}, settings={"TUNNEL_PORT": "", "REGISTRIES": ""}),
    "without NetworkManager": Case((), {"etc/NetworkManager": None}, written={"/etc/NetworkManager/conf.d/gardenlet-host.conf": None}),
    "without a configuration of containerd": Case((), {"etc/containerd/config.toml": None}),
    "with another plugin switched off": Case((), disabled(CONFIG + 'disabled_plugins = ["aufs"]\nimports = ["cri"]\n')),
}

OVERLAPS = [
    ("10.99.0.0/16", "10.99.255.0/24", True), ("10.99.0.0/16", "10.100.0.0/16", False), ("10.99.0.0/16", "10.0.0.0/8", True),
    ("10.99.0.0/16", "10.98.0.0/15", True), ("10.99.0.0/16", "10.96.0.0/15", False), ("10.99.0.0/16", "10.99.1.2", True),
    ("10.99.0.0/16", "0.0.0.0/1", True), ("10.99.0.0/16", "128.0.0.0/1", False), ("100.64.0.0/10", "100.128.0.0/16", False),
    ("255.255.255.0/24", "255.255.255.255", True), ("10.99.0.0/16", "10.99/16", True), ("10.99.128.0/17", "10.99.127.255", False),
    ("fd00:1::/48", "fd00:1:0:5::/64", True), ("fd00:1::/48", "fd00:2::/48", False), ("fd00::/8", "fdab::1", True),
    ("fd00:1::/49", "fd00:1:0:8000::/64", False), ("2001:db8:1:2:3:4:5:6", "2001:DB8:1:2:3:4:5:6", True), ("::/0", "fe80::1", True),
    ("10.0.0.0/8", "fd00::/8", False),
]

DATES = [
    ("Date: Thu, 01 Jan 1970 00:00:00 GMT", "0"), ("date: Tue, 01 Dec 2026 08:51:06 GMT", "1796115066"),
    ("Date: Thu, 29 Feb 2024 23:59:59 GMT", "1709251199"), ("DATE: Fri, 01 Mar 2024 00:00:00 GMT", "1709251200"),
    ("Date: Sun, 07 Feb 2106 06:28:16 GMT", "4294967296"), ("Expires: Thu, 01 Jan 1970 00:00:00 GMT", ""),
]
