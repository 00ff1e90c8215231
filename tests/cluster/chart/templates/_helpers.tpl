{{- define "labels" -}}
app: demo
release: {{ .Release.Name }}
{{- end -}}
