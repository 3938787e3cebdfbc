{{/* The MCP servers whose tools a component uses, as a JSON object of objects by name. */}}
{{- define "podwright.mcpServers" -}}
{{- $servers := dict }}
{{- range $name, $server := . }}
{{- if kindIs "string" $server }}{{ $server = dict "url" $server }}{{ end }}
{{- if $server }}{{ $_ := set $servers $name $server }}{{ end }}
{{- end }}
{{- toJson $servers }}
{{- end }}

{{/* Adds what a component's service needs of them to its environment. */}}
{{- define "podwright.addMCP" -}}
{{- $c := index . 0 }}{{ $env := index . 1 }}{{ $entries := dict }}
{{- range $name, $server := include "podwright.mcpServers" $c.mcpServers | fromJson }}
{{- $entry := dict "url" $server.url }}
{{- with $server.timeout }}{{ $_ := set $entry "timeout" . }}{{ end }}
{{- with $server.headersFromRequest }}{{ $_ := set $entry "headers_from_request" . }}{{ end }}
{{- $_ := set $entries $name $entry }}
{{- end }}
{{- with $entries }}{{ $_ := set $env "PODWRIGHT_MCP_SERVERS" (toJson .) }}{{ end }}
{{- $keyFiles := include "podwright.mcpKeyFiles" $c }}
{{- if ne "{}" $keyFiles }}{{ $_ := set $env "PODWRIGHT_MCP_KEY_FILES" $keyFiles }}{{ end }}
{{- if $c.mcp.enabled }}{{ $_ := set $env "PODWRIGHT_MCP" "true" }}{{ end }}
{{- end }}

{{/* The files with the keys of MCP servers, which are in Secrets of the user, as a JSON object of paths by name. */}}
{{- define "podwright.mcpKeyFiles" -}}
{{- $files := dict }}
{{- range $name, $server := include "podwright.mcpServers" .mcpServers | fromJson }}
{{- if $server.keySecret }}{{ $_ := set $files $name (printf "/run/podwright/mcp/%s" $name) }}{{ end }}
{{- end }}
{{- toJson $files }}
{{- end }}

{{/* Fails if a component's image is known to be without the package for MCP. */}}
{{- define "podwright.checkMCP" -}}
{{- $name := index . 0 }}{{ $c := index . 1 }}{{ $value := "" }}
{{- if ne "{}" (include "podwright.mcpServers" $c.mcpServers) }}{{ $value = "mcpServers" }}{{ end }}
{{- if $c.mcp.enabled }}{{ $value = "mcp.enabled" }}{{ end }}
{{- if and $value (regexMatch "(^|/)podwright$" $c.image.repository) (regexMatch "(^|-)slim$" $c.image.tag) }}
{{- fail (printf "components.%s.%s: needs an image of the flavour full, and %s:%s is slim; set components.%s.image.tag" $name $value $c.image.repository $c.image.tag $name) }}
{{- end }}
{{- end }}

{{/* The paths that an ingress or a route has, as a JSON list. */}}
{{- define "podwright.paths" -}}
{{- $c := index . 0 }}{{ $paths := index . 1 }}
{{- if $c.mcp.enabled }}{{ $paths = append $paths "/mcp" | uniq }}{{ end }}
{{- toJson $paths }}
{{- end }}
