#!/usr/bin/env bash
# Installs and starts a Docker engine with compose and buildx, and provides the base image of the Dockerfile, if they are
# missing. Needs root and Debian to install; changes nothing on a machine with Docker and a registry.
#
#   deploy/engine.sh          install and start what is missing
#   deploy/engine.sh docker   print the path of the Docker client
#   deploy/engine.sh base     print the base image to build with: with its digest, unless it was made here
set -euo pipefail

PINNED=$(sed -n 's/^FROM //p' "$(dirname "$0")/base/Dockerfile")
DEFAULT=${PINNED%@*}
BASE_IMAGE=${BASE_IMAGE:-$DEFAULT}
SPACE=10 # in GB
SUITE=trixie # the Docker of Debian 12 has no compose, and an old builder

LOG=/var/log/podwright-dockerd.log

say() { echo "engine: $*" >&2; }
fail() {
    say "$*"
    exit 1
}

# Report any other command that fails.
trap 'say "failed at line $LINENO: $BASH_COMMAND"' ERR
set -o errtrace

apt() {
    DEBIAN_FRONTEND=noninteractive apt-get -q -y -o Acquire::Retries=3 -o DPkg::Lock::Timeout=120 "$@" >&2
}

# The first client with compose and buildx; the one on PATH may have neither.
client() {
    for program in docker /usr/bin/docker; do
        if "$program" compose version >/dev/null 2>&1 && "$program" buildx version >/dev/null 2>&1; then
            command -v "$program"
            return
        fi
    done
    return 1
}

is_running() { docker=$(client) && "$docker" info >/dev/null 2>&1; }

install_engine() {
    command -v apt-get >/dev/null || fail "there is no Docker engine, and no apt-get to install it; install Docker"
    [ "$(id -u)" -eq 0 ] || fail "there is no Docker engine, and only root can install it; install Docker"
    say "installing Docker from Debian $SUITE"
    packages=(docker.io docker-cli docker-compose docker-buildx containerd)
    release=$(. /etc/os-release && echo "$VERSION_CODENAME")
    if [ "$release" != "$SUITE" ]; then
        add_suite "$release"
        packages=("${packages[@]/%//$SUITE}") # only these come from the other release
    fi
    apt update
    apt install --no-install-recommends "${packages[@]}" iptables mmdebstrap
    # its own limit of the build cache is a tenth of the disk, however little of it is free
    [ -e /etc/docker/daemon.json ] \
        || install -D -m 644 /dev/stdin /etc/docker/daemon.json \
            <<<'{"builder": {"gc": {"enabled": true, "defaultKeepStorage": "10GB"}}}'
}

add_suite() {
    apt update # before the first one, apt-get tells of no source; it reads *.list and *.sources alike
    mirrors=$(apt-get indextargets --format '$(REPO_URI)' "Release: $1" 'Identifier: Packages')
    mirror=${mirrors%%$'\n'*}
    [ -n "$mirror" ] || fail "apt has no source for $1; add one, add one for $SUITE, or install Docker"
    printf 'Types: deb\nURIs: %s\nSuites: %s\nComponents: main\nSigned-By: %s\n' \
        "$mirror" "$SUITE" /usr/share/keyrings/debian-archive-keyring.gpg \
        >/etc/apt/sources.list.d/podwright-$SUITE.sources
    printf 'Package: *\nPin: release n=%s\nPin-Priority: 100\n' "$SUITE" >/etc/apt/preferences.d/podwright-$SUITE
}

# Without pgrep, which a bare Debian lacks, and which also finds zombies.
dockerd_is_alive() {
    awk '/^Name:/ { name = $2 } /^State:/ && name == "dockerd" && $2 != "Z" { alive = 1 } END { exit !alive }' \
        /proc/[0-9]*/status 2>/dev/null
}

start_engine() {
    say "starting the engine; its log is $LOG"
    if [ -d /run/systemd/system ]; then
        systemctl start docker
    else
        # the pid file of a killed engine would keep the next one from starting
        dockerd_is_alive || rm -f /var/run/docker.pid
        GOGC=400 setsid dockerd >>"$LOG" 2>&1 </dev/null & # less CPU for more memory
    fi
    for _ in $(seq 120); do
        if is_running; then return; fi
        sleep 0.5
    done
    tail -20 "$LOG" >&2 || true
    fail "the engine did not start within a minute"
}

# An image that no registry has, because it was made by `provide_base_image`, has no digest there.
is_made_here() {
    docker=$(client) && [ "$("$docker" image inspect --format '{{.RepoDigests}}' "$1" 2>/dev/null)" = '[]' ]
}

# The base image to build with: the default one by its digest, where a registry has it.
base_image() {
    if [ "$BASE_IMAGE" != "$DEFAULT" ] || is_made_here "$DEFAULT"; then
        echo "$BASE_IMAGE"
    else
        echo "$PINNED"
    fi
}

# Without a registry, the base image is made from Debian's packages.
provide_base_image() {
    docker=$(client)
    if "$docker" image inspect "$BASE_IMAGE" >/dev/null 2>&1; then return; fi
    image=$(base_image)
    if timeout 60 "$docker" pull -q "$image" >/dev/null 2>&1; then
        "$docker" tag "$image" "$BASE_IMAGE"
        return
    fi
    [ "$BASE_IMAGE" = "$DEFAULT" ] || fail "$BASE_IMAGE cannot be pulled, and only the default can be made"
    command -v mmdebstrap >/dev/null || apt install --no-install-recommends mmdebstrap
    say "no registry responds: making $BASE_IMAGE from Debian's packages"
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    certificates=${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}
    mmdebstrap --quiet --variant=minbase --include=ca-certificates,python3,python3-venv,python3-pip \
        --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
        --dpkgopt='path-exclude=/usr/share/locale/*' \
        --customize-hook='rm -f "$1"/usr/lib/python3*/EXTERNALLY-MANAGED' \
        --customize-hook='ln -s /usr/bin/python3 "$1"/usr/local/bin/python3' \
        --customize-hook='ln -s /usr/bin/python3 "$1"/usr/local/bin/python' \
        --customize-hook="cp '$certificates' \"\$1\"/etc/ssl/certs/ca-certificates.crt" \
        --customize-hook='chmod 644 "$1"/etc/ssl/certs/ca-certificates.crt' \
        "$SUITE" "$work/base.tar" >&2
    "$docker" import --change 'ENV PATH=/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin' \
        --change 'ENV SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt' \
        --change 'ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt' \
        --change 'CMD ["python3"]' "$work/base.tar" "$BASE_IMAGE" >/dev/null
}

# On a full disk, clusters and databases fail with messages that do not name it. It is a warning, because how much is
# needed depends on what is built already.
warn_of_full_disk() {
    folder=$("$(client)" info --format '{{.DockerRootDir}}' 2>/dev/null) || return 0
    [ -d "$folder" ] || return 0 # of an engine on another machine
    free=$(df -Pk "$folder" | awk 'NR == 2 { print int($4 / 1048576) }')
    [ "$free" -ge $SPACE ] \
        || say "warning: the disk of $folder has $free GB free, and all tests may need $SPACE;" \
            "\`docker system df\` shows what the engine holds"
}

if [ "${1:-}" = base ]; then
    base_image
    exit
fi
if [ "${1:-}" = docker ]; then
    client || fail "there is no Docker client with compose and buildx; \`make engine\` installs one on Debian"
    exit
fi
client >/dev/null || install_engine
is_running || {
    [ "$(id -u)" -eq 0 ] || fail "the Docker engine does not answer this user; join the group docker, or set DOCKER_HOST"
    command -v dockerd >/dev/null || install_engine
    start_engine
}
provide_base_image
warn_of_full_disk
say "$("$(client)" version --format 'engine {{.Server.Version}}') is running and has $BASE_IMAGE"
