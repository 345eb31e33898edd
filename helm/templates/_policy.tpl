{{/* Parts of the network policies. */}}

{{- define "tideq.policyHead" -}}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  {{- include "tideq.metadata" (dict "root" .root "component" .component "name" (printf "%s-%s" (include "tideq.fullname" .root) .component)) | nindent 2 }}
spec:
  podSelector:
    matchLabels:
      {{- include "tideq.selector" . | nindent 6 }}
  policyTypes: [Ingress, Egress]
{{- end }}

{{- define "tideq.policyPeer" -}}
- podSelector:
    matchLabels:
      {{- include "tideq.selector" . | nindent 6 }}
{{- end }}

{{- define "tideq.policyPorts" -}}
ports:
  {{- range . }}
  - {protocol: TCP, port: {{ . }}}
  {{- end }}
{{- end }}

{{- define "tideq.policyBasics" -}}
# DNS
- ports:
    - {protocol: UDP, port: 53}
    - {protocol: TCP, port: 53}
{{- with .Values.otel.endpoint }}
# telemetry
- ports:
    - {protocol: TCP, port: {{ regexFind ":[0-9]+$" (urlParse .).host | trimPrefix ":" | default (ternary "443" "4318" (hasPrefix "https" .)) }}}
{{- end }}
{{- with .Values.networkPolicy.extraEgress }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "tideq.policyStores" -}}
{{- range $store := list (dict "own" "redis" "bundled" "valkey" "port" 6379) (dict "own" "postgres" "bundled" "postgresql" "port" 5432) }}
{{- if (get $.Values $store.bundled).enabled }}
- to:
    {{- include "tideq.policyPeer" (dict "root" $ "component" $store.bundled) | nindent 4 }}
  {{- include "tideq.policyPorts" (list $store.port) | nindent 2 }}
{{- else }}
- {{ include "tideq.policyPorts" (get $.Values.networkPolicy (printf "%sPorts" $store.own)) | nindent 2 | trim }}
{{- end }}
{{- end }}
{{- end }}
