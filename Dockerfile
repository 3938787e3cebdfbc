# One component in one container.
#
#   docker build -t podwright .                          every model provider
#   docker build -t podwright --build-arg FLAVOUR=direct .   without LiteLLM: providers that speak Chat Completions
#
# The component is mounted at /component, or added: FROM podwright / COPY my_component /component
ARG BASE_IMAGE=python:3.13-slim-trixie

FROM ${BASE_IMAGE} AS build
ARG FLAVOUR=full
# Of two builds of the same source, every file is the same: byte code that says when it was made would differ.
ARG SOURCE_DATE_EPOCH=0
ENV UV_LINK_MODE=copy UV_NO_CONFIG=1
WORKDIR /source
COPY requirements-uv.lock ./
RUN --mount=type=cache,target=/root/.cache \
    python3 -m venv /tools && /tools/bin/python -m pip install --quiet --require-hashes -r requirements-uv.lock
COPY deploy/image/requirements-${FLAVOUR}.lock requirements.lock
RUN --mount=type=cache,target=/root/.cache \
    /tools/bin/uv venv --quiet --python python3 /opt/podwright \
    && /tools/bin/uv pip sync --quiet --python /opt/podwright --require-hashes requirements.lock
COPY LICENSE pyproject.toml ./
COPY library library
COPY service service
RUN --mount=type=cache,target=/root/.cache \
    for one in library service; do (cd $one && /tools/bin/python -m hatchling build -t wheel -d /wheels >/dev/null); done \
    && /tools/bin/uv pip install --quiet --python /opt/podwright --no-deps /wheels/*.whl \
    && find /opt/podwright -name '*.pyc' -delete \
    && python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/podwright/lib \
    && find /opt/podwright -newermt "@${SOURCE_DATE_EPOCH}" -exec touch -hd "@${SOURCE_DATE_EPOCH}" {} +

FROM ${BASE_IMAGE}
# What the base has and a service has no use for: an installer, and programs that run as their owner.
RUN rm -rf /usr/local/lib/python3*/site-packages/pip* /usr/local/bin/pip* /usr/lib/python3/dist-packages/pip* \
        /usr/bin/pip* /usr/lib/python3*/ensurepip /usr/local/lib/python3*/ensurepip /usr/share/python-wheels \
    && find / -xdev -type f -perm /6000 -exec chmod a-s {} +
COPY --from=build /opt/podwright /opt/podwright
ENV PATH=/opt/podwright/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    PODWRIGHT_COMPONENT=/component
USER 65532:65532
WORKDIR /component
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s --start-interval=1s CMD ["podwright", "check"]
ENTRYPOINT ["podwright"]
CMD ["serve"]
ARG VERSION
ARG REVISION
LABEL org.opencontainers.image.title="podwright" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
