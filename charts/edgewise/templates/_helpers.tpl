{{- define "edgewise.name" -}}
{{- if contains "edgewise" .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-edgewise" .Release.Name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{/* Objects of the whole cluster are told apart by namespace, too. */}}
{{- define "edgewise.clusterName" -}}
{{- $name := include "edgewise.name" . -}}
{{- if eq $name .Release.Namespace }}{{ $name }}{{ else }}{{ printf "%s-%s" .Release.Namespace $name | trunc 63 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "edgewise.labels" -}}
app.kubernetes.io/name: edgewise
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{/* The controller's pod. */}}
{{- define "edgewise.selector" -}}
app.kubernetes.io/name: edgewise
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: controller
{{- end }}

{{- define "edgewise.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65534
runAsGroup: 65534
fsGroup: 65534
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "edgewise.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* Gateways, which the controller makes: pods of its own name for them. */}}
{{- define "edgewise.gateways" -}}
app.kubernetes.io/component: gateway
edgewise/owner: {{ include "edgewise.name" . }}
{{- end }}

{{- define "edgewise.probes" -}}
app.kubernetes.io/name: edgewise
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: probe
{{- end }}

{{- define "edgewise.modelsPort" -}}
9000
{{- end }}
