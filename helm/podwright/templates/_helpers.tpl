{{/* Prepares `.Values` for the templates, each of which includes this first: what is missing or null gets its default,
     which Helm does not do for null, and each component gets all of its values. The values that Helm stores with the
     release stay as they are. */}}
{{- define "podwright.init" -}}
{{- if not (hasKey . "initialized") }}
{{- $_ := set . "initialized" true }}
{{- $chart := .Files.Get "files/defaults.json" | fromJson }}
{{- $given := deepCopy .Values }}
{{- include "podwright.numbers" (list $given $chart.numbers) }}
{{- $values := dict }}
{{- include "podwright.fill" (list $values $given $chart.values $chart.removable) }}
{{- $ownImages := dict }}
{{- $components := dict }}
{{- range $name, $own := $values.components }}
{{- $c := deepCopy $values.defaults }}
{{- if include "podwright.hasOwnImage" (list $values.defaults.image $own.image) }}{{ $_ := set $ownImages $name true }}{{ end }}
{{- include "podwright.dropReplaced" (list $c $own) }}
{{- include "podwright.override" (list $c $own $chart.values.defaults $chart.removable.defaults) }}
{{- $_ := set $components $name $c }}
{{- end }}
{{- $_ := set $values "components" $components }}
{{- $_ := set . "ownImages" $ownImages }}
{{- if not $values.enabled }}
{{- $values = $chart.values }}
{{- $_ := set $values "enabled" false }}
{{- $_ := set $values.apiKeys "enabled" false }}
{{- end }}
{{- $_ := set . "Values" $values }}
{{- if $values.enabled }}{{ include "podwright.claimNames" . }}{{ end }}
{{- end }}
{{- end }}

{{/* Makes numbers of the texts in values where numbers belong. */}}
{{- define "podwright.numbers" -}}
{{- $values := index . 0 }}{{ $marks := index . 1 }}
{{- range $key, $value := $values }}
{{- $mark := get $marks $key | default (get $marks "*") }}
{{- if not $mark }}
{{- else if kindIs "map" $value }}
{{- include "podwright.numbers" (list $value $mark) }}
{{- else if kindIs "slice" $value }}
{{- $items := list }}
{{- range $value }}
{{- $item := dict "[]" . }}{{ include "podwright.numbers" (list $item $mark) }}{{ $items = append $items (get $item "[]") }}
{{- end }}
{{- $_ := set $values $key $items }}
{{- else if and (kindIs "string" $value) (kindIs "bool" $mark) }}
{{- /* Helm 3 evaluates all operands of `and`. */}}
{{- if regexMatch "^-?[0-9.]+$" $value }}
{{- $_ := set $values $key (contains "." $value | ternary (float64 $value) (int64 $value)) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* Copies values, without null, and adds the defaults of missing keys, except of those that null removes: Helm has
     removed the key then. Of lists and maps that null empties, `removable` has the kind. */}}
{{- define "podwright.fill" -}}
{{- $into := index . 0 }}{{ $removable := index . 3 }}
{{- range $key, $value := index . 1 }}
{{- if not (kindIs "invalid" $value) }}{{ $_ := set $into $key $value }}{{ end }}
{{- end }}
{{- range $key, $default := index . 2 }}
{{- $mark := get $removable $key }}
{{- if eq (toString $mark) "map" }}
{{- $entries := dict }}
{{- range $name, $entry := get $into $key | default dict }}
{{- if not (kindIs "invalid" $entry) }}{{ $_ := set $entries $name $entry }}{{ end }}
{{- end }}
{{- $_ := set $into $key $entries }}
{{- else if and (kindIs "map" $default) (kindIs "map" (get $into $key)) }}
{{- $filled := dict }}
{{- include "podwright.fill" (list $filled (get $into $key) $default ($mark | default dict)) }}
{{- $_ := set $into $key $filled }}
{{- else if hasKey $into $key }}
{{- else if eq (toString $mark) "list" }}
{{- $_ := set $into $key list }}
{{- else if not (or (kindIs "bool" $mark) (kindIs "invalid" $default)) }}
{{- $_ := set $into $key $default }}
{{- end }}
{{- end }}
{{- end }}

{{/* Puts a component's values over a copy of the defaults: maps key by key. Null empties a list or a map that has keys of
     the user's, removes such a key, and otherwise leaves the default. */}}
{{- define "podwright.override" -}}
{{- $into := index . 0 }}{{ $known := index . 2 }}{{ $removable := index . 3 }}
{{- range $key, $value := index . 1 }}
{{- $mark := index $removable $key }}
{{- if kindIs "invalid" $value }}
{{- if eq (toString $mark) "list" }}{{ $_ := set $into $key list }}
{{- else if eq (toString $mark) "map" }}{{ $_ := set $into $key dict }}
{{- else if or (kindIs "bool" $mark) (kindIs "invalid" (index $known $key)) }}{{ $_ := unset $into $key }}
{{- end }}
{{- else if and (kindIs "map" $value) (kindIs "map" (index $known $key)) (not (kindIs "string" $mark)) }}
{{- include "podwright.override" (list (get $into $key) $value (index $known $key) ($mark | default dict)) }}
{{- else if and (kindIs "map" $value) (kindIs "map" (get $into $key)) }}
{{- include "podwright.merge" (list (get $into $key) $value) }}
{{- else }}
{{- $_ := set $into $key $value }}
{{- end }}
{{- end }}
{{- end }}

{{/* Removes from a copy of the defaults what a component's values replace as a whole: the source of a variable or of a
     volume, an MCP server, whose key is for its URL, and what tells one image of a repository from another. */}}
{{- define "podwright.dropReplaced" -}}
{{- $c := index . 0 }}{{ $own := index . 1 }}
{{- range $variable, $value := $own.env }}
{{- if kindIs "map" $value }}{{ $_ := unset $c.env $variable }}{{ end }}
{{- end }}
{{- range $volume, $source := $own.volumes }}
{{- if and (hasKey $c.volumes $volume) (omit ($source | default dict) "mountPath" "subPath" "readOnly") }}
{{- $_ := set $c.volumes $volume (pick (get $c.volumes $volume) "mountPath" "subPath" "readOnly") }}
{{- end }}
{{- end }}
{{- range $server, $value := $own.mcpServers }}
{{- if kindIs "map" $value }}{{ $_ := unset $c.mcpServers $server }}{{ end }}
{{- end }}
{{- $image := $own.image | default dict }}
{{- $changed := dict }}
{{- range list "repository" "tag" "digest" }}
{{- $part := get $image . }}
{{- if and $part (ne (toString $part) (toString (get $c.image .))) }}{{ $_ := set $changed . true }}{{ end }}
{{- end }}
{{- if $changed }}{{ $_ := set $c.image "digest" "" }}{{ end }}
{{- if or $changed.repository $changed.digest }}{{ $_ := set $c.image "tag" "" }}{{ end }}
{{- end }}

{{/* Not empty if a component's image is not simply the one of this chart: its values name it, or the defaults name another
     repository, in which an image may have the component. */}}
{{- define "podwright.hasOwnImage" -}}
{{- $image := index . 1 | default dict }}
{{- if or $image.repository $image.tag $image.digest (ne "podwright" (base (index . 0).repository)) }}yes{{ end }}
{{- end }}

{{/* Merges values into others: maps key by key, and null removes a key. Sprig's merge functions keep null, and some of them
     ignore 0 and false. */}}
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
{{- $port := regexFind "[0-9]+$" (regexFind ":[0-9]+$" $url.host) | default (eq $url.scheme "https" | ternary "443" "80") }}
{{- if or (gt (int $port) 65535) (eq (int $port) 0) }}
{{- fail (printf "%s: the port is not between 1 and 65535; correct the URL" .) }}
{{- end }}
{{- $port }}
{{- end }}
