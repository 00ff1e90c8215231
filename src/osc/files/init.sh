#!/usr/bin/env bash
# Gets the agent of Gardener out of its image, and lets it set up this machine.
set -euo pipefail

readonly image="IMAGE"
readonly agent=/opt/bin/gardener-node-agent
folder=$(mktemp -d)
readonly folder
clean_up() {
  ctr images unmount "$folder" >/dev/null 2>&1 || true
  rmdir "$folder" || true
}
trap clean_up EXIT

# From version 2 on, ctr asks a registry for more than it needs, unless told otherwise.
major=$(ctr version | awk '/Version:/ {sub(/^v/, "", $2); split($2, part, "."); last = part[1]} END {print last}')
options=()
if [[ ${major//[^0-9]/} -gt 1 ]]; then
  options=(--skip-metadata)
fi
echo "pulling $image"
ctr images pull ${options[@]+"${options[@]}"} --hosts-dir /etc/containerd/certs.d "$image"
ctr images mount "$image" "$folder"
mkdir -p /opt/bin
cp -f "$folder/gardener-node-agent" "$agent" || cp -f "$folder/ko-app/gardener-node-agent" "$agent"
chmod +x "$agent"
# The agent takes the place of this shell, which then ends without its trap.
trap - EXIT
clean_up
echo "starting $agent"
exec "$agent" bootstrap --config-dir=/var/lib/gardener-node-agent
