{{- define "sizegate.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "sizegate.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains (include "sizegate.name" .) .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "sizegate.name" .) | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "sizegate.selector" -}}
app.kubernetes.io/name: {{ include "sizegate.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "sizegate.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{ include "sizegate.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "sizegate.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "sizegate.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* How many brokers nodeIds names: 0-9,1001-1003 is 13. */}}
{{- define "sizegate.brokers" -}}
{{- $count := 0 -}}
{{- range splitList "," (toString .Values.listener.nodeIds) -}}
{{- $ends := splitList "-" . -}}
{{- $count = add $count 1 (sub (int (last $ends)) (int (first $ends))) -}}
{{- end -}}
{{- $count -}}
{{- end -}}

{{/* All ports of the listener, as JSON: {name: port}. */}}
{{- define "sizegate.ports" -}}
{{- $ports := dict "kafka" (int .Values.listener.port) -}}
{{- if not .Values.listener.sni.bootstrap -}}
{{- range $n := until (int (include "sizegate.brokers" .)) -}}
{{- $_ := set $ports (printf "broker-%d" $n) (add (int $.Values.listener.firstNodePort) $n) -}}
{{- end -}}
{{- end -}}
{{- toJson $ports -}}
{{- end -}}

{{/* sizegate.yaml: what the values say, and .Values.config over it. */}}
{{- define "sizegate.config" -}}
{{- $cluster := dict "bootstrap_servers" .Values.bootstrapServers -}}
{{- if .Values.clusterTls.enabled -}}
{{- $tls := dict -}}
{{- if .Values.clusterTls.secret -}}
{{- $_ := set $tls "ca_file" "/etc/sizegate-cluster-tls/ca.crt" -}}
{{- if .Values.clusterTls.clientCertificate -}}
{{- $_ := set $tls "cert_file" "/etc/sizegate-cluster-tls/tls.crt" -}}
{{- $_ := set $tls "key_file" "/etc/sizegate-cluster-tls/tls.key" -}}
{{- end -}}
{{- end -}}
{{- $_ := set $cluster "tls" $tls -}}
{{- end -}}
{{- with .Values.adminSasl -}}
{{- if .mechanism -}}
{{- $sasl := dict "mechanism" .mechanism "username" .username "password_file" "/etc/sizegate-sasl/password" -}}
{{- $_ := set $cluster "admin" (dict "sasl" $sasl) -}}
{{- end -}}
{{- end -}}
{{- $listener := dict "bind" (printf "0.0.0.0:%d" (int .Values.listener.port)) -}}
{{- with .Values.listener.sni -}}
{{- if .bootstrap -}}
{{- $sni := dict "bootstrap" .bootstrap "node" .node -}}
{{- if .advertisedPort -}}{{- $_ := set $sni "advertised_port" (int .advertisedPort) -}}{{- end -}}
{{- $_ := set $listener "sni" $sni -}}
{{- end -}}
{{- end -}}
{{- if not .Values.listener.sni.bootstrap -}}
{{- $service := printf "%s.%s.svc" (include "sizegate.fullname" .) .Release.Namespace -}}
{{- $_ := set $listener "advertised_host" (default $service .Values.listener.advertisedHost) -}}
{{- $_ := set $listener "node_ports" (dict "first" (int .Values.listener.firstNodePort) "node_ids" (toString .Values.listener.nodeIds)) -}}
{{- end -}}
{{- with .Values.listener.tls -}}
{{- if .secret -}}
{{- $tls := dict "cert_file" "/etc/sizegate-tls/tls.crt" "key_file" "/etc/sizegate-tls/tls.key" -}}
{{- if .clientCertificates -}}{{- $_ := set $tls "client_ca_file" "/etc/sizegate-tls/ca.crt" -}}{{- end -}}
{{- $_ := set $listener "tls" $tls -}}
{{- end -}}
{{- end -}}
{{- $made := dict "cluster" $cluster "listener" $listener "admin" (dict "bind" "0.0.0.0:9644" "peers" (list (printf "%s-metrics.%s.svc:9644" (include "sizegate.fullname" . | trunc 55) .Release.Namespace))) -}}
{{- toYaml (mustMergeOverwrite $made (deepCopy .Values.config)) -}}
{{- end -}}

{{/* Bytes of a size as sizegate (512MiB, 1GB) or Kubernetes (768Mi, 1G) writes it, or of a plain number. */}}
{{- define "sizegate.bytes" -}}
{{- if kindIs "string" . -}}
{{- $units := dict "" 1 "K" 1000 "k" 1000 "M" 1000000 "G" 1000000000 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 -}}
{{- $number := regexFind "^[0-9]+([.][0-9]+)?" . -}}
{{- $unit := trimPrefix $number . | trim | trimSuffix "B" -}}
{{- if not (and $number (hasKey $units $unit)) -}}
{{- fail (printf "%q is not a size that the chart can read: write it as 512MiB" .) -}}
{{- end -}}
{{- mulf (float64 $number) (float64 (get $units $unit)) | int64 -}}
{{- else -}}
{{- int64 . -}}
{{- end -}}
{{- end -}}

{{/* .Values.resources, with memory for the budget of requests and for what the process needs beside it. */}}
{{- define "sizegate.resources" -}}
{{- $memory := default dict .Values.config.memory -}}
{{- $budget := include "sizegate.bytes" (default "512MiB" $memory.budget) | int64 -}}
{{- $resources := deepCopy .Values.resources -}}
{{- $wanted := printf "%dMi" (add (div (add $budget 1048575) 1048576) 256) -}}
{{- $limits := default dict $resources.limits -}}
{{- if $limits.memory -}}
{{- $least := add $budget 134217728 -}}
{{- if lt (include "sizegate.bytes" $limits.memory | int64) $least -}}
{{- fail (printf "resources.limits.memory %v is too little for config.memory.budget, which needs 128 MiB beside it: leave it out, which is %s here, or lower the budget" $limits.memory $wanted) -}}
{{- end -}}
{{- end -}}
{{- $limit := default $wanted $limits.memory -}}
{{- $requests := merge (deepCopy (default dict $resources.requests)) (dict "memory" $limit) -}}
{{- $_ := set $resources "limits" (merge (deepCopy $limits) (dict "memory" $limit)) -}}
{{- $_ := set $resources "requests" $requests -}}
{{- toYaml $resources -}}
{{- end -}}
