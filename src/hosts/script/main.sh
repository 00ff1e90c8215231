usage() {
  cat <<USAGE
This script joins the host $HOST_NAME to Shoot $SHOOT, as a node of pool $POOL. Run it as root on the host:

  sh SCRIPT                  check the host, and join
  sh SCRIPT --check          only check
  sh SCRIPT --force-rejoin   remove the identity that the host has from an earlier join, and join
  sh SCRIPT --uninstall      leave, and take back every change
  sh SCRIPT --wait SECONDS   how long to wait for the node; 180 unless set
  sh SCRIPT --help           this text

gardenlet $PROGRAM_VERSION, Kubernetes $KUBERNETES_VERSION, gardener-node-agent $AGENT_VERSION, configuration $POOL_SECRET.
USAGE
}

main() {
  set -eu
  LC_ALL=C
  PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin
  export LC_ALL PATH
  umask 022
  mode=join wait_seconds=180
  while [ $# -gt 0 ]; do
    case $1 in
      --check) mode=check ;;
      --force-rejoin) mode=force ;;
      --uninstall) mode=leave ;;
      --wait)
        case ${2:-} in '' | *[!0-9]*) die --wait "\"${2:-}\" is not a number of seconds" 'Give one, for example --wait 300' ;; esac
        wait_seconds=$2
        shift
        ;;
      --help | -h)
        usage
        exit 0
        ;;
      *) die "$1" 'there is no such option' "The options are --check, --force-rejoin, --uninstall, --wait SECONDS and --help" ;;
    esac
    shift
  done
  if [ "$mode" != leave ] && [ "$(date +%s)" -ge "$EXPIRES" ]; then
    now=$(date -u '+%Y-%m-%d %H:%M:%S UTC')
    printf 'error: this script has expired by the clock of this host, which says %s, so print it again with `%s`.\n' \
      "$now" "$PRINT" >&2
    exit 1
  fi
  [ "$(id -u)" = 0 ] || die 'user' 'this script needs root' 'Run it with sudo'
  lock
  case $mode in
    leave) leave ;;
    *) join ;;
  esac
}
