{{ define "shared" }}child{{ end }}
{{ define "empty" }}not empty{{ end }}
