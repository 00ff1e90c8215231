# Parts of a machine that is made of namespaces and has systemd as pid 1, for tests/packaging/machine and tests/cluster/boot.

# In version 2 of control groups there is one hierarchy, and the folders in it are groups. In version 1, or both, there are several.
hierarchies() {
  if [ -e /sys/fs/cgroup/cgroup.procs ]; then echo /sys/fs/cgroup; else dirname /sys/fs/cgroup/*/cgroup.procs; fi
}

# Its own control groups in each hierarchy: systemd takes the group where it starts for the root.
enter_groups() { # path of the groups
  local hierarchy group part file
  for hierarchy in $(hierarchies); do
    group=$hierarchy
    for part in ${1//\// }; do
      # In version 2 the parent group delegates controllers; not all controllers can be delegated, and none is required.
      for file in $(cat "$group/cgroup.controllers" 2>/dev/null || true); do
        echo "+$file" 2>/dev/null >"$group/cgroup.subtree_control" || true
      done
      mkdir -p "$group/$part"
      # A group with an empty set of processors accepts no processes.
      for file in cpuset.mems cpuset.cpus; do
        [ ! -e "$group/$file" ] || cat "$group/$file" >"$group/$part/$file"
      done
      group=$group/$part
    done
    echo $BASHPID >"$group/cgroup.procs"
  done
}

# The last of its processes may still be ending.
leave_groups() { # path of the groups
  local hierarchy try
  for hierarchy in $(hierarchies); do
    for try in {1..100}; do
      [ -d "$hierarchy/$1" ] || break
      find "$hierarchy/$1" -depth -type d -exec rmdir {} + 2>/dev/null || sleep 0.05
    done
  done
}

# The same groups as outside; the namespace shows those of the machine as their root.
mount_groups() { # root
  if [ -e /sys/fs/cgroup/cgroup.procs ]; then mount -t cgroup2 none "$1/sys/fs/cgroup"; return; fi
  mount -t tmpfs -o mode=755 none "$1/sys/fs/cgroup"
  local place kind options
  while read -r place kind options; do
    mkdir -p "$1$place"
    # Only the options that name the hierarchy; one without controllers has only a name.
    options=$(tr , '\n' <<<"$options" | grep -vxE 'rw|ro|nsdelegate' | sed 's/^name=/none,name=/' | paste -sd, || true)
    mount -t "$kind" ${options:+-o "$options"} none "$1$place"
  done < <(findmnt -rno TARGET,FSTYPE,FS-OPTIONS -t cgroup,cgroup2)
}

mount_devices() { # folder, further devices
  local folder=$1 device
  shift
  mount -t tmpfs -o mode=755 none "$folder"
  for device in null zero full random urandom tty "$@"; do
    touch "$folder/$device"
    mount --bind "/dev/$device" "$folder/$device"
  done
  mkdir "$folder/pts" "$folder/shm"
  mount -t devpts -o newinstance,ptmxmode=0666 none "$folder/pts"
  mount -t tmpfs none "$folder/shm"
  ln -s pts/ptmx "$folder/ptmx"
  ln -s /proc/self/fd "$folder/fd"
}

# Settings of the kernel belong to the whole machine of the tests, and nothing may change them.
protect_settings() { # root
  mount --bind "$1/proc/sys" "$1/proc/sys"
  mount -o remount,bind,ro "$1/proc/sys"
}

# Becomes systemd in a new root folder. The processes that are in it already see no other one from now on.
become_systemd() { # root, target, name of the kind of container
  mkdir "$1/run/outside"
  cd "$1"
  pivot_root . run/outside
  umount -l /run/outside
  # Mounts of a service propagate to the other processes, as on every machine; credentials get lost otherwise.
  mount --make-rshared /
  exec env -i container="$3" PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    /lib/systemd/systemd --system --unit="$2" --show-status=no </dev/null
}
