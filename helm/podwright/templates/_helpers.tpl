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

{{/* The port of a URL. */}}
{{- define "podwright.port" -}}
{{- $url := urlParse . }}
{{- regexFind "[0-9]+$" (regexFind ":[0-9]+$" $url.host) | default (eq $url.scheme "https" | ternary "443" "80") }}
{{- end }}
