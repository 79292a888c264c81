{{/*
A hook Job with an identity of its own: a ServiceAccount, what it may do, and the Job, gone again when it has succeeded.
Takes root, name, events, args, clusterRules, rules (in the release's namespace).
*/}}
{{- define "sharder.hook" -}}
{{- $root := .root }}
{{- $annotations := dict
  "helm.sh/hook" .events
  "helm.sh/hook-weight" "-10"
  "helm.sh/hook-delete-policy" "before-hook-creation,hook-succeeded"
}}
{{- $metadata := dict
  "name" .name
  "labels" (merge (dict "app.kubernetes.io/name" "sharder" "app.kubernetes.io/component" "hook") (include "sharder.commonLabels" $root | fromYaml))
  "annotations" $annotations
}}
{{- $inNamespace := merge (dict "namespace" $root.Release.Namespace) $metadata }}
{{- $subjects := list (dict "kind" "ServiceAccount" "name" .name "namespace" $root.Release.Namespace) }}
apiVersion: v1
kind: ServiceAccount
metadata:
  {{- toYaml $inNamespace | nindent 2 }}
automountServiceAccountToken: false
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  {{- toYaml $metadata | nindent 2 }}
rules:
  {{- toYaml .clusterRules | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  {{- toYaml $metadata | nindent 2 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {{ .name | quote }}}
subjects:
  {{- toYaml $subjects | nindent 2 }}
{{- with .rules }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  {{- toYaml $inNamespace | nindent 2 }}
rules:
  {{- toYaml . | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  {{- toYaml $inNamespace | nindent 2 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: {{ $.name | quote }}}
subjects:
  {{- toYaml $subjects | nindent 2 }}
{{- end }}
{{- if $root.Values.networkPolicy.enabled }}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  {{- toYaml $inNamespace | nindent 2 }}
spec:
  podSelector:
    matchLabels: {app.kubernetes.io/name: sharder, app.kubernetes.io/component: hook}
  policyTypes: [Ingress, Egress]
  ingress: []
  egress:
    {{- include "sharder.egress" $root | trim | nindent 2 }}
{{- end }}
---
{{- $_ := set $annotations "helm.sh/hook-weight" "0" }}
apiVersion: batch/v1
kind: Job
metadata:
  {{- toYaml $inNamespace | nindent 2 }}
spec:
  backoffLimit: 3
  {{- if not (kindIs "invalid" $root.Values.hooks.activeDeadlineSeconds) }}
  activeDeadlineSeconds: {{ $root.Values.hooks.activeDeadlineSeconds }}
  {{- end }}
  template:
    metadata:
      labels:
        app.kubernetes.io/name: sharder
        app.kubernetes.io/component: hook
        {{- with merge dict (default dict $root.Values.hooks.podLabels) (default dict $root.Values.podLabels) }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- with merge dict (default dict $root.Values.hooks.podAnnotations) (default dict $root.Values.podAnnotations) }}
      annotations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    spec:
      serviceAccountName: {{ .name | quote }}
      automountServiceAccountToken: true
      enableServiceLinks: false
      restartPolicy: Never
      {{- with $root.Values.imagePullSecrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $root.Values.priorityClassName }}
      priorityClassName: {{ . | quote }}
      {{- end }}
      securityContext:
        {{- toYaml $root.Values.podSecurityContext | nindent 8 }}
      containers:
      - name: sharder
        image: {{ include "sharder.image" $root | quote }}
        imagePullPolicy: {{ $root.Values.image.pullPolicy }}
        args:
          {{- toYaml .args | nindent 10 }}
        resources:
          {{- toYaml $root.Values.hooks.resources | nindent 10 }}
        securityContext:
          {{- toYaml $root.Values.securityContext | nindent 10 }}
        volumeMounts:
        - {name: tmp, mountPath: /tmp}
      volumes:
      - name: tmp
        emptyDir: {sizeLimit: 16Mi}
      {{- with $root.Values.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $root.Values.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with pick (default dict $root.Values.affinity) "nodeAffinity" }}
      affinity:
        {{- /* What keeps replicas apart is not for a Job: it would find no node where each has one of them. */}}
        {{- toYaml . | nindent 8 }}
      {{- end }}
{{- end }}
