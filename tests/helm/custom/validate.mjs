// Holds custom resources against their operators' own Go types, which these packages turn into functions. The functions
// pass over what they do not know; so they are shown each object through a proxy that writes down what they look at.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
import { join } from "node:path";

const [packages] = process.argv.slice(2);
const TYPES = {
  ServiceMonitor: "prometheus-operator/_schemas/ComGithubPrometheusOperatorPrometheusOperatorPkgApisMonitoringV1ServiceMonitor",
  PodMonitor: "prometheus-operator/_schemas/ComGithubPrometheusOperatorPrometheusOperatorPkgApisMonitoringV1PodMonitor",
  PrometheusRule: "prometheus-operator/_schemas/ComGithubPrometheusOperatorPrometheusOperatorPkgApisMonitoringV1PrometheusRule",
  ScaledObject: "keda/_schemas/ComGithubKedacoreKedaV2ApisKedaV1alpha1ScaledObject",
  HTTPRoute: "gateway-api/_schemas/IoK8sSigsGatewayApiApisV1HTTPRoute",
  ExternalSecret: "external-secrets/_schemas/ComGithubExternalSecretsExternalSecretsApisExternalsecretsV1ExternalSecret",
};

function watched(value, at, seen) {
  if (value === null || typeof value !== "object") return value;
  const inner = new Map();
  return new Proxy(value, {
    get(target, key) {
      if (typeof key === "symbol" || !Object.hasOwn(target, key) || (Array.isArray(target) && key === "length"))
        return target[key];
      const path = `${at}/${key}`;
      seen.add(path);
      if (!inner.has(key)) inner.set(key, watched(target[key], path, seen));
      return inner.get(key);
    },
  });
}

function* paths(value, at = "") {
  if (value === null || typeof value !== "object") return;
  for (const [key, below] of Object.entries(value)) {
    yield `${at}/${key}`;
    yield* paths(below, `${at}/${key}`);
  }
}

const found = [];
for (const manifest of JSON.parse(readFileSync(0, "utf8"))) {
  const file = join(packages, "node_modules", "@kubernetes-models", `${TYPES[manifest.kind]}.js`);
  const { validate } = await import(pathToFileURL(file));
  const seen = new Set();
  const valid = validate(watched(manifest, "", seen));
  const unknown = [...paths(manifest)].filter((path) => !seen.has(path));
  found.push({ kind: manifest.kind, errors: valid ? [] : validate.errors, unknown });
}
console.log(JSON.stringify(found));
