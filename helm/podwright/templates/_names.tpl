{{/* Fails if another chart of the same release, such as an alias, has the fleet's name or its label, or a component with
     the same full name: they would share objects. Helm gives `.Release` to all charts of a release. */}}
{{- define "podwright.claimNames" -}}
{{- include "podwright.claim" (list . "fullnameOverride" (include "podwright.fleet" .) "fullnameOverride") }}
{{- include "podwright.claim" (list . "nameOverride" (include "podwright.name" .) "nameOverride") }}
{{- range $name, $_ := .Values.components }}
{{- include "podwright.claim" (list $ (printf "components.%s" $name) (include "podwright.fullname" (list $ $name)) "fullnameOverride") }}
{{- end }}
{{- end }}

{{- define "podwright.claim" -}}
{{- $root := index . 0 }}{{ $value := index . 1 }}{{ $name := index . 2 }}{{ $override := index . 3 }}
{{- $kind := regexReplaceAll "[.].*" $value "" }}
{{- $claim := printf "podwright %s %s" $kind $name }}
{{- with get $root.Release $claim }}
{{- fail (printf "%s: the charts in %s both have the name %s; set %s in one of them" $value (printf "%s and %s" . $root.Template.BasePath) $name $override) }}
{{- end }}
{{- $_ := set $root.Release $claim $root.Template.BasePath }}
{{- end }}

{{/* The name of the chart in labels. As a dependency with an alias, the chart has the alias as its name. */}}
{{- define "podwright.name" -}}
{{- .Values.nameOverride | default .Chart.Name }}
{{- end }}

{{/* The name of the fleet, the first part of the names of its objects: the release's, and the chart's if it was renamed. */}}
{{- define "podwright.fleet" -}}
{{- $name := include "podwright.name" . }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride }}
{{- else if eq $name "podwright" }}
{{- .Release.Name }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name }}
{{- end }}
{{- end }}

{{/* FLEET-COMPONENT. A name that is too long is an error, because a shortened one may not be unique. */}}
{{- define "podwright.fullname" -}}
{{- $root := index . 0 }}{{ $name := index . 1 }}
{{- $full := printf "%s-%s" (include "podwright.fleet" $root) $name }}
{{- if gt (len $full) 63 }}
{{- fail (printf "components.%s: the name %s is longer than 63 characters, the maximum of Kubernetes; use a shorter name for the component or the release, or set fullnameOverride" $name $full) }}
{{- end }}
{{- if not (regexMatch "^[a-z][-a-z0-9]*$" $full) }}
{{- fail (printf "components.%s: the name %s does not begin with a letter or has characters other than a-z, 0-9 and -; choose another name for the release or the alias, or set fullnameOverride" $name $full) }}
{{- end }}
{{- $full }}
{{- end }}

{{/* The object that stands for another fleet of this namespace, that of the chart without another name, in
     `podwright.key` and `podwright.selector`. */}}
{{- define "podwright.otherFleet" -}}
{{- $root := index . 0 }}{{ $fleet := index . 1 -}}
{{- $release := dict "Name" $fleet "Namespace" $root.Release.Namespace }}
{{- dict "Values" (dict "fullnameOverride" $fleet) "Chart" (dict "Name" "podwright") "Release" $release | toJson }}
{{- end }}

{{/* A label of every object and pod. It is in no selector of a Deployment, because these cannot be changed. */}}
{{- define "podwright.fleetLabel" -}}
podwright.dev/fleet: {{ include "podwright.fleet" . | quote }}
{{- end }}

{{/* The host name of a component's Service. No domain of the cluster: it may have any, and search paths add it. */}}
{{- define "podwright.host" -}}
{{- printf "%s.%s.svc" (include "podwright.fullname" .) (index . 0).Release.Namespace }}
{{- end }}

{{- define "podwright.selector" -}}
{{- $root := index . 0 }}{{ $name := index . 1 -}}
app.kubernetes.io/name: {{ include "podwright.name" $root | quote }}
app.kubernetes.io/instance: {{ quote $root.Release.Name }}
app.kubernetes.io/component: {{ quote $name }}
{{- end }}

{{/* Labels of objects of the fleet or, with a component's name, of that component; optionally with labels of its own,
     which take precedence over the common ones. */}}
{{- define "podwright.labels" -}}
{{- $root := index . 0 }}{{ $name := "" }}{{ $own := dict }}
{{- if gt (len .) 1 }}{{ $name = index . 1 }}{{ end }}
{{- if gt (len .) 2 }}{{ $own = index . 2 }}{{ end }}
{{- if $name }}
{{- include "podwright.selector" (list $root $name) }}
{{- else -}}
app.kubernetes.io/name: {{ include "podwright.name" $root | quote }}
app.kubernetes.io/instance: {{ quote $root.Release.Name }}
{{- end }}
{{ include "podwright.fleetLabel" $root }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name ($root.Chart.Version | replace "+" "_") }}
{{- with include "podwright.ownLabels" (list $root $own) }}
{{ . }}
{{- end }}
{{- end }}

{{/* The common labels, with an object's or a pod's own over them; optionally with the value that has its own, if it is a
     pod. The chart's labels cannot be among them: selectors need them. */}}
{{- define "podwright.ownLabels" -}}
{{- $root := index . 0 }}{{ $own := index . 1 }}{{ $labels := deepCopy $root.Values.commonLabels }}
{{- $selectors := list "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/component" }}
{{- $all := concat $selectors (list "app.kubernetes.io/version" "app.kubernetes.io/managed-by" "helm.sh/chart") }}
{{- include "podwright.checkLabels" (list "commonLabels" $labels $all) }}
{{- if gt (len .) 2 }}{{ include "podwright.checkLabels" (list (index . 2) $own $selectors) }}
{{- else }}{{ include "podwright.checkLabels" (list "labels" $own $all) }}
{{- end }}
{{- include "podwright.merge" (list $labels $own) }}
{{- with $labels }}{{ include "podwright.texts" . }}{{ end }}
{{- end }}

{{- define "podwright.checkLabels" -}}
{{- $value := index . 0 }}{{ $reserved := index . 2 }}
{{- range $label, $_ := index . 1 }}
{{- if or (hasPrefix "podwright.dev/" $label) (has $label $reserved) }}
{{- fail (printf "%s: the chart sets the label %s; remove it" $value $label) }}
{{- end }}
{{- end }}
{{- end }}

{{/* The field `annotations` of an object, with the common annotations and its own over them. */}}
{{- define "podwright.annotations" -}}
{{- $root := index . 0 }}{{ $annotations := deepCopy $root.Values.commonAnnotations }}
{{- if gt (len .) 1 }}{{ include "podwright.merge" (list $annotations (index . 1)) }}{{ end }}
{{- with $annotations }}annotations: {{- include "podwright.texts" . | nindent 2 }}{{ end }}
{{- end }}

{{/* The name of the Job of `helm test`; a long one is shortened, because Jobs have shorter names than other objects. */}}
{{- define "podwright.testName" -}}
{{- $full := include "podwright.fullname" . }}
{{- if gt (len $full) 58 }}{{ $full = printf "%s-%s" (trunc 49 $full) (sha256sum $full | trunc 8) }}{{ end }}
{{- printf "%s-test" $full }}
{{- end }}

{{/* The name of the Job that creates the tables of a database: its Secret, and what makes the name unique. */}}
{{- define "podwright.migrationName" -}}
{{- $fleet := include "podwright.fleet" (index . 0) }}{{ $secret := index . 1 -}}
{{- $hash := printf "%s/%s" $fleet $secret | sha256sum | trunc 8 }}
{{- printf "%s-migrate-%s-%s" (trunc 24 $fleet) ($secret | replace "." "-" | trunc 20) $hash }}
{{- end }}

{{/* Labels of the pods of `helm test`. They differ from the component's, whose Service must not select these pods. */}}
{{- define "podwright.testSelector" -}}
{{- $root := index . 0 }}{{ $name := index . 1 -}}
app.kubernetes.io/name: {{ include "podwright.name" $root | printf "%s-test" | quote }}
app.kubernetes.io/instance: {{ quote $root.Release.Name }}
app.kubernetes.io/component: {{ quote $name }}
{{- end }}

{{/* Labels of the pod that creates the tables of a database. */}}
{{- define "podwright.migrationSelector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ include "podwright.name" $root | printf "%s-migration" | quote }}
app.kubernetes.io/instance: {{ quote $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}
