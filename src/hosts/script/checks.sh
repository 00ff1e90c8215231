# Checks before anything is changed. They write only below /run. Each failure names its place, cause and remedy.

check_systemd() {
  first_line /proc/1/comm
  if [ "$first" != systemd ] || [ ! -d /run/systemd/system ]; then
    refuse 'process 1' "it is \"$first\", not systemd" 'Use a host that systemd has started'
  elif ! systemctl show --property=Version >/dev/null 2>&1; then
    refuse systemctl 'systemd does not answer through D-Bus' 'Install the package dbus, and start it: systemctl start dbus'
  fi
}

check_architecture() {
  machine=$(uname -m)
  case $ARCHITECTURE:$machine in
    :* | amd64:x86_64 | arm64:aarch64 | arm:armv7l | arm:armv6l) ;;
    *) refuse processor "its architecture is $machine, but pool $POOL is for $ARCHITECTURE" \
      'Use another host, or a pool whose machine has the architecture of this one' ;;
  esac
}

check_programs() {
  for program in bash:bash awk:mawk base64:coreutils sort:coreutils sed:sed find:findutils mount:mount umount:mount ip:iproute2 \
    modprobe:kmod iptables:iptables ctr:containerd /usr/sbin/logrotate:logrotate /usr/sbin/update-ca-certificates:ca-certificates; do
    has "${program%:*}" || refuse "${program%:*}" 'the program is missing' "Install the package ${program#*:}, or a link to the program"
  done
}

check_name() {
  first_line /proc/sys/kernel/hostname
  name_remedy="Run \`hostnamectl set-hostname $HOST_NAME\`, or print a script for the other name"
  if [ "$(lower "$first")" != "$HOST_NAME" ]; then
    refuse 'host name' "this host is \"$first\", but the script is for \"$HOST_NAME\"" "$name_remedy"
    return 0
  fi
  first_line /etc/hostname
  [ -z "$first" ] || [ "$(lower "$first")" = "$HOST_NAME" ] ||
    refuse /etc/hostname "after a reboot this host is \"$first\", but the script is for \"$HOST_NAME\"" "$name_remedy"
}

kernel_argument() {
  for argument_file in /boot/firmware/cmdline.txt /boot/cmdline.txt; do
    if [ -f "$argument_file" ]; then printf 'Add %s to the line in %s, and reboot' "$1" "$argument_file"; return 0; fi
  done
  printf 'Add %s to GRUB_CMDLINE_LINUX in /etc/default/grub, run update-grub, and reboot' "$1"
}

check_cgroups() {
  minor=${KUBERNETES_VERSION#*.} minor=${minor%%.*}
  if [ -f /sys/fs/cgroup/cgroup.controllers ]; then
    first_line /sys/fs/cgroup/cgroup.controllers
    case " $first " in *' memory '*) return 0 ;; esac
    refuse /sys/fs/cgroup/cgroup.controllers 'the kernel has no controller for memory' "$(kernel_argument cgroup_enable=memory)"
  elif [ "$minor" -ge 35 ]; then
    refuse /sys/fs/cgroup "control groups have version 1, and Kubernetes $KUBERNETES_VERSION needs version 2" \
      "$(kernel_argument systemd.unified_cgroup_hierarchy=1)"
  elif [ ! -d /sys/fs/cgroup/memory ]; then
    refuse /sys/fs/cgroup/memory 'the kernel has no controller for memory' "$(kernel_argument cgroup_enable=memory)"
  fi
}

is_masked() { [ -L "$UNITS/$1" ] && [ "$(readlink "$UNITS/$1")" = /dev/null ]; }

check_swap() {
  [ "$SWAP_ALLOWED" != yes ] || return 0
  swaps=$(awk 'NR > 1 {printf "%s%s", s, $1; s = ", "}' /proc/swaps 2>/dev/null || true)
  [ -z "$swaps" ] || refuse /proc/swaps "swap is active on $swaps, and the kubelet would not start" 'Run `swapoff -a`'
  if [ -f /etc/fstab ]; then
    swaps=$(awk '$1 !~ /^#/ && $3 == "swap" && $4 !~ /noauto/ {printf "%s%d", s, NR; s = ", "}' /etc/fstab)
    [ -z "$swaps" ] || refuse "/etc/fstab line $swaps" 'swap comes back at the next boot' 'Remove the line'
  fi
  swaps=''
  for swap_unit in "$UNITS"/*.swap /run/systemd/generator/*.swap /run/systemd/generator.late/*.swap; do
    [ -f "$swap_unit" ] || continue
    is_masked "${swap_unit##*/}" || swaps="$swaps ${swap_unit##*/}"
  done
  # fstab has its message already; its units have a line that names it.
  for swap_unit in $swaps; do
    ! grep -qs '^SourcePath=/etc/fstab' "/run/systemd/generator/$swap_unit" || continue
    refuse "$swap_unit" 'this unit of systemd makes swap at the next boot' "Run \`systemctl mask $swap_unit\`"
  done
  for swap_unit in dphys-swapfile zramswap zram-config rpi-swap; do
    for swap_link in "$UNITS"/*.wants/"$swap_unit.service"; do
      [ ! -L "$swap_link" ] || refuse "$swap_unit" 'this service makes swap at the next boot' "Run \`systemctl disable --now $swap_unit\`"
    done
  done
  for swap_file in /etc/systemd/zram-generator.conf /usr/lib/systemd/zram-generator.conf; do
    [ -s "$swap_file" ] || continue
    [ -z "$swaps" ] || continue
    ! grep -qs '^\[zram' "$swap_file" || refuse "$swap_file" 'zram-generator makes swap at the next boot' \
      'Make an empty file /etc/systemd/zram-generator.conf'
    break
  done
}

check_memory() {
  memory=$(awk '$1 == "MemTotal:" {printf "%.0f", $2 / 1024}' /proc/meminfo)
  reserved=$((RESERVED_MEMORY / 1048576))
  [ "$memory" -gt "$reserved" ] || refuse memory \
    "this host has $memory MiB, and pool $POOL reserves $reserved MiB, so the kubelet would not start" \
    "Lower kubeReserved and evictionHard of pool $POOL in the Shoot, or use a host with more memory"
}

# Prints `FILE line N` where containerd's configuration switches CRI off.
cri_switch() {
  for switch_file in /etc/containerd/config.toml /etc/containerd/conf.d/*.toml; do
    [ -f "$switch_file" ] || continue
    awk -v file="$switch_file" '
      {sub(/^[ \t]+/, "")} /^#/ {next}
      /^disabled_plugins[ \t]*=/ {inside = 1}
      inside && /["\047](cri|io\.containerd\.(grpc\.v1\.cri|cri\.v1\.(runtime|images)))["\047]/ {print file " line " NR; exit}
      inside && /\]/ {inside = 0}' "$switch_file"
  done
}

check_containerd() {
  has ctr || return 0
  switch=$(cri_switch)
  if [ -n "$switch" ]; then
    refuse "$switch" 'disabled_plugins switches CRI off, and the kubelet could not start pods' \
      'Remove "cri" from the list, and run `systemctl restart containerd`'
    return 0
  fi
  if ! plugins=$(call_ctr --connect-timeout 5s plugins ls 2>/dev/null); then
    refuse containerd 'it does not answer at /run/containerd/containerd.sock' 'Run `systemctl enable --now containerd`'
    return 0
  fi
  status=$(printf '%s\n' "$plugins" | awk '$1 == "io.containerd.grpc.v1" && $2 == "cri" {print $NF}')
  [ "$status" = ok ] || refuse containerd "its plugin CRI is \"${status:-missing}\", not \"ok\"" \
    'Read `journalctl -u containerd`, mend its configuration, and run `systemctl restart containerd`'
}

# Sets plugin to the path of a CNI plugin; empty: there is none.
find_plugin() {
  for plugin in "$PLUGINS/$1" "/usr/lib/cni/$1" "/usr/libexec/cni/$1"; do
    [ ! -x "$plugin" ] || return 0
  done
  plugin=''
}

check_plugins() {
  missing=''
  for plugin_name in $NEEDED_PLUGINS; do
    find_plugin "$plugin_name"
    [ -n "$plugin" ] || missing="$missing $plugin_name"
  done
  [ -z "$missing" ] || refuse "$PLUGINS" "CNI plugins are missing:$missing" \
    'Install the package containernetworking-plugins, or unpack the release of containernetworking/plugins there'
}

is_loaded() {
  case $1 in
    br_netfilter) [ ! -e /proc/sys/net/bridge/bridge-nf-call-iptables ] || return 0 ;;
    overlay) ! grep -qw overlay /proc/filesystems || return 0 ;;
  esac
  [ -d "/sys/module/$1" ]
}

check_modules() {
  has modprobe || return 0
  for module in $MODULES; do
    is_loaded "$module" || modprobe -n -q "$module" 2>/dev/null ||
      refuse "module $module" 'the kernel does not have it' "Install the kernel's package of modules, for example linux-modules-extra"
  done
}

# Sets route_device and route_source to the way to the server, family to its kind of addresses.
find_route() {
  address=$SERVER_ADDRESS family=4
  case $address in
    *:*) ;;
    *[!0-9.]*) address=$(getent ahosts "$SERVER_ADDRESS" 2>/dev/null | awk 'NR == 1 {print $1}') ;;
  esac
  if [ -z "$address" ]; then
    refuse "$SERVER_ADDRESS" 'this host cannot resolve the name' 'Mend /etc/resolv.conf, or add the name to /etc/hosts'
    return 0
  fi
  case $address in *:*) family=6 ;; esac
  route=$(ip -o -$family route get "$address" 2>/dev/null || true)
  set -- $route
  while [ $# -gt 1 ]; do
    case $1 in
      dev) route_device=$2 ;;
      src) route_source=$2 ;;
    esac
    shift
  done
  [ -n "$route_device" ] || refuse "$address" 'this host has no route to the API server' \
    "Add one, for example: ip route add $address via GATEWAY. Make it permanent, too"
}

# Sets kubelet_address: what the kubelet has to be told; empty: it finds the address by itself.
check_routes() {
  kubelet_address=$NODE_ADDRESS address='' route_device='' route_source=''
  has ip || return 0
  find_route
  [ -n "$address" ] || return 0
  default_device=$(ip -o -$family route show default 2>/dev/null | awk '{for (i = 1; i < NF; i++) if ($i == "dev") {print $(i + 1); exit}}')
  [ -n "$default_device" ] || refuse 'default route' 'this host has none, and the kubelet finds its address by it' \
    'Add one, for example: ip route add default via GATEWAY. Make it permanent, too'
  addresses=$(ip -o addr show 2>/dev/null | awk '{sub(/\/.*/, "", $4); print $4}')
  if [ -n "$NODE_ADDRESS" ]; then
    printf '%s\n' "$addresses" | grep -qxF -e "$NODE_ADDRESS" ||
      refuse "$NODE_ADDRESS" 'no interface of this host has the address of the Node' \
        'Give it to an interface, or print the script with another --address'
  elif [ -n "$route_source" ] && [ -n "$default_device" ]; then
    # The kubelet would take this one. A fixed address does not follow a change, so it is the exception.
    default_source=$(ip -o -$family addr show dev "$default_device" scope global 2>/dev/null | awk 'NR == 1 {sub(/\/.*/, "", $4); print $4}')
    if [ "$default_source" != "$route_source" ]; then
      kubelet_address=$route_source
      note "The route to the API server begins at $route_source, the default route at ${default_source:-no address}. The Node gets $route_source."
    fi
  fi
}

# Reads lines `first|second WORDS... CIDR`. Prints `WORDS CIDR` of each second that overlaps a first, with it.
overlaps() {
  awk '
    function digits(text, base,  i, value) {
      for (i = 1; i <= length(text); i++) value = value * base + index("0123456789abcdef", substr(text, i, 1)) - 1
      return value + 0
    }
    # Sets part[1..count], groups of `bits` bits, and prefix.
    function parse(cidr, part,  words, halves, n, m, i, before, after) {
      if (split(tolower(cidr), words, "/") < 2) words[2] = cidr ~ /:/ ? 128 : 32
      part["prefix"] = words[2]
      if (cidr !~ /:/) {
        part["bits"] = 8; part["count"] = 4
        n = split(words[1], before, ".")
        for (i = 1; i <= 4; i++) part[i] = i <= n ? digits(before[i], 10) : 0
        return
      }
      part["bits"] = 16; part["count"] = 8
      split(words[1], halves, "::")
      n = split(halves[1], before, ":"); m = split(halves[2], after, ":")
      for (i = 1; i <= 8; i++) part[i] = i <= n ? digits(before[i], 16) : i > 8 - m ? digits(after[i - 8 + m], 16) : 0
    }
    function overlap(a, b,  x, y, left, i, j, size) {
      parse(a, x); parse(b, y)
      if (x["bits"] != y["bits"]) return 0
      left = (x["prefix"] + 0 < y["prefix"] + 0 ? x["prefix"] : y["prefix"]) + 0
      for (i = 1; i <= x["count"] && left > 0; i++) {
        size = 1
        for (j = left; j < x["bits"]; j++) size *= 2
        if (int(x[i] / size) != int(y[i] / size)) return 0
        left -= x["bits"]
      }
      return 1
    }
    $1 == "first" {range[++ranges] = $3; kind[ranges] = $2; next}
    {
      cidr = $NF; $NF = ""; sub(/^second /, "")
      for (r = 1; r <= ranges; r++) if (overlap(range[r], cidr)) print $0 cidr " " kind[r] " " range[r]
    }'
}

check_ranges() {
  [ -n "$address" ] || return 0
  found=$({
    for range in $POD_RANGES; do say "first pods $range"; done
    for range in $SERVICE_RANGES; do say "first services $range"; done
    for range_family in 4 6; do
      ip -o -$range_family addr show 2>/dev/null | awk '$2 !~ /^(cni0|flannel)/ {sub(/\/.*/, "", $4); print "second address", $4}'
      ip -o -$range_family route show 2>/dev/null |
        awk '/ dev (cni0|flannel[^ ]*)( |$)/ {next} $1 ~ /^(unreachable|blackhole|prohibit)$/ {$1 = $2} $1 != "default" {print "second route", $1}'
    done
    say "second API-server $address"
    for resolver_address in $resolver_addresses; do say "second resolver $resolver_address"; done
  } | overlaps)
  while read -r overlap_kind overlap_cidr overlap_name overlap_range; do
    # The network of pods has brought routes since the join.
    if [ "$overlap_kind" = route ] && [ -s "$JOURNAL" ]; then existed "route $overlap_cidr" || continue; fi
    [ -z "$overlap_kind" ] || refuse "$overlap_kind $overlap_cidr" "it overlaps the network of $overlap_name $overlap_range of the Shoot" \
      'Remove it from this host, or make the Shoot with other networks'
  done <<RANGES
$found
RANGES
  [ -n "$NODE_RANGES" ] && [ -n "${kubelet_address:-$route_source}" ] || return 0
  found=$({
    for range in $NODE_RANGES; do say "first nodes $range"; done
    say "second address ${kubelet_address:-$route_source}"
  } | overlaps)
  [ -n "$found" ] || warn "The Node's address ${kubelet_address:-$route_source} is not in the Shoot's network of nodes: $NODE_RANGES"
}

# Whether a file lists servers, and all of them are on other hosts.
has_real_resolvers() {
  [ -r "$1" ] || return 1
  resolver_addresses=$(awk '$1 == "nameserver" {print $2}' "$1")
  [ -n "$resolver_addresses" ] || return 1
  for resolver_address in $resolver_addresses; do
    case $resolver_address in 127.* | ::1 | 0.0.0.0 | ::) return 1 ;; esac
  done
}

# Sets resolver: the list of resolvers that pods get.
check_resolver() {
  for resolver in /etc/resolv.conf /run/systemd/resolve/resolv.conf /run/NetworkManager/no-stub-resolv.conf; do
    ! has_real_resolvers "$resolver" || return 0
  done
  resolver='' resolver_addresses=''
  refuse /etc/resolv.conf 'it lists only resolvers on this host itself, or none, and pods cannot reach them' \
    'Add the address of a real resolver, or use systemd-resolved, which keeps a list in /run/systemd/resolve/resolv.conf'
}

check_mtu() {
  [ -n "$route_device" ] || return 0
  first_line "/sys/class/net/$route_device/mtu"
  [ -n "$first" ] || return 0
  if [ "$first" -lt 1280 ]; then
    refuse "interface $route_device" "its MTU is $first, and pods need 1280 at least" \
      "Run \`ip link set $route_device mtu 1500\`, if the path allows it"
  elif [ "$first" -lt 1450 ]; then
    warn "The MTU of interface $route_device is $first. The network of pods must be configured for it."
  fi
}

check_firewall() {
  firewall=''
  ! is_active firewalld || firewall=firewalld
  ! grep -qs '^ENABLED=yes' /etc/ufw/ufw.conf || firewall=ufw
  [ -n "$firewall" ] || return 0
  firewall_ways='everything on the interfaces of pods, and between the hosts what the network of pods needs'
  [ "$NETWORK" != flannel ] || firewall_ways='8472/udp between the hosts, and everything on cni0 and flannel.1'
  warn "$firewall is active. It must let pass: $firewall_ways." \
    "Outgoing: tcp to $SERVER_ADDRESS, ports $SERVER_PORT${TUNNEL_PORT:+ and $TUNNEL_PORT}. Nothing has to come in from the control plane."
}

# Seconds since 1970 of the last Date header on the input; empty: there is none.
header_time() {
  awk '
    tolower($1) == "date:" {
      day = $3; month = (index("JanFebMarAprMayJunJulAugSepOctNovDec", $4) + 2) / 3; year = $5; split($6, time, ":")
    }
    END {
      if (!month) exit
      if (month < 3) {month += 12; year--}
      days = 365 * year + int(year / 4) - int(year / 100) + int(year / 400) + int((153 * (month - 3) + 2) / 5) + day - 719469
      printf "%.0f", ((days * 24 + time[1]) * 60 + time[2]) * 60 + time[3]
    }'
}

bracketed() { case $1 in *:*) printf '[%s]' "$1" ;; *) printf '%s' "$1" ;; esac; }

# Whether a port accepts connections; 2: no program here can tell.
connects() {
  if has curl; then
    # The answer does not matter, and the tunnel gives none without a certificate.
    connect_time=$(curl --noproxy '*' -k -s -m 5 -o /dev/null -w '%{time_connect}' "https://$(bracketed "$1"):$2/" 2>/dev/null </dev/null) || true
    case $connect_time in *[1-9]*) return 0 ;; *) return 1 ;; esac
  elif has bash && has timeout; then
    timeout 5 bash -c ': <>"/dev/tcp/$1/$2"' - "$1" "$2" 2>/dev/null </dev/null || return 1
  else
    return 2
  fi
}

# One request to the server with -k, or with a bundle that has to verify the server and perhaps a token; 60: it does not. The
# answer is printed with its headers. The token is not among the arguments of a program, because everybody can see those.
request() {
  request_token=${2:-}
  if has curl; then
    if [ "$1" = -k ]; then set -- -k; else set -- --cacert "$1"; fi
    printf '%s\n' "${request_token:+header = \"Authorization: Bearer $request_token\"}" |
      curl -K - --noproxy '*' -s -m 10 -i "$@" "$SERVER/version" 2>/dev/null
    return
  fi
  request_kind=-verify_ip
  case $SERVER_ADDRESS in *:*) ;; *[!0-9.]*) request_kind=-verify_hostname ;; esac
  if [ "$1" = -k ]; then set -- -noservername; else set -- -CAfile "$1" $request_kind "$SERVER_ADDRESS" -verify_return_error; fi
  # The exit code also tells of a server that ends without a goodbye.
  request_answer=$(printf 'GET /version HTTP/1.1\r\nHost: %s\r\n%sConnection: close\r\n\r\n' "$SERVER_ADDRESS" \
    "${request_token:+Authorization: Bearer $request_token$CR$NEWLINE}" |
    timeout 10 openssl s_client -quiet -ign_eof -connect "$(bracketed "$SERVER_ADDRESS"):$SERVER_PORT" "$@" 2>&1) || true
  case $request_answer in *'verify error'*) [ "$1" = -noservername ] || return 60 ;; esac
  printf '%s\n' "$request_answer"
}

# The token that the provider's part writes.
token() { provider_part | sed -n 's|.*[^a-z0-9]\([a-z0-9]\{6\}\.[a-z0-9]\{16\}\)[^a-z0-9].*/credentials/bootstrap-token.*|\1|p' | sed -n 1p; }

# A dead token could not replace the identity that the join wipes.
check_token() {
  if [ -z "$token" ]; then
    note 'This script has no token that it can read, so the token was not tried.'
    return 0
  fi
  token_answer=$(printf '%s\n' "$1" | awk '/^HTTP\// {code = $2} END {print code}')
  case $token_answer in
    2* | 403) ;;
    401) refuse "$SERVER" 'it does not accept the token of this script, which has expired, was used, or was replaced by a newer script' \
      "Print the script again with \`$PRINT\`" ;;
    '') refuse "$SERVER" 'it gave no answer to the token of this script' 'Run the script again when the API server answers' ;;
    *) refuse "$SERVER" "its answer to the token of this script was $token_answer" \
      'Run the script again when the API server is well' ;;
  esac
}

check_server() {
  [ -n "$route_device" ] || return 0
  for port in $SERVER_PORT $TUNNEL_PORT; do
    case $port in "$SERVER_PORT") port_name='API server' ;; *) port_name=tunnel ;; esac
    connects "$SERVER_ADDRESS" "$port" && continue || port_state=$?
    if [ "$port_state" = 2 ]; then
      note "Neither curl nor bash is here, so port $port of the $port_name was not tried."
      continue
    fi
    refuse "$SERVER_ADDRESS port $port" "this host cannot connect to the $port_name" \
      "Let tcp to $SERVER_ADDRESS:$port pass in each firewall between, or print the script again if the address has changed"
    [ "$port" != "$SERVER_PORT" ] || server_is_dark=yes
  done
  [ -z "${server_is_dark:-}" ] || return 0
  if ! has curl && { ! has openssl || ! has timeout; }; then
    note 'Neither curl nor openssl is here, so the clock, the token and the certificate of the API server were not checked.'
    return 0
  fi
  server_time=$(request -k | header_time) || true
  if [ -z "$server_time" ]; then
    note 'The API server told no time, so the clock was not checked.'
  else
    skew=$(($(date +%s) - server_time))
    if [ "${skew#-}" -gt 300 ]; then
      refuse clock "this host's clock differs from the API server's by ${skew#-} seconds" \
        'Set it with `timedatectl set-ntp true` or `date -s`. Certificates depend on it'
      return 0
    fi
  fi
  printf '%s\n' "$SERVER_CA" >"$WORK/ca.crt"
  token=''
  ! needs_token || token=$(token)
  request_code=0
  server_answer=$(request "$WORK/ca.crt" "$token") || request_code=$?
  if [ "$request_code" = 60 ]; then
    refuse "$SERVER" "the CA of Shoot $SHOOT did not sign its certificate" \
      'Another server answers at this address, or the CA was replaced. Print the script again'
  elif needs_token; then
    check_token "$server_answer"
  fi
}

check_registries() {
  while read -r registry_host registry_url; do
    [ -n "$registry_host" ] || continue
    registry_place="registry $registry_url"
    registry_remedy="It stands for $registry_host. Mend the registry or the way to it, or change edge.registries of the agent"
    registry_code=0
    if has curl; then
      curl -s -m 10 -o /dev/null "${registry_url%/}/v2/" 2>/dev/null </dev/null || registry_code=$?
    else
      note "curl is not here, so $registry_place was not tried."
    fi
    case $registry_code in
      0) ;;
      60) refuse "$registry_place" 'this host does not trust its certificate' \
        'Add its CA to /usr/local/share/ca-certificates, and run update-ca-certificates' ;;
      *) refuse "$registry_place" 'it does not answer' "$registry_remedy" ;;
    esac
  done <<REGISTRIES
$REGISTRIES
REGISTRIES
}

# Another cluster's node cannot be ours as well.
check_other_clusters() {
  for other in k3s k3s-agent rke2-server rke2-agent k0scontroller k0sworker snap.microk8s.daemon-kubelite; do
    ! is_active "$other" || refuse "$other" 'this host is a node of another cluster' "Take it out there, and uninstall $other"
  done
  [ ! -e /etc/kubernetes/kubelet.conf ] ||
    refuse /etc/kubernetes/kubelet.conf 'this host is a node of a cluster of kubeadm' 'Take it out there, and run `kubeadm reset`'
}

# The value of a field of a kubeconfig.
field() { sed -n "s/^[ -]*$2: *//p" "$1" 2>/dev/null | sed -n '1{s/^["'\'']//;s/["'\'']$//;p;}'; }

# Whether two bundles have a certificate in common. A bundle has two while a CA is replaced.
is_same_ca() {
  printf '%s\n=\n%s\n' "$1" "$2" | awk '
    /^=$/ {second = 1} /-BEGIN CERT/ {body = ""; inside = 1; next}
    /-END CERT/ {inside = 0; if (!second) seen[body]; else if (body in seen) found = 1}
    inside {gsub(/[ \t\r]/, ""); body = body $0} END {exit !found}'
}

differ() {
  differences="$differences$1$NEWLINE"
  difference_files="$difference_files ${1%%: *}"
}

# The server and CA of a kubeconfig.
compare_kubeconfig() {
  [ -f "$1" ] || return 0
  is_known=yes
  found=$(field "$1" server)
  [ "$found" = "$SERVER" ] || differ "$1: the server is $found, not $SERVER"
  found=$(field "$1" certificate-authority-data | base64 -d 2>/dev/null || true)
  [ -n "$found" ] || found=$(cat "$(field "$1" certificate-authority)" 2>/dev/null || true)
  is_same_ca "$SERVER_CA" "$found" || differ "$1: the CA is not the one of Shoot $SHOOT"
}

# The common name of a certificate on the input.
common_name() { openssl x509 -noout -subject -nameopt multiline 2>/dev/null | sed -n 's/^ *commonName *= //p'; }

compare_name() {
  [ -z "$2" ] || [ "$2" = "$3" ] || differ "$1: the name is $2, not $3"
}

is_expired() { has openssl && ! openssl x509 -noout -checkend 0 >/dev/null 2>&1; }

# Compares the identity that is there with ours. Sets identity to none, same, expired or other.
check_identity() {
  identity=none differences='' difference_files='' is_known='' expired=''
  certificate=$KUBELET/pki/kubelet-client-current.pem
  compare_kubeconfig "$AGENT/credentials/kubeconfig"
  compare_kubeconfig "$KUBELET/kubeconfig-real"
  compare_kubeconfig "$KUBELET/kubeconfig-bootstrap"
  if [ -f "$AGENT/credentials/kubeconfig" ]; then
    first_line "$AGENT/machine-name"
    compare_name "$AGENT/machine-name" "$first" "$HOST_NAME"
    own=$(field "$AGENT/credentials/kubeconfig" client-certificate-data | base64 -d 2>/dev/null || true)
    if [ -n "$own" ] && has openssl; then
      compare_name "$AGENT/credentials/kubeconfig" "$(printf '%s\n' "$own" | common_name)" "gardener.cloud:node-agent:machine:$HOST_NAME"
      ! printf '%s\n' "$own" | is_expired || expired="$AGENT/credentials/kubeconfig"
    fi
  fi
  if [ -f "$certificate" ]; then
    is_known=yes
    if has openssl; then
      compare_name "$certificate" "$(common_name <"$certificate")" "system:node:$HOST_NAME"
      ! is_expired <"$certificate" || expired=$certificate
    fi
  fi
  [ -n "$is_known" ] || return 0
  identity=same
  [ -z "$expired" ] || identity=expired
  [ -z "$differences" ] || identity=other
}

# Whether the join begins with the token. A host that is joined has used it up.
needs_token() { [ "$mode" = force ] || [ "$identity" != same ]; }

judge_identity() {
  case $identity in
    other)
      [ "$mode" != force ] || return 0
      while read -r difference; do
        [ -z "$difference" ] || refuse "${difference%%: *}" "this host has another identity: ${difference#*: }" \
          'Run the script of that Shoot with --uninstall, or this one with --force-rejoin, which removes the old identity'
      done <<DIFFERENCES
$differences
DIFFERENCES
      ;;
    expired)
      [ "$mode" = force ] || [ -n "$REJOIN" ] || refuse "$expired" 'the certificate has expired, and the node cannot come back with it' \
        "Print it again with \`$PRINT --rejoin\`, and run it without another option. If the Node was deleted, run this with --force-rejoin"
      ;;
    same)
      [ "$mode" != force ] || [ -n "$REJOIN" ] ||
        refuse "$KUBELET" "the identity of node $HOST_NAME of Shoot $SHOOT is valid, and while the Node exists, no other host gets its name" \
          "Print the script again with \`$PRINT --rejoin\`. If the Node was deleted, run this one with --uninstall, and then without an option"
      ;;
  esac
}

is_joined() {
  [ "$identity" = same ] && [ -f "$AGENT/last-applied-osc.yaml" ] && [ -f "$KUBELET/pki/kubelet-client-current.pem" ] && is_active kubelet
}

check_all() {
  check_systemd
  check_architecture
  check_name
  check_programs
  check_other_clusters
  judge_identity
  check_cgroups
  check_swap
  check_memory
  check_containerd
  check_plugins
  check_modules
  check_resolver
  check_routes
  check_ranges
  check_mtu
  check_firewall
  check_server
  check_registries
  [ "$problem_count" != 0 ] || return 0
  printf 'error: this host cannot join Shoot %s yet. Checks that fail: %s. This run has changed nothing.\n%s' \
    "$SHOOT" "$problem_count" "$problems" >&2
  exit 1
}
