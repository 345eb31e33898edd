{{/* One pod for all roles, so that what users may add and what security asks for reaches every one of them. */}}

{{- define "tideq.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* (dict "uid" 10001) */}}
{{- define "tideq.podSecurity" -}}
runAsNonRoot: true
runAsUser: {{ .uid }}
runAsGroup: {{ .uid }}
fsGroup: {{ .uid }}
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "tideq.volumes" -}}
- name: tmp
  emptyDir:
    sizeLimit: 64Mi
{{- range $store := list "redis" "postgres" }}
{{- with (get $.Values $store).caSecret }}
- name: {{ $store }}-ca
  secret:
    secretName: {{ . }}
{{- end }}
{{- end }}
{{- end }}

{{- define "tideq.mounts" -}}
- name: tmp
  mountPath: /tmp
{{- range $store := list "redis" "postgres" }}
{{- if (get $.Values $store).caSecret }}
- name: {{ $store }}-ca
  mountPath: /etc/tideq/{{ $store }}-ca
  readOnly: true
{{- end }}
{{- end }}
{{- end }}

{{/* What every pod has besides its containers: (dict "root" $ "uid" 10001). Service links would put variables like
     TIDEQ_API_PORT into the environment, which the service refuses as settings it does not know. */}}
{{- define "tideq.podBasics" -}}
serviceAccountName: {{ include "tideq.serviceAccountName" .root }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .root.Values.global.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
securityContext:
  {{- include "tideq.podSecurity" . | nindent 2 }}
{{- end }}

{{/* Where pods go: (dict "options" $options "selector" …). */}}
{{- define "tideq.placement" -}}
{{- with .options.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .options.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .options.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .options.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .options.topologySpread }}
topologySpreadConstraints:
  {{- range . }}
  - {{ toYaml . | nindent 4 | trim }}
    labelSelector:
      matchLabels:
        {{- $.selector | nindent 8 }}
    matchLabelKeys: [pod-template-hash]
  {{- end }}
{{- end }}
{{- end }}

{{/* Nobody starts before the schema is there. It only looks: the migration itself is the Job's. It waits as long as it
     takes: were it given up, the next try would be minutes away when the database is back. */}}
{{- define "tideq.waitForSchema" -}}
- name: wait-for-schema
  image: {{ include "tideq.image" (dict "root" . "image" .Values.image) }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  command: [tideq, migrate, status, --allow-newer, --wait, inf]
  env:
    {{- include "tideq.storeUrl" (dict "root" . "store" "postgres" "variable" "DATABASE_URL") | nindent 4 }}
  envFrom:
    - configMapRef:
        name: {{ include "tideq.fullname" . }}-settings
  resources:
    {{- toYaml .Values.podDefaults.resources | nindent 4 }}
  securityContext:
    {{- include "tideq.containerSecurity" . | nindent 4 }}
  volumeMounts:
    {{- include "tideq.mounts" . | nindent 4 }}
{{- end }}

{{/* The probes of a page: (dict "port" "http" "ready" "/readyz"). Only /livez restarts a pod, and it asks nothing of
     the stores: a restart would not bring them back. Start-up may take as long as filling a store from history. */}}
{{- define "tideq.probes" -}}
startupProbe:
  httpGet: {path: /livez, port: {{ .port }}}
  periodSeconds: 2
  timeoutSeconds: 2
  failureThreshold: 150
livenessProbe:
  httpGet: {path: /livez, port: {{ .port }}}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 3
readinessProbe:
  httpGet: {path: {{ .ready }}, port: {{ .port }}}
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: 2
{{- end }}

{{/* A Deployment's pod: (dict "root" $ "component" … "options" … "waits" true "graceSeconds" … "container" "<yaml>"
     "volumes" "<yaml>" "annotations" dict). */}}
{{- define "tideq.podTemplate" -}}
{{- $root := .root -}}
{{- $selector := include "tideq.selector" (dict "root" $root "component" .component) -}}
metadata:
  labels:
    {{- $selector | nindent 4 }}
    {{- with $root.Values.commonLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- with .options.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    checksum/settings: {{ toJson $root.Values.settings | sha256sum }}
    checksum/stores: {{ toJson (list $root.Values.redis $root.Values.postgres $root.Values.auth) | sha256sum }}
    kubectl.kubernetes.io/default-container: tideq
    {{- with merge (dict) (.annotations | default dict) (.options.podAnnotations | default dict) }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  {{- include "tideq.podBasics" (dict "root" $root "uid" 10001) | nindent 2 }}
  # The pod's own first process, which is not ours: a signal is not lost while Python starts.
  shareProcessNamespace: true
  terminationGracePeriodSeconds: {{ .graceSeconds }}
  {{- include "tideq.placement" (dict "options" .options "selector" $selector) | nindent 2 }}
  {{- if or .waits .options.initContainers }}
  initContainers:
    {{- if .waits }}
    {{- include "tideq.waitForSchema" $root | nindent 4 }}
    {{- end }}
    {{- with .options.initContainers }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- end }}
  containers:
    - name: tideq
      {{- .container | nindent 6 }}
      resources:
        {{- toYaml .options.resources | nindent 8 }}
      securityContext:
        {{- include "tideq.containerSecurity" $root | nindent 8 }}
      volumeMounts:
        {{- include "tideq.mounts" $root | nindent 8 }}
        {{- with .mounts }}
        {{- . | nindent 8 }}
        {{- end }}
        {{- with .options.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    {{- with .options.sidecars }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  volumes:
    {{- include "tideq.volumes" $root | nindent 4 }}
    {{- with .volumes }}
    {{- . | nindent 4 }}
    {{- end }}
    {{- with .options.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}

{{/* A PodDisruptionBudget, where more than one pod is there at the least: (dict "root" $ "component" … "name" …
     "options" … "least" 2). For a single pod it would block every node drain. */}}
{{- define "tideq.pdb" -}}
{{- if and .options.pdb.enabled (gt (int .least) 1) }}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "tideq.metadata" . | nindent 2 }}
spec:
  maxUnavailable: {{ .options.pdb.maxUnavailable }}
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "tideq.selector" . | nindent 6 }}
{{- end }}
{{- end }}

{{/* (dict "root" $ "component" … "name" … "hpa" …) */}}
{{- define "tideq.hpa" -}}
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  {{- include "tideq.metadata" . | nindent 2 }}
spec:
  scaleTargetRef:
    apiVersion: apps/v1
    kind: Deployment
    name: {{ .name }}
  minReplicas: {{ .hpa.minReplicas }}
  maxReplicas: {{ .hpa.maxReplicas }}
  behavior:
    scaleDown:
      stabilizationWindowSeconds: {{ .hpa.scaleDownSeconds }}
  metrics:
    - type: Resource
      resource:
        name: cpu
        target:
          type: Utilization
          averageUtilization: {{ .hpa.targetCPUUtilizationPercentage }}
{{- end }}
