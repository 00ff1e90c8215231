#!/bin/bash -eu
# Keeps the SSH server off, and ends its sessions.
while true; do
  for unit in sshd.service ssh.service sshd.socket ssh.socket; do
    if systemctl is-enabled --quiet "$unit" 2>/dev/null; then
      systemctl disable "$unit" || true
      systemctl mask "$unit" || true
    fi
    if systemctl is-active --quiet "$unit"; then
      systemctl stop "$unit"
    fi
  done
  pkill -x sshd || true
  sleep 15
done
