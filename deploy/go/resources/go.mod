// The modules whose custom resources the chart can create, for the definitions of those resources.
module podwright/resources

go 1.26.4

require (
	github.com/external-secrets/external-secrets v1.3.2
	github.com/kedacore/keda/v2 v2.21.0
	github.com/prometheus-operator/prometheus-operator v0.85.0
	sigs.k8s.io/gateway-api v1.6.3
)
