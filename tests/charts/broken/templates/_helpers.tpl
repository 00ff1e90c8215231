{{- define "deep" }}{{ include "deeper" . }}{{ end }}
{{- define "deeper" }}{{ .Values.text.field }}{{ end }}
