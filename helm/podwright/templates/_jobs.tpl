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
{{- include "podwright.ownLabels" (list (index . 0) $labels "podLabels") }}
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
