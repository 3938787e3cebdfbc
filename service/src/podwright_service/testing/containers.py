"""A component, or a model stub, in a container; by testcontainers."""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import docker
import httpx
from testcontainers.core.config import ConnectionMode, testcontainers_config
from testcontainers.core.container import DockerContainer
from testcontainers.core.network import Network

from podwright.errors import ConfigurationError
from podwright_service.images.building import BASE, build
from podwright_service.images.context import requirements
from podwright_service.testing.model_stub import (
    CONTROL_PATH,
    PORT,
    SCRIPT,
    ModelStub,
    ReceivedRequest,
)
from podwright_service.testing.served import Served, StartError
from podwright_service.testing.server import shares_network

if TYPE_CHECKING:
    from podwright_service.testing.served import Model, Volume
    from podwright_service.testing.spans import SpanCollector

IMAGE = BASE
"""The image that folders are mounted into."""

HARDENED: Mapping[str, Any] = {
    "read_only": True,
    "cap_drop": ["ALL"],
    "security_opt": ["no-new-privileges:true"],
    "user": "65532:65532",
    "mem_limit": "512m",
    "pids_limit": 256,
}
"""The default options of every container; an option given by name replaces them."""


@contextlib.contextmanager
def component_image(
    folder: str | os.PathLike[str], image: str = IMAGE
) -> Generator[str]:
    """Build the image of a component folder, as `podwright build` does; it is removed at the end.

    Args:
        folder: The component folder.
        image: The base image.

    Yields:
        The tag of the image.

    Raises:
        PodwrightError: A blueprint, a tool or a dependency is invalid, or a container engine is missing.
    """
    tag = f"podwright-test-{uuid.uuid4().hex[:12]}"
    build(Path(folder), tag, base=image)
    try:
        yield tag
    finally:
        client: Any = docker.from_env()
        client.images.remove(tag, force=True)
        client.close()


class _Container(DockerContainer):
    """A hardened container with one published port, which is started when a path of it responds with 200."""

    def __init__(
        self,
        image: str,
        port: int,
        ready_path: str,
        startup: float,
        **options: Any,
    ) -> None:
        super().__init__(image, **{**HARDENED, **options})
        self.url = ""
        self._port = port
        self._ready_path = ready_path
        self._startup = startup
        self._started = False
        client = self.get_docker_client()
        direct = (
            client.get_connection_mode() is ConnectionMode.docker_host
            and client.host() == "localhost"
        )
        self._local = direct or shares_network()
        self.ports[str(port)] = ("127.0.0.1", None) if self._local else None  # pyright: ignore[reportArgumentType] - docker-py accepts both

    def logs(self) -> str:
        """The output of the container so far."""
        return self.get_wrapped_container().logs().decode(errors="replace")

    def start(self) -> Self:
        """Start the container, and wait until it is ready.

        Raises:
            StartError: It did not become ready in time, or stopped before.
        """
        if not self.get_docker_client().client.images.list(
            testcontainers_config.ryuk_image
        ):
            # the reaper's image may be out of reach
            testcontainers_config.ryuk_disabled = True
        self._started = True
        try:
            super().start()
            self._wait_until_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def _wait_until_ready(self) -> None:
        container = self.get_wrapped_container()
        deadline = time.monotonic() + self._startup
        with httpx.Client(timeout=2, trust_env=False) as client:
            while True:
                container.reload()
                if container.status not in ("created", "running"):
                    raise self._start_error(
                        f"stopped with exit code {container.attrs['State']['ExitCode']}"
                    )
                self.url = self._find_url(container.ports)
                with contextlib.suppress(httpx.HTTPError, httpx.InvalidURL):
                    if (
                        client.get(self.url + self._ready_path).status_code
                        == 200
                    ):
                        return
                if time.monotonic() > deadline:
                    raise self._start_error(
                        f"was not ready within {self._startup:g} s"
                    )
                time.sleep(0.05)

    def _find_url(self, published: Mapping[str, Any]) -> str:
        bindings = published.get(f"{self._port}/tcp")
        if not bindings:  # in an internal network, no port is published
            return f"http://{self.get_docker_client().bridge_ip(self.get_container_id())}:{self._port}"
        host = "127.0.0.1" if self._local else self.get_container_host_ip()
        return f"http://{host}:{bindings[0]['HostPort']}"

    def _start_error(self, reason: str) -> StartError:
        return StartError(
            f"The container of '{self.image}' {reason}. Its log:\n{self.logs()[-4000:]}"
        )

    def stop(self, force: bool = True, delete_volume: bool = True) -> None:
        """Remove the container."""
        if self._started:
            self._started = False
            super().stop(force, delete_volume)


class ComponentContainer(_Container, Served):
    """A component in a container, from `start` to `stop` or within a `with` block.

    It runs as in production: read-only, without capabilities, as an unprivileged user. Its port is published to this
    machine only.

    Args:
        component: The tag of an image, or a component folder. A string that names an existing folder is a folder.
        image: The image that a folder is mounted into, read-only; if it has dependencies, the base of its own image.
        model: A model's name, a `ModelStub` or a `ModelStubContainer`, that serves every model call.
        spans: The collector of its spans; by default it exports none.
        api_key: An API key that the component requires, and the client sends.
        env: Further environment variables.
        volumes: Folders and files of this machine that are mounted: `[(folder, "/data", "rw")]`. The container's user,
            65532, needs the rights to read or write them.
        network: A network to join.
        startup: Seconds to wait until it is ready.
        **options: Further options of testcontainers and docker-py, such as `network_aliases` and `mem_limit`.

    Raises:
        ConfigurationError: The folder does not exist.
    """

    def __init__(
        self,
        component: str | os.PathLike[str],
        *,
        image: str = IMAGE,
        model: Model | None = None,
        spans: SpanCollector | None = None,
        api_key: str | None = None,
        env: Mapping[str, str] | None = None,
        volumes: Sequence[Volume] = (),
        network: Network | None = None,
        startup: float = 60.0,
        **options: Any,
    ) -> None:
        folder = Path(component)
        is_folder = folder.is_dir()
        if not is_folder and not isinstance(component, str):
            raise ConfigurationError(
                f"There is no folder '{folder}'.",
                suggestion="Give a folder, or an image's tag.",
            )
        Served.__init__(self, model, spans, api_key, env)
        tag = image if is_folder else str(component)
        _Container.__init__(
            self, tag, 8000, "/ready", startup, network=network, **options
        )
        self._resources = contextlib.ExitStack()
        self._folder_to_build = (
            folder if is_folder and requirements(folder) else None
        )
        if is_folder and self._folder_to_build is None:
            self.with_volume_mapping(folder.resolve(), "/component", "ro")
        for source, *target in volumes:
            self.with_volume_mapping(Path(source).resolve(), *target)

    def start(self) -> Self:
        """Start the component, and wait until it is ready.

        Raises:
            StartError: It did not become ready in time, or stopped before.
            PodwrightError: Its image cannot be built.
        """
        if self._folder_to_build is not None:
            self.image = self._resources.enter_context(
                component_image(self._folder_to_build, self.image)
            )
        self.with_envs(
            **{
                "OTEL_TRACES_EXPORTER": "none",
                **self._variables("url_for_containers"),
            }
        )
        return super().start()

    def stop(self, force: bool = True, delete_volume: bool = True) -> None:
        """Remove the container, and the image that was built for it."""
        self._disconnect()
        super().stop(force, delete_volume)
        self._resources.close()

    def drain(self, seconds: int = 45) -> int:
        """Stop the component as an orchestrator does and return its exit code; `logs` is still available.

        Args:
            seconds: How long it may take before it is killed.
        """
        self._disconnect()
        self.get_wrapped_container().stop(timeout=seconds)
        return self.wait()


class ModelStubContainer(_Container):
    """A model stub in a container, for components in networks that cannot reach this machine.

    Args:
        stub: The stub, with responses that are data; functions stay in this process. It need not be started.
        image: An image of Podwright.
        network: A network to join.
        alias: The host name in the network.
        startup: Seconds to wait until it is ready.
        **options: Further options, as of `ComponentContainer`.
    """

    def __init__(
        self,
        stub: ModelStub,
        *,
        image: str = IMAGE,
        network: Network | None = None,
        alias: str = "model",
        startup: float = 60.0,
        **options: Any,
    ) -> None:
        super().__init__(
            image,
            PORT,
            CONTROL_PATH,
            startup,
            network=network,
            entrypoint=["python"],
            **options,
        )
        self.with_command(["-m", "podwright_service.testing.model_stub"])
        self._stub = stub
        self._alias = alias if network else ""
        if network:
            self.with_network_aliases(alias)

    def _wait_until_ready(self) -> None:
        try:
            script = SCRIPT.dump_json(self._stub.script, warnings="error")
        except ValueError as error:
            raise ConfigurationError(
                "A model stub in a container cannot call a function.",
                suggestion="Give responses as data, or use when().",
            ) from error
        super()._wait_until_ready()
        httpx.put(
            f"{self.url}{CONTROL_PATH}", content=script, trust_env=False
        ).raise_for_status()

    @property
    def url_for_containers(self) -> str:
        """The address for containers of its network."""
        host = self._alias or self.get_docker_client().bridge_ip(
            self.get_container_id()
        )
        return f"http://{host}:{PORT}"

    @property
    def stub(self) -> ModelStub:
        """The stub, with the requests so far."""
        report: Any = httpx.get(
            f"{self.url}{CONTROL_PATH}", trust_env=False
        ).json()
        self._stub.received = [
            ReceivedRequest(**received) for received in report["received"]
        ]
        self._stub.unanswered = report["unanswered"]
        for call, used in zip(
            self._stub.script.recorded, report["used"], strict=True
        ):
            call.used = used
        return self._stub

    @property
    def unanswered(self) -> list[str]:
        """For each request without a response, the reason."""
        return self.stub.unanswered

    def variables(self, url: str) -> dict[str, str]:
        """The environment variables of a component that uses the stub at `url`."""
        return self._stub.variables(url)
