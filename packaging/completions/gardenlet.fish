# Completions of gardenlet for fish.

set -l commands run config rebootstrap bootstrap-token rescue status doctor explain support-bundle bundle etcd node render completion version help
set -l none "not __fish_seen_subcommand_from $commands"

# Of a command with commands of its own: none of them yet, or one of them.
function __gardenlet_in
    set -l words (commandline -opc)
    test "$words[2]" = $argv[1]; or return 1
    test (count $argv) -lt 2; or contains -- "$words[3]" $argv[2..]
end
function __gardenlet_group
    set -l words (commandline -opc)
    test "$words[2]" = $argv[1] -a (count $words) -eq 2
end

complete -c gardenlet -f
complete -c gardenlet -n $none -a run -d "run the agent"
complete -c gardenlet -n $none -a config -d "check a configuration, or print its defaults"
complete -c gardenlet -n $none -a rebootstrap -d "get a new identity for the garden"
complete -c gardenlet -n $none -a bootstrap-token -d "make a token with which a seed joins the garden"
complete -c gardenlet -n $none -a rescue -d "let another seed restore a Shoot whose seed is lost"
complete -c gardenlet -n $none -a status -d "show the state of the running agent"
complete -c gardenlet -n $none -a doctor -d "try each hop from this machine"
complete -c gardenlet -n $none -a explain -d "explain why an object is not ready"
complete -c gardenlet -n $none -a support-bundle -d "write what others need to help you into one file"
complete -c gardenlet -n $none -a bundle -d "carry charts to a site that reaches no registry"
complete -c gardenlet -n $none -a etcd -d "take, list, copy and restore snapshots of an etcd"
complete -c gardenlet -n $none -a node -d "let hosts of a site join a Shoot"
complete -c gardenlet -n $none -a render -d "render a chart"
complete -c gardenlet -n $none -a completion -d "print the completion script for a shell"
complete -c gardenlet -n $none -a version -d "print the version"
complete -c gardenlet -n $none -a help -d "print the help of a command"
complete -c gardenlet -n $none -l config -r -F -d "configuration file"
complete -c gardenlet -n $none -l version -d "print the version"
complete -c gardenlet -s h -l help -d "print the help"

complete -c gardenlet -n "__gardenlet_group config" -a "validate print-defaults"
complete -c gardenlet -n "__gardenlet_group bundle" -a "export import list"
complete -c gardenlet -n "__gardenlet_group etcd" -a "install start snapshot copy list"
complete -c gardenlet -n "__gardenlet_group node" -a "script list remove"
complete -c gardenlet -n "__gardenlet_group completion" -a "bash zsh fish"
complete -c gardenlet -n "__gardenlet_group help" -a "config rebootstrap bootstrap-token rescue status doctor explain support-bundle bundle etcd node render completion version run"
complete -c gardenlet -n "__gardenlet_in help config" -a "validate print-defaults"
complete -c gardenlet -n "__gardenlet_in help bundle" -a "export import list"
complete -c gardenlet -n "__gardenlet_in help etcd" -a "install start snapshot copy list"
complete -c gardenlet -n "__gardenlet_in help node" -a "script list remove"

for place in run "config validate print-defaults" rebootstrap status doctor explain support-bundle "bundle export" "node script list remove"
    complete -c gardenlet -n "__gardenlet_in $place" -l config -r -F -d "configuration file"
end
for place in "config validate print-defaults" status doctor explain "bundle list" "etcd list" "node list" version
    complete -c gardenlet -n "__gardenlet_in $place" -s o -l output -x -a "json text yaml" -d "form of the answer"
end
for place in rebootstrap bootstrap-token rescue doctor explain "node script list remove"
    complete -c gardenlet -n "__gardenlet_in $place" -l kubeconfig -r -F -d "kubeconfig of the cluster"
    complete -c gardenlet -n "__gardenlet_in $place" -l context -x -d "its context"
end
complete -c gardenlet -n "__gardenlet_in bootstrap-token" -l validity -x -d "how long it is valid"
complete -c gardenlet -n "__gardenlet_in bootstrap-token" -l to -r -F -d "write the kubeconfig here"
complete -c gardenlet -n "__gardenlet_in rescue" -l from -x -d "the lost seed"
complete -c gardenlet -n "__gardenlet_in rescue" -l to -x -d "the seed that restores the Shoot"
complete -c gardenlet -n "__gardenlet_in rescue" -l yes -d "write without a question"
complete -c gardenlet -n "__gardenlet_in doctor" -l pre -d "check what an installation needs"
complete -c gardenlet -n "__gardenlet_in config validate" -l strict -d "fail for warnings"
complete -c gardenlet -n "__gardenlet_in status" -l address -x -d "address of the agent"
complete -c gardenlet -n "__gardenlet_in status" -l verbose -d "show what is at rest, too"
complete -c gardenlet -n "__gardenlet_in status" -s w -l watch -d "show it again and again"
complete -c gardenlet -n "__gardenlet_in explain" -s n -l namespace -x -d "namespace of the object"
complete -c gardenlet -n "__gardenlet_group explain" \
    -a "backupbucket/ backupentry/ bastion/ controllerinstallation/ managedresource/ managedseed/ seed/ shoot/"
# The objects that the agent on this machine knows.
complete -c gardenlet -n "__gardenlet_group explain" -a "(gardenlet completion names 2>/dev/null)"
complete -c gardenlet -n "__gardenlet_in support-bundle" -l output -r -F -d "the file that is written"
complete -c gardenlet -n "__gardenlet_in support-bundle" -l unit -x -d "the unit whose journal has the log"
complete -c gardenlet -n "__gardenlet_in support-bundle" -l log -r -F -d "a file with the log"

complete -c gardenlet -n "__gardenlet_in bundle import list" -F
complete -c gardenlet -n "__gardenlet_in bundle export" -s o -l output -r -F -d "the bundle that is made"
complete -c gardenlet -n "__gardenlet_in bundle export" -l all -d "the charts of all ControllerDeployments"
complete -c gardenlet -n "__gardenlet_in bundle export" -l chart -x -d "this chart"
complete -c gardenlet -n "__gardenlet_in bundle export" -l kubernetes -x -d "control planes of this version"
complete -c gardenlet -n "__gardenlet_in bundle export" -l registry-config -r -F -d "logins"
complete -c gardenlet -n "__gardenlet_in bundle import" -l to -r -F -d "the directory that is added to"
complete -c gardenlet -n "__gardenlet_in bundle import" -l digest -x -d "digest of the bundle"
complete -c gardenlet -n "__gardenlet_in bundle list" -l images -d "show the images"

complete -c gardenlet -n "__gardenlet_in etcd install" -F
complete -c gardenlet -n "__gardenlet_in etcd install" -l give -r -F -d "make this directory"
complete -c gardenlet -n "__gardenlet_in etcd start" -l etcd -r -F -d "etcd"
complete -c gardenlet -n "__gardenlet_in etcd start" -l etcdutl -r -F -d "etcdutl"
complete -c gardenlet -n "__gardenlet_in etcd start" -l etcd-config -r -F -d "configuration of etcd"
complete -c gardenlet -n "__gardenlet_in etcd start" -l data-dir -r -F -d "data of etcd"
complete -c gardenlet -n "__gardenlet_in etcd snapshot" -l endpoint -x -d "address of etcd"
complete -c gardenlet -n "__gardenlet_in etcd snapshot" -l ca -r -F -d "CA of etcd"
complete -c gardenlet -n "__gardenlet_in etcd snapshot" -l cert -r -F -d "client certificate"
complete -c gardenlet -n "__gardenlet_in etcd snapshot" -l key -r -F -d "its key"
complete -c gardenlet -n "__gardenlet_in etcd snapshot" -l keep -x -d "how many to keep"
complete -c gardenlet -n "__gardenlet_in etcd snapshot" -l final -d "take the last one"
complete -c gardenlet -n "__gardenlet_in etcd snapshot" -l maintenance-window -x -d "when etcd may give room back"
complete -c gardenlet -n "__gardenlet_in etcd snapshot" -l wait -x -d "wait for etcd"
complete -c gardenlet -n "__gardenlet_in etcd snapshot" -l result -r -F -d "write the result to this file"
complete -c gardenlet -n "__gardenlet_in etcd copy" -l from-directory -r -F -d "copy from this directory"
complete -c gardenlet -n "__gardenlet_in etcd copy" -l from-s3 -r -F -d "copy from a bucket with these credentials"
complete -c gardenlet -n "__gardenlet_in etcd copy" -l wait -x -d "wait for the last one"
complete -c gardenlet -n "__gardenlet_in etcd copy" -l accept-loss -d "copy what can be restored"
complete -c gardenlet -n "__gardenlet_in etcd copy" -l result -r -F -d "write the result to this file"
complete -c gardenlet -n "__gardenlet_in etcd start snapshot copy list" -l directory -r -F -d "the store is this directory"
complete -c gardenlet -n "__gardenlet_in etcd start snapshot copy list" -l s3 -r -F -d "the store is a bucket with these credentials"
complete -c gardenlet -n "__gardenlet_in etcd start snapshot copy list" -l prefix -x -d "the folder in the store"

complete -c gardenlet -n "__gardenlet_in node script" -l name -x -d "name of the host"
complete -c gardenlet -n "__gardenlet_in node script" -l address -x -d "address of the node"
complete -c gardenlet -n "__gardenlet_in node script" -l ttl -x -d "how long the token is valid"
complete -c gardenlet -n "__gardenlet_in node script" -l rejoin -d "the host takes the place of its node"
complete -c gardenlet -n "__gardenlet_in node remove" -l grace -x -d "how long pods have to leave"
complete -c gardenlet -n "__gardenlet_in node remove" -l lost -d "the host never comes back"
complete -c gardenlet -n "__gardenlet_in node remove" -l yes -d "write without a question"

set -l render "__gardenlet_in render"
complete -c gardenlet -n $render -F
complete -c gardenlet -n $render -s f -l values -r -F -d "values"
complete -c gardenlet -n $render -l set -x -d "single values"
complete -c gardenlet -n $render -l set-string -x -d "single values that stay text"
complete -c gardenlet -n $render -l set-json -x -d "values as JSON"
complete -c gardenlet -n $render -l set-file -x -d "single values from files"
complete -c gardenlet -n $render -l set-literal -x -d "one value, taken as it is"
complete -c gardenlet -n $render -s n -l namespace -x -d "release namespace"
complete -c gardenlet -n $render -l kube-version -x -d "Kubernetes version that the chart sees"
complete -c gardenlet -n $render -s a -l api-versions -x -d "more API versions that the chart sees"
complete -c gardenlet -n $render -l is-upgrade -d "the chart sees an upgrade"
complete -c gardenlet -n $render -l name-template -x -d "template of the release name"
complete -c gardenlet -n $render -s g -l generate-name -d "refuse a name"
complete -c gardenlet -n $render -l include-crds -d "print the CRDs, too"
complete -c gardenlet -n $render -l skip-crds -d "nothing, as in Helm"
complete -c gardenlet -n $render -l no-hooks -d "leave out hooks"
complete -c gardenlet -n $render -l skip-tests -d "leave out hooks that are tests"
complete -c gardenlet -n $render -l skip-schema-validation -d "do not check values"
complete -c gardenlet -n $render -s s -l show-only -x -d "only these templates"
complete -c gardenlet -n $render -l output-dir -r -F -d "write files below this folder"
complete -c gardenlet -n $render -l release-name -d "write them below the name of the release"
complete -c gardenlet -n $render -l debug -d "print invalid YAML, too"
complete -c gardenlet -n $render -l dry-run -d "nothing, as in Helm"
complete -c gardenlet -n $render -l as-extension -d "render as the agent does"
complete -c gardenlet -n $render -l unlimited -d "lift the limits of memory and processor time"
