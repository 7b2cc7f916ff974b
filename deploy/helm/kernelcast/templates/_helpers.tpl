{{- define "kernelcast.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- /* Labels of an object of a service; the name is the job that rules and dashboards use. */ -}}
{{- define "kernelcast.labels" -}}
app.kubernetes.io/name: kernelcast-{{ .service }}
app.kubernetes.io/part-of: kernelcast
{{- with .root.Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "kernelcast.metadata" -}}
name: kernelcast-{{ .service }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "kernelcast.labels" . | nindent 2 }}
{{- end -}}

{{- define "kernelcast.port" -}}
{{- get (dict "exporter" 19400 "bridge" 19401 "predictor" 19402) .service -}}
{{- end -}}

{{- /* kernelcast.yaml of a service. */ -}}
{{- define "kernelcast.settings" -}}
{{- $properties := deepCopy .root.Values.kafka.properties -}}
{{- if .root.Values.kafka.caSecret -}}
{{- $_ := set $properties "ssl.ca.location" "/etc/kernelcast-kafka/ca.crt" -}}
{{- end -}}
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

{{- /* Kafka's user, from a secret, as environment variables. */ -}}
{{- define "kernelcast.sasl" -}}
{{- with .secret }}
- name: KERNELCAST_KAFKA__PROPERTIES__SASL_USERNAME
  valueFrom: {secretKeyRef: {name: {{ . }}, key: username}}
- name: KERNELCAST_KAFKA__PROPERTIES__SASL_PASSWORD
  valueFrom: {secretKeyRef: {name: {{ . }}, key: password}}
{{- end }}
{{- end -}}

{{- define "kernelcast.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "kernelcast.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
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

{{- define "kernelcast.mounts" -}}
- {name: settings, mountPath: /etc/kernelcast, readOnly: true}
{{- if .Values.kafka.caSecret }}
- {name: kafka-ca, mountPath: /etc/kernelcast-kafka, readOnly: true}
{{- end }}
{{- if .Values.web.secret }}
- {name: web, mountPath: /etc/kernelcast-web, readOnly: true}
{{- end }}
{{- if .Values.web.userSecret }}
- {name: web-user, mountPath: /etc/kernelcast-web-user, readOnly: true}
{{- end }}
{{- end -}}

{{- define "kernelcast.volumes" -}}
- name: settings
  configMap: {name: kernelcast-{{ .service }}}
{{- with .root.Values.kafka.caSecret }}
- name: kafka-ca
  secret: {secretName: {{ . }}, items: [{key: ca.crt, path: ca.crt}]}
{{- end }}
{{- with .root.Values.web.secret }}
- name: web
  secret: {secretName: {{ . }}}
{{- end }}
{{- with .root.Values.web.userSecret }}
- name: web-user
  secret: {secretName: {{ . }}}
{{- end }}
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
{{- end -}}

{{- define "kernelcast.scheduling" -}}
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
{{- end -}}
