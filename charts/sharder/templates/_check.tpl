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
{{- if or (not (include "sharder.port" $health)) (regexMatch "^(127\\.|localhost:|\\[::1\\]:)" $health) }}
{{- $problems = append $problems (printf "config.health.bindAddress is %s, where no probe reaches it: use one such as :8081" $health) }}
{{- end }}
{{- $metrics := include "sharder.metricsAddress" . }}
{{- if and $metrics (not (include "sharder.port" $metrics)) }}
{{- $problems = append $problems (printf "config.metrics.bindAddress is %s, a port that nobody knows beforehand: use one such as :8080, or \"0\" for no metrics" $metrics) }}
{{- end }}
{{- if and .Values.metrics.serviceMonitor.enabled (not $metrics) }}
{{- $problems = append $problems "metrics.serviceMonitor is enabled, but config.metrics.bindAddress turns metrics off: change one of them" }}
{{- end }}
{{- if and .Values.metrics.serviceMonitor.enabled (regexMatch "^(127\\.|localhost:|\\[::1\\]:)" $metrics) }}
{{- $problems = append $problems (printf "metrics.serviceMonitor is enabled, but config.metrics.bindAddress is %s, where Prometheus does not reach it: use one such as :8080" $metrics) }}
{{- end }}
{{- with .Values.metrics.serviceMonitor }}
{{- if and .enabled .interval .scrapeTimeout }}
{{- if gt (include "sharder.seconds" .scrapeTimeout | float64) (include "sharder.seconds" .interval | float64) }}
{{- $problems = append $problems (printf "metrics.serviceMonitor.scrapeTimeout is %s, longer than interval, %s, which Prometheus does not take: make it shorter" .scrapeTimeout .interval) }}
{{- end }}
{{- end }}
{{- end }}
{{- $problems = concat $problems (include "sharder.webhookProblems" . | fromJsonArray) (include "sharder.electionProblems" . | fromJsonArray) }}
{{- if dig "webhook" "server" "certDir" "" $config }}
{{- if eq .Values.certificates.source "selfManaged" }}
{{- $problems = append $problems "config.webhook.server.certDir is set, but nothing is mounted there: leave it out, or have certificates.source mount a Secret" }}
{{- else }}
{{- $problems = append $problems (printf "config.webhook.server.certDir is set, but certificates.source is %s, which mounts its own: leave certDir out" .Values.certificates.source) }}
{{- end }}
{{- end }}
{{- $injected := dig "webhook" "config" "annotations" dict $config | default dict }}
{{- range $annotation := keys $injected | sortAlpha }}
{{- if hasPrefix "cert-manager.io/inject-" $annotation }}
{{- $given := get $injected $annotation }}
{{- if eq $.Values.certificates.source "selfManaged" }}
{{- $problems = append $problems (printf "config.webhook.config.annotations has %s, but certificates.source is selfManaged, so that the sharder writes its own CA there: leave it out, or let cert-manager make the certificate (certManager)" $annotation) }}
{{- else if and (eq $.Values.certificates.source "certManager") (ne $given (printf "%s/sharder-webhook" $.Release.Namespace)) }}
{{- $problems = append $problems (printf "config.webhook.config.annotations has %s: %s, but the certificate of this chart is %s/sharder-webhook: leave the annotation out" $annotation $given $.Release.Namespace) }}
{{- end }}
{{- end }}
{{- end }}
{{- $issuer := .Values.certificates.certManager.issuerRef }}
{{- if and (eq .Values.certificates.source "certManager") $issuer (not (get (default dict $issuer) "name")) }}
{{- $problems = append $problems "certificates.certManager.issuerRef has no name: say which issuer, or leave it empty for a self-signed one" }}
{{- end }}
{{- if eq .Values.certificates.source "secret" }}
{{- if not .Values.certificates.secret.name }}
{{- $problems = append $problems "certificates.source is secret: say which one in certificates.secret.name" }}
{{- end }}
{{- if not .Values.certificates.secret.caBundle }}
{{- $problems = append $problems "certificates.source is secret: the API server must trust it, so give its CA in certificates.secret.caBundle" }}
{{- end }}
{{- end }}
{{- if not .Values.rbac.create }}
{{- if .Values.crds.upgrade }}
{{- $problems = append $problems "rbac.create is false, but the Job of crds.upgrade takes roles of its own: set crds.upgrade to false, and run `sharder crds --apply` before each upgrade" }}
{{- end }}
{{- if .Values.uninstall.cleanup }}
{{- $problems = append $problems "rbac.create is false, but the Job of uninstall.cleanup takes roles of its own: set uninstall.cleanup to false, and run `sharder uninstall` when the release is gone" }}
{{- end }}
{{- end }}
{{- if and .Release.IsUpgrade (not .Values.serviceAccount.create) }}
{{- $account := lookup "v1" "ServiceAccount" .Release.Namespace "sharder" }}
{{- if eq (dig "metadata" "annotations" "meta.helm.sh/release-name" "" $account) .Release.Name }}
{{- $problems = append $problems "serviceAccount.create is false, but this release has made the ServiceAccount, which would be deleted while the sharder runs under it: leave it true" }}
{{- end }}
{{- end }}
{{- $protected := default list .Values.admissionPolicy.resources }}
{{- range .Values.rings }}
{{- $protected = concat $protected (default list .resources) }}
{{- end }}
{{- if and .Values.admissionPolicy.enabled (not $protected) }}
{{- $problems = append $problems "admissionPolicy is enabled, but there is nothing to protect: declare rings with resources, or list admissionPolicy.resources" }}
{{- end }}
{{- range $name, $ring := .Values.rings }}
{{- if regexMatch "[-.]$" (trunc 42 $name) }}
{{- $problems = append $problems (printf "rings.%s: the name's first 42 characters end in a dot or dash, so that no label can be made of it: use a shorter name" $name) }}
{{- end }}
{{- $fixed := dict "root" $ "ring" $name "where" (printf "rings.%s" $name) "assignment" (default "Labels" $ring.assignment) "hashBy" (default "" $ring.hashBy) }}
{{- $problems = concat $problems (include "sharder.fixedProblems" $fixed | fromJsonArray) }}
{{- end }}
{{- $problems = concat $problems (include "sharder.removedProblems" . | fromJsonArray) (include "sharder.portProblems" . | fromJsonArray) (include "sharder.labelProblems" . | fromJsonArray) }}
{{- $grace := dig "gracefulShutDown" "" $config | default "15s" }}
{{- if ge (include "sharder.seconds" $grace | float64) (float64 .Values.terminationGracePeriodSeconds) }}
{{- $problems = append $problems (printf "terminationGracePeriodSeconds is %d, but a replica takes up to config.gracefulShutDown, %s, to hand over: make it longer" (int .Values.terminationGracePeriodSeconds) $grace) }}
{{- end }}
{{- if .Values.metrics.prometheusRule.enabled }}
{{- $known := list }}
{{- range ($.Files.Get "files/alerts.yaml" | fromYaml).groups }}
{{- range .rules }}
{{- $known = append $known .alert }}
{{- end }}
{{- end }}
{{- range .Values.metrics.prometheusRule.disabled }}
{{- if not (has . $known) }}
{{- $problems = append $problems (printf "metrics.prometheusRule.disabled: there is no alert %s; there are %s" . (join ", " $known)) }}
{{- end }}
{{- end }}
{{- end }}
{{- if and .Values.admissionPolicy.enabled (has "Deny" .Values.admissionPolicy.actions) (has "Warn" .Values.admissionPolicy.actions) }}
{{- $problems = append $problems "admissionPolicy.actions has Deny and Warn: Kubernetes takes one of them, since a denial is its own warning" }}
{{- end }}
{{- if $problems }}
{{- fail (printf "\n\n* %s\n" (join "\n* " $problems)) }}
{{- end }}
{{- end }}

{{/* Helm has no function that parses a duration, but one that moves a date by it, as Go, and the sharder, read it. */}}
{{- define "sharder.seconds" -}}
{{- $start := toDate "2006-01-02" "2000-01-01" }}
{{- ((mustDateModify . $start).Sub $start).Seconds -}}
{{- end }}

{{/* What the API server could not call, as a JSON list of problems. */}}
{{- define "sharder.webhookProblems" -}}
{{- $problems := list }}
{{- $host := dig "webhook" "server" "host" "" .Values.config }}
{{- if and (include "sharder.webhookPort" .) (regexMatch "^(127\\..*|localhost|::1)$" $host) }}
{{- $problems = append $problems (printf "config.webhook.server.host is %s, where the API server does not reach it: leave it out" $host) }}
{{- end }}
{{- $client := dig "webhook" "config" "clientConfig" dict .Values.config | default dict }}
{{- $service := $client.service | default dict }}
{{- $own := and (eq ($service.name | default (include "sharder.name" .)) (include "sharder.name" .)) (eq ($service.namespace | default .Release.Namespace) .Release.Namespace) }}
{{- if and $own $service.port (ne (int $service.port) (int .Values.service.port)) }}
{{- $problems = append $problems (printf "config.webhook.config.clientConfig.service.port is %d, but the Service of this chart has %d: leave it out, or set service.port" (int $service.port) (int .Values.service.port)) }}
{{- end }}
{{- $bundles := dict "config.webhook.config.clientConfig.caBundle" $client.caBundle }}
{{- if eq .Values.certificates.source "secret" }}
{{- $_ := set $bundles "certificates.secret.caBundle" .Values.certificates.secret.caBundle }}
{{- end }}
{{- range $where := keys $bundles | sortAlpha }}
{{- with get $bundles $where }}
{{- if not (contains "-----BEGIN CERTIFICATE-----" (regexReplaceAll "\\s" . "" | b64dec)) }}
{{- $problems = append $problems (printf "%s is not the base64 of a PEM file with certificates: write what `base64 -w0 ca.crt` prints" $where) }}
{{- end }}
{{- end }}
{{- end }}
{{- toJson $problems }}
{{- end }}

{{/* Leases of which two replicas could hold one, as a JSON list of problems. */}}
{{- define "sharder.electionProblems" -}}
{{- $problems := list }}
{{- $given := dict }}
{{- range $name, $default := dict "leaseDuration" "15s" "renewDeadline" "10s" }}
{{- $value := dig "leaderElection" $name "" $.Values.config }}
{{- $_ := set $given $name (ternary $value $default (and (ne $value "") (gt (include "sharder.seconds" (default "0s" $value) | float64) 0.0))) }}
{{- end }}
{{- if ge (include "sharder.seconds" $given.renewDeadline | float64) (include "sharder.seconds" $given.leaseDuration | float64) }}
{{- $problems = append $problems (printf "config.leaderElection.renewDeadline is %s, no shorter than leaseDuration, %s, so that two replicas could lead at once: make it about two thirds of that" $given.renewDeadline $given.leaseDuration) }}
{{- end }}
{{- toJson $problems }}
{{- end }}

{{/* Ports that would meet, as a JSON list of problems. */}}
{{- define "sharder.portProblems" -}}
{{- $problems := list }}
{{- $taken := dict }}
{{- $ports := dict "config.health.bindAddress" (include "sharder.port" (include "sharder.healthAddress" .)) }}
{{- with include "sharder.metricsAddress" . }}
{{- $_ := set $ports "config.metrics.bindAddress" (include "sharder.port" .) }}
{{- if and (include "sharder.webhookPort" $) (eq (int $.Values.service.port) 8080) }}
{{- $problems = append $problems "service.port is 8080, at which the Service has the metrics: use another one for the webhook" }}
{{- end }}
{{- end }}
{{- with include "sharder.webhookPort" . }}
{{- $_ := set $ports "config.webhook.server.port" . }}
{{- end }}
{{- range $name := keys $ports | sortAlpha }}
{{- $port := get $ports $name }}
{{- if gt (int $port) 65535 }}
{{- $problems = append $problems (printf "%s has port %s: use one of 1 to 65535" $name $port) }}
{{- end }}
{{- if and $port (hasKey $taken $port) }}
{{- $problems = append $problems (printf "%s and %s both have port %s: change one of them" (get $taken $port) $name $port) }}
{{- end }}
{{- $_ := set $taken $port $name }}
{{- end }}
{{- toJson $problems }}
{{- end }}

{{/* Labels and annotations of the values that are the chart's own, and would be there twice; a JSON list of problems. */}}
{{- define "sharder.labelProblems" -}}
{{- $problems := list }}
{{- if hasKey (default dict .Values.podAnnotations) "checksum/config" }}
{{- $problems = append $problems "podAnnotations has checksum/config, an annotation that the chart sets itself: leave it out" }}
{{- end }}
{{- $labels := dict
  "podLabels" .Values.podLabels
  "hooks.podLabels" .Values.hooks.podLabels
  "metrics.serviceMonitor.labels" .Values.metrics.serviceMonitor.labels
  "metrics.prometheusRule.labels" .Values.metrics.prometheusRule.labels
  "metrics.dashboard.labels" .Values.metrics.dashboard.labels
}}
{{- range $where := keys $labels | sortAlpha }}
{{- $own := include (ternary "sharder.podLabels" "sharder.labels" (hasSuffix "podLabels" $where)) $ | fromYaml }}
{{- range $label := keys (get $labels $where) | sortAlpha }}
{{- if hasKey $own $label }}
{{- $problems = append $problems (printf "%s has %s, a label that the chart sets itself: leave it out" $where $label) }}
{{- end }}
{{- end }}
{{- end }}
{{- toJson $problems }}
{{- end }}
