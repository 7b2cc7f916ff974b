{{- /* Settings, Service, Deployment and disruption budget of the bridge or the predictor; several predictors are a StatefulSet. */ -}}
{{- define "kernelcast.deployment" -}}
{{- $own := get .root.Values .service -}}
{{- $port := include "kernelcast.port" . -}}
{{- $kind := ternary "StatefulSet" "Deployment" (and (eq .service "predictor") (gt (int $own.replicas) 1)) -}}
apiVersion: v1
kind: ConfigMap
metadata:
  {{- include "kernelcast.metadata" . | nindent 2 }}
data:
  kernelcast.yaml: |
    {{- include "kernelcast.settings" . | nindent 4 }}
---
apiVersion: v1
kind: Service
metadata:
  {{- include "kernelcast.metadata" . | nindent 2 }}
spec:
  selector: {app.kubernetes.io/name: kernelcast-{{ .service }}}
  ports:
    - {name: http, port: {{ $port }}, targetPort: http}
---
apiVersion: apps/v1
kind: {{ $kind }}
metadata:
  {{- include "kernelcast.metadata" . | nindent 2 }}
spec:
  replicas: {{ $own.replicas }}
  selector:
    matchLabels: {app.kubernetes.io/name: kernelcast-{{ .service }}}
  {{- if eq $kind "StatefulSet" }}
  # Each saves scores and findings under the name of its pod, which it keeps when it is replaced.
  serviceName: {{ include "kernelcast.fullname" .root }}-{{ .service }}
  podManagementPolicy: Parallel
  {{- else }}
  strategy:
    type: RollingUpdate
    rollingUpdate: {maxUnavailable: 1, maxSurge: 0}
  {{- end }}
  template:
    metadata:
      labels:
        {{- include "kernelcast.labels" . | nindent 8 }}
      {{- with include "kernelcast.podAnnotations" . | trim }}
      annotations:
        {{- . | nindent 8 }}
      {{- end }}
    spec:
      automountServiceAccountToken: false
      {{- if and (eq .service "predictor") (eq (int $own.replicas) 1) }}
      # Scores and findings are saved under this name. Several replicas must not share it: they would overwrite each
      # other's. Scale with `helm upgrade`, which makes a StatefulSet; remove the line before any `kubectl scale`.
      hostname: {{ include "kernelcast.fullname" .root }}-predictor
      {{- end }}
      {{- with include "kernelcast.scheduling" . | trim }}
      {{- . | nindent 6 }}
      {{- end }}
      securityContext:
        {{- toYaml .root.Values.podSecurityContext | nindent 8 }}
      containers:
        - name: {{ .service }}
          image: {{ include "kernelcast.image" .root }}
          imagePullPolicy: {{ .root.Values.image.pullPolicy }}
          args: [{{ .service }}, --config, /etc/kernelcast/kernelcast.yaml{{ range $own.extraArgs }}, {{ . | quote }}{{ end }}]
          {{- with include "kernelcast.env" . | trim }}
          env:
            {{- . | nindent 12 }}
          {{- end }}
          ports:
            - {name: http, containerPort: {{ $port }}}
          # Liveness counts from here on: a node on which everything starts at once may take minutes.
          startupProbe:
            {{- include "kernelcast.probe" (merge (dict "path" "/-/healthy") .) | nindent 12 }}
            periodSeconds: 5
            failureThreshold: 60
          livenessProbe:
            {{- include "kernelcast.probe" (merge (dict "path" "/-/healthy") .) | nindent 12 }}
            periodSeconds: 30
            timeoutSeconds: 5
            failureThreshold: 3
          # Ready means that the partitions have caught up, so an update waits for that.
          readinessProbe:
            {{- include "kernelcast.probe" (merge (dict "path" "/-/ready") .) | nindent 12 }}
            periodSeconds: 10
            timeoutSeconds: 5
          resources:
            {{- toYaml $own.resources | nindent 12 }}
          securityContext:
            {{- toYaml .root.Values.containerSecurityContext | nindent 12 }}
          volumeMounts:
            {{- include "kernelcast.mounts" . | nindent 12 }}
      volumes:
        {{- include "kernelcast.volumes" . | nindent 8 }}
{{- if .root.Values.podDisruptionBudgets }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "kernelcast.metadata" . | nindent 2 }}
spec:
  maxUnavailable: 1
  selector:
    matchLabels: {app.kubernetes.io/name: kernelcast-{{ .service }}}
{{- end }}
{{- end -}}
