{{/* What each container finds in its environment. Every name is one its program reads: tests/helm compares them. */}}

{{/* A URL from the user's Secret, or from ours: (dict "root" $ "store" "redis" "variable" "REDIS_URL"). */}}
{{- define "tideq.storeUrl" -}}
{{- $store := get .root.Values .store -}}
- name: {{ .variable }}
  valueFrom:
    secretKeyRef:
      {{- if $store.existingSecret }}
      name: {{ $store.existingSecret }}
      key: {{ $store.existingSecretKey }}
      {{- else }}
      name: {{ include "tideq.fullname" .root }}-stores
      key: {{ .store }}-url
      {{- end }}
{{- end }}

{{- define "tideq.stores" -}}
{{ include "tideq.storeUrl" (dict "root" . "store" "redis" "variable" "REDIS_URL") }}
{{ include "tideq.storeUrl" (dict "root" . "store" "postgres" "variable" "DATABASE_URL") }}
{{- end }}

{{/* Names are the program's own: the same as outside of Kubernetes. */}}
{{- define "tideq.telemetry" -}}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: POD_IP
  valueFrom: {fieldRef: {fieldPath: status.podIP}}
- name: NODE_NAME
  valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
- name: OTEL_RESOURCE_ATTRIBUTES
  {{- $attributes := list "host.name=$(NODE_NAME)" "k8s.pod.name=$(POD_NAME)" "k8s.node.name=$(NODE_NAME)" (printf "k8s.namespace.name=%s" .Release.Namespace) (printf "service.version=%s" .Chart.AppVersion) }}
  {{- range $name, $value := .Values.otel.resourceAttributes }}
  {{- $attributes = append $attributes (printf "%s=%s" $name $value) }}
  {{- end }}
  value: {{ join "," $attributes | quote }}
{{- with .Values.otel }}
{{- if .endpoint }}
- name: OTEL_EXPORTER_OTLP_ENDPOINT
  value: {{ .endpoint | quote }}
- name: OTEL_EXPORTER_OTLP_PROTOCOL
  value: {{ .protocol | quote }}
{{- if .sampler }}
- name: OTEL_TRACES_SAMPLER
  value: {{ .sampler | quote }}
- name: OTEL_TRACES_SAMPLER_ARG
  value: {{ .ratio | quote }}
{{- end }}
{{- if .headersSecret }}
- name: OTEL_EXPORTER_OTLP_HEADERS
  valueFrom:
    secretKeyRef:
      name: {{ .headersSecret }}
      key: headers
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* A role's key, for whoever calls the service: (dict "root" $ "role" "worker"). */}}
{{- define "tideq.caller" -}}
- name: TIDEQ_URL
  value: {{ include "tideq.apiUrl" .root }}
- name: TIDEQ_API_KEY
  valueFrom:
    secretKeyRef:
      name: {{ include "tideq.keysSecret" .root }}
      key: {{ .role }}
{{- end }}

{{/* The user's variables, last: (dict "root" $ "options" $options). */}}
{{- define "tideq.extraEnv" -}}
{{- range concat .root.Values.extraEnv (.options.extraEnv | default list) }}
- {{ toYaml . | nindent 2 | trim }}
{{- end }}
{{- end }}
