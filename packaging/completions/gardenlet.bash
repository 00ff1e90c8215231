# Completions of gardenlet for bash.

_gardenlet() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} words=
  # Bash takes --config=FILE apart.
  if [ "$cur" = = ]; then cur=; elif [ "$prev" = = ]; then prev=${COMP_WORDS[COMP_CWORD - 2]}; fi
  case $prev in
    --config | -f | --values | --output | --registry-config | --to)
      compopt -o filenames
      mapfile -t COMPREPLY < <(compgen -f -- "$cur")
      return ;;
    -o) words="json text" ;;
    --version) words="true false raw" ;;
    --chart | --kubernetes | --digest) return ;;
    -n | --namespace | --set | --set-string | --kube-version | -a | --api-versions | -s | --show-only) return ;;
    *)
      case ${COMP_WORDS[1]} in
        "$cur") words="config rebootstrap doctor explain bundle etcd render --config --version --help" ;;
        config) words="validate print-defaults --config --strict" ;;
        rebootstrap) words=--config ;;
        doctor) words="--config -o" ;;
        explain) words="--config -o -n" ;;
        bundle)
          words="export import list --output --config --all --chart --kubernetes --registry-config --to --digest --images --help"
          if [[ $cur != -* && $COMP_CWORD -gt 2 ]]; then
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
          fi ;;
        etcd) words="install start snapshot list --help" ;;
        render)
          words="--values --set --set-string --namespace --kube-version --api-versions --include-crds --show-only
            --no-hooks --as-extension --unlimited --help"
          if [[ $cur != -* ]]; then
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
          fi ;;
      esac ;;
  esac
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
}

complete -F _gardenlet gardenlet
