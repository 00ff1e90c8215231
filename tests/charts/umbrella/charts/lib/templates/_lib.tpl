{{- define "lib.greet" -}}
hello {{ .name | title }}
{{- end }}
