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

{{/* Fails if texts are too large for a ConfigMap, which Kubernetes would say only at the installation. */}}
{{- define "podwright.checkSize" -}}
{{- $name := index . 0 }}{{ $value := index . 1 }}{{ $bytes := 0 }}
{{- range $key, $text := index . 2 }}{{ $bytes = add $bytes (len $text) }}{{ end }}
{{- if gt (int $bytes) 1048576 }}
{{- $ways := dict "files" "build an image with the folder (podwright build), or put files into ConfigMaps of your own (filesFrom)" "previous" "remove the oldest blueprints" }}
{{- fail (printf "components.%s.%s: %d bytes do not fit into a ConfigMap, which holds 1048576; %s" $name $value (int $bytes) (get $ways $value)) }}
{{- end }}
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
{{- if not (kindIs "string" (index $blueprint "name")) }}
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

{{/* The name in a component's blueprint if the values have it, or else the component's name in the values. */}}
{{- define "podwright.blueprintName" -}}
{{- $blueprint := (index . 1).blueprint.inline }}
{{- if kindIs "string" $blueprint }}{{ $blueprint = fromYaml $blueprint }}{{ end }}
{{- get ($blueprint | default dict) "name" | default (index . 0) }}
{{- end }}
