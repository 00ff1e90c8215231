# The program prints a head before this file. The head sets these variables, and each of them is a text:
#
#   PROGRAM_VERSION     the version of the program that printed the script
#   SHOOT               namespace/name of the Shoot
#   POOL                name of the worker pool
#   HOST_NAME           name of Node, machine and host, in lower case
#   EXPIRES             end of the bootstrap token, in seconds since 1970
#   SERVER              URL of the API server, for example https://192.0.2.1:30443
#   SERVER_ADDRESS      its address or DNS name
#   SERVER_PORT         its port
#   TUNNEL_PORT         port of the tunnel at the same address; empty: the Shoot has none
#   SERVER_CA           certificates that sign the API server's, as PEM
#   KUBERNETES_VERSION  version of the kubelet, without a v
#   NODE_RANGES, POD_RANGES, SERVICE_RANGES   networks of the Shoot, as CIDRs with spaces between them
#   RESERVED_MEMORY     bytes that the pool reserves on each host: kubeReserved and the hard eviction limit
#   NODE_ADDRESS        address of the Node; empty: the source address of the route to the API server
#   REGISTRIES          lines `upstream-host url`: mirrors of registries; may be empty
#   AGENT_VERSION       version of gardener-node-agent, with a v
#   POOL_SECRET         name of the Secret with the pool's configuration
#   REJOIN              uid of the Node whose place this host takes; empty: the host is new
#   SWAP_ALLOWED        yes: the pool's kubelets accept swap; may be missing
#   ARCHITECTURE        of the pool's machines: amd64, arm64 or arm; may be missing
#   NETWORK             flannel: the agent brings this network of pods; may be missing
#
# and the function provider_part, which prints the provider's script. A line of it writes the bootstrap token.

STATE=/var/lib/gardenlet-host
JOURNAL=$STATE/journal
SAVED=$STATE/saved
WORK=/run/gardenlet-host
AGENT=/var/lib/gardener-node-agent
KUBELET=/var/lib/kubelet
UNITS=/etc/systemd/system
CERTS=/etc/containerd/certs.d
PLUGINS=/opt/cni/bin
: "${SWAP_ALLOWED:=}" "${ARCHITECTURE:=}" "${NETWORK:=}"
# The command that prints this script again.
PRINT="gardenlet node script $SHOOT $POOL --name=$HOST_NAME${REJOIN:+ --rejoin}${NODE_ADDRESS:+ --address=$NODE_ADDRESS}"

# What gardener-node-agent writes, besides its own folder and the kubelet's.
AGENT_FILES="/opt/bin/gardener-node-agent /opt/bin/kubelet
$UNITS/gardener-node-init.service $UNITS/gardener-node-agent.service $UNITS/kubelet.service $UNITS/updatecacerts.service
$UNITS/containerd-logrotate.service $UNITS/containerd-logrotate.timer $UNITS/containerd.service.d/30-env_config.conf
/etc/systemd/containerd.conf /etc/sysctl.d/99-k8s-general.conf /etc/pki/trust/anchors/ROOTcerts.pem
/etc/containerd/config.toml"
AGENT_TREES="$AGENT $KUBELET /var/lib/ssl /var/lib/ca-certificates-local /var/lib/cni /var/log/pods /var/log/containers"
AGENT_FOLDERS="/etc/containerd/conf.d $CERTS $PLUGINS /var/bin/containerruntimes /etc/cni/net.d $UNITS/multi-user.target.wants"
AGENT_UNITS='gardener-node-agent.service gardener-node-init.service kubelet.service updatecacerts.service
containerd-logrotate.timer containerd-logrotate.service'
# Settings of the kernel that the pool's file in /etc/sysctl.d changes.
AGENT_SYSCTLS='fs/aio-max-nr fs/file-max fs/inotify/max_user_instances fs/inotify/max_user_watches
kernel/keys/root_maxbytes kernel/keys/root_maxkeys kernel/panic kernel/panic_on_oops kernel/softlockup_all_cpu_backtrace
kernel/softlockup_panic net/core/netdev_max_backlog net/core/rmem_max net/core/somaxconn net/core/wmem_max
net/ipv4/conf/all/forwarding net/ipv4/conf/default/forwarding net/ipv4/conf/default/log_martians
net/ipv4/ip_local_port_range net/ipv4/tcp_max_syn_backlog net/ipv4/tcp_retries2 net/ipv4/tcp_rmem
net/ipv4/tcp_slow_start_after_idle net/ipv4/tcp_tw_reuse net/ipv4/tcp_wmem net/ipv6/conf/all/forwarding
net/ipv6/conf/default/forwarding net/netfilter/nf_conntrack_max vm/max_map_count vm/memory_failure_early_kill
vm/overcommit_memory vm/panic_on_oom'
MODULES='br_netfilter overlay'
[ "$NETWORK" != flannel ] || MODULES="$MODULES vxlan"
NEEDED_PLUGINS='bridge host-local portmap loopback'
NEWLINE='
'
CR=$(printf '\r')

say() { printf '%s\n' "$*"; }
note() { printf 'note: %s\n' "$*"; }
warn() { printf 'warning: %s\n' "$*" >&2; }

# The arguments of an error are a place, a cause and a remedy.
die() {
  printf 'error: %s: %s. %s\n' "$1" "$2" "$3" >&2
  exit 1
}

problems='' problem_count=0
refuse() {
  problem_count=$((problem_count + 1))
  problems="$problems$problem_count. $1: $2. $3$NEWLINE"
}

has() { command -v "$1" >/dev/null 2>&1; }
lower() { printf '%s' "$1" | tr '[:upper:]' '[:lower:]'; }
is_active() { systemctl is-active --quiet "$1" 2>/dev/null; }

# Calls ctr, but not for ever: some of its commands wait for a task that does not end.
call_ctr() {
  if has timeout; then timeout -s KILL 20 ctr "$@"; else ctr "$@"; fi
}

# The first line of a file, without a process.
first_line() {
  first=''
  [ ! -r "$1" ] || { read -r first <"$1" || true; } 2>/dev/null
}

# One script at a time: two would write into the same journal.
lock() {
  first_line "$WORK/pid"
  if [ -n "$first" ] && [ "$first" != $$ ] && kill -0 "$first" 2>/dev/null; then
    die "$WORK/pid" "process $first runs this script already" "Wait until it ends. If it is another program, remove the file"
  fi
  rm -rf "$WORK"
  (umask 077 && mkdir "$WORK" && printf '%s\n' $$ >"$WORK/pid")
  trap 'rm -rf "$WORK"' EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM HUP
}

# The journal has a line `kind number path` for each change, written before the change. The undoing goes backwards and
# drops each line after it. Kinds:
#   host    the journal begins                         agent   gardener-node-agent may have started
#   file    a file that was not there                  copy    a file that was there: its copy is saved/NUMBER
#   folder  a folder that was not there                tree    a folder that was not there, with all that gets into it
#   part    a folder that was there: what is new in it module  a module of the kernel that was not loaded
#   unit    a unit that was not enabled
journal_lines=0
recorded() {
  journal_lines=0
  while read -r recorded_kind recorded_number recorded_path; do
    journal_lines=$((journal_lines + 1))
    [ "$recorded_path" != "$1" ] || return 0
  done <"$JOURNAL"
  return 1
}

record() {
  recorded "$2" || printf '%s - %s\n' "$1" "$2" >>"$JOURNAL"
}

# Records each missing folder of a path. Makes them, too, unless somebody else will.
folders() {
  folders_rest=${1#/} folders_path=''
  while [ -n "$folders_rest" ]; do
    folders_path=$folders_path/${folders_rest%%/*}
    case $folders_rest in
      */*) folders_rest=${folders_rest#*/} ;;
      *) folders_rest='' ;;
    esac
    [ ! -d "$folders_path" ] || continue
    record folder "$folders_path"
    [ "${2:-}" = later ] || mkdir "$folders_path"
  done
}

# Prepares for a write to a file: saves what is there, or records that nothing is.
keep() {
  # A writer may replace a link, or write into its target.
  if [ -L "$1" ] && [ -f "$1" ]; then
    keep_link=$1
    keep "$(readlink -f "$1")"
    set -- "$keep_link"
  fi
  recorded "$1" && return 0
  if [ -e "$1" ] || [ -L "$1" ]; then
    keep_number=$((journal_lines + 1))
    rm -f "$SAVED/$keep_number.new"
    cp -pP "$1" "$SAVED/$keep_number.new"
    mv -f "$SAVED/$keep_number.new" "$SAVED/$keep_number"
    printf 'copy %s %s\n' "$keep_number" "$1" >>"$JOURNAL"
  else
    folders "${1%/*}" later
    record file "$1"
  fi
}

# Writes a file: path, mode, content. An equal file stays the owner's.
put() {
  if [ -f "$1" ] && [ "$(cat "$1")" = "$3" ]; then return 0; fi
  keep "$1"
  folders "${1%/*}"
  rm -f "$1.gardenlet-new"
  # It may be secret until it has its mode.
  (umask 077 && printf '%s\n' "$3" >"$1.gardenlet-new")
  chmod "$2" "$1.gardenlet-new"
  mv -f "$1.gardenlet-new" "$1"
}

# Calls a function with each program for rules of the packet filter, without -save and -restore.
each_filter() {
  for tool in iptables ip6tables iptables-legacy ip6tables-legacy iptables-nft ip6tables-nft; do
    has $tool-save && has $tool-restore || continue
    # The legacy program would load modules that the host does not use.
    case $tool in
      iptables-legacy) [ -s /proc/net/ip_tables_names ] || continue ;;
      ip6tables-legacy) [ -s /proc/net/ip6_tables_names ] || continue ;;
    esac
    "$1" $tool
  done
}

# Lines `chain 4|6 TABLE CHAIN`.
list_chains() {
  case $1 in ip6*) chain_family=6 ;; *) chain_family=4 ;; esac
  "$1-save" 2>/dev/null | awk -v family=$chain_family '
    /^\*/ {table = substr($1, 2)}
    /^:/ {print "chain", family, table, substr($1, 2)}'
}

# What is there before the join. It decides later what may be removed.
inventory() {
  find /etc -xdev
  # shellcheck disable=SC2086 # one word for each folder
  find /opt /opt/bin /opt/cni /opt/cni/bin /var/bin /var/lib /var/log /run/netns $AGENT_TREES -maxdepth 1 2>/dev/null || true
  for inventory_link in /sys/class/net/*; do say "link ${inventory_link##*/}"; done
  for inventory_family in 4 6; do ip -o -$inventory_family route show 2>/dev/null | awk '{print "route", $1}'; done
  for inventory_range in $POD_RANGES; do say "range $inventory_range"; done
  each_filter list_chains
  call_ctr -n k8s.io containers ls -q 2>/dev/null | sed 's/^/container /'
  for inventory_space in k8s.io default; do
    call_ctr -n $inventory_space images ls -q 2>/dev/null | sed "s/^/image $inventory_space /"
  done
  for inventory_key in $AGENT_SYSCTLS; do
    first_line "/proc/sys/$inventory_key"
    [ -z "$first" ] || say "sysctl $inventory_key $first"
  done
}

existed() { grep -qxF -e "$1" "$STATE/existing"; }

# The words of each line of the inventory that begins with the argument.
inventoried() { sed -n "s|^$1 ||p" "$STATE/existing"; }

begin_journal() {
  [ ! -s "$JOURNAL" ] || return 0
  (umask 077 && mkdir -p "$SAVED")
  inventory | sort -u >"$STATE/existing.new"
  mv -f "$STATE/existing.new" "$STATE/existing"
  printf 'host - -\n' >"$JOURNAL.new"
  mv -f "$JOURNAL.new" "$JOURNAL"
}
