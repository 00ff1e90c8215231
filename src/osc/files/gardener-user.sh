#!/bin/bash -eu
# Creates the user gardener, who logs in with the keys of the Shoot and may do everything.
readonly user=gardener
readonly folder=/home/$user/.ssh
readonly rights=/etc/sudoers.d/99-gardener-user

id "$user" >/dev/null 2>&1 || useradd "$user" -mU
mkdir -p "$folder"
cp -f /var/lib/gardener-user-authorized-keys "$folder/authorized_keys"
chown "$user:$user" "$folder/authorized_keys"
[ -f "$rights" ] || echo "$user ALL=(ALL) NOPASSWD:ALL" >"$rights"
