# Completions of gardenlet for bash.

_gardenlet() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} words= files=
  local command=${COMP_WORDS[1]} verb=${COMP_WORDS[2]}
  # Bash takes --config=FILE apart.
  if [ "$cur" = = ]; then cur=; elif [ "$prev" = = ]; then prev=${COMP_WORDS[COMP_CWORD - 2]}; fi
  local store="--directory --s3 --prefix"
  case $prev in
    --to) [ "$command" = rescue ] || files=yes ;;
    --config | --kubeconfig | --log | -f | --values | --registry-config | --output-dir | --give | --etcd | --etcdutl | --etcd-config | --data-dir | \
      --ca | --cert | --key | --result | --directory | --s3 | --from-directory | --from-s3) files=yes ;;
    -o | --output)
      if [[ "$command $verb" = "bundle export" || $command = support-bundle ]]; then files=yes; else words="json text yaml"; fi ;;
    --version) words="true false raw" ;;
    --context | --validity | --name | --ttl | --grace | --from | --chart | --kubernetes | --digest | --address | --endpoint | --keep | --maintenance-window | --wait | --prefix | --unit) return ;;
    -n | --namespace | --set | --set-string | --set-json | --set-file | --set-literal | --kube-version | -a | --api-versions | -s | \
      --show-only | --name-template) return ;;
    *)
      case $command in
        "$cur")
          words="run config rebootstrap bootstrap-token rescue status doctor explain support-bundle bundle etcd node render completion version help --config --version --help" ;;
        config)
          case $verb in
            "$cur") words="validate print-defaults --help" ;;
            validate) words="--config --strict --output -o --help" ;;
            print-defaults) words="--config --output -o --help" ;;
          esac ;;
        run) words="--config --help" ;;
        rebootstrap) words="--config --kubeconfig --context --help" ;;
        bootstrap-token) words="--kubeconfig --context --validity --to --help" ;;
        rescue) words="--from --to --kubeconfig --context --yes --help" ;;
        status) words="--config --address --output -o --verbose --watch -w --help" ;;
        doctor) words="--config --pre --kubeconfig --context --output -o --help" ;;
        explain)
          words="--config --namespace -n --kubeconfig --context --output -o --help"
          if [[ $cur != -* && $COMP_CWORD = 2 ]]; then
            words="backupbucket/ backupentry/ bastion/ controllerinstallation/ managedresource/ managedseed/ seed/ shoot/"
            # The objects that the agent on this machine knows.
            words+=" $("${COMP_WORDS[0]}" completion names 2>/dev/null)"
            compopt -o nospace
          fi ;;
        support-bundle) words="--config --output --unit --log --help" ;;
        bundle)
          case $verb in
            "$cur") words="export import list --help" ;;
            export) words="--output -o --config --all --chart --kubernetes --registry-config --help" ;;
            import) words="--to --digest --help" files=$([[ $cur = -* ]] || echo yes) ;;
            list) words="--images --output -o --help" files=$([[ $cur = -* ]] || echo yes) ;;
          esac ;;
        etcd)
          case $verb in
            "$cur") words="install start snapshot copy list --help" ;;
            install) words="--give --help" files=$([[ $cur = -* ]] || echo yes) ;;
            start) words="--etcd --etcdutl --etcd-config --data-dir $store --help" ;;
            snapshot) words="--endpoint --ca --cert --key --keep --final --maintenance-window --wait --result $store --help" ;;
            copy) words="--from-directory --from-s3 --wait --accept-loss --result $store --help" ;;
            list) words="$store --output -o --help" ;;
          esac ;;
        node)
          case $verb in
            "$cur") words="script list remove --help" ;;
            script) words="--name --address --ttl --rejoin --config --kubeconfig --context --help" ;;
            list) words="--output -o --config --kubeconfig --context --help" ;;
            remove) words="--grace --lost --yes --config --kubeconfig --context --help" ;;
          esac ;;
        render)
          words="--values -f --set --set-string --set-json --set-file --set-literal --namespace -n --kube-version --api-versions -a
            --is-upgrade --name-template --generate-name -g --include-crds --skip-crds --no-hooks --skip-tests
            --skip-schema-validation --show-only -s --output-dir --release-name --debug --dry-run --as-extension --unlimited --help"
          files=$([[ $cur = -* ]] || echo yes) ;;
        completion) words="bash zsh fish --help" ;;
        version) words="--output -o --help" ;;
        help)
          case $verb in
            "$cur") words="config rebootstrap bootstrap-token rescue status doctor explain support-bundle bundle etcd node render completion version run" ;;
            config) words="validate print-defaults" ;;
            bundle) words="export import list" ;;
            etcd) words="install start snapshot copy list" ;;
            node) words="script list remove" ;;
          esac ;;
      esac ;;
  esac
  if [ -n "$files" ]; then
    compopt -o filenames
    mapfile -t COMPREPLY < <(compgen -f -- "$cur")
  else
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
  fi
}

complete -F _gardenlet gardenlet
