{{- define "compatgate.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- /* The name of all objects: that of the release. Forty characters leave room for suffixes. */}}
{{- define "compatgate.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- else if contains (include "compatgate.name" .) .Release.Name }}
{{- .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "compatgate.name" .) | trunc 40 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- /* Labels that the gate's pods alone have: the Service selects by them. */}}
{{- define "compatgate.selector" -}}
app.kubernetes.io/name: {{ include "compatgate.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- /* Labels of an object; takes a dict of root, name and component. */}}
{{- define "compatgate.labelsOf" -}}
app.kubernetes.io/name: {{ .name }}
{{- if .component }}
app.kubernetes.io/component: {{ .component }}
{{- else }}
app.kubernetes.io/part-of: compatgate
{{- end }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "compatgate.labels" -}}
{{- include "compatgate.labelsOf" (dict "root" . "name" (include "compatgate.name" .)) }}
{{- end }}

{{- define "compatgate.image" -}}
{{- with .Values.image -}}
{{ required "image.repository is required: make image, push it to your registry, and name it here" .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ default $.Chart.AppVersion .tag }}{{ end }}
{{- end }}
{{- end }}

{{- /* The gate's address inside of the cluster, as its certificate names it. */}}
{{- define "compatgate.host" -}}
{{ include "compatgate.fullname" . }}.{{ .Release.Namespace }}.svc
{{- end }}

{{- define "compatgate.url" -}}
https://{{ include "compatgate.host" . }}{{ if ne (int .Values.service.port) 443 }}:{{ .Values.service.port }}{{ end }}
{{- end }}

{{- define "compatgate.tlsSecret" -}}
{{ if eq .Values.tls.mode "secret" }}{{ .Values.tls.secret.name }}{{ else }}{{ include "compatgate.fullname" . }}-tls{{ end }}
{{- end }}

{{- define "compatgate.postgresql" -}}
{{ if or .Values.database.url .Values.database.secret.name }}yes{{ end }}
{{- end }}

{{- define "compatgate.replicas" -}}
{{- if kindIs "invalid" .Values.replicas }}{{ if include "compatgate.postgresql" . }}2{{ else }}1{{ end }}
{{- else }}{{ .Values.replicas }}{{ end }}
{{- end }}

{{- /* Variables by which a program finds the database. */}}
{{- define "compatgate.databaseEnv" -}}
- name: COMPATGATE_DATABASE
{{- if .Values.database.secret.name }}
  valueFrom: {secretKeyRef: {name: {{ .Values.database.secret.name }}, key: {{ .Values.database.secret.key }}}}
{{- else if .Values.database.url }}
  valueFrom: {secretKeyRef: {name: {{ include "compatgate.fullname" . }}-database, key: url}}
{{- else }}
  value: /var/lib/compatgate/gate.db
{{- end }}
{{- end }}

{{- /* What every container of the release may do: nothing that compatgate does not need. */}}
{{- define "compatgate.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "compatgate.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "compatgate.pullSecrets" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
{{- range . }}
- name: {{ . }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Rules, conditions and excluded namespaces of the webhook, from kinds.yaml through the program. */}}
{{- define "compatgate.asked" -}}
{{- default (.Files.Get "files/asked.yaml" | fromYaml) .Values.webhook.asked | toYaml }}
{{- end }}

{{- /* Namespaces that are left out, but those of kinds.yaml: of the release, the GPU Operator and the values. */}}
{{- define "compatgate.leftOut" -}}
{{- concat (list .Release.Namespace) .Values.webhook.namespaces.operators .Values.webhook.namespaces.excluded | uniq | toJson }}
{{- end }}

{{- /* All namespaces that are never asked about. */}}
{{- define "compatgate.excluded" -}}
{{- $names := list }}
{{- range (include "compatgate.asked" . | fromYaml).excluded }}
{{- $names = append $names .name }}
{{- end }}
{{- concat $names (include "compatgate.leftOut" . | fromJsonArray) | uniq | toJson }}
{{- end }}

{{- /* Selects the namespaces that are asked about. */}}
{{- define "compatgate.namespaceSelector" -}}
matchExpressions:
- key: kubernetes.io/metadata.name
  operator: NotIn
  values: {{ include "compatgate.excluded" . }}
{{- if eq .Values.webhook.namespaces.select "opt-out" }}
- {key: compatgate.dev/admission, operator: NotIn, values: [disabled]}
{{- else if eq .Values.webhook.namespaces.select "opt-in" }}
- {key: compatgate.dev/admission, operator: In, values: [enabled]}
{{- end }}
{{- end }}

{{- /* Why, for those that no value added. */}}
{{- define "compatgate.reasons" -}}
{{- $asked := include "compatgate.asked" . | fromYaml }}
{{- $lines := list }}
{{- range $asked.excluded }}
{{- $lines = append $lines (printf "%s: %s" .name .reason) }}
{{- end }}
{{- $lines = append $lines (printf "%s: %s" .Release.Namespace $asked.reasons.gate) }}
{{- range .Values.webhook.namespaces.operators }}
{{- $lines = append $lines (printf "%s: %s" . $asked.reasons.operator) }}
{{- end }}
{{- join "; " $lines }}
{{- end }}

{{- /* Combinations that the schema cannot refuse in words. */}}
{{- define "compatgate.check" -}}
{{- $postgresql := include "compatgate.postgresql" . }}
{{- if and (not $postgresql) (gt (int (include "compatgate.replicas" .)) 1) }}
{{- fail (printf "replicas: %v need PostgreSQL; state database.url or database.secret.name (SQLite serves one replica)" .Values.replicas) }}
{{- end }}
{{- if and .Values.worker.enabled (not $postgresql) (not .Values.worker.token.secret) }}
{{- fail "worker.token.secret: state the secret with the token of the host, scope work (compatgate token create --name HOST --scope work)" }}
{{- end }}
{{- if and .Values.worker.enabled (not .Values.worker.hosts) }}
{{- fail "worker.hosts: state the hosts.toml of the worker (docs/how-to/kubernetes-executor.md)" }}
{{- end }}
{{- if and .Values.database.url .Values.database.secret.name }}
{{- fail "database: state url or secret.name, not both" }}
{{- end }}
{{- if and (eq .Values.tls.mode "secret") (not .Values.tls.secret.name) }}
{{- fail "tls.secret.name: state the secret with tls.crt and tls.key" }}
{{- end }}
{{- if and (eq .Values.tls.mode "secret") .Values.webhook.enabled (not (contains "BEGIN CERTIFICATE" .Values.tls.secret.ca)) }}
{{- fail "tls.secret.ca: state the authority of the certificate in PEM; the API server trusts no other" }}
{{- end }}
{{- if and .Values.admission.kinds.configMap .Values.webhook.enabled (not .Values.webhook.asked) }}
{{- fail "webhook.asked: state the output of `compatgate k8s manifests --chart-values --kinds FILE`, or the webhook is not asked about the kinds of admission.kinds" }}
{{- end }}
{{- end }}
