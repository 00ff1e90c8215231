# Completions of gardenlet for fish.

set -l commands config rebootstrap doctor explain bundle etcd render
set -l none "not __fish_seen_subcommand_from $commands"
set -l render "__fish_seen_subcommand_from render"
set -l looks "__fish_seen_subcommand_from doctor explain"

complete -c gardenlet -f
complete -c gardenlet -n $none -a config -d "look at a configuration"
complete -c gardenlet -n $none -a rebootstrap -d "let the agent get a new identity for the garden"
complete -c gardenlet -n $none -a doctor -d "try each hop from this machine"
complete -c gardenlet -n $none -a explain -d "say what an object waits for"
complete -c gardenlet -n $none -a bundle -d "carry charts to where no registry is"
complete -c gardenlet -n $none -a etcd -d "take, list and restore snapshots of an etcd"
complete -c gardenlet -n $none -a render -d "render a chart"
complete -c gardenlet -n $none -l version -d "say which version this is"
complete -c gardenlet -l help -d "say what there is"

complete -c gardenlet -n "not $render" -l config -r -F -d "configuration file"
complete -c gardenlet -n "__fish_seen_subcommand_from config; and not __fish_seen_subcommand_from validate print-defaults" \
    -a "validate print-defaults"
complete -c gardenlet -n "__fish_seen_subcommand_from config" -l strict -d "warnings fail"
complete -c gardenlet -n $looks -s o -x -a "json text" -d "form of the answer"
complete -c gardenlet -n "__fish_seen_subcommand_from explain" -s n -x -d "namespace of the object"

complete -c gardenlet -n "__fish_seen_subcommand_from etcd; and not __fish_seen_subcommand_from install start snapshot list" \
    -a "install start snapshot list"

set -l bundle "__fish_seen_subcommand_from bundle"
complete -c gardenlet -n "$bundle; and not __fish_seen_subcommand_from export import list" -a "export import list"
complete -c gardenlet -n $bundle -F
complete -c gardenlet -n $bundle -l output -r -F -d "the bundle that is made"
complete -c gardenlet -n $bundle -l all -d "the charts of all ControllerDeployments"
complete -c gardenlet -n $bundle -l chart -x -d "this chart"
complete -c gardenlet -n $bundle -l kubernetes -x -d "control planes of this version"
complete -c gardenlet -n $bundle -l registry-config -r -F -d "logins"
complete -c gardenlet -n $bundle -l to -r -F -d "the directory that is added to"
complete -c gardenlet -n $bundle -l digest -x -d "digest of the bundle"
complete -c gardenlet -n $bundle -l images -d "show the images"

complete -c gardenlet -n $render -F
complete -c gardenlet -n $render -s f -l values -r -F -d "values"
complete -c gardenlet -n $render -l set -x -d "single values"
complete -c gardenlet -n $render -l set-string -x -d "single values that stay text"
complete -c gardenlet -n $render -s n -l namespace -x -d "release namespace"
complete -c gardenlet -n $render -l kube-version -x -d "Kubernetes version that the chart sees"
complete -c gardenlet -n $render -s a -l api-versions -x -d "further API versions that the chart sees"
complete -c gardenlet -n $render -l include-crds -d "also print the CRDs of the chart"
complete -c gardenlet -n $render -s s -l show-only -x -d "only these templates"
complete -c gardenlet -n $render -l no-hooks -d "leave out hooks"
complete -c gardenlet -n $render -l as-extension -d "render as the agent does"
complete -c gardenlet -n $render -l unlimited -d "lift the limits of memory and processor time"
