{{/* Names, labels and images. Selectors are immutable, so they hold only name, instance and component. */}}

{{- define "tideq.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* Short enough that what is added to it stays below the 63 characters of a label. */}}
{{- define "tideq.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- else if contains (include "tideq.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "tideq.name" .) | trunc 40 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* Of one component: (dict "root" $ "component" "api"). */}}
{{- define "tideq.selector" -}}
app.kubernetes.io/name: {{ include "tideq.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "tideq.labels" -}}
{{ include "tideq.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: tideq
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* name, namespace and labels: (dict "root" $ "component" "api" "name" "…-api"). */}}
{{- define "tideq.metadata" -}}
name: {{ .name }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "tideq.labels" . | nindent 2 }}
{{- end }}

{{/* (dict "root" $ "image" …). Ours has the chart's version where it has no tag. */}}
{{- define "tideq.image" -}}
{{- $name := list .root.Values.global.imageRegistry .image.repository | compact | join "/" -}}
{{- if .image.digest -}}
{{ $name }}@{{ .image.digest }}
{{- else -}}
{{ $name }}:{{ .image.tag | default .root.Chart.AppVersion }}
{{- end }}
{{- end }}

{{- define "tideq.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default (include "tideq.fullname" .) }}
{{- else -}}
{{ .Values.serviceAccount.name | default "default" }}
{{- end }}
{{- end }}

{{- define "tideq.apiName" -}}
{{ include "tideq.fullname" . }}-api
{{- end }}

{{- define "tideq.apiUrl" -}}
http://{{ include "tideq.apiName" . }}.{{ .Release.Namespace }}.svc:{{ .Values.service.port }}
{{- end }}

{{- define "tideq.keysSecret" -}}
{{ .Values.auth.existingSecret | default (printf "%s-keys" (include "tideq.fullname" .)) }}
{{- end }}

{{/* A role's options over the defaults of all pods: (dict "root" $ "own" .Values.api). Null means "work it out". */}}
{{- define "tideq.options" -}}
{{- mergeOverwrite (deepCopy .root.Values.podDefaults) (deepCopy .own) | toYaml }}
{{- end }}

{{/* A worker set's options over those of all workers, over those of all pods. */}}
{{- define "tideq.workerOptions" -}}
{{- mergeOverwrite (deepCopy .root.Values.podDefaults) (deepCopy .root.Values.workerDefaults) (deepCopy (.own | default dict)) | toYaml }}
{{- end }}
