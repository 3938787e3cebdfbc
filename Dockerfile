# One component in one container.
#
#   docker build -t podwright:slim .                              without LiteLLM: OpenAI-compatible providers
#   docker build -t podwright:full --build-arg FLAVOUR=full .     all providers
#
# Mount a component at /component; add it with `podwright build`, which installs its dependencies; or, if it has none,
# with two lines: FROM podwright:slim / COPY my_component /component
# checkov:skip=CKV_DOCKER_7:checkov does not resolve the tag in BASE_IMAGE
ARG BASE_IMAGE=python:3.13-slim-trixie

FROM ${BASE_IMAGE} AS build
ENV UV_LINK_MODE=copy UV_NO_CONFIG=1
WORKDIR /source
RUN apt-get update -qq && apt-get install -qq --no-install-recommends 'tini=0.19.*' >/dev/null
COPY requirements-uv.lock ./
RUN --mount=type=cache,target=/root/.cache \
    python3 -m venv /tools && /tools/bin/python -m pip install --quiet --require-hashes -r requirements-uv.lock
ARG FLAVOUR=slim
# The time of every installed file, so that two builds give the same layer.
ARG SOURCE_DATE_EPOCH=0
COPY deploy/image/requirements-${FLAVOUR}.lock requirements.lock
# Removed: scripts of packages, files of uv with a time or a path, a .pth hook of virtualenv, tests of jsonschema and
# referencing, a page of fastapi_offline that is not served, and sources of compiled modules and types for editors.
RUN --mount=type=cache,target=/root/.cache \
    /tools/bin/uv venv --quiet --python python3 /opt/podwright \
    && /tools/bin/uv pip sync --quiet --python /opt/podwright --require-hashes requirements.lock \
    && cd /opt/podwright \
    && find bin -mindepth 1 ! -name 'python*' -delete \
    && rm -f lib/python3*/site-packages/_virtualenv.* CACHEDIR.TAG .gitignore .lock \
    && rm -rf lib/python3*/site-packages/jsonschema/benchmarks \
        lib/python3*/site-packages/jsonschema/tests lib/python3*/site-packages/referencing/tests \
        lib/python3*/site-packages/fastapi_offline/static/redoc.standalone.js \
    && find . \( -name '*.pyc' -o -name '*.py[ix]' -o -name '*.px[di]' -o -name '*.proto' \) -delete \
    && python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash lib \
    && cp /usr/bin/tini bin/ \
    && find /opt -exec touch -hd "@${SOURCE_DATE_EPOCH}" {} +
COPY LICENSE pyproject.toml ./
COPY library library
COPY service service
# With pip, because uv records the time of a local wheel.
RUN --mount=type=cache,target=/root/.cache touch /begun \
    && for package in library service; do \
        (cd $package && /tools/bin/python -m hatchling build -t wheel -d /wheels >/dev/null); done \
    && /tools/bin/python -m pip --python /opt/podwright install --quiet --no-deps --no-index --no-compile \
        --find-links /wheels podwright podwright-service \
    && python3 -m compileall -q --invalidation-mode unchecked-hash /opt/podwright/lib/python3*/site-packages/podwright* \
    && find /opt -cnewer /begun -exec touch -hd "@${SOURCE_DATE_EPOCH}" {} +

FROM ${BASE_IMAGE}
ARG SOURCE_DATE_EPOCH=0
# Remove pip, and the setuid and setgid bits of the base image.
RUN touch /begun \
    && rm -rf /usr/local/lib/python3*/site-packages/pip* /usr/local/bin/pip* /usr/lib/python3/dist-packages/pip* \
        /usr/bin/pip* /usr/lib/python3*/ensurepip /usr/local/lib/python3*/ensurepip /usr/share/python-wheels \
    && find / -xdev -type f -perm /6000 -exec chmod a-s {} + \
    && mkdir /component /opt/podwright \
    && find / -xdev -newer /begun -exec touch -hd "@${SOURCE_DATE_EPOCH}" {} + \
    && rm /begun && touch -d "@${SOURCE_DATE_EPOCH}" /
COPY --from=build /opt/podwright /opt/podwright
ENV PATH=/opt/podwright/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    PODWRIGHT_COMPONENT=/component
USER 65532:65532
WORKDIR /component
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s --start-interval=1s CMD ["podwright", "check"]
# tini forwards signals, and reaps the processes that tools leave behind.
ENTRYPOINT ["tini", "--", "podwright"]
CMD ["serve"]
ARG BASE_IMAGE
ARG FLAVOUR=slim
ARG VERSION
ARG REVISION
# `podwright build` builds a component's dependencies on the same base image.
LABEL org.opencontainers.image.title="podwright" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.base.name="${BASE_IMAGE}" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      podwright.flavour="${FLAVOUR}"
