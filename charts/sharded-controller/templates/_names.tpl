{{- define "sharded-controller.name" -}}
{{ .Values.name | default .Release.Name }}
{{- end }}

{{- define "sharded-controller.ring" -}}
{{ .Values.ring.name | default (include "sharded-controller.name" .) }}
{{- end }}

{{- define "sharded-controller.selectorLabels" -}}
app.kubernetes.io/name: {{ include "sharded-controller.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "sharded-controller.labels" -}}
{{ include "sharded-controller.selectorLabels" . }}
app.kubernetes.io/component: shard
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
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
{{- if gt (len (include "sharded-controller.name" .)) 52 }}
{{- $problems = append $problems (printf "the name %s is too long for shards to be named after it: set name, up to 52 characters" (include "sharded-controller.name" .)) }}
{{- end }}
{{- if $problems }}
{{- fail (printf "\n\n* %s\n" (join "\n* " $problems)) }}
{{- end }}
{{- end }}
