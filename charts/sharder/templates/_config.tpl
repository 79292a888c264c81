{{/*
The SharderConfig: what depends on the release, then what the values say.
*/}}
{{- define "sharder.config" -}}
{{- $client := dict }}
{{- if not (dig "webhook" "config" "clientConfig" "url" "" .Values.config) }}
{{- $_ := set $client "service" (dict "namespace" .Release.Namespace "name" (include "sharder.name" .) "port" .Values.service.port) }}
{{- end }}
{{- $webhook := dict "clientConfig" $client }}
{{- if ne .Release.Namespace "sharding-system" }}
{{- $own := dict "key" "kubernetes.io/metadata.name" "operator" "NotIn" "values" (list "kube-system" .Release.Namespace) }}
{{- if not (dig "webhook" "config" "namespaceSelector" dict .Values.config) }}
{{- $_ := set $webhook "namespaceSelector" (dict "matchExpressions" (list $own)) }}
{{- end }}
{{- end }}
{{- $server := dict }}
{{- if include "sharder.tlsSecret" . }}
{{- $_ := set $server "certDir" "/etc/sharder/tls" }}
{{- end }}
{{- if eq .Values.certificates.source "certManager" }}
{{- $_ := set $webhook "annotations" (dict "cert-manager.io/inject-ca-from" (printf "%s/sharder-webhook" .Release.Namespace)) }}
{{- else if eq .Values.certificates.source "secret" }}
{{- $_ := set $client "caBundle" .Values.certificates.secret.caBundle }}
{{- end }}
{{- $base := dict
  "apiVersion" "config.sharding.timebertt.dev/v1alpha1"
  "kind" "SharderConfig"
  "leaderElection" (dict "resourceNamespace" .Release.Namespace)
  "webhook" (dict "server" $server "config" $webhook)
}}
{{- toYaml (mustMergeOverwrite $base (deepCopy .Values.config)) }}
{{- end }}

{{/* Port of an address such as `:8081` or `[::1]:8081`; empty: 0, any that is free, which nobody finds. */}}
{{- define "sharder.port" -}}
{{- regexFind "[1-9][0-9]*$" . -}}
{{- end }}

{{- define "sharder.healthAddress" -}}
{{- dig "health" "bindAddress" "" .Values.config | default ":8081" -}}
{{- end }}

{{/* Empty: metrics are not served. */}}
{{- define "sharder.metricsAddress" -}}
{{- $address := dig "metrics" "bindAddress" "" .Values.config | default ":8080" -}}
{{- if ne $address "0" }}{{ $address }}{{ end -}}
{{- end }}

{{/* Empty: metrics are for everybody who reaches them, over plain HTTP. */}}
{{- define "sharder.metricsSecure" -}}
{{- if and (include "sharder.metricsAddress" .) (dig "metrics" "secure" false .Values.config) }}true{{ end -}}
{{- end }}

{{/* Empty: nothing is served over TLS, so no certificate is needed. */}}
{{- define "sharder.servesTls" -}}
{{- if or (include "sharder.webhookPort" .) (include "sharder.metricsSecure" .) }}true{{ end -}}
{{- end }}

{{/*
The hosts under which the API server calls the webhook, as a JSON list; the certificate has to be for them. The sharder's
own certificates are for the same (serving_names in sharder/service.py); a test holds the two together.
*/}}
{{- define "sharder.hosts" -}}
{{- $client := dig "webhook" "config" "clientConfig" dict .Values.config | default dict }}
{{- if $client.url }}
{{- toJson (list ((urlParse $client.url).hostname | lower)) }}
{{- else }}
{{- $service := $client.service | default dict }}
{{- $name := $service.name | default (include "sharder.name" .) }}
{{- $namespace := $service.namespace | default .Release.Namespace }}
{{- $full := printf "%s.%s.svc" $name $namespace }}
{{- toJson (list $full (printf "%s.cluster.local" $full) (printf "%s.%s" $name $namespace) $name) }}
{{- end }}
{{- end }}

{{/* The first of them, by which others call. */}}
{{- define "sharder.serverName" -}}
{{- include "sharder.hosts" . | fromJsonArray | first -}}
{{- end }}

{{/* Empty: the webhook is off. */}}
{{- define "sharder.webhookPort" -}}
{{- $enabled := dig "webhook" "enabled" nil .Values.config -}}
{{- if not (eq (toString $enabled) "false") }}{{ dig "webhook" "server" "port" nil .Values.config | default 9443 | int }}{{ end -}}
{{- end }}

{{- define "sharder.leaseName" -}}
{{- dig "leaderElection" "resourceName" "" .Values.config | default "sharder" -}}
{{- end }}
