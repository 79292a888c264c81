{{/*
What values.schema.json cannot say: values that are fine each for itself and wrong together.
*/}}
{{- define "sharder.check" -}}
{{- $problems := list }}
{{- $config := .Values.config }}
{{- $namespace := dig "leaderElection" "resourceNamespace" "" $config }}
{{- if and $namespace (ne $namespace .Release.Namespace) }}
{{- $problems = append $problems (printf "config.leaderElection.resourceNamespace is %s: the sharder's lease and Secret belong into the release's namespace %s; leave it out" $namespace .Release.Namespace) }}
{{- end }}
{{- $health := include "sharder.healthAddress" . }}
{{- if or (eq $health "0") (regexMatch "^(127\\.|localhost:|\\[::1\\]:)" $health) }}
{{- $problems = append $problems (printf "config.health.bindAddress is %s, where no probe reaches it: use one such as :8081" $health) }}
{{- end }}
{{- if not (include "sharder.metricsAddress" .) }}
{{- if .Values.metrics.serviceMonitor.enabled }}
{{- $problems = append $problems "metrics.serviceMonitor is enabled, but config.metrics.bindAddress turns metrics off: change one of them" }}
{{- end }}
{{- end }}
{{- if ne .Values.certificates.source "selfManaged" }}
{{- if dig "webhook" "server" "certDir" "" $config }}
{{- $problems = append $problems (printf "config.webhook.server.certDir is set, but certificates.source is %s, which mounts its own: leave certDir out" .Values.certificates.source) }}
{{- end }}
{{- end }}
{{- if eq .Values.certificates.source "secret" }}
{{- if not .Values.certificates.secret.name }}
{{- $problems = append $problems "certificates.source is secret: say which one in certificates.secret.name" }}
{{- end }}
{{- if not .Values.certificates.secret.caBundle }}
{{- $problems = append $problems "certificates.source is secret: the API server must trust it, so give its CA in certificates.secret.caBundle" }}
{{- end }}
{{- end }}
{{- if and .Values.admissionPolicy.enabled (not .Values.admissionPolicy.resources) (not .Values.rings) }}
{{- $problems = append $problems "admissionPolicy is enabled, but there is nothing to protect: declare rings, or list admissionPolicy.resources" }}
{{- end }}
{{- range $name, $ring := .Values.rings }}
{{- if regexMatch "[-.]$" (trunc 42 $name) }}
{{- $problems = append $problems (printf "rings.%s: the name's first 42 characters end in a dot or dash, so that no label can be made of it: use a shorter name" $name) }}
{{- end }}
{{- end }}
{{- if $problems }}
{{- fail (printf "\n\n* %s\n" (join "\n* " $problems)) }}
{{- end }}
{{- end }}
