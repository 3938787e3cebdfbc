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
{{- $c := get $root.Values.components $component }}
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

{{/* A component's key for one purpose (admin, run, read, state). A key reveals neither the seed nor other keys. */}}
{{- define "podwright.key" -}}
{{- $root := index . 0 }}
{{- printf "%s/%s/%s/%s/%s" (index . 3) $root.Release.Namespace (include "podwright.fleet" $root) (index . 1) (index . 2) | sha256sum }}
{{- end }}

{{/* The keys that seal the states of a component's stopped runs; the first one seals. */}}
{{- define "podwright.stateKeys" -}}
{{- $root := index . 0 }}{{ $name := index . 1 }}{{ $keys := list }}
{{- range $seed := include "podwright.seeds" $root | fromJsonArray }}
{{- $keys = append $keys (include "podwright.key" (list $root $name "state" $seed)) }}
{{- end }}
{{- join "," $keys }}
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

{{- define "podwright.keysSecret" -}}
{{- $c := index . 2 }}
{{- $c.apiKeys.existingSecret | default (printf "%s-keys" (include "podwright.fullname" .)) }}
{{- end }}
