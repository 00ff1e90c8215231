{{- define "gardenlet.labels" -}}
app: gardener
role: gardenlet
chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 32 | quote }}
release: {{ .Release.Name | quote }}
heritage: {{ .Release.Service | quote }}
{{- end }}

{{- /* Labels of immutable objects: the garbage collection removes them when no object refers to them. */ -}}
{{- define "gardenlet.collectable" -}}
{{ include "gardenlet.labels" . }}
resources.gardener.cloud/garbage-collectable-reference: "true"
{{- end }}

{{- define "gardenlet.clusterName" -}}
gardener.cloud:system:gardenlet{{ with .part }}:{{ . }}{{ end }}
{{- if .root.Values.isolateClusterResources }}:{{ .root.Release.Namespace }}{{ end }}
{{- end }}

{{- /* The binding of a role to the agent's ServiceAccount, and the head of the role; cluster-wide without a namespace. A
kubeconfig for the seed has its own user, which needs its own binding. An unbound role has none. */ -}}
{{- define "gardenlet.role" -}}
{{- $kind := ternary "Role" "ClusterRole" (ne .namespace "") -}}
{{- $name := include "gardenlet.clusterName" . -}}
{{- if not (or .unbound (.root.Values.config.seedClientConnection).kubeconfig) -}}
{{- include "gardenlet.access" (dict "root" .root "kind" (printf "%sBinding" $kind) "name" $name "namespace" .namespace) }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ $kind }}
  name: {{ $name }}
subjects:
- kind: ServiceAccount
  name: {{ .root.Values.serviceAccountName }}
  namespace: {{ .root.Release.Namespace }}
---
{{ end -}}
{{- include "gardenlet.access" (dict "root" .root "kind" $kind "name" $name "namespace" .namespace) }}
{{- end }}

{{- define "gardenlet.access" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .kind }}
metadata:
  name: {{ .name }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- include "gardenlet.labels" .root | nindent 4 }}
{{- end }}

{{- define "gardenlet.image" -}}
{{- with .Values.image -}}
{{- $tag := .tag | default $.Chart.AppVersion -}}
{{- if .ref -}}
{{ .ref }}
{{- else if hasPrefix "sha256:" $tag -}}
{{ required ".Values.image.repository is required" .repository }}@{{ $tag }}
{{- else -}}
{{ required ".Values.image.repository is required" .repository }}:{{ $tag }}{{ with .digest }}@{{ . }}{{ end }}
{{- end }}
{{- end }}
{{- end }}

{{- /* The configuration for the agent: files and Secrets replace the contents of kubeconfigs. */ -}}
{{- define "gardenlet.config" -}}
{{- $config := deepCopy .Values.config -}}
{{- $head := dict "apiVersion" "gardenlet.config.gardener.cloud/v1alpha1" "kind" "GardenletConfiguration" -}}
{{- $garden := $config.gardenClientConnection | default dict -}}
{{- $seed := $config.seedClientConnection | default dict -}}
{{- if $garden.kubeconfig }}{{ $_ := set $garden "kubeconfig" "/etc/gardenlet/kubeconfig-garden/kubeconfig" }}{{ end -}}
{{- if $seed.kubeconfig }}{{ $_ := set $seed "kubeconfig" "/etc/gardenlet/kubeconfig-seed/kubeconfig" }}{{ end -}}
{{- with $garden.bootstrapKubeconfig -}}
{{- $at := .secretRef | default . -}}
{{- $_ := set $garden "bootstrapKubeconfig" (dict "name" $at.name "namespace" ($at.namespace | default $.Release.Namespace)) -}}
{{- end -}}
{{- $election := $config.leaderElection | default dict -}}
{{- $_ := set $election "resourceNamespace" ($election.resourceNamespace | default .Release.Namespace) -}}
{{- $_ := set $config "leaderElection" $election -}}
{{- $edge := $config.edge | default dict -}}
{{- $_ := set $edge "stateDir" ($edge.stateDir | default "/var/lib/gardenlet") -}}
{{- if include "gardenlet.keptBootstrap" . }}{{ $_ := set $edge.bootstrap "kubeconfig" "/etc/gardenlet/kubeconfig-bootstrap/kubeconfig" }}{{ end -}}
{{- $_ := set $config "edge" $edge -}}
{{- toYaml (merge $head $config) }}
{{- end }}

{{- /* The content of edge.bootstrap.kubeconfig; empty if the field has the path of a mounted file. */ -}}
{{- define "gardenlet.keptBootstrap" -}}
{{- with ((.Values.config.edge).bootstrap).kubeconfig }}{{ if not (hasPrefix "/" .) }}{{ . }}{{ end }}{{ end -}}
{{- end }}

{{- /* Names contain a hash of the content: a change creates a new object, and new pods. */ -}}
{{- define "gardenlet.configName" -}}
gardenlet-configmap-{{ include "gardenlet.config" . | sha256sum | trunc 8 }}
{{- end }}
{{- define "gardenlet.gardenKubeconfigName" -}}
gardenlet-kubeconfig-garden-{{ .Values.config.gardenClientConnection.kubeconfig | sha256sum | trunc 8 }}
{{- end }}
{{- define "gardenlet.seedKubeconfigName" -}}
gardenlet-kubeconfig-seed-{{ .Values.config.seedClientConnection.kubeconfig | sha256sum | trunc 8 }}
{{- end }}
{{- define "gardenlet.bootstrapKubeconfigName" -}}
gardenlet-kubeconfig-bootstrap-{{ include "gardenlet.keptBootstrap" . | sha256sum | trunc 8 }}
{{- end }}
{{- define "gardenlet.imagesName" -}}
gardenlet-imagevector-overwrite-{{ .Values.imageVectorOverwrite | sha256sum | trunc 8 }}
{{- end }}
{{- define "gardenlet.componentImagesName" -}}
gardenlet-imagevector-overwrite-components-{{ .Values.componentImageVectorOverwrites | sha256sum | trunc 8 }}
{{- end }}

{{- /* References for the garbage collection: these objects are in use. */ -}}
{{- define "gardenlet.references" -}}
{{- $config := include "gardenlet.configName" . -}}
reference.resources.gardener.cloud/configmap-{{ $config | sha256sum | trunc 8 }}: {{ $config }}
{{- if .Values.imageVectorOverwrite }}
{{- $name := include "gardenlet.imagesName" . }}
reference.resources.gardener.cloud/configmap-{{ $name | sha256sum | trunc 8 }}: {{ $name }}
{{- end }}
{{- if .Values.componentImageVectorOverwrites }}
{{- $name := include "gardenlet.componentImagesName" . }}
reference.resources.gardener.cloud/configmap-{{ $name | sha256sum | trunc 8 }}: {{ $name }}
{{- end }}
{{- if (.Values.config.gardenClientConnection).kubeconfig }}
{{- $name := include "gardenlet.gardenKubeconfigName" . }}
reference.resources.gardener.cloud/secret-{{ $name | sha256sum | trunc 8 }}: {{ $name }}
{{- end }}
{{- if (.Values.config.seedClientConnection).kubeconfig }}
{{- $name := include "gardenlet.seedKubeconfigName" . }}
reference.resources.gardener.cloud/secret-{{ $name | sha256sum | trunc 8 }}: {{ $name }}
{{- end }}
{{- if include "gardenlet.keptBootstrap" . }}
{{- $name := include "gardenlet.bootstrapKubeconfigName" . }}
reference.resources.gardener.cloud/secret-{{ $name | sha256sum | trunc 8 }}: {{ $name }}
{{- end }}
{{- end }}
