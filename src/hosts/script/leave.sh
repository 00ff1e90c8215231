# Leaving: undoes the journal backwards, so it may stop anywhere and run again.

# Lists units and files of the pool while the agent's own list is still there.
list_pool() {
  [ ! -e "$STATE/pool" ] && [ -f "$AGENT/last-applied-osc.yaml" ] || return 0
  awk '
    {gsub(/["\047]/, "")}
    $1 == "-" {$1 = ""; $0 = substr($0, 2)}
    $1 == "name:" && $2 ~ /\.(service|timer|path|socket)$/ {print "unit " $2}
    $1 == "image:" {print "image " $2}
    $1 == "path:" && $2 ~ /^\// && $2 !~ /\.\./ {print "file " $2}' "$AGENT/last-applied-osc.yaml" >"$STATE/pool.new"
  mv -f "$STATE/pool.new" "$STATE/pool"
}

of_pool() { [ ! -f "$STATE/pool" ] || sed -n "s/^$1 //p" "$STATE/pool"; }

# The units that the join brought. A unit of the owner has a file elsewhere, or had one before; the journal puts back what
# the agent's own units have replaced.
our_units() {
  for our_unit in $AGENT_UNITS $(of_pool unit); do
    case $our_unit in ssh* | systemd-* | containerd.service | dbus* | NetworkManager*) continue ;; esac
    [ -f "$UNITS/$our_unit" ] || continue
    recorded "$UNITS/$our_unit" || ! existed "$UNITS/$our_unit" || continue
    say "$our_unit"
  done | sort -u
}

stop_units() {
  # The agent first, or it starts the others again.
  systemctl stop gardener-node-agent.service gardener-node-init.service 2>/dev/null || true
  systemctl stop kubelet.service 2>/dev/null || true
  ! is_active kubelet || die kubelet 'systemd does not stop it' 'Read `journalctl -u kubelet`, and run the script with --uninstall again'
  our_units >"$STATE/units.new"
  # shellcheck disable=SC2046 # one word for each unit
  set -- $(cat "$STATE/units.new")
  rm -f "$STATE/units.new"
  [ $# != 0 ] || return 0
  systemctl stop "$@" 2>/dev/null || true
  systemctl disable "$@" 2>/dev/null || true
  for unit in "$@"; do
    rm -f "$UNITS"/*.wants/"$unit"
    existed "$UNITS/$unit.d" || rm -rf "$UNITS/$unit.d"
    rm -f "$UNITS/$unit"
  done
}

# Runs a command with each argument that the inventory does not list under the kind.
for_new() {
  new_kind=$1 new_command=$2
  while read -r new_name; do
    [ -n "$new_name" ] || continue
    existed "$new_kind $new_name" || $new_command "$new_name" >/dev/null 2>&1 </dev/null || true
  done
}

# Tasks that the inventory does not list, as lines `ID STATUS`.
new_tasks() {
  call_ctr -n k8s.io tasks ls 2>/dev/null </dev/null | awk 'NR > 1 {print $1, $NF}' | while read -r task_id task_status; do
    existed "container $task_id" || say "$task_id $task_status"
  done
}

# `tasks rm -f` would wait for ever for a task that runs, so they are killed, and removed when they have ended.
end_tasks() {
  new_tasks | while read -r task_id task_status; do
    call_ctr -n k8s.io tasks kill -s KILL "$task_id" >/dev/null 2>&1 </dev/null || true
  done
  for try_end in 1 2 3 4 5 6 7 8 9 10; do
    new_tasks | grep -qv ' STOPPED$' || return 0
    sleep 1
  done
}

remove_container() {
  # Many a task is gone by itself.
  call_ctr -n k8s.io tasks rm "$1" || true
  call_ctr -n k8s.io containers rm "$1"
}
remove_image() { call_ctr -n "$image_space" images rm "$1"; }
remove_netns() { ip netns delete "${1##*/}"; }

stop_pods() {
  if ! has ctr || ! call_ctr --connect-timeout 5s version >/dev/null 2>&1; then
    note 'containerd does not answer, so its containers were left.'
    return 0
  fi
  for try in 1 2; do
    end_tasks
    call_ctr -n k8s.io containers ls -q | for_new container remove_container
  done
  left=$(call_ctr -n k8s.io containers ls -q | while read -r new_name; do existed "container $new_name" || say "$new_name"; done)
  [ -z "$left" ] || warn "Containers that containerd did not remove: $(printf '%s' "$left" | tr '\n' ' ')"
  image_space=k8s.io
  call_ctr -n k8s.io images ls -q | for_new 'image k8s.io' remove_image
  # In this namespace, the owner has images as well.
  image_space=default
  {
    of_pool image
    sed -n 's/^image="\(.*\)"$/\1/p' "$AGENT/init.sh" 2>/dev/null || true
  } | for_new 'image default' remove_image
  systemctl stop kubepods.slice 2>/dev/null || true
}

# Paths of /proc/mounts that begin with the argument, the deepest first.
mounts_below() { awk -v place="$1" 'index($2, place) == 1 {print $2}' /proc/mounts | sort -r; }

# A path from /proc/mounts has octal numbers for some characters, which a format decodes.
decoded() {
  # shellcheck disable=SC2059
  printf "$(printf '%s' "$1" | sed 's/%/%%/g')"
}

unmount_pods() {
  mounts_below "$KUBELET/" | while read -r mount; do
    mount=$(decoded "$mount")
    umount "$mount" 2>/dev/null || umount -l "$mount" 2>/dev/null || true
  done
  # Below a mount lie files of a volume.
  left=$(mounts_below "$KUBELET/")
  [ -z "$left" ] || die "$(printf '%s' "$left" | sed -n 1p)" 'it is still mounted, and its files must not be removed' \
    'Run `umount` with it, and the script with --uninstall again'
  # The init script leaves the image of node-agent mounted.
  mounts_below /tmp/tmp. | while read -r mount; do
    [ -e "$mount/gardener-node-agent" ] || [ -e "$mount/ko-app/gardener-node-agent" ] || continue
    call_ctr images unmount --rm "$mount" >/dev/null 2>&1 || umount "$mount" 2>/dev/null || true
    rmdir "$mount" 2>/dev/null || true
  done
}

# Turns the output of iptables-save into input of iptables-restore that removes the chains of Kubernetes, and rules that lead to them.
# Chains from before the join stay: podman and nerdctl have some with such names, too.
without_ours() {
  awk -v existing="$STATE/existing" -v family="$1" '
    BEGIN {while ((getline <existing) > 0) if ($1 == "chain" && $2 == family) before[$3 " " $4]}
    function is_ours(chain) {return chain ~ /^(KUBE-|CNI-|FLANNEL-)/ && !((table " " chain) in before)}
    function flush_table(  i) {
      if (chains + rules) {
        print "*" table
        for (i = 1; i <= rules; i++) print rule[i]
        for (i = 1; i <= chains; i++) print "-F " chain[i]
        for (i = 1; i <= chains; i++) print "-X " chain[i]
        print "COMMIT"
      }
      chains = rules = 0
    }
    /^\*/ {table = substr($1, 2); next}
    table !~ /^(filter|nat|mangle)$/ {next}
    /^:/ {if (is_ours(substr($1, 2))) chain[++chains] = substr($1, 2); next}
    $1 == "-A" && !is_ours($2) {
      for (i = 3; i < NF; i++) if (($i == "-j" || $i == "-g") && is_ours($(i + 1))) {rule[++rules] = "-D" substr($0, 3); break}
      next
    }
    /^COMMIT/ {flush_table()}'
}

remove_rules_with() {
  case $1 in ip6*) chain_family=6 ;; *) chain_family=4 ;; esac
  rules=$("$1-save" 2>/dev/null | without_ours $chain_family) || true
  [ -n "$rules" ] || return 0
  printf '%s\n' "$rules" | "$1-restore" --noflush ||
    die "$1" "it does not remove the rules of Kubernetes" "Read \`$1-save\`, and run the script with --uninstall again"
}

remove_rules() {
  each_filter remove_rules_with
  ! has nft || for ip_kind in ip ip6; do nft delete table $ip_kind kube-proxy 2>/dev/null || true; done
}

clean_network() {
  for netns in /run/netns/cni-*; do [ ! -e "$netns" ] || existed "$netns" || remove_netns "$netns" 2>/dev/null || true; done
  for link in cni0 flannel.1 flannel-v6.1 kube-ipvs0; do
    [ ! -e "/sys/class/net/$link" ] || existed "link $link" || ip link delete "$link" 2>/dev/null || true
  done
  # The join refused routes that overlap the pods' networks, so these came later.
  for family in 4 6; do
    {
      inventoried range | sed 's/^/first pods /'
      ip -o -$family route show 2>/dev/null | awk '$1 != "default" {print "second route", $1}'
    } | overlaps | while read -r route_kind route_range route_rest; do
      [ "$route_kind" != route ] || existed "route $route_range" || ip -$family route del "$route_range" 2>/dev/null || true
    done
  done
  remove_rules
  rm -rf /run/flannel
}

# Puts back settings that still have the value of the pool.
restore_sysctls() {
  pool_sysctls=/etc/sysctl.d/99-k8s-general.conf
  [ -f "$pool_sysctls" ] || return 0
  while read -r sysctl_key sysctl_equals sysctl_value; do
    case $sysctl_key in */*) ;; *) sysctl_key=$(printf '%s' "$sysctl_key" | tr . /) ;; esac
    sysctl_old=$(inventoried "sysctl $sysctl_key" 2>/dev/null || true)
    first_line "/proc/sys/$sysctl_key"
    # A value of several numbers has tabs in the kernel.
    # shellcheck disable=SC2086
    if [ -n "$sysctl_old" ] && [ "$(echo $first)" = "$(echo $sysctl_value)" ]; then
      printf '%s\n' "$sysctl_old" >"/proc/sys/$sysctl_key" 2>/dev/null || true
    fi
  done <"$pool_sysctls"
}

# Removes what is new in a folder that was there before.
remove_new() {
  for entry in "$1"/* "$1"/.[!.]*; do
    [ -e "$entry" ] || [ -L "$entry" ] || continue
    existed "$entry" || rm -rf "$entry"
  done
}

# Removes folders that the join brought, from the inside out.
prune() {
  pruned=$1
  while [ -n "$pruned" ] && ! existed "$pruned" && rmdir "$pruned" 2>/dev/null; do pruned=${pruned%/*}; done
}

remove_pool_files() {
  for file in $(of_pool file); do
    case $file in
      "$AGENT"/* | "$KUBELET"/*) continue ;;
      /etc/* | /opt/bin/* | "$PLUGINS"/*) existed "$file" && continue ;;
      /var/lib/*/*) pool_folder=${file#/var/lib/} && existed "/var/lib/${pool_folder%%/*}" && continue ;;
      *) note "$file was left, because nobody knows whether it was there before the join." && continue ;;
    esac
    # The journal has its own way for these.
    recorded "$file" || { rm -f "$file" && prune "${file%/*}"; }
  done
  for file in "$CERTS"/*/hosts.toml; do
    ! grep -qs '^# managed by gardener-node-agent' "$file" || existed "$file" || { rm -f "$file" && prune "${file%/*}"; }
  done
  existed "$PLUGINS/flannel" || rm -f "$PLUGINS/flannel"
  for file in /etc/cni/net.d/*; do
    ! grep -qs -e flannel -e cni0 "$file" || existed "$file" || rm -f "$file"
  done
  rm -f /var/lib/containerd-logrotate.status /var/lib/systemd/timers/stamp-containerd-logrotate.timer
}

leave_agent() {
  say 'Stopping node-agent, kubelet and pods.'
  list_pool
  stop_units
  stop_pods
  unmount_pods
  clean_network
  restore_sysctls
  remove_pool_files
}

finish_host() {
  [ -e "$STATE/started" ] || return 0
  systemctl daemon-reload || true
  ! is_active NetworkManager || systemctl reload NetworkManager || true
  systemctl reset-failed 2>/dev/null || true
  systemctl restart containerd || warn 'containerd does not start. Read `journalctl -u containerd`.'
  [ ! -x /usr/sbin/update-ca-certificates ] || /usr/sbin/update-ca-certificates --fresh >/dev/null 2>&1 || true
}

restore() {
  rm -f "$2.gardenlet-new"
  [ -e "$SAVED/$1" ] || [ -L "$SAVED/$1" ] || return 0
  [ -d "${2%/*}" ] || mkdir -p "${2%/*}"
  cp -pP "$SAVED/$1" "$2.gardenlet-new"
  mv -f "$2.gardenlet-new" "$2"
}

undo() {
  case $1 in
    agent) leave_agent ;;
    unit) systemctl disable "$3" 2>/dev/null || true ;;
    module) modprobe -r "$3" 2>/dev/null || true ;;
    copy) restore "$2" "$3" ;;
    folder) rmdir "$3" 2>/dev/null || true ;;
    tree) rm -rf "$3" ;;
    part) remove_new "$3" ;;
    host) finish_host ;;
    file)
      if [ "$3" = /etc/environment ] && [ -s "$3" ]; then
        note "$3 was left, because somebody wrote into it after the join."
      else
        rm -f "$3" "$3.gardenlet-new"
      fi
      ;;
  esac
}

leave() {
  if [ ! -d "$STATE" ]; then
    [ ! -e "$AGENT/last-applied-osc.yaml" ] ||
      die "$AGENT" "there is a node-agent, but no record of a join in $STATE" 'This script did not bring it. Remove it with what did'
    say 'This host is not joined. There is nothing to remove.'
    return 0
  fi
  while [ -s "$JOURNAL" ]; do
    journal_rest='' journal_last=''
    while read -r journal_line; do
      journal_rest=$journal_rest${journal_last:+$journal_last$NEWLINE}
      journal_last=$journal_line
    done <"$JOURNAL"
    undo_number=${journal_last#* }
    undo "${journal_last%% *}" "${undo_number%% *}" "${undo_number#* }"
    printf '%s' "$journal_rest" >"$JOURNAL.new"
    mv -f "$JOURNAL.new" "$JOURNAL"
  done
  rm -rf "$STATE"
  say "The host has left. If its Node is still there, delete it with the kubeconfig of Shoot $SHOOT: kubectl delete node $HOST_NAME"
}
