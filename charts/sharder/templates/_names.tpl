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

{{/* Nothing that another version of the chart would change: that would replace every pod. */}}
{{- define "sharder.podLabels" -}}
{{ include "sharder.selectorLabels" . }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/part-of: controller-sharding
{{- end }}

{{- define "sharder.commonLabels" -}}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/part-of: controller-sharding
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | quote }}
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

{{/*
What may carry the labels of the cluster's ring of that name, as a JSON list: of a resource that is taken off a ring they
have to be removed, so whoever may touch it must not lose that in the same upgrade. Of these alone what the ring's role
allows already: whoever writes the status must not grant itself more by it. Nothing where Helm only renders. Helm itself
reads ring and role when it upgrades them, so this takes no right besides.
*/}}
{{- define "sharder.placedResources" -}}
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
{{- define "sharder.fixedProblems" -}}
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
Rings of this release that would be deleted while they have shards; a JSON list of problems. Shards go on with what they
have, and those of a ring over the same resources, such as this one under another name, would work on it too. Which rings
the release has its Deployment says: Helm reads both, so this takes no right besides.
*/}}
{{- define "sharder.removedProblems" -}}
{{- $problems := list }}
{{- if and .Release.IsUpgrade (.Capabilities.APIVersions.Has "sharding.timebertt.dev/v1alpha1/ClusterRing") }}
{{- $deployment := lookup "apps/v1" "Deployment" .Release.Namespace (include "sharder.name" .) }}
{{- range $name := dig "metadata" "annotations" "alpha.sharding.timebertt.dev/clusterrings" "" $deployment | splitList "," | compact }}
{{- if not (hasKey (default dict $.Values.rings) $name) }}
{{- $ring := lookup "sharding.timebertt.dev/v1alpha1" "ClusterRing" "" $name }}
{{- $shards := dig "status" "availableShards" 0 $ring | int }}
{{- if and $shards (ne (dig "metadata" "annotations" "helm.sh/resource-policy" "" $ring) "keep") }}
{{- $problems = append $problems (printf "rings has no %s any more, but that ring has %d shards, which go on with its objects beside those of any other ring: stop them first, or leave it in; where somebody else is to declare it, have Helm keep it and its role (kubectl annotate clusterring/%s clusterrole/sharding:clusterring:%s clusterrolebinding/sharding:clusterring:%s helm.sh/resource-policy=keep); if nobody counts its shards any more, kubectl delete clusterring %s" $name $shards $name $name $name $name) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- toJson $problems }}
{{- end }}

{{/* A ring's resources, each with its group: what the API server fills in, Argo CD takes for a difference. */}}
{{- define "sharder.resources" -}}
{{- $all := list }}
{{- range . }}
{{- $each := set (merge dict .) "group" (default "" .group) }}
{{- with .controlledResources }}
{{- $_ := set $each "controlledResources" (include "sharder.resources" . | fromYamlArray) }}
{{- end }}
{{- $all = append $all $each }}
{{- end }}
{{- toYaml $all }}
{{- end }}
