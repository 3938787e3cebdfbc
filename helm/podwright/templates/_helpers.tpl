{{/* Prepares `.Values` for the templates, each of which includes this first: what is missing or null gets its default,
     which Helm does not do for null. The values that Helm stores with the release stay as they are. */}}
{{- define "podwright.init" -}}
{{- if not (hasKey . "initialized") }}
{{- $_ := set . "initialized" true }}
{{- $chart := .Files.Get "files/defaults.json" | fromJson }}
{{- $values := dict }}
{{- include "podwright.fill" (list $values .Values $chart.values $chart.removable) }}
{{- $components := dict }}
{{- range $name, $own := $values.components }}
{{- $component := dict }}
{{- include "podwright.dropNull" (list $component $own $chart.values.defaults $chart.removable.defaults) }}
{{- $_ := set $components $name $component }}
{{- end }}
{{- $_ := set $values "components" $components }}
{{- if not $values.enabled }}
{{- $values = $chart.values }}
{{- $_ := set $values "enabled" false }}
{{- $_ := set $values.apiKeys "enabled" false }}
{{- end }}
{{- $_ := set . "Values" $values }}
{{- if $values.enabled }}{{ include "podwright.claimNames" . }}{{ end }}
{{- end }}
{{- end }}

{{/* Copies values, without null, and adds the defaults of missing keys, except of those that null removes. */}}
{{- define "podwright.fill" -}}
{{- $into := index . 0 }}{{ $defaults := index . 2 }}{{ $removable := index . 3 }}
{{- range $key, $value := index . 1 }}
{{- if not (kindIs "invalid" $value) }}{{ $_ := set $into $key $value }}{{ end }}
{{- end }}
{{- range $key, $default := $defaults }}
{{- if and (kindIs "map" $default) (kindIs "map" (get $into $key)) }}
{{- $filled := dict }}
{{- include "podwright.fill" (list $filled (get $into $key) $default (get $removable $key | default dict)) }}
{{- $_ := set $into $key $filled }}
{{- else if not (or (hasKey $into $key) (kindIs "bool" (get $removable $key)) (kindIs "invalid" $default)) }}
{{- $_ := set $into $key $default }}
{{- end }}
{{- end }}
{{- end }}

{{/* Copies a component's values without the null that means the default; `podwright.merge` removes what the other null
     stands for. */}}
{{- define "podwright.dropNull" -}}
{{- $into := index . 0 }}{{ $defaults := index . 2 }}{{ $removable := index . 3 }}
{{- range $key, $value := index . 1 }}
{{- $default := get $defaults $key }}
{{- if and (kindIs "map" $value) (kindIs "map" $default) }}
{{- $below := dict }}
{{- include "podwright.dropNull" (list $below $value $default (get $removable $key | default dict)) }}
{{- $_ := set $into $key $below }}
{{- else if or (not (kindIs "invalid" $value)) (not (hasKey $defaults $key)) (kindIs "invalid" $default) (kindIs "bool" (get $removable $key)) }}
{{- $_ := set $into $key $value }}
{{- end }}
{{- end }}
{{- end }}

{{/* Fails if another chart of the same release, such as an alias, has the fleet's name or its label: they would share
     objects. Helm gives `.Release` to all charts of a release. */}}
{{- define "podwright.claimNames" -}}
{{- $names := dict "fullnameOverride" (include "podwright.fleet" .) "nameOverride" (include "podwright.name" .) }}
{{- $path := .Template.BasePath }}{{ $release := .Release }}
{{- range $value, $name := $names }}
{{- $claim := printf "podwright %s %s" $value $name }}
{{- if hasKey $release $claim }}
{{- fail (printf "%s: the charts in %s and %s both have the name %s; set %s in one of them" $value (get $release $claim) $path $name $value) }}
{{- end }}
{{- $_ := set $release $claim $path }}
{{- end }}
{{- end }}

{{/* Merges a component's values into a copy of the defaults: maps key by key, and null removes a key. Sprig's merge
     functions keep null, and some of them ignore 0 and false. */}}
{{- define "podwright.merge" -}}
{{- $into := index . 0 }}
{{- range $key, $value := index . 1 }}
{{- if kindIs "invalid" $value }}
{{- $_ := unset $into $key }}
{{- else if and (kindIs "map" $value) (kindIs "map" (get $into $key)) }}
{{- include "podwright.merge" (list (get $into $key) $value) }}
{{- else }}
{{- $_ := set $into $key $value }}
{{- end }}
{{- end }}
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

{{/* The common labels, with an object's or a pod's own over them. */}}
{{- define "podwright.ownLabels" -}}
{{- $root := index . 0 }}{{ $labels := deepCopy $root.Values.commonLabels }}
{{- range $label, $_ := $labels }}
{{- if or (hasPrefix "podwright.dev/" $label) (has $label (list "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/component" "app.kubernetes.io/version" "app.kubernetes.io/managed-by" "helm.sh/chart")) }}
{{- fail (printf "commonLabels: the chart sets the label %s; remove it" $label) }}
{{- end }}
{{- end }}
{{- include "podwright.merge" (list $labels (index . 1)) }}
{{- with $labels }}{{ include "podwright.texts" . }}{{ end }}
{{- end }}

{{/* The field `annotations` of an object, with the common annotations and its own over them. */}}
{{- define "podwright.annotations" -}}
{{- $root := index . 0 }}{{ $annotations := deepCopy $root.Values.commonAnnotations }}
{{- if gt (len .) 1 }}{{ include "podwright.merge" (list $annotations (index . 1)) }}{{ end }}
{{- with $annotations }}annotations: {{- include "podwright.texts" . | nindent 2 }}{{ end }}
{{- end }}

{{/* A scalar as text. Numbers from YAML are floats, and 1048576 would be written as 1.048576e+06. */}}
{{- define "podwright.text" -}}
{{- if kindIs "string" . }}{{ . }}{{ else }}{{ toJson . }}{{ end }}
{{- end }}

{{/* Labels, annotations or a node selector of the values, whose numbers and booleans are texts to Kubernetes. */}}
{{- define "podwright.texts" -}}
{{- $texts := dict }}
{{- range $key, $value := . }}{{ $_ := set $texts $key (include "podwright.text" $value) }}{{ end }}
{{- toYaml $texts }}
{{- end }}

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
{{- with uniq $names }}imagePullSecrets:
{{- range . }}
  - name: {{ quote . }}
{{- end }}
{{- end }}
{{- end }}

{{/* A component's agents as a JSON object by name: URL, and component with its fleet, or key, proxy and peers. */}}
{{- define "podwright.agents" -}}
{{- $root := index . 0 }}{{ $name := index . 1 }}{{ $agents := dict }}
{{- range $agent := index . 2 }}
{{- if kindIs "string" $agent }}{{ $agent = dict "name" $agent }}{{ end }}
{{- $agentName := $agent.name }}
{{- if hasKey $agents $agentName }}
{{- fail (printf "components.%s.agents: the name %s is used twice" $name $agentName) }}
{{- end }}
{{- $component := $agent.component | default $agent.name }}
{{- if $agent.release }}
{{- if and $root.Values.apiKeys.enabled (not $root.Values.apiKeys.seeds) }}
{{- fail (printf "components.%s.agents: %s is in the release %s, whose keys need the same seeds; set apiKeys.seeds" $name $agentName $agent.release) }}
{{- end }}
{{- $url := printf "http://%s-%s.%s.svc:%v" $agent.release $component $root.Release.Namespace ($agent.port | default $root.Values.defaults.service.port) }}
{{- $agent = dict "component" $component "release" $agent.release "url" $url }}
{{- else if not (hasKey $agent "url") }}
{{- if not (hasKey $root.Values.components $component) }}
{{- fail (printf "components.%s.agents: unknown component %s; the fleet has %s" $name $component (keys $root.Values.components | sortAlpha | join ", ")) }}
{{- end }}
{{- $c := deepCopy $root.Values.defaults }}{{ include "podwright.merge" (list $c (get $root.Values.components $component)) }}
{{- $url := printf "http://%s:%v" (include "podwright.host" (list $root $component)) $c.service.port }}
{{- $agent = dict "component" $component "release" (include "podwright.fleet" $root) "url" $url }}
{{- end }}
{{- $_ := set $agents $agentName $agent }}
{{- end }}
{{- toJson $agents }}
{{- end }}

{{/* The seeds of the keys, as a JSON list. A new seed is kept outside .Values, for all templates of this rendering:
     inside, it could get into the stored values of the release. */}}
{{- define "podwright.seeds" -}}
{{- if and (not .Values.apiKeys.seeds) (not (hasKey . "newSeed")) }}
{{- $_ := set . "newSeed" (randAlphaNum 48) }}
{{- $secret := printf "%s-seed" (include "podwright.fleet" .) }}
{{- with lookup "v1" "Secret" .Release.Namespace $secret }}
{{- $labels := .metadata.labels | default dict }}
{{- $name := include "podwright.name" $ }}
{{- if or (ne $name (get $labels "app.kubernetes.io/name")) (ne $.Release.Name (get $labels "app.kubernetes.io/instance")) }}
{{- fail (printf "apiKeys.seeds: the Secret %s belongs to another fleet or to nobody, because it has not the labels app.kubernetes.io/name: %s and app.kubernetes.io/instance: %s; set fullnameOverride or apiKeys.seeds, or delete the Secret if nothing uses it" $secret $name $.Release.Name) }}
{{- end }}
{{- $_ := set $ "newSeed" (b64dec .data.seed) }}
{{- end }}
{{- end }}
{{- if .Values.apiKeys.seeds }}{{ toJson .Values.apiKeys.seeds }}{{ else }}{{ list .newSeed | toJson }}{{ end }}
{{- end }}

{{/* A component's key for one purpose (admin, run, read). A key reveals neither the seed nor other keys. */}}
{{- define "podwright.key" -}}
{{- $root := index . 0 }}
{{- printf "%s/%s/%s/%s/%s" (index . 3) $root.Release.Namespace (include "podwright.fleet" $root) (index . 1) (index . 2) | sha256sum }}
{{- end }}

{{/* The keys that a component sends to its agents, as a JSON object. */}}
{{- define "podwright.agentKeys" -}}
{{- $root := index . 0 }}{{ $keys := dict }}
{{- range $name, $agent := index . 1 }}
{{- if and $agent.component $root.Values.apiKeys.enabled }}
{{- $fleet := include "podwright.otherFleet" (list $root $agent.release) | fromJson }}
{{- $_ := set $keys $name (include "podwright.key" (list $fleet $agent.component "run" (include "podwright.seeds" $root | fromJsonArray | first))) }}
{{- else if $agent.key }}
{{- $_ := set $keys $name $agent.key }}
{{- end }}
{{- end }}
{{- toJson $keys }}
{{- end }}

{{/* The files with the keys of agents that are in Secrets of the user, as a JSON object of paths by name. */}}
{{- define "podwright.agentKeyFiles" -}}
{{- $files := dict }}
{{- range $name, $agent := . }}
{{- if $agent.keySecret }}{{ $_ := set $files $name (printf "/run/podwright/agents/%s" $name) }}{{ end }}
{{- end }}
{{- toJson $files }}
{{- end }}

{{/* Not empty if a component may have keys to send; the content of the user's own Secret is unknown here. */}}
{{- define "podwright.sendsKeys" -}}
{{- $root := index . 0 }}
{{- if and (index . 1) (or $root.Values.apiKeys.enabled (ne "{}" (include "podwright.agentKeys" .))) }}yes{{ end }}
{{- end }}

{{/* The files of a component's folder in the values: a JSON object of texts by path. */}}
{{- define "podwright.files" -}}
{{- $c := index . 1 }}{{ $files := deepCopy $c.files }}
{{- with $c.blueprint.inline }}
{{- $_ := set $files $c.blueprint.file (kindIs "map" . | ternary (toPrettyJson .) (toString .)) }}
{{- end }}
{{- if and $files $c.blueprint.configMap }}
{{- fail (printf "components.%s.blueprint.configMap: cannot be combined with files; put them into the ConfigMap, or remove it" (index . 0)) }}
{{- end }}
{{- toJson $files }}
{{- end }}

{{/* The ConfigMap with a component's folder, as the source of a volume. */}}
{{- define "podwright.folder" -}}
name: {{ index . 0 | quote }}
{{- with index . 1 }}
items:
  {{- range $path := keys . | sortAlpha }}
  - key: {{ include "podwright.fileKey" $path | quote }}
    path: {{ quote $path }}
  {{- end }}
{{- end }}
{{- end }}

{{/* The digest of the blueprint in the values, the same as `podwright.blueprints.digest`: SHA-256 of canonical JSON. Go
     escapes U+2028 and U+2029, which Python does not; an escaped backslash before `u2028` is not such an escape. */}}
{{- define "podwright.digest" -}}
{{- $name := index . 0 }}{{ $values := index . 1 }}{{ $blueprint := $values.inline }}
{{- if kindIs "string" $blueprint }}
{{- $json := hasSuffix ".json" $values.file }}
{{- if $json }}{{ $blueprint = fromJson $values.inline }}{{ else }}{{ $blueprint = fromYaml $values.inline }}{{ end }}
{{- if or (not $blueprint) (and (hasKey $blueprint "Error") (not (hasKey $blueprint "name"))) }}
{{- fail (printf "components.%s.blueprint.inline: not a %s object, as the name in blueprint.file requires: %v" $name ($json | ternary "JSON" "YAML") (get $blueprint "Error")) }}
{{- end }}
{{- end -}}
sha256:{{ omit $blueprint "$schema" | toRawJson | replace "\\\\" "\x00" | replace "\\u2028" "\u2028" | replace "\\u2029" "\u2029" | replace "\x00" "\\\\" | sha256sum }}
{{- end }}

{{/* The earlier blueprints of a component, as a JSON object of texts by file name, which begins as the digest does. */}}
{{- define "podwright.previous" -}}
{{- $name := index . 0 }}{{ $c := index . 1 }}{{ $files := dict }}
{{- range $blueprint := $c.previous }}
{{- if kindIs "string" $blueprint }}
{{- /* JSON may have U+2028 in a text, which is a line break in YAML. */}}
{{- $text := $blueprint }}{{ $blueprint = fromJson $text }}
{{- if not (hasKey $blueprint "name") }}{{ $blueprint = fromYaml $text }}{{ end }}
{{- end }}
{{- if not (hasKey $blueprint "name") }}
{{- fail (printf "components.%s.previous: a blueprint is not an object with a name: %v" $name (get $blueprint "Error")) }}
{{- end }}
{{- if and $c.blueprint.inline (ne $blueprint.name (include "podwright.blueprintName" (list $name $c))) }}
{{- fail (printf "components.%s.previous: %s is another component; remove its blueprint" $name $blueprint.name) }}
{{- end }}
{{- $digest := include "podwright.digest" (list $name (dict "inline" $blueprint)) }}
{{- $_ := set $files (include "podwright.previousFile" $digest) (toPrettyJson $blueprint) }}
{{- end }}
{{- toJson $files }}
{{- end }}

{{/* The file of an earlier blueprint, by its digest. */}}
{{- define "podwright.previousFile" -}}
{{- printf "%s.json" (trimPrefix "sha256:" . | trunc 12) }}
{{- end }}

{{/* ConfigMap keys cannot contain a slash, and paths in the values cannot contain two dots in a row. */}}
{{- define "podwright.fileKey" -}}
{{- replace "/" ".." . }}
{{- end }}

{{- define "podwright.keysSecret" -}}
{{- $c := index . 2 }}
{{- $c.apiKeys.existingSecret | default (printf "%s-keys" (include "podwright.fullname" .)) }}
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

{{/* Fails if two volumes have one path, which Kubernetes refuses. */}}
{{- define "podwright.checkMounts" -}}
{{- $name := index . 0 }}{{ $c := index . 1 }}{{ $owners := dict }}{{ $own := list }}
{{- range index . 2 }}{{ $_ := set $owners (clean .mountPath) "the chart" }}{{ end }}
{{- range $volume, $source := $c.volumes }}
{{- with $source.mountPath }}{{ $own = append $own (dict "path" (clean .) "value" (printf "volumes.%s" $volume)) }}{{ end }}
{{- end }}
{{- range $index, $mount := $c.extraVolumeMounts }}
{{- $own = append $own (dict "path" (clean $mount.mountPath) "value" (printf "extraVolumeMounts[%d]" $index)) }}
{{- end }}
{{- range $own }}
{{- if hasKey $owners .path }}
{{- fail (printf "components.%s.%s.mountPath: %s already has a volume of %s; choose another path" $name .value .path (get $owners .path)) }}
{{- end }}
{{- $_ := set $owners .path .value }}
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
- name: {{ quote $volume }}
  {{- omit $source "mountPath" "subPath" "readOnly" | toYaml | nindent 2 }}
{{- end }}
{{- end }}

{{/* Fails if a component has nothing to serve. */}}
{{- define "podwright.checkServed" -}}
{{- $root := index . 0 }}{{ $name := index . 1 }}{{ $c := index . 2 }}
{{- $hasImage := ne (include "podwright.image" (list $root $c.image)) (include "podwright.image" (list $root $root.Values.defaults.image)) }}
{{- $served := or $hasImage $c.blueprint.inline $c.blueprint.configMap $c.blueprint.overlay (and $c.files $c.filesFrom) }}
{{- range $path, $text := $c.files }}
{{- if regexMatch "^blueprint\\.(json|ya?ml)$" $path }}{{ $served = true }}{{ end }}
{{- end }}
{{- range concat (values $c.volumes) $c.extraVolumeMounts }}
{{- if eq (get . "mountPath") "/component" }}{{ $served = true }}{{ end }}
{{- end }}
{{- if not $served }}
{{- fail (printf "components.%s: no blueprint and no image of its own, so there is nothing to serve; set components.%s.blueprint or components.%s.image, or correct the name (components are %s)" $name $name $name (keys $root.Values.components | sortAlpha | join ", ")) }}
{{- end }}
{{- end }}

{{/* Fails if a component's background runs cannot have their store. */}}
{{- define "podwright.checkRuns" -}}
{{- $name := index . 0 }}{{ $c := index . 1 }}
{{- if and (eq $c.runs.store "sqlite") (or (ne $c.autoscaling.type "none") (ne 1 (int $c.replicas))) }}
{{- fail (printf "components.%s.runs.store: sqlite is for a single pod; use postgres, or set replicas to 1 and autoscaling.type to none" $name) }}
{{- end }}
{{- if and (ne $c.runs.store "none") (regexMatch "(^|/)podwright$" $c.image.repository) (regexMatch "(^|-)slim$" $c.image.tag) }}
{{- fail (printf "components.%s.runs.store: needs an image of the flavour full, and %s:%s is slim; set components.%s.image.tag" $name $c.image.repository $c.image.tag $name) }}
{{- end }}
{{- if and (eq $c.runs.store "postgres") (not $c.runs.postgres.secret) }}
{{- fail (printf "components.%s.runs.postgres.secret: set the name of the Secret with the URL of the database" $name) }}
{{- end }}
{{- end }}

{{/* Fails if a running pod would stop, and its successor wait for a volume that nobody makes. Only then are the storage
     classes read, because many who install a release may not list them. */}}
{{- define "podwright.checkStorage" -}}
{{- $root := index . 0 }}{{ $name := index . 1 }}{{ $c := index . 2 }}{{ $namespace := $root.Release.Namespace }}
{{- $full := include "podwright.fullname" (list $root $name) }}
{{- if and (not $c.runs.sqlite.storageClass) (lookup "apps/v1" "Deployment" $namespace $full) (not (lookup "v1" "PersistentVolumeClaim" $namespace (printf "%s-runs" $full))) }}
{{- $hasDefault := false }}
{{- range (lookup "storage.k8s.io/v1" "StorageClass" "" "").items }}
{{- if eq "true" (dig "metadata" "annotations" "storageclass.kubernetes.io/is-default-class" "" .) }}{{ $hasDefault = true }}{{ end }}
{{- end }}
{{- if not $hasDefault }}
{{- fail (printf "components.%s.runs.sqlite.storageClass: the cluster has no default storage class, so no volume would be made; set a class, or existingClaim" $name) }}
{{- end }}
{{- end }}
{{- end }}

{{/* Fails if a component's webhook would not be notified, or not be signed. */}}
{{- define "podwright.checkWebhook" -}}
{{- $name := index . 0 }}{{ $c := index . 1 }}
{{- if and $c.webhook.url (eq $c.runs.store "none") }}
{{- fail (printf "components.%s.webhook.url: is notified of background runs; set runs.store" $name) }}
{{- end }}
{{- if and $c.webhook.url (not $c.webhook.secret) }}
{{- fail (printf "components.%s.webhook.secret: set the name of the Secret that has the signing secret in the entry `secret`" $name) }}
{{- end }}
{{- end }}

{{/* Not empty if a component reads files of secrets. */}}
{{- define "podwright.readsSecrets" -}}
{{- $c := index . 0 }}
{{- if or (eq $c.runs.store "postgres") $c.webhook.url (index . 1) }}yes{{ end }}
{{- end }}

{{/* The name in a component's blueprint if the values have it, or else the component's name in the values. */}}
{{- define "podwright.blueprintName" -}}
{{- $blueprint := (index . 1).blueprint.inline }}
{{- if kindIs "string" $blueprint }}{{ $blueprint = fromYaml $blueprint }}{{ end }}
{{- get ($blueprint | default dict) "name" | default (index . 0) }}
{{- end }}

{{/* The entries of a container's environment, from its values by name. Those with a source come first, because the
     values of others may refer to them: `$(NAME)`. */}}
{{- define "podwright.env" -}}
{{- range $variable, $value := . }}
{{- if kindIs "map" $value }}
- name: {{ quote $variable }}
  {{- toYaml $value | nindent 2 }}
{{- end }}
{{- end }}
{{- range $variable, $value := . }}
{{- if not (kindIs "map" $value) }}
- name: {{ quote $variable }}
  value: {{ include "podwright.text" $value | quote }}
{{- end }}
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

{{/* Environment variables of a component, as a JSON object of texts and sources; `env` takes precedence. */}}
{{- define "podwright.environment" -}}
{{- $root := index . 0 }}{{ $name := index . 1 }}{{ $c := index . 2 }}{{ $agents := index . 3 }}{{ $env := dict }}
{{- $_ := set $env "PODWRIGHT_PORT" "8000" }}
{{- $_ := set $env "PODWRIGHT_DRAIN_DELAY" (include "podwright.text" $c.drain.delay) }}
{{- $_ := set $env "PODWRIGHT_SHUTDOWN_TIMEOUT" (include "podwright.text" $c.drain.timeout) }}
{{- if or $c.blueprint.inline $c.blueprint.configMap $c.files }}{{ $_ := set $env "PODWRIGHT_COMPONENT" "/component" }}{{ end }}
{{- if $c.previous }}{{ $_ := set $env "PODWRIGHT_PREVIOUS" "/previous" }}{{ end }}
{{- with $c.model }}{{ $_ := set $env "PODWRIGHT_MODEL" . }}{{ end }}
{{- if $agents }}
{{- $urls := dict }}
{{- $proxies := dict }}
{{- range $agent, $at := $agents }}
{{- $_ := set $urls $agent $at.url }}
{{- with $at.proxy }}{{ $_ := set $proxies $agent . }}{{ end }}
{{- end }}
{{- $_ := set $env "PODWRIGHT_AGENTS" (toJson $urls) }}
{{- with $proxies }}{{ $_ := set $env "PODWRIGHT_AGENT_PROXIES" (toJson .) }}{{ end }}
{{- end }}
{{- $keyFiles := include "podwright.agentKeyFiles" $agents }}
{{- if ne "{}" $keyFiles }}{{ $_ := set $env "PODWRIGHT_AGENT_KEY_FILES" $keyFiles }}{{ end }}
{{- if $root.Values.apiKeys.enabled }}{{ $_ := set $env "PODWRIGHT_API_KEYS_FILE" "/run/podwright/api-keys" }}{{ end }}
{{- if include "podwright.readsSecrets" (list $c (include "podwright.sendsKeys" (list $root $agents))) }}{{ $_ := set $env "PODWRIGHT_SECRETS_DIR" "/run/podwright" }}{{ end }}
{{- if eq $c.runs.store "sqlite" }}{{ $_ := set $env "PODWRIGHT_RUNS_DATABASE" "sqlite:////runs/runs.db" }}{{ end }}
{{- with $c.webhook.url }}{{ $_ := set $env "PODWRIGHT_WEBHOOK" . }}{{ end }}
{{- with $root.Values.telemetry.endpoint }}
{{- $_ := set $env "OTEL_EXPORTER_OTLP_ENDPOINT" . }}
{{- $_ := set $env "OTEL_EXPORTER_OTLP_PROTOCOL" "http/protobuf" }}
{{- $_ := set $env "OTEL_SERVICE_NAME" $name }}
{{- $_ := set $env "OTEL_RESOURCE_ATTRIBUTES" (printf "service.namespace=%s,k8s.namespace.name=%s,k8s.deployment.name=%s" (include "podwright.fleet" $root) $root.Release.Namespace (include "podwright.fullname" (list $root $name))) }}
{{- end }}
{{- range $setting, $value := $c.settings }}
{{- $text := include "podwright.text" $value }}
{{- if kindIs "slice" $value }}{{ $text = join "," $value }}{{ end }}
{{- $_ := set $env (printf "PODWRIGHT_%s" (upper $setting)) $text }}
{{- end }}
{{- /* without keys, only these names, local ones and those of Services are allowed */}}
{{- if or (not $root.Values.apiKeys.enabled) (hasKey $env "PODWRIGHT_ALLOWED_HOSTS") }}
{{- $hosts := list (printf "%s.%s" (include "podwright.fullname" (list $root $name)) $root.Release.Namespace) }}
{{- if $c.ingress.enabled }}{{ $hosts = concat $hosts $c.ingress.hosts }}{{ end }}
{{- if $c.httpRoute.enabled }}{{ $hosts = concat $hosts ($c.httpRoute.hostnames | default list) }}{{ end }}
{{- with get $env "PODWRIGHT_ALLOWED_HOSTS" }}{{ $hosts = append $hosts . }}{{ end }}
{{- $_ := set $env "PODWRIGHT_ALLOWED_HOSTS" (join "," $hosts) }}
{{- end }}
{{- range $variable, $value := $c.env }}
{{- if and (hasPrefix "PODWRIGHT_" $variable) (not (kindIs "map" $value)) }}
{{- fail (printf "components.%s.env.%s: variables of the service are set in settings" $name $variable) }}
{{- end }}
{{- if and (hasPrefix "PODWRIGHT_" $variable) (hasKey $env $variable) }}
{{- fail (printf "components.%s.env.%s: the chart sets this variable; remove it, or the value that sets it" $name $variable) }}
{{- end }}
{{- $_ := set $env $variable $value }}
{{- end }}
{{- include "podwright.addNoProxy" (list $root $env) }}
{{- toJson $env }}
{{- end }}

{{/* Adds the Services of the namespace to NO_PROXY in environment variables with a proxy. Programs read either spelling,
     so both get what the user wrote in one of them; `*` means all, but only alone. A source is left as it is. */}}
{{- define "podwright.addNoProxy" -}}
{{- $root := index . 0 }}{{ $env := index . 1 }}
{{- $hasProxy := false }}
{{- range list "HTTP_PROXY" "HTTPS_PROXY" "ALL_PROXY" }}
{{- if or (hasKey $env .) (hasKey $env (lower .)) }}{{ $hasProxy = true }}{{ end }}
{{- end }}
{{- $given := dict "NO_PROXY" (get $env "NO_PROXY" | default (get $env "no_proxy")) "no_proxy" (get $env "no_proxy" | default (get $env "NO_PROXY")) }}
{{- if $hasProxy }}
{{- range $name, $hosts := $given }}
{{- if kindIs "string" $hosts }}
{{- if ne $hosts "*" }}{{ $hosts = list $hosts (printf ".%s.svc" $root.Release.Namespace) | compact | join "," }}{{ end }}
{{- end }}
{{- $_ := set $env $name $hosts }}
{{- end }}
{{- end }}
{{- end }}

{{- define "podwright.podSecurityContext" -}}
runAsNonRoot: true
{{- range $field, $id := .user }}
{{ $field }}: {{ include "podwright.text" $id }}
{{- end }}
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* The egress rules for DNS of a component. */}}
{{- define "podwright.dns" -}}
{{- range .networkPolicy.dns }}
- ports:
    {{- range .ports | default (list 53 5353) }}
    - {protocol: UDP, port: {{ . }}}
    - {protocol: TCP, port: {{ . }}}
    {{- end }}
  to: {{- omit . "ports" | list | toYaml | nindent 4 }}
{{- end }}
{{- end }}

{{- define "podwright.securityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
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

{{/* The field `annotations` of a Job: those of its hook, and those of the values, which may be others of Helm or of Argo
     CD. */}}
{{- define "podwright.jobAnnotations" -}}
{{- $annotations := index . 1 }}{{ include "podwright.merge" (list $annotations (index . 2).annotations) }}
{{- include "podwright.annotations" (list (index . 0) $annotations) }}
{{- end }}

{{/* How long a Job that has failed stays. */}}
{{- define "podwright.jobEnd" -}}
{{- if not (kindIs "invalid" .ttlSecondsAfterFinished) -}}
ttlSecondsAfterFinished: {{ include "podwright.text" .ttlSecondsAfterFinished }}
{{- end }}
{{- end }}

{{/* Labels and annotations of the pod of a Job: those of the component's pods, and its own. */}}
{{- define "podwright.jobPodLabels" -}}
{{- $labels := deepCopy (index . 1).podLabels }}{{ include "podwright.merge" (list $labels (index . 2).podLabels) }}
{{- include "podwright.ownLabels" (list (index . 0) $labels) }}
{{- end }}

{{- define "podwright.jobPodAnnotations" -}}
{{- $annotations := deepCopy (index . 0).podAnnotations }}{{ include "podwright.merge" (list $annotations (index . 1).podAnnotations) }}
{{- with $annotations }}{{ include "podwright.texts" . }}{{ end }}
{{- end }}

{{/* What the pods of Jobs have in common. Where they run is as for the component's pods, unless their own values say
     so: of its affinity, that to nodes, because the one to pods is about the component's. */}}
{{- define "podwright.jobPod" -}}
{{- $c := index . 1 }}{{ $job := index . 2 -}}
restartPolicy: Never
automountServiceAccountToken: false
enableServiceLinks: false
securityContext: {{- include "podwright.podSecurityContext" $c | nindent 2 }}
{{- with include "podwright.pullSecrets" (list (index . 0) $c) }}
{{ . }}
{{- end }}
{{- with $c.priorityClassName }}
priorityClassName: {{ quote . }}
{{- end }}
{{- with kindIs "invalid" $job.nodeSelector | ternary $c.nodeSelector $job.nodeSelector }}
nodeSelector: {{- include "podwright.texts" . | nindent 2 }}
{{- end }}
{{- with kindIs "invalid" $job.affinity | ternary (pick $c.affinity "nodeAffinity") $job.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with kindIs "invalid" $job.tolerations | ternary $c.tolerations $job.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with include "podwright.podFields" $c }}{{ . }}{{ end }}
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

{{/* The port of a URL. */}}
{{- define "podwright.port" -}}
{{- $url := urlParse . }}
{{- regexFind "[0-9]+$" (regexFind ":[0-9]+$" $url.host) | default (eq $url.scheme "https" | ternary "443" "80") }}
{{- end }}
