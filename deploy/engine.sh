#!/usr/bin/env bash
# Brings up a Docker engine with compose and buildx, and the base image of the Dockerfile, where they are missing.
# Safe to call again. A machine with Docker and a registry needs none of this: then it changes nothing.
#
#   deploy/engine.sh          bring up what is missing
#   deploy/engine.sh docker   print the client to call
set -euo pipefail

BASE_IMAGE=${BASE_IMAGE:-python:3.13-slim-trixie}
SUITE=trixie  # Debian 12's own engine has no compose, and its builder is too old

LOG=/var/log/podwright-dockerd.log

say() { echo "engine: $*" >&2; }
fail() { say "$*"; exit 1; }

# A command that fails without a message of its own is named.
trap 'say "failed at line $LINENO: $BASH_COMMAND"' ERR
set -o errtrace

# A mirror that hiccups and a package manager that is busy are waited for.
apt() {
    DEBIAN_FRONTEND=noninteractive apt-get -q -y -o Acquire::Retries=3 -o DPkg::Lock::Timeout=120 "$@" >&2
}

# Another client may come first on the PATH and know neither compose nor buildx.
client() {
    for one in docker /usr/bin/docker; do
        if "$one" compose version >/dev/null 2>&1 && "$one" buildx version >/dev/null 2>&1; then
            command -v "$one"
            return
        fi
    done
    return 1
}

answers() { docker=$(client) && "$docker" info >/dev/null 2>&1; }

install_engine() {
    command -v apt-get >/dev/null || fail "no Docker engine here, and no apt to install one with; install Docker"
    [ "$(id -u)" -eq 0 ] || fail "no Docker engine here, and only root can install one; install Docker"
    say "installing Docker from Debian's $SUITE"
    own=$(. /etc/os-release && echo "$VERSION_CODENAME")
    from=()
    if [ "$own" != "$SUITE" ]; then
        add_suite "$own"
        from=(-t "$SUITE")
    fi
    # libraries keep to the machine's own release: only what is named comes from the other one
    apt update
    packages=(docker.io docker-cli docker-compose docker-buildx containerd)
    [ ${#from[@]} -eq 0 ] || packages=("${packages[@]/%//$SUITE}")
    apt install --no-install-recommends "${packages[@]}" iptables mmdebstrap
}

add_suite() {
    # apt itself reads both forms of its sources, *.list and *.sources
    mirrors=$(apt-get indextargets --format '$(REPO_URI)' "Release: $1" 'Identifier: Packages')
    mirror=${mirrors%%$'\n'*}
    [ -n "$mirror" ] || fail "apt has no source for $1; add one, or a source for $SUITE, or install Docker"
    printf 'Types: deb\nURIs: %s\nSuites: %s\nComponents: main\nSigned-By: %s\n' \
        "$mirror" "$SUITE" /usr/share/keyrings/debian-archive-keyring.gpg \
        >/etc/apt/sources.list.d/podwright-$SUITE.sources
    printf 'Package: *\nPin: release n=%s\nPin-Priority: 100\n' "$SUITE" >/etc/apt/preferences.d/podwright-$SUITE
}

start_engine() {
    say "starting the engine; its log is $LOG"
    if [ -d /run/systemd/system ]; then
        systemctl start docker
    else
        # left behind by an engine that was killed, it would keep the next one from starting
        pgrep -x dockerd >/dev/null || rm -f /var/run/docker.pid
        setsid dockerd >>"$LOG" 2>&1 </dev/null &
    fi
    for _ in $(seq 120); do
        if answers; then return; fi
        sleep 0.5
    done
    tail -20 "$LOG" >&2 || true
    fail "the engine did not start"
}

# Where no registry answers, the name is met by an image that is made from Debian's packages.
bring_base_image() {
    docker=$(client)
    if "$docker" image inspect "$BASE_IMAGE" >/dev/null 2>&1; then return; fi
    if timeout 60 "$docker" pull -q "$BASE_IMAGE" >/dev/null 2>&1; then return; fi
    case $BASE_IMAGE in python:3.13-slim-trixie) ;; *) fail "$BASE_IMAGE cannot be pulled, nor made here" ;; esac
    command -v mmdebstrap >/dev/null || apt install --no-install-recommends mmdebstrap
    say "no registry answers: making $BASE_IMAGE from Debian's packages"
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    authorities=${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}
    mmdebstrap --quiet --variant=minbase --include=ca-certificates,python3,python3-venv,python3-pip \
        --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
        --dpkgopt='path-exclude=/usr/share/locale/*' \
        --customize-hook='rm -f "$1"/usr/lib/python3*/EXTERNALLY-MANAGED' \
        --customize-hook='ln -s /usr/bin/python3 "$1"/usr/local/bin/python3' \
        --customize-hook='ln -s /usr/bin/python3 "$1"/usr/local/bin/python' \
        --customize-hook="cp '$authorities' \"\$1\"/etc/ssl/certs/ca-certificates.crt" \
        --customize-hook='chmod 644 "$1"/etc/ssl/certs/ca-certificates.crt' \
        "$SUITE" "$work/base.tar" >&2
    "$docker" import --change 'ENV PATH=/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin' \
        --change 'ENV SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt' \
        --change 'ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt' \
        --change 'CMD ["python3"]' "$work/base.tar" "$BASE_IMAGE" >/dev/null
}

if [ "${1:-}" = docker ]; then
    client || fail "no Docker client with compose and buildx here; \`make engine\` brings one"
    exit
fi
client >/dev/null || install_engine
answers || { command -v dockerd >/dev/null || install_engine; start_engine; }
bring_base_image
say "$("$(client)" version --format 'engine {{.Server.Version}}') answers, with $BASE_IMAGE"
