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

{{/* Fails if a component has nothing to serve. */}}
{{- define "podwright.checkServed" -}}
{{- $root := index . 0 }}{{ $name := index . 1 }}{{ $c := index . 2 }}
{{- $served := or (hasKey $root.ownImages $name) $c.blueprint.inline $c.blueprint.configMap $c.blueprint.overlay (and $c.files $c.filesFrom) }}
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

{{/* Fails for numbers and settings that Kubernetes refuses, or that would stop every rollout. */}}
{{- define "podwright.checkPods" -}}
{{- $name := index . 0 }}{{ $c := index . 1 }}
{{- if and (ne $c.autoscaling.type "none") (gt (int $c.autoscaling.min) (int $c.autoscaling.max)) }}
{{- fail (printf "components.%s.autoscaling.min: is greater than max; set it to at most %v" $name $c.autoscaling.max) }}
{{- end }}
{{- $surge := toString $c.rollout.maxSurge }}{{ $unavailable := toString $c.rollout.maxUnavailable }}
{{- if and (has $surge (list "0" "0%")) (has $unavailable (list "0" "0%")) }}
{{- fail (printf "components.%s.rollout: with maxSurge 0 and maxUnavailable 0 no pod could be replaced; set one of them" $name) }}
{{- end }}
{{- if and (eq (len $c.service.ipFamilies) 2) (not (hasSuffix "DualStack" $c.service.ipFamilyPolicy)) }}
{{- fail (printf "components.%s.service.ipFamilies: two families need the ipFamilyPolicy PreferDualStack or RequireDualStack" $name) }}
{{- end }}
{{- if and (eq $c.dnsPolicy "None") (not $c.dnsConfig.nameservers) }}
{{- fail (printf "components.%s.dnsConfig.nameservers: the dnsPolicy None needs a name server" $name) }}
{{- end }}
{{- end }}
