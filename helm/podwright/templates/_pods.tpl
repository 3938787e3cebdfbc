{{/* The number of pods in the manifest of a component; empty if that is left to an autoscaler. Without the number that the
     manifest before had, Kubernetes would reset it to 1. So an upgrade from `replicas` to an autoscaler writes the live
     number, and so do those after it, for which an annotation of the Deployment is the sign. Server-side apply may
     leave it out as soon as the autoscaler has set it too. Without a cluster (`helm template`) no number is known. */}}
{{- define "podwright.replicas" -}}
{{- $root := index . 0 }}{{ $full := include "podwright.fullname" . }}{{ $c := index . 2 }}
{{- if eq $c.autoscaling.type "none" }}{{ include "podwright.text" $c.replicas }}
{{- else }}
{{- $live := lookup "apps/v1" "Deployment" $root.Release.Namespace $full }}
{{- if $live }}
{{- $scaler := dict }}
{{- if eq $c.autoscaling.type "hpa" }}{{ $scaler = lookup "autoscaling/v2" "HorizontalPodAutoscaler" $root.Release.Namespace $full }}
{{- else }}{{ $scaler = lookup "keda.sh/v1alpha1" "ScaledObject" $root.Release.Namespace $full }}
{{- end }}
{{- $hadNumber := or (not $scaler) (hasKey ($live.metadata.annotations | default dict) "podwright.dev/kept-replicas") }}
{{- $owners := list }}
{{- range $live.metadata.managedFields }}
{{- if hasKey (get .fieldsV1 "f:spec" | default dict) "f:replicas" }}{{ $owners = append $owners .operation }}{{ end }}
{{- end }}
{{- $isShared := and (has "Apply" $owners) (gt (len $owners) 1) }}
{{- if and $hadNumber (not $isShared) }}{{ include "podwright.text" $live.spec.replicas }}{{ end }}
{{- end }}
{{- end }}
{{- end }}

{{/* The reference of an image. As for Docker, the first part of its name is a registry if it has a dot or a port; other
     names get the registry of all charts. */}}
{{- define "podwright.image" -}}
{{- $root := index . 0 }}{{ $image := index . 1 }}{{ $repository := $image.repository }}
{{- $first := regexFind "^[^/]+/" $repository }}
{{- $registry := get $root.Values.global "imageRegistry" | default "" | trimSuffix "/" }}
{{- if and $registry (not (regexMatch "[.:]" $first)) (ne $first "localhost/") }}
{{- $repository = printf "%s/%s" $registry $repository }}
{{- end }}
{{- $repository }}
{{- if or $image.tag (not $image.digest) }}:{{ $image.tag | default $root.Chart.AppVersion }}{{ end }}
{{- with $image.digest }}@{{ . }}{{ end }}
{{- end }}

{{/* The field `imagePullSecrets` of a pod: the Secrets of all charts and the component's. */}}
{{- define "podwright.pullSecrets" -}}
{{- $root := index . 0 }}{{ $names := list }}
{{- range concat (get $root.Values.global "imagePullSecrets" | default list) (index . 1).imagePullSecrets }}
{{- if kindIs "map" . }}{{ $names = append $names .name }}{{ else }}{{ $names = append $names . }}{{ end }}
{{- end }}
{{- with compact $names | uniq }}imagePullSecrets:
{{- range . }}
  - name: {{ quote . }}
{{- end }}
{{- end }}
{{- end }}

{{/* Where the container has the volumes of the chart. */}}
{{- define "podwright.mounts" -}}
{{- $c := index . 0 }}{{ $folder := index . 1 }}{{ $files := index . 2 }}{{ $mountsKeys := index . 3 -}}
- name: tmp
  mountPath: /tmp
{{- if eq $c.runs.store "sqlite" }}
- name: runs
  mountPath: /runs
{{- end }}
{{- if $mountsKeys }}
- name: keys
  mountPath: /run/podwright
  readOnly: true
{{- end }}
{{- if and $folder $c.blueprint.overlay }}
{{- range $path := empty $files | ternary (list $c.blueprint.file) (keys $files | sortAlpha) }}
- name: component
  mountPath: {{ printf "/component/%s" $path | quote }}
  subPath: {{ quote $path }}
  readOnly: true
{{- end }}
{{- else if $folder }}
- name: component
  mountPath: /component
  readOnly: true
{{- end }}
{{- if $c.previous }}
- name: previous
  mountPath: /previous
  readOnly: true
{{- end }}
{{- end }}

{{/* Where the container has the volumes of `volumes`, and the mounts of `extraVolumeMounts`. */}}
{{- define "podwright.ownMounts" -}}
{{- range $volume, $source := .volumes }}
{{- if $source.mountPath }}
- name: {{ quote $volume }}
  mountPath: {{ quote $source.mountPath }}
  {{- with $source.subPath }}
  subPath: {{ quote . }}
  {{- end }}
  readOnly: {{ hasKey $source "readOnly" | ternary $source.readOnly true }}
{{- end }}
{{- end }}
{{- with .extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "podwright.ownVolumes" -}}
{{- $name := index . 0 }}
{{- range $volume, $source := (index . 1).volumes }}
{{- if has $volume (list "tmp" "keys" "component" "runs" "previous") }}
{{- fail (printf "components.%s.volumes.%s: the name is used by the chart; choose another one" $name $volume) }}
{{- end }}
{{- $sources := dict }}
{{- range $key, $value := omit $source "mountPath" "subPath" "readOnly" }}
{{- if not (kindIs "invalid" $value) }}{{ $_ := set $sources $key $value }}{{ end }}
{{- end }}
{{- if ne 1 (len $sources) }}
{{- fail (printf "components.%s.volumes.%s: set one source, such as configMap, and no other; it has %s" $name $volume (keys $sources | sortAlpha | join ", " | default "none")) }}
{{- end }}
- name: {{ quote $volume }}
  {{- toYaml $sources | nindent 2 }}
{{- end }}
{{- end }}

{{/* Fields of every pod with the image of a component, those of its tests and of the migration included. */}}
{{- define "podwright.podFields" -}}
{{- with .runtimeClassName }}
runtimeClassName: {{ quote . }}
{{- end }}
{{- with .schedulerName }}
schedulerName: {{ quote . }}
{{- end }}
{{- with .dnsPolicy }}
dnsPolicy: {{ . }}
{{- end }}
{{- with .dnsConfig }}
dnsConfig: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .hostAliases }}
hostAliases: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "podwright.podSecurityContext" -}}
runAsNonRoot: true
{{- range $field, $id := .user }}
{{ $field }}: {{ include "podwright.text" $id }}
{{- end }}
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "podwright.securityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}
