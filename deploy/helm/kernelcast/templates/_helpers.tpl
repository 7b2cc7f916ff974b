{{- define "kernelcast.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "kernelcast.fullname" -}}
{{- .Values.fullnameOverride | default "kernelcast" -}}
{{- end -}}

{{- /* Labels of an object of a service; the name is the job that rules and dashboards use, whatever the object is called. */ -}}
{{- define "kernelcast.labels" -}}
app.kubernetes.io/name: kernelcast-{{ .service }}
app.kubernetes.io/part-of: kernelcast
{{- with .root.Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "kernelcast.metadata" -}}
name: {{ include "kernelcast.fullname" .root }}-{{ .service }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "kernelcast.labels" . | nindent 2 }}
{{- end -}}

{{- define "kernelcast.port" -}}
{{- get (dict "exporter" 19400 "bridge" 19401 "predictor" 19402) .service -}}
{{- end -}}

{{- /* librdkafka's properties of a service, as YAML: those of all, and the files of its authority and certificate. */ -}}
{{- define "kernelcast.kafkaProperties" -}}
{{- $properties := deepCopy .root.Values.kafka.properties -}}
{{- if .root.Values.kafka.caSecret -}}
{{- $_ := set $properties "ssl.ca.location" "/etc/kernelcast-kafka/ca.crt" -}}
{{- end -}}
{{- if (get .root.Values .service).certificateSecret -}}
{{- $_ := set $properties "ssl.certificate.location" "/etc/kernelcast-kafka-certificate/tls.crt" -}}
{{- $_ := set $properties "ssl.key.location" "/etc/kernelcast-kafka-certificate/tls.key" -}}
{{- end -}}
{{ toYaml $properties }}
{{- end -}}

{{- /* kernelcast.yaml of a service. */ -}}
{{- define "kernelcast.settings" -}}
{{- $properties := include "kernelcast.kafkaProperties" . | fromYaml -}}
{{- $kafka := dict "bootstrap_servers" .root.Values.kafka.bootstrapServers -}}
{{- if $properties -}}
{{- $_ := set $kafka "properties" $properties -}}
{{- end -}}
{{- $own := deepCopy (get .root.Values .service).settings -}}
{{- if .root.Values.web.secret -}}
{{- $_ := set $own "web" (merge (dict "config_file" "/etc/kernelcast-web/web.yml") (default (dict) $own.web)) -}}
{{- end -}}
{{- $all := dict "kafka" $kafka -}}
{{- if $own -}}
{{- $_ := set $all .service $own -}}
{{- end -}}
{{ toYaml $all }}
{{- end -}}

{{- /* Kafka's user from a secret, as environment variables, and those of the site. */ -}}
{{- define "kernelcast.env" -}}
{{- $own := get .root.Values .service }}
{{- with $own.saslSecret }}
{{- if eq (get $.root.Values.kafka.properties "sasl.mechanism") "OAUTHBEARER" }}
- name: KERNELCAST_KAFKA__PROPERTIES__SASL_OAUTHBEARER_CLIENT_ID
  valueFrom: {secretKeyRef: {name: {{ . }}, key: client-id}}
- name: KERNELCAST_KAFKA__PROPERTIES__SASL_OAUTHBEARER_CLIENT_SECRET
  valueFrom: {secretKeyRef: {name: {{ . }}, key: client-secret}}
{{- else }}
- name: KERNELCAST_KAFKA__PROPERTIES__SASL_USERNAME
  valueFrom: {secretKeyRef: {name: {{ . }}, key: username}}
- name: KERNELCAST_KAFKA__PROPERTIES__SASL_PASSWORD
  valueFrom: {secretKeyRef: {name: {{ . }}, key: password}}
{{- end }}
{{- end }}
{{- with $own.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* The action of a probe: by HTTP, or from inside where the web server asks for a user. */ -}}
{{- define "kernelcast.probe" -}}
{{- $scheme := ternary "https" "http" .root.Values.web.tls -}}
{{- if .root.Values.web.userSecret -}}
exec:
  command:
    - sh
    - -c
    - >-
      exec kernelcast health {{ $scheme }}://127.0.0.1:{{ include "kernelcast.port" . }}{{ .path }}
      --username "$(cat /etc/kernelcast-web-user/username)" --password-file /etc/kernelcast-web-user/password
{{- else if .root.Values.web.tls -}}
httpGet: {path: {{ .path }}, port: http, scheme: HTTPS}
{{- else -}}
httpGet: {path: {{ .path }}, port: http}
{{- end -}}
{{- end -}}

{{- /* Mounts of Kafka's files and of the site. */ -}}
{{- define "kernelcast.kafkaMounts" -}}
{{- $own := get .root.Values .service }}
{{- if .root.Values.kafka.caSecret }}
- {name: kafka-ca, mountPath: /etc/kernelcast-kafka, readOnly: true}
{{- end }}
{{- if $own.certificateSecret }}
- {name: kafka-certificate, mountPath: /etc/kernelcast-kafka-certificate, readOnly: true}
{{- end }}
{{- with $own.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "kernelcast.mounts" -}}
- {name: settings, mountPath: /etc/kernelcast, readOnly: true}
{{- if .root.Values.web.secret }}
- {name: web, mountPath: /etc/kernelcast-web, readOnly: true}
{{- end }}
{{- if .root.Values.web.userSecret }}
- {name: web-user, mountPath: /etc/kernelcast-web-user, readOnly: true}
{{- end }}
{{- include "kernelcast.kafkaMounts" . }}
{{- end -}}

{{- define "kernelcast.kafkaVolumes" -}}
{{- $own := get .root.Values .service }}
{{- with .root.Values.kafka.caSecret }}
- name: kafka-ca
  secret: {secretName: {{ . }}, items: [{key: ca.crt, path: ca.crt}]}
{{- end }}
{{- with $own.certificateSecret }}
{{- $keys := $.root.Values.kafka.certificateKeys }}
- name: kafka-certificate
  secret: {secretName: {{ . }}, items: [{key: {{ $keys.certificate }}, path: tls.crt}, {key: {{ $keys.key }}, path: tls.key}]}
{{- end }}
{{- with $own.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "kernelcast.volumes" -}}
- name: settings
  configMap: {name: {{ include "kernelcast.fullname" .root }}-{{ .service }}}
{{- with .root.Values.web.secret }}
- name: web
  secret: {secretName: {{ . }}}
{{- end }}
{{- with .root.Values.web.userSecret }}
- name: web-user
  secret: {secretName: {{ . }}}
{{- end }}
{{- include "kernelcast.kafkaVolumes" . }}
{{- end -}}

{{- /* Annotations of pods. */ -}}
{{- define "kernelcast.podAnnotations" -}}
{{- if .root.Values.checksums }}
checksum/settings: {{ include "kernelcast.settings" . | sha256sum }}
{{- end }}
{{- if eq .root.Values.monitor "none" }}
prometheus.io/scrape: "true"
prometheus.io/port: {{ include "kernelcast.port" . | quote }}
{{- end }}
{{- with (get .root.Values .service).podAnnotations }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* Name of a service's account: the given one, or that which the chart makes; empty for the namespace's default. */ -}}
{{- define "kernelcast.serviceAccount" -}}
{{- $own := get .root.Values .service -}}
{{- if $own.serviceAccount.name -}}
{{ $own.serviceAccount.name }}
{{- else if or $own.serviceAccount.create $own.podLabels $own.resourceSlices -}}
{{ include "kernelcast.fullname" .root }}-{{ .service }}
{{- end -}}
{{- end -}}

{{- /* Where and as whom a pod runs. A service has the affinity that its values give, or else its replicas prefer different nodes. */ -}}
{{- define "kernelcast.scheduling" -}}
{{- with include "kernelcast.serviceAccount" . }}
serviceAccountName: {{ . }}
{{- end }}
{{- with .root.Values.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- $own := get .root.Values .service }}
{{- with $own.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $own.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $own.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if $own.affinity }}
affinity:
  {{- toYaml $own.affinity | nindent 2 }}
{{- else if gt (int $own.replicas) 1 }}
# Replicas on different nodes, where there are several.
affinity:
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector: {matchLabels: {app.kubernetes.io/name: kernelcast-{{ .service }}}}
{{- end }}
{{- with $own.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- range . }}
  - {{- merge (deepCopy .) (dict "labelSelector" (dict "matchLabels" (dict "app.kubernetes.io/name" (printf "kernelcast-%s" $.service)))) | toYaml | nindent 4 }}
  {{- end }}
{{- end }}
{{- end -}}
