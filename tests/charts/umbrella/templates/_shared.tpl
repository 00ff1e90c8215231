{{ define "shared" }}parent{{ end }}
{{ define "empty" }}{{ end }}
