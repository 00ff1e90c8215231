#!/bin/bash
# Adds the CAs in the folder below to those that the programs of this machine trust.
set -euo pipefail

readonly own=/var/lib/ca-certificates-local
readonly owners=/usr/local/share/ca-certificates
readonly update=/usr/sbin/update-ca-certificates

if [[ -f /etc/debian_version ]]; then
  # Debian reads one folder, so the CAs of the owner of the machine go there as well.
  mkdir -p "$own"
  if [[ -d $owners && -n $(ls -A "$owners") ]]; then
    cp -af "$owners"/* "$own"
  fi
  exec "$update" --fresh --localcertsdir "$own"
fi
if grep -q flatcar /etc/os-release; then
  for file in "$own"/*.crt; do
    [[ ! -f $file ]] || cp "$file" "/etc/ssl/certs/$(basename "$file" .crt).pem"
  done
  exec "$update"
fi
exec "$update" --fresh
