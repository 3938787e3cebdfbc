#!/bin/sh
# Runs uv with the given arguments. Where there is none, or too old a one, brings the locked one into .uv first.
set -eu
cd "$(dirname "$0")/.."

fail() {
    echo "setup: $*" >&2
    exit 1
}

# uv does not read pip's settings; a machine set up for pip alone should do. What is set for uv wins.
pip_setting() {
    python3 -m pip config get "$1" 2>/dev/null || true
}

follow_pip() {
    index=${UV_DEFAULT_INDEX:-${UV_INDEX_URL:-${PIP_INDEX_URL:-$(pip_setting global.index-url)}}}
    if [ -n "$index" ]; then export UV_DEFAULT_INDEX="$index"; fi
    certificates=${SSL_CERT_FILE:-${PIP_CERT:-$(pip_setting global.cert)}}
    if [ -n "$certificates" ]; then export SSL_CERT_FILE="$certificates"; fi
}

has_venv() {
    python3 -c 'import ensurepip, venv' 2>/dev/null
}

# Debian ships python3 without the module that makes virtual environments.
add_venv() {
    if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
        { apt-get update -q && apt-get install -q -y --no-install-recommends python3-venv; } >&2 || true
    fi
    has_venv || fail "python3 cannot make virtual environments; install the package python3-venv, or uv"
}

bring_uv() {
    command -v python3 >/dev/null || fail "no python3 found; install Python 3.11 or newer"
    has_venv || add_venv
    echo "setup: bringing uv into .uv" >&2
    python3 -m venv --clear .uv
    .uv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-uv.lock
    cp requirements-uv.lock .uv/
}

follow_pip
export UV_PYTHON_DOWNLOADS=never
# Says no where there is no uv, and where it is older than pyproject.toml asks for.
if uv cache dir >/dev/null 2>&1; then
    exec uv "$@"
fi
# The copy is made last, so it tells that this very lock was installed to its end.
cmp -s requirements-uv.lock .uv/requirements-uv.lock || bring_uv
exec .uv/bin/uv "$@"
