{{- define "sharded-controller.name" -}}
{{ .Values.name | default .Release.Name }}
{{- end }}

{{- define "sharded-controller.ring" -}}
{{ .Values.ring.name | default (include "sharded-controller.name" .) }}
{{- end }}

{{- define "sharded-controller.selectorLabels" -}}
app.kubernetes.io/name: {{ include "sharded-controller.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{/* Nothing that another version of the chart would change: that would replace every pod, and move objects. */}}
{{- define "sharded-controller.podLabels" -}}
{{ include "sharded-controller.selectorLabels" . }}
app.kubernetes.io/component: shard
{{- end }}

{{- define "sharded-controller.labels" -}}
{{ include "sharded-controller.podLabels" . }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | quote }}
{{- end }}

{{/* As the CRD has it where the values do not say, as those of an older chart. */}}
{{- define "sharded-controller.assignment" -}}
{{ .Values.ring.assignment | default "Labels" }}
{{- end }}

{{- define "sharded-controller.hashBy" -}}
{{ .Values.ring.hashBy | default "Namespace" }}
{{- end }}

{{/*
What may carry the labels of the cluster's ring of that name, as a JSON list: of a resource that is taken off a ring they
have to be removed, so whoever may touch it must not lose that in the same upgrade. Of these alone what the ring's role
allows already: whoever writes the status must not grant itself more by it. Nothing where Helm only renders. Helm itself
reads ring and role when it upgrades them, so this takes no right besides.
*/}}
{{- define "sharded-controller.placedResources" -}}
{{- $placed := list }}
{{- if .root.Capabilities.APIVersions.Has "sharding.timebertt.dev/v1alpha1/ClusterRing" }}
{{- $role := lookup "rbac.authorization.k8s.io/v1" "ClusterRole" "" (printf "sharding:clusterring:%s" .ring) }}
{{- range $each := dig "status" "placedResources" list (lookup "sharding.timebertt.dev/v1alpha1" "ClusterRing" "" .ring) }}
{{- range $rule := default list (get $role "rules") }}
{{- if and (has (default "" $each.group) (default list $rule.apiGroups)) (has $each.resource (default list $rule.resources)) }}
{{- $placed = append $placed $each }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- toJson $placed }}
{{- end }}

{{/*
What may not change of the cluster's ring of that name, and would; a JSON list of problems. The API server refuses that as
well, but only after Helm has written the roles of the new way, with which the ring as it is does not work.
*/}}
{{- define "sharded-controller.fixedProblems" -}}
{{- $problems := list }}
{{- if .root.Capabilities.APIVersions.Has "sharding.timebertt.dev/v1alpha1/ClusterRing" }}
{{- with dig "spec" dict (lookup "sharding.timebertt.dev/v1alpha1" "ClusterRing" "" .ring) }}
{{- $is := .assignment | default "Labels" }}
{{- if ne $is $.assignment }}
{{- $problems = append $problems (printf "%s.assignment is %s, but the ring %s on the cluster has %s, which cannot be changed: keep it, or stop the ring's shards, delete the ring, and install again" $.where $.assignment $.ring $is) }}
{{- else if ne (default "" .hashBy) $.hashBy }}
{{- $problems = append $problems (printf "%s.hashBy is %s, but the ring %s on the cluster has %s, which cannot be changed: keep it, or stop the ring's shards, delete the ring, and install again" $.where $.hashBy $.ring .hashBy) }}
{{- end }}
{{- end }}
{{- end }}
{{- toJson $problems }}
{{- end }}

{{/*
The Deployment or StatefulSet that is there for this one, as a JSON list: the one of its name, which Helm reads anyway.
Where there is none, its name or kind has changed, and all of the namespace are listed, which Helm needs no right for. A
release may hold the chart several times, under an alias each.
*/}}
{{- define "sharded-controller.live" -}}
{{- $found := list }}
{{- $named := lookup "apps/v1" .Values.kind .Release.Namespace (include "sharded-controller.name" .) }}
{{- range $kind := list .Values.kind (ternary "Deployment" "StatefulSet" (eq .Values.kind "StatefulSet")) }}
{{- if not (or $named $found) }}
{{- range dig "items" list (lookup "apps/v1" $kind $.Release.Namespace "") }}
{{- $labels := default dict .metadata.labels }}
{{- if and (eq (get $labels "app.kubernetes.io/instance") $.Release.Name) (regexMatch (printf "^%s-[0-9]+[.]" $.Chart.Name) (get $labels "helm.sh/chart")) }}
{{- $found = append $found (set . "kind" $kind) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- toJson (ternary (list $named) $found (not (empty $named))) }}
{{- end }}

{{/*
Shards of this release that run, and whose ring would get another name or be deleted; a JSON list of problems. While their
pods are replaced one by one, those of both rings would work on one object; without a ring nobody gives them any. Deployments
count no pods that are about to end where Kubernetes is older than 1.35, hence the command that waits for them.
*/}}
{{- define "sharded-controller.ring.checkRenamed" -}}
{{- $problems := list }}
{{- $ring := include "sharded-controller.ring" . }}
{{- $live := list }}
{{- if and .Release.IsUpgrade (ne (toString .Values.ring.checkRenamed) "false") }}
{{- $live = include "sharded-controller.live" . | fromJsonArray }}
{{- end }}
{{- range $live }}
{{- $is := get (default dict .metadata.labels) "alpha.sharding.timebertt.dev/clusterring" }}
{{- $pods := add (dig "spec" "replicas" 1 .) (dig "status" "replicas" 0 .) (dig "status" "terminatingReplicas" 0 .) }}
{{- if and $is (ne $is $ring) (gt (int $pods) 0) }}
{{- $selector := list }}
{{- range $label, $value := .spec.selector.matchLabels }}
{{- $selector = append $selector (printf "%s=%s" $label $value) }}
{{- end }}
{{- $stop := printf "kubectl -n %s scale %s/%s --replicas=0" $.Release.Namespace (lower .kind) .metadata.name }}
{{- $wait := printf "kubectl -n %s wait --for=delete pod -l %s --timeout=5m" $.Release.Namespace (join "," $selector) }}
{{- $again := ternary "; replicas is empty, so scale up again after that: an autoscaler leaves 0 as it is" "" (empty (toString $.Values.replicas)) }}
{{- $problems = append $problems (printf "the ring would be %s, but the shards of %s %s work for ring %s, and those of both rings would work on the same objects while they are replaced: keep ring.name %s, or stop them first (%s), wait until the last pod is gone (%s), and upgrade then%s" $ring .kind .metadata.name $is $is $stop $wait $again) }}
{{- else if and $is (gt (int $pods) 0) (not $.Values.ring.create) (hasKey (default dict .metadata.annotations) "alpha.sharding.timebertt.dev/declares-clusterring") ($.Capabilities.APIVersions.Has "sharding.timebertt.dev/v1alpha1/ClusterRing") }}
{{- $declared := lookup "sharding.timebertt.dev/v1alpha1" "ClusterRing" "" $ring }}
{{- if and $declared (ne (dig "metadata" "annotations" "helm.sh/resource-policy" "" $declared) "keep") }}
{{- $problems = append $problems (printf "ring.create is false, but the ring %s came with this release, so that Helm would delete it and its role while the shards of %s %s work for it: have Helm keep them (kubectl annotate clusterring/%s clusterrole/sharding:clusterring:%s clusterrolebinding/sharding:clusterring:%s helm.sh/resource-policy=keep), and upgrade then" $ring .kind .metadata.name $ring $ring $ring) }}
{{- end }}
{{- end }}
{{- end }}
{{- toJson $problems }}
{{- end }}

{{/* A ring's resources, each with its group: what the API server fills in, Argo CD takes for a difference. */}}
{{- define "sharded-controller.resources" -}}
{{- $all := list }}
{{- range . }}
{{- $each := set (merge dict .) "group" (default "" .group) }}
{{- with .controlledResources }}
{{- $_ := set $each "controlledResources" (include "sharded-controller.resources" . | fromYamlArray) }}
{{- end }}
{{- $all = append $all $each }}
{{- end }}
{{- toYaml $all }}
{{- end }}

{{/* What values.schema.json cannot say. */}}
{{- define "sharded-controller.check" -}}
{{- $problems := list }}
{{- if not .Values.image.repository }}
{{- $problems = append $problems "image.repository is missing: say where your controller's image is" }}
{{- end }}
{{- if not (or .Values.image.tag .Values.image.digest) }}
{{- $problems = append $problems "image.tag is missing: say which image, by tag or digest" }}
{{- end }}
{{- if and .Values.ring.create (not .Values.ring.resources) }}
{{- $problems = append $problems "ring.resources is empty: list what the controller works on, or set ring.create to false" }}
{{- end }}
{{- $ring := include "sharded-controller.ring" . }}
{{- if or (gt (len $ring) 63) (regexMatch "[-.]$" (trunc 42 $ring)) }}
{{- $problems = append $problems (printf "the ring's name %s is too long, or its first 42 characters end in a dot or dash, so that no label can be made of it: set ring.name" $ring) }}
{{- end }}
{{- if not (regexMatch "^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$" $ring) }}
{{- $problems = append $problems (printf "the ring's name %s is none for a ClusterRing: set ring.name, of lower-case letters, digits, dashes and dots, beginning and ending with a letter or digit" $ring) }}
{{- end }}
{{- if .Values.ring.create }}
{{- $assignment := include "sharded-controller.assignment" . }}
{{- $hashBy := ternary (include "sharded-controller.hashBy" .) "" (eq $assignment "Ranges") }}
{{- $fixed := dict "root" . "ring" $ring "where" "ring" "assignment" $assignment "hashBy" $hashBy }}
{{- $problems = concat $problems (include "sharded-controller.fixedProblems" $fixed | fromJsonArray) }}
{{- end }}
{{- $problems = concat $problems (include "sharded-controller.ring.checkRenamed" . | fromJsonArray) }}
{{- $name := include "sharded-controller.name" . }}
{{- if gt (len $name) 52 }}
{{- $problems = append $problems (printf "the name %s is too long for shards to be named after it: set name, up to 52 characters" $name) }}
{{- end }}
{{- if and (eq .Values.kind "StatefulSet") (not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $name)) }}
{{- $problems = append $problems (printf "the name %s is none for the Service of a StatefulSet: set name, of lower-case letters, digits and dashes, beginning with a letter" $name) }}
{{- end }}
{{- if and .Values.podMonitor.enabled (not .Values.ports.metrics) }}
{{- $problems = append $problems "podMonitor is enabled, but ports.metrics is 0, so that there is nothing to read: change one of them" }}
{{- end }}
{{- $labels := dict "podLabels" .Values.podLabels "podMonitor.labels" .Values.podMonitor.labels }}
{{- range $where := keys $labels | sortAlpha }}
{{- $own := include (ternary "sharded-controller.podLabels" "sharded-controller.labels" (eq $where "podLabels")) $ | fromYaml }}
{{- range $label := keys (get $labels $where) | sortAlpha }}
{{- if hasKey $own $label }}
{{- $problems = append $problems (printf "%s has %s, a label that the chart sets itself: leave it out" $where $label) }}
{{- end }}
{{- end }}
{{- end }}
{{- if $problems }}
{{- fail (printf "\n\n* %s\n" (join "\n* " $problems)) }}
{{- end }}
{{- end }}
