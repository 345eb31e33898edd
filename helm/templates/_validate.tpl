{{/* What the schema cannot see: values that contradict each other. Each sentence says what to do. */}}

{{- define "tideq.validate" -}}
{{- include "tideq.validateStore" (dict "root" . "store" "redis" "bundled" "valkey") }}
{{- include "tideq.validateStore" (dict "root" . "store" "postgres" "bundled" "postgresql") }}
{{- include "tideq.validateUrls" . }}
{{- include "tideq.validateKeys" . }}
{{- include "tideq.validateApi" . }}
{{- range $set, $own := .Values.workers }}
{{- include "tideq.validateWorkers" (dict "set" $set "options" (include "tideq.workerOptions" (dict "root" $ "own" $own) | fromYaml)) }}
{{- end }}
{{- if and .Values.metrics.rules.enabled (not (.Files.Get "files/alerts.yaml")) }}
{{- fail "\n\nmetrics.rules.enabled is on, but this copy of the chart has no files/alerts.yaml. Turn it off, or take the whole chart." }}
{{- end }}
{{- end }}

{{- define "tideq.validateStore" -}}
{{- $own := get .root.Values .store -}}
{{- $bundled := get .root.Values .bundled -}}
{{- $sources := list -}}
{{- if $bundled.enabled }}{{ $sources = append $sources (printf "%s.enabled" .bundled) }}{{ end -}}
{{- if $own.existingSecret }}{{ $sources = append $sources (printf "%s.existingSecret" .store) }}{{ end -}}
{{- if $own.url }}{{ $sources = append $sources (printf "%s.url" .store) }}{{ end -}}
{{- if not $sources }}
{{- fail (printf "\n\nThere is no store: set %s.existingSecret (a Secret with its URL), %s.url, or %s.enabled=true to try TideQ out." .store .store .bundled) }}
{{- end }}
{{- if gt (len $sources) 1 }}
{{- fail (printf "\n\nThere are two stores: %s. Keep one; with a store of your own set %s.enabled=false." (join " and " $sources) .bundled) }}
{{- end }}
{{- if gt (int $bundled.replicas) 1 }}
{{- fail (printf "\n\n%s.replicas is %d, but the bundled store does not replicate. Leave it at 1, or run a store of your own and name it by %s.existingSecret." .bundled (int $bundled.replicas) .store) }}
{{- end }}
{{- if and $own.caSecret $bundled.enabled }}
{{- fail (printf "\n\n%s.caSecret is for a store of your own, and the bundled one speaks no TLS. Unset it, or set %s.enabled=false." .store .bundled) }}
{{- end }}
{{- end }}

{{- define "tideq.validateUrls" -}}
{{- $url := .Values.redis.url -}}
{{- if and (regexMatch "^rediss?\\+sentinel://" $url) (not (regexMatch "^rediss?\\+sentinel://[^/?]+/[^/?]+" $url)) }}
{{- fail "\n\nredis.url names sentinels but not what they watch. Let it end with the service's name: redis+sentinel://a:26379,b:26379/mymaster/0." }}
{{- end }}
{{- if and $url .Values.redis.caSecret (not (hasPrefix "rediss" $url)) }}
{{- fail "\n\nredis.caSecret is set, but redis.url does not use TLS. Begin it with rediss://, or unset redis.caSecret." }}
{{- end }}
{{- if and $url .Values.redis.caSecret (not (contains "ssl_ca_certs=" $url)) }}
{{- fail "\n\nredis.caSecret is mounted but not used. Let redis.url end with ?ssl_ca_certs=/etc/tideq/redis-ca/ca.crt." }}
{{- end }}
{{- range $store := list "redis" "postgres" }}
{{- if regexMatch "^[a-z+]+://[^/@]*:[^/@]+@" (get $.Values $store).url }}
{{- fail (printf "\n\n%s.url holds a password, and values are readable to whoever can read the release. Put the URL into a Secret and name it: %s.existingSecret." $store $store) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "tideq.validateKeys" -}}
{{- if not (or .Values.auth.generate .Values.auth.existingSecret) }}
{{- fail "\n\nThere are no keys, and the service does not listen without: set auth.existingSecret to a Secret with a key for each role, or auth.generate=true." }}
{{- end }}
{{- end }}

{{- define "tideq.validateApi" -}}
{{- $options := include "tideq.options" (dict "root" . "own" .Values.api) | fromYaml -}}
{{- $needed := add (int $options.preStopSeconds) 5 -}}
{{- $grace := include "tideq.apiGrace" (dict "options" $options) | int -}}
{{- if le $grace (int $needed) }}
{{- fail (printf "\n\napi.terminationGracePeriodSeconds is %d, but the API takes up to %d s to stop (api.preStopSeconds and 5 s for what is under way). Raise it above that, or leave it null." $grace $needed) }}
{{- end }}
{{- if and $options.hpa.enabled (gt (int $options.hpa.minReplicas) (int $options.hpa.maxReplicas)) }}
{{- fail "\n\napi.hpa.minReplicas is greater than api.hpa.maxReplicas. Swap them." }}
{{- end }}
{{- if and .Values.ingress.enabled (not .Values.ingress.hosts) }}
{{- fail "\n\ningress.enabled is on without a name to answer to. Set ingress.hosts." }}
{{- end }}
{{- if and .Values.httpRoute.enabled (not .Values.httpRoute.parentRefs) }}
{{- fail "\n\nhttpRoute.enabled is on without a gateway. Set httpRoute.parentRefs, for example [{name: my-gateway}]." }}
{{- end }}
{{- if le (int .Values.httpRoute.requestTimeoutSeconds) 30 }}
{{- fail "\n\nhttpRoute.requestTimeoutSeconds would cut long polls off, which take up to 30 s. Set it above 30." }}
{{- end }}
{{- end }}

{{- define "tideq.validateWorkers" -}}
{{- $at := printf "workers.%s" .set -}}
{{- with .options -}}
{{- if not .handlers }}
{{- fail (printf "\n\n%s has no handlers. Set %s.handlers to the modules of your application that have them." $at $at) }}
{{- end }}
{{- $grace := include "tideq.workerGrace" (dict "options" .) | int -}}
{{- if lt $grace (add (int .drainSeconds) 5 | int) }}
{{- fail (printf "\n\n%s.terminationGracePeriodSeconds is %d, but its tasks may take %d s to finish and 5 s more to report: they would be killed. Raise it to %d, lower %s.drainSeconds, or leave it null." $at $grace (int .drainSeconds) (add (int .drainSeconds) 15) $at) }}
{{- end }}
{{- if and .hpa.enabled .keda.enabled }}
{{- fail (printf "\n\n%s has both hpa and keda on, which would scale against each other. Turn %s.hpa.enabled or %s.keda.enabled off." $at $at $at) }}
{{- end }}
{{- range $kind := list "hpa" "keda" }}
{{- $scaler := get $.options $kind }}
{{- if and $scaler.enabled (gt (int $scaler.minReplicas) (int $scaler.maxReplicas)) }}
{{- fail (printf "\n\n%s.%s.minReplicas is greater than %s.%s.maxReplicas. Swap them." $at $kind $at $kind) }}
{{- end }}
{{- end }}
{{- if and (eq (int .hpa.minReplicas) 0) .hpa.enabled }}
{{- fail (printf "\n\n%s.hpa.minReplicas is 0, which an HPA cannot do. Use keda to let the last pod go." $at) }}
{{- end }}
{{- if and .image.repository (not (or .image.tag .image.digest)) }}
{{- fail (printf "\n\n%s.image has a repository of your own without a version of its own. Set %s.image.tag or %s.image.digest." $at $at $at) }}
{{- end }}
{{- end }}
{{- end }}
