"""Running the image of a component on this machine for as long as something needs its service."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager

from podwright.client import Client
from podwright.data.text import truncate
from podwright.errors import ConfigurationError, RemoteError
from podwright.models.retries import Retries
from podwright_service.images.docker import Docker

_PORT = 8000
_STARTUP = 60.0
"""Seconds until the service answers."""
_HARDENED = ("--read-only", "--cap-drop=ALL", "--tmpfs=/tmp")


@contextmanager
def running_image(
    docker: Docker, name: str, variables: Mapping[str, str]
) -> Generator[Client]:
    """Run an image, on a port of this machine alone, until the end of the context.

    Args:
        docker: The Docker client.
        name: The tag of the image.
        variables: Environment variables of the container.

    Yields:
        A client of its service.

    Raises:
        ConfigurationError: The image cannot be run, or its service does not answer.
    """
    container = docker.start(
        name, variables, f"--publish=127.0.0.1::{_PORT}", *_HARDENED
    )
    try:
        client = Client(
            f"http://{docker.address(container, _PORT)}",
            retries=Retries(connect_time=_STARTUP),
        )
        try:
            client.info()
        except RemoteError as error:
            logs = truncate(docker.logs(container)[-1500:], 1500)
            raise ConfigurationError(
                f"The service of the image '{name}' does not answer: {error.message} Its log ends with: {logs}"
            ) from error
        yield client
    finally:
        docker.remove(container)
