{{/* How long a pod may take to stop. The numbers are the program's: tests/helm compares them with its own. */}}

{{/* After SIGTERM the API answers waiting polls at once and gives the rest 5 s; 10 more to close. */}}
{{- define "tideq.apiGrace" -}}
{{- .options.terminationGracePeriodSeconds | default (add (int .options.preStopSeconds) 5 10) }}
{{- end }}

{{/* Both stop at once; the replicator may have a batch to commit. */}}
{{- define "tideq.monitorGrace" -}}
{{- .options.terminationGracePeriodSeconds | default 20 }}
{{- end }}

{{- define "tideq.replicatorGrace" -}}
{{- .options.terminationGracePeriodSeconds | default 60 }}
{{- end }}

{{/* A worker drains, hands back what is left, and ends within 5 s whatever hangs; 10 more to be sure. */}}
{{- define "tideq.workerGrace" -}}
{{- .options.terminationGracePeriodSeconds | default (add (int .options.drainSeconds) 15) }}
{{- end }}
