# Joining. Each step records what it changes before it does, and may run again.

prepare_agent() {
  for tree in $AGENT_TREES; do
    if [ -d "$tree" ]; then record part "$tree"; else record tree "$tree"; fi
  done
  for folder in $AGENT_FOLDERS; do folders "$folder" later; done
  for file in $AGENT_FILES "$UNITS"/containerd.service.d/*.conf "$CERTS"/*/hosts.toml "$KUBELET/extra_args"; do
    case $file in *'*'*) continue ;; esac
    keep "$file"
  done
  for unit in $AGENT_UNITS; do keep "$UNITS/multi-user.target.wants/$unit"; done
  # The agent enables every unit that it knows.
  if [ "$(systemctl is-enabled containerd.service 2>/dev/null)" = disabled ]; then record unit containerd.service; fi
}

write_mirrors() {
  while read -r mirror_host mirror_url; do
    [ -n "$mirror_host" ] || continue
    # node-agent of this Shoot has taken the file over.
    ! grep -qs '^# managed by gardener-node-agent' "$CERTS/$mirror_host/hosts.toml" || [ "$identity" != same ] || continue
    # With `server`, a missing image is an error at once. Without it, containerd asks the internet next.
    put "$CERTS/$mirror_host/hosts.toml" 644 "# written by the script of gardenlet
server = \"$mirror_url\"
[host.\"$mirror_url\"]
capabilities = [\"pull\", \"resolve\"]"
  done <<MIRRORS
$REGISTRIES
MIRRORS
}

link_plugins() {
  folders "$PLUGINS"
  for plugin_name in $NEEDED_PLUGINS; do
    [ ! -x "$PLUGINS/$plugin_name" ] || continue
    find_plugin "$plugin_name"
    keep "$PLUGINS/$plugin_name"
    ln -sfn "$plugin" "$PLUGINS/$plugin_name"
  done
}

load_modules() {
  for module in $MODULES; do
    ! is_loaded "$module" || continue
    record module "$module"
    modprobe "$module" || die "module $module" 'the kernel does not load it' 'Read `dmesg`'
  done
  put /etc/modules-load.d/gardenlet-host.conf 644 "$(printf '%s\n' $MODULES)"
}

spare_interfaces() {
  [ -d /etc/NetworkManager ] || return 0
  put /etc/NetworkManager/conf.d/gardenlet-host.conf 644 "[keyfile]
unmanaged-devices+=interface-name:cni0;interface-name:flannel.1;interface-name:veth*"
  ! is_active NetworkManager || systemctl reload NetworkManager || true
}

write_arguments() {
  arguments=''
  [ "$resolver" = /etc/resolv.conf ] || arguments="--resolv-conf=$resolver"
  [ -z "$kubelet_address" ] || arguments="$arguments${arguments:+ }--node-ip=$kubelet_address"
  if [ -n "$arguments" ]; then
    put "$KUBELET/extra_args" 644 "KUBELET_EXTRA_ARGS=\"$arguments\""
  else
    # An older run of the script may have written it for another network.
    ! grep -qs '^KUBELET_EXTRA_ARGS="--' "$KUBELET/extra_args" || existed "$KUBELET/extra_args" || rm -f "$KUBELET/extra_args"
  fi
}

# Wipes what makes the agent and the kubelet come back as the node that they were.
wipe_identity() {
  systemctl stop gardener-node-agent.service kubelet.service 2>/dev/null || true
  # The kubeconfigs last: a second run recognizes the old identity by them.
  for file in "$AGENT/last-applied-osc.yaml" "$AGENT/last-computed-osc-changes.yaml" "$KUBELET/kubeconfig-bootstrap" "$KUBELET/pki" \
    "$AGENT/credentials/kubeconfig" "$KUBELET/kubeconfig-real"; do
    [ -e "$file" ] || continue
    say "Removing $file, a part of the old identity."
    rm -rf "$file"
  done
}

# node-agent of a Node that exists already takes the kubelet's way to its first certificate back as soon as it has applied
# the pool's files, which is before the kubelet has read it. A here-document would lose its indentation in the printed script.
bootstrap_kubelet() {
  if [ -s "$KUBELET/kubeconfig-bootstrap" ] || [ -s "$KUBELET/pki/kubelet-client-current.pem" ]; then return 0; fi
  bootstrap_ca=$(printf '%s\n' "$SERVER_CA" | base64 | tr -d '\n')
  put "$KUBELET/kubeconfig-bootstrap" 600 "$(printf '%s\n' 'apiVersion: v1' 'kind: Config' 'current-context: kubelet' \
    'clusters:' '- name: kubelet' '  cluster:' "    certificate-authority-data: $bootstrap_ca" "    server: $SERVER" \
    'contexts:' '- name: kubelet' '  context:' '    cluster: kubelet' '    user: kubelet' \
    'users:' '- name: kubelet' '  user:' "    token: $(token)")"
}

# Waits for a file; the time counts for all phases together. The last argument is what to do before each look.
await() {
  until ${4:-true} && [ -s "$2" ]; do
    if [ "$waited" -ge "$wait_seconds" ]; then fail_phase "$1" "$3"; fi
    sleep 1
    waited=$((waited + 1))
  done
  say "  ${waited} s: $1"
}

fail_phase() {
  printf 'error: %s: not yet there after %s seconds. %s\n' "$1" "$wait_seconds" "$2" >&2
  say 'The last lines of the journal:' >&2
  journalctl --no-pager -q -n 15 -o cat -u gardener-node-init -u gardener-node-agent -u kubelet >&2 || true
  say 'The host goes on trying. Run the script again to wait longer, or with --uninstall to take everything back.' >&2
  exit 1
}

await_node() {
  waited=0
  see_list="With the kubeconfig of Shoot $SHOOT, \`kubectl get certificatesigningrequests\` lists what was refused."
  await 'program of node-agent' /opt/bin/gardener-node-agent 'A registry has to serve the image of gardener-node-agent.'
  await 'identity of node-agent' "$AGENT/credentials/kubeconfig" "$see_list"
  await 'files and units of the pool' "$AGENT/last-applied-osc.yaml" "$see_list"
  await 'identity of the kubelet' "$KUBELET/pki/kubelet-client-current.pem" "$see_list" bootstrap_kubelet
  rm -f "$KUBELET/kubeconfig-bootstrap"
  until is_active kubelet; do
    [ "$waited" -lt "$wait_seconds" ] || fail_phase 'kubelet' 'Read `journalctl -u kubelet`.'
    sleep 1
    waited=$((waited + 1))
  done
  say "  ${waited} s: kubelet"
}

join() {
  check_identity
  if is_joined && [ "$mode" != force ]; then
    say "This host is node $HOST_NAME of Shoot $SHOOT already."
    return 0
  fi
  check_all
  if [ "$mode" = check ]; then
    say "All checks passed. The host can join Shoot $SHOOT as $HOST_NAME."
    return 0
  fi
  say "Joining Shoot $SHOOT, pool $POOL, as node $HOST_NAME${REJOIN:+, in the place of the Node with uid $REJOIN}."
  begin_journal
  if [ "$mode" = force ] || [ "$identity" = expired ]; then wipe_identity; fi
  prepare_agent
  folders "$CERTS"
  write_mirrors
  if [ ! -e /etc/environment ]; then keep /etc/environment; : >/etc/environment; fi
  link_plugins
  load_modules
  spare_interfaces
  write_arguments
  record agent node-agent
  # From here on the uninstall also restarts containerd.
  : >"$STATE/started"
  sync
  provider_part | sh || die "the provider's part" 'it failed' 'Mend what it names above, and run the script again'
  say "Waiting for node-agent and kubelet, for $wait_seconds seconds at most:"
  await_node
  say "This host is node $HOST_NAME of Shoot $SHOOT. It becomes Ready when its network is there."
}
