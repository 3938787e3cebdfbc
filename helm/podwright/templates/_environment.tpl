{{/* Not empty if a component reads files of secrets. */}}
{{- define "podwright.readsSecrets" -}}
{{- $c := index . 0 }}
{{- if or (eq $c.runs.store "postgres") $c.webhook.url (index . 1) }}yes{{ end }}
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
{{- include "podwright.addMCP" (list $c $env) }}
{{- if $root.Values.apiKeys.enabled }}
{{- $_ := set $env "PODWRIGHT_API_KEYS_FILE" "/run/podwright/api-keys" }}
{{- $stateKeys := dict "name" (include "podwright.keysSecret" (list $root $name $c)) "key" "state-keys" }}
{{- if $c.apiKeys.existingSecret }}{{ $_ := set $stateKeys "optional" true }}{{ end }}
{{- $_ := set $env "PODWRIGHT_STATE_KEYS" (dict "valueFrom" (dict "secretKeyRef" $stateKeys)) }}
{{- end }}
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
