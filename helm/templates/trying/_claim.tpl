{{/* (dict "store" .Values.valkey) */}}
{{- define "tideq.claim" -}}
{{- with .store.persistence }}
{{- if .enabled }}
volumeClaimTemplates:
  - metadata:
      name: data
    spec:
      accessModes: [ReadWriteOnce]
      {{- with .storageClass }}
      storageClassName: {{ . }}
      {{- end }}
      resources:
        requests:
          storage: {{ .size }}
{{- end }}
{{- end }}
{{- end }}
