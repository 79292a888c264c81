{{/*
Names are fixed: a cluster has one sharder, and its cluster-wide objects are named after it, not after the release.
*/}}
{{- define "sharder.name" -}}
sharder
{{- end }}

{{- define "sharder.selectorLabels" -}}
app.kubernetes.io/name: sharder
app.kubernetes.io/component: sharder
{{- end }}

{{- define "sharder.commonLabels" -}}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/part-of: controller-sharding
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "sharder.labels" -}}
{{ include "sharder.selectorLabels" . }}
{{ include "sharder.commonLabels" . }}
{{- end }}

{{- define "sharder.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end }}

{{/* The Secret in which the sharder keeps certificates of its own making (shardsdk/serving/secretstore.py). */}}
{{- define "sharder.ownCertificates" -}}
sharder-webhook-certificates
{{- end }}

{{/* The Secret with certificates of someone else's making; empty: the sharder makes them. */}}
{{- define "sharder.tlsSecret" -}}
{{- if eq .Values.certificates.source "certManager" -}}
sharder-webhook-tls
{{- else if eq .Values.certificates.source "secret" -}}
{{ .Values.certificates.secret.name }}
{{- end -}}
{{- end }}
