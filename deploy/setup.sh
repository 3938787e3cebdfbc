#!/bin/sh
# Runs uv with the given arguments. Without a recent uv, it first installs the locked one into .uv.
set -eu
cd "$(dirname "$0")/.."

SYSTEM_CERTIFICATES=/etc/ssl/certs/ca-certificates.crt # of Debian

fail() {
    echo "setup: $*" >&2
    exit 1
}

# uv does not read pip's settings, so on a machine that is set up for pip they become uv's defaults. Its own certificates
# do not contain that of a company, so it uses those of the system.
pip_setting() {
    python3 -m pip config get "$1" 2>/dev/null || true
}

use_pip_settings() {
    index=${UV_DEFAULT_INDEX:-${UV_INDEX_URL:-${PIP_INDEX_URL:-$(pip_setting global.index-url)}}}
    if [ -n "$index" ]; then export UV_DEFAULT_INDEX="$index"; fi
    certificates=${SSL_CERT_FILE:-${PIP_CERT:-$(pip_setting global.cert)}}
    if [ -n "$certificates" ]; then
        export SSL_CERT_FILE="$certificates" PIP_CERT="$certificates"
    elif [ -f "$SYSTEM_CERTIFICATES" ]; then
        export PIP_CERT="$SYSTEM_CERTIFICATES" # an older pip trusts its own list
    fi
    export UV_SYSTEM_CERTS="${UV_SYSTEM_CERTS:-true}"
}

has_venv() {
    python3 -c 'import ensurepip, venv' 2>/dev/null
}

# Debian's python3 cannot make virtual environments without this package.
install_venv() {
    if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
        { apt-get update -q && apt-get install -q -y --no-install-recommends python3-venv; } >&2 || true
    fi
    has_venv || fail "python3 cannot make virtual environments; install the package python3-venv, or uv"
}

install_uv() {
    command -v python3 >/dev/null || fail "there is no python3; install Python 3.11 or newer"
    has_venv || install_venv
    echo "setup: installing uv into .uv" >&2
    python3 -m venv --clear .uv || fail "cannot make a virtual environment in .uv"
    .uv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-uv.lock \
        || fail "pip could not install uv from requirements-uv.lock; see \"A company's network\" in CONTRIBUTING.md"
    cp requirements-uv.lock .uv/
}

use_pip_settings
export UV_PYTHON_DOWNLOADS=never
# This fails without uv, and with one that is older than pyproject.toml requires.
if uv cache dir >/dev/null 2>&1; then
    uv=uv
else
    # The lock is copied last, so an equal one shows that the installation was completed.
    cmp -s requirements-uv.lock .uv/requirements-uv.lock || install_uv
    uv=.uv/bin/uv
fi
"$uv" "$@" || fail "\`uv $1 ${2-}\` failed. Behind a proxy or with a mirror, set HTTPS_PROXY, PIP_INDEX_URL or SSL_CERT_FILE;" \
    "see \"A company's network\" in CONTRIBUTING.md"
