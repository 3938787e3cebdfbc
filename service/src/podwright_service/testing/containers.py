"""A component, or a model stub, in a container of this machine's engine, by testcontainers."""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import docker
import httpx
from docker.errors import ImageNotFound
from testcontainers.core.config import ConnectionMode, testcontainers_config
from testcontainers.core.container import DockerContainer
from testcontainers.core.network import Network
from testcontainers.core.waiting_utils import WaitStrategy, WaitStrategyTarget

from podwright.errors import ConfigurationError
from podwright_service.images.building import build
from podwright_service.images.context import requirements
from podwright_service.testing.model_stub import CONTROL, PORT, SCRIPT, Asked, ModelStub
from podwright_service.testing.served import ModelSource, Served, StartError, environment
from podwright_service.testing.serving import shares_network

if TYPE_CHECKING:
    from podwright_service.testing.spans import SpanCollector

IMAGE = "podwright:direct"
"""The image that folders are mounted into."""

HARDENED: Mapping[str, Any] = {
    "read_only": True,
    "cap_drop": ["ALL"],
    "security_opt": ["no-new-privileges:true"],
    "user": "65532:65532",
    "mem_limit": "512m",
    "pids_limit": 256,
}
"""How containers run; what one is given by name wins."""

_LONGEST_LOG = 4000


@contextlib.contextmanager
def component_image(folder: str | os.PathLike[str], image: str = IMAGE) -> Generator[str]:
    """The tag of an image of a component folder, as `podwright build` makes it; it is removed at the end.

    Args:
        folder: The component folder.
        image: The image that it is made from.

    Raises:
        PodwrightError: It cannot be built: a blueprint, a tool or a dependency is wrong, or there is no engine.
    """
    tag = f"podwright-test-{uuid.uuid4().hex[:12]}"
    build(Path(folder), tag, base=image)
    try:
        yield tag
    finally:
        client: Any = docker.from_env()
        client.images.remove(tag, force=True)
        client.close()


class _Ready(WaitStrategy):
    """Waits until a path answers 200, and no longer than the container lives."""

    def __init__(self, path: str, seconds: float) -> None:
        super().__init__()
        self._path, self._seconds = path, seconds

    def wait_until_ready(self, container: WaitStrategyTarget) -> None:
        """Wait."""
        if not isinstance(container, _Container):
            raise TypeError(container)
        wrapped, deadline = container.get_wrapped_container(), time.monotonic() + self._seconds
        with httpx.Client(timeout=2, trust_env=False) as client:
            while True:
                wrapped.reload()
                if wrapped.status not in ("created", "running"):
                    code = wrapped.attrs["State"]["ExitCode"]
                    raise container.failed(f"ended with exit code {code} before it was ready")
                with contextlib.suppress(httpx.HTTPError, ConnectionError):
                    if client.get(container.locate() + self._path).status_code == 200:
                        return
                if time.monotonic() > deadline:
                    raise container.failed(f"was not ready within {self._seconds:g} s")
                time.sleep(0.05)


class _Container(DockerContainer):
    """A hardened container with one published port."""

    def __init__(self, image: str, port: int, ready: str, startup: float, **options: Any) -> None:
        super().__init__(image, **{**HARDENED, **options})
        self._port, self.url = port, ""
        self.waiting_for(_Ready(ready, startup))
        client = self.get_docker_client()
        direct = client.get_connection_mode() is ConnectionMode.docker_host and client.host() == "localhost"
        self._local = direct or shares_network()
        self.ports[str(port)] = ("127.0.0.1", None) if self._local else None  # pyright: ignore[reportArgumentType] - docker-py takes both

    def locate(self) -> str:
        """Where it answers.

        Raises:
            ConnectionError: The engine has not published its port yet.
        """
        client, name = self.get_docker_client(), self.get_container_id()
        published: Any = client.get_container(name)["Ports"]
        if not self._local:
            self.url = f"http://{self.get_container_host_ip()}:{self._get_exposed_port(self._port)}"
        elif published and "PublicPort" in published[0]:
            self.url = f"http://127.0.0.1:{published[0]['PublicPort']}"
        else:  # in a network that is cut off, nothing is published
            self.url = f"http://{client.bridge_ip(name)}:{self._port}"
        return self.url

    def logs(self) -> str:
        """What it has printed."""
        return self.get_wrapped_container().logs().decode(errors="replace")

    def start(self) -> Self:
        """Start it; what clears up after a test that is killed comes along where its image is here already."""
        before = testcontainers_config.ryuk_disabled
        try:
            self.get_docker_client().client.images.get(testcontainers_config.ryuk_image)
        except ImageNotFound:
            testcontainers_config.ryuk_disabled = True
        try:
            return super().start()
        finally:
            testcontainers_config.ryuk_disabled = before

    def stop(self, force: bool = True, delete_volume: bool = True) -> None:
        """Remove it."""
        super().stop(force, delete_volume)
        self._container = None

    def failed(self, what: str) -> StartError:
        """The error that says so, with the end of its log."""
        return StartError(f"The container of '{self.image}' {what}. Its log:\n{self.logs()[-_LONGEST_LOG:]}")


class ComponentContainer(_Container, Served):
    """A component in a container, from `start` to `stop` or within a `with` block.

    It runs as it should in production: read-only, with no capabilities, as a user without rights. Its port is
    published to this machine only.

    Args:
        component: The tag of an image; or a component folder. A text that names an existing folder is one.
        image: The image that a folder is mounted into, read-only; or, with dependencies, that its own is made from.
        model: A model's name, a `ModelStub` or a `ModelStubContainer`, that answers every model call.
        spans: Where its spans go; nowhere by default.
        api_key: A key that it wants, and is sent.
        env: More variables.
        network: A network to be in, beside other containers.
        startup: Seconds that it may take to be ready.
        **options: More of testcontainers' and docker-py's options, such as `network_aliases` and `mem_limit`.

    Raises:
        ConfigurationError: There is no such folder.
    """

    def __init__(
        self,
        component: str | os.PathLike[str],
        *,
        image: str = IMAGE,
        model: str | ModelSource | None = None,
        spans: SpanCollector | None = None,
        api_key: str | None = None,
        env: Mapping[str, str] | None = None,
        network: Network | None = None,
        startup: float = 60.0,
        **options: Any,
    ) -> None:
        folder = Path(component)
        mounted = folder.is_dir()
        if not mounted and not isinstance(component, str):
            raise ConfigurationError(f"There is no folder '{folder}'.", suggestion="Give a folder, or an image's tag.")
        self._spans, self._given = spans, dict(env or {})
        Served.__init__(self, api_key, model)
        _Container.__init__(
            self, image if mounted else str(component), 8000, "/ready", startup, network=network, **options
        )
        self._made, self._folder = contextlib.ExitStack(), folder if mounted and requirements(folder) else None
        if mounted and self._folder is None:
            self.with_volume_mapping(folder.resolve(), "/component", "ro")

    def start(self) -> Self:
        """Start it, and wait until it is ready.

        Raises:
            StartError: It is not, or ends before.
            ConfigurationError: The model stub would not be asked.
            PodwrightError: Its image cannot be built.
        """
        try:
            if self._folder is not None:
                self.image = self._made.enter_context(component_image(self._folder, self.image))
            found = environment("url_for_containers", self._model, self._spans, self.api_key)
            self.with_envs(**{"OTEL_TRACES_EXPORTER": "none"} | found | self._given)
            super().start()
            self._check_models()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self, force: bool = True, delete_volume: bool = True) -> None:
        """Remove it."""
        self._disconnect()
        super().stop(force, delete_volume)
        self._made.close()

    def drain(self, seconds: int = 45) -> int:
        """Tell it to stop, as an orchestrator does, and give its exit code; `logs` still has its last words."""
        self._disconnect()
        self.get_wrapped_container().stop(timeout=seconds)
        return self.wait()


class ModelStubContainer(_Container):
    """A model stub in a container of its own, for components in networks that have no way to this machine.

    Args:
        stub: What it says; functions of the request are not possible. It need not be started.
        image: An image of ours.
        network: A network to be in.
        alias: Its name there.
        startup: Seconds that it may take to be ready.
        **options: As of `ComponentContainer`.
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
        super().__init__(image, PORT, CONTROL, startup, network=network, entrypoint=["python"], **options)
        self.with_command(["-m", "podwright_service.testing.model_stub"])
        self._stub, self._alias = stub, alias if network else ""
        if network:
            self.with_network_aliases(alias)

    def start(self) -> Self:
        """Start it, and tell it what to say.

        Raises:
            StartError: It does not start.
            ConfigurationError: What it shall say is no data.
        """
        try:
            script = SCRIPT.dump_json(self._stub.script, warnings="error")
        except ValueError as error:
            raise ConfigurationError(
                "A function cannot answer in a container.", suggestion="Give answers as data, or use when()."
            ) from error
        try:
            super().start()
            httpx.put(f"{self.url}{CONTROL}", content=script, trust_env=False).raise_for_status()
        except BaseException:
            self.stop()
            raise
        return self

    @property
    def url_for_containers(self) -> str:
        """Where containers of its network reach it."""
        if self._alias:
            return f"http://{self._alias}:{PORT}"
        return f"http://{self.get_docker_client().bridge_ip(self.get_container_id())}:{PORT}"

    @property
    def stub(self) -> ModelStub:
        """The stub, with what was asked so far."""
        told: Any = httpx.get(f"{self.url}{CONTROL}", trust_env=False).json()
        self._stub.asked = [Asked(**one) for one in told["asked"]]
        self._stub.complaints = told["complaints"]
        for one, asked in zip(self._stub.script.recorded, told["recorded"], strict=True):
            one.asked = asked
        return self._stub

    @property
    def complaints(self) -> list[str]:
        """What it had no answer for."""
        return self.stub.complaints

    def variables(self, url: str) -> dict[str, str]:
        """As of the stub."""
        return self._stub.variables(url)
