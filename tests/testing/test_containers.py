"""Components in containers and in processes: run, counted, traced, stopped, and errors at the start."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from testcontainers.core.network import Network
from tests.helpers import plain_http
from tests.image_support import Docker

from podwright.errors import ConfigurationError
from podwright.events import ModelCallRetried, RunFinished, RunStarted, Token
from podwright.testing import assert_events
from podwright_service.testing import (
    ComponentContainer,
    ComponentProcess,
    Fault,
    ModelStub,
    ModelStubContainer,
    ProblemError,
    Served,
    SpanCollector,
    StartError,
    ToolCall,
    assert_counted,
    assert_spans,
    assert_usage,
)

MODEL = "openai/gpt-4o-mini"
ADDITION = (ToolCall.of("add_numbers", numbers=[2, 3]), "It is 5.")


@pytest.fixture(scope="module")
def stub() -> Iterator[ModelStub]:
    with ModelStub(name=MODEL) as started:
        yield started


@pytest.fixture(scope="module")
def collector() -> Iterator[SpanCollector]:
    with SpanCollector() as started:
        yield started


@pytest.fixture(scope="module")
def container(
    slim: str, calculator: Path, stub: ModelStub, collector: SpanCollector
) -> Iterator[ComponentContainer]:
    with ComponentContainer(
        calculator, image=slim, model=stub, spans=collector
    ) as started:
        yield started


@pytest.fixture(scope="module", params=["container", "process"])
def served(
    request: pytest.FixtureRequest,
    calculator: Path,
    stub: ModelStub,
    collector: SpanCollector,
) -> Iterator[Served]:
    """The calculator, served in both ways."""
    if request.param == "container":
        yield request.getfixturevalue("container")
        return
    with ComponentProcess(calculator, model=stub, spans=collector) as started:
        yield started


def test_a_run(
    served: Served, stub: ModelStub, collector: SpanCollector
) -> None:
    """A run returns the value, its events and its usage; counters, spans and the requests at the stub agree with it."""
    before = served.metrics()
    stub.respond_with(*ADDITION, *ADDITION)
    assert served.run("What is 2 + 3?") == "It is 5."
    result = served.run({"input": "What is 2 + 3?"}, trace=True)
    assert result.value == "It is 5."
    assert_events(
        result, "tool_call_finished tool=add_numbers output=5.0", "run_finished"
    )
    assert_usage(result, model_calls=2, tool_calls=1)
    assert_counted(result.usage + result.usage, served.metrics(), before)
    [tool] = assert_spans(
        collector,
        "POST /run > invoke_agent calculator > execute_tool add_numbers",
    )
    assert tool.resource["service.name"] == "calculator"
    [chat] = assert_spans(
        collector,
        "POST /run > chat gpt-4o-mini",
        gen_ai__response__finish_reasons=["tool_calls"],
    )
    assert chat.attributes["gen_ai.usage.input_tokens"] > 0
    assert [request.messages[-1].content for request in stub.requests[:2]] == [
        "What is 2 + 3?",
        "5.0",
    ]
    stub.verify()


def test_a_stream(served: Served, stub: ModelStub) -> None:
    """A stream yields typed events, here of a model call that fails at first."""
    stub.respond_with(Fault(503, retry_after=0.0), "It is five.")
    events = list(served.stream("What is 2 + 3?"))
    assert isinstance(events[0], RunStarted)
    assert [event for event in events if isinstance(event, ModelCallRetried)]
    assert (
        "".join(event.text for event in events if isinstance(event, Token))
        == "It is five."
    )
    last = events[-1]
    assert isinstance(last, RunFinished)
    assert last.value == "It is five."


def test_a_conversation(served: Served, stub: ModelStub) -> None:
    """A run and a stream go on from the messages of an earlier result, and take a list of texts and images."""
    stub.respond_with("Five.", "Six.", "Seven.")
    text = {"type": "text", "text": "2 + 3?"}
    first = served.run([text], trace=True)
    assert served.run("And 3 + 3?", messages=first.messages) == "Six."
    assert list(served.stream([text], messages=first.messages))
    asked = [
        [message.text for message in request.messages[1:]]
        for request in stub.requests
    ]
    assert asked == [
        ["2 + 3?"],
        ["2 + 3?", "Five.", "And 3 + 3?"],
        ["2 + 3?", "Five.", "2 + 3?"],
    ]


def test_problems(served: Served, stub: ModelStub) -> None:
    """A rejected request and a failed run raise a problem with its code; the stub's reason is a note."""
    with pytest.raises(ProblemError, match="request_invalid") as rejected:
        served.run({})
    assert (rejected.value.status, rejected.value.problem["status"]) == (
        422,
        422,
    )
    stub.respond_with()
    for run in (
        lambda: served.run("Anything?"),
        lambda: list(served.stream("Anything?")),
    ):
        with pytest.raises(ProblemError) as failed:
            run()
        assert failed.value.code == "model_request_refused"
        assert "'Anything?'" in failed.value.__notes__[0]


def test_info_and_logs(served: Served) -> None:
    """The description and the log of the component are available."""
    assert served.info().blueprint["name"] == "calculator"
    assert served.info().models["effective"] == [MODEL]
    assert "running on" in served.logs()


def test_a_container_is_hardened(container: ComponentContainer) -> None:
    """A container runs as in production, and is published to this machine only."""
    wrapped = container.get_wrapped_container()
    wrapped.reload()
    host: Any = wrapped.attrs["HostConfig"]
    assert host["ReadonlyRootfs"]
    assert host["CapDrop"] == ["ALL"]
    assert host["SecurityOpt"] == ["no-new-privileges:true"]
    assert wrapped.attrs["Config"]["User"] == "65532:65532"
    assert {
        binding["HostIp"] for binding in wrapped.ports["8000/tcp"] or ()
    } == {"127.0.0.1"}
    assert container.url.startswith("http://127.0.0.1:")
    assert container.exec(["touch", "/component/x"]).exit_code != 0


def test_a_key_variables_and_a_graceful_stop(
    docker: Docker, slim: str, calculator: Path
) -> None:
    """The key is required and sent, variables are set, and a container drains with exit code 0 and is removed."""
    options: dict[str, Any] = {
        "image": slim,
        "api_key": "s3cret-s3cret-s3cret",
        "env": {"PODWRIGHT_TITLE": "Sums"},
    }
    with ComponentContainer(
        calculator, model="offline/echo", **options
    ) as container:
        name = container.get_container_id()
        assert container.info().title == "Sums"
        assert container.run("2 + 3").startswith("Echo: 2 + 3")
        assert (
            plain_http.post(
                f"{container.url}/run", json={"input": "x"}
            ).status_code
            == 401
        )
        assert container.drain() == 0
        assert container.logs()
    assert name not in docker("ps", "-aq", "--no-trunc")


def test_volumes(slim: str, calculator: Path, tmp_path: Path) -> None:
    """Folders of this machine are mounted, read-only unless the mode is another one."""
    for name in ("read", "written"):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(0o777)
    (tmp_path / "read" / "a.txt").write_text("from here")
    with ComponentContainer(
        calculator,
        image=slim,
        model="offline/echo",
        volumes=[
            (tmp_path / "read", "/read"),
            (tmp_path / "written", "/written", "rw"),
        ],
    ) as container:
        assert container.exec(["cat", "/read/a.txt"]).output == b"from here"
        assert container.exec(["touch", "/read/b.txt"]).exit_code != 0
        assert container.exec(["touch", "/written/b.txt"]).exit_code == 0
        assert container.run("2 + 3").startswith("Echo: 2 + 3")
    assert (tmp_path / "written" / "b.txt").exists()


def test_a_component_that_cannot_be_served(slim: str, tmp_path: Path) -> None:
    """A component that stops at its start fails at once, with the reason from its log."""
    (tmp_path / "blueprint.json").write_text(
        '{"type": "Agent", "name": "broken"}'
    )
    tmp_path.chmod(0o755)
    start = time.monotonic()
    for broken in (
        ComponentContainer(tmp_path, image=slim, startup=600),
        ComponentProcess(tmp_path, startup=600),
    ):
        with pytest.raises(StartError, match="instructions"):
            broken.start()
    assert time.monotonic() - start < 120


def test_a_folder_with_requirements_is_built(
    docker: Docker, slim: str, calculator: Path, tmp_path: Path
) -> None:
    """A component with requirements runs in an image of its own, which is removed with its container."""
    folder = shutil.copytree(calculator, tmp_path / "calculator")
    (folder / "requirements.txt").write_text("six\n")
    with ComponentContainer(
        folder, image=slim, model="offline/echo"
    ) as container:
        built = container.image
        assert container.run("2 + 3").startswith("Echo")
    assert built.startswith("podwright-test-")
    assert docker.run("image", "inspect", built).returncode != 0


def test_a_container_that_is_late(slim: str, calculator: Path) -> None:
    """A container that is not ready in time is reported with its log."""
    container = ComponentContainer(
        calculator, image=slim, entrypoint=["sh"], startup=2
    )
    container.with_command(["-c", "echo thinking; exec sleep 600"])
    with pytest.raises(StartError, match="thinking"):
        container.start()


def test_a_network_without_this_machine(slim: str, calculator: Path) -> None:
    """In an internal network, a stub in a container serves a recorded run, and reports the requests."""
    with (
        ModelStub(*ADDITION, name=MODEL) as stub,
        ComponentProcess(calculator, model=stub) as process,
    ):
        trace = process.run("What is 2 + 3?", trace=True)
    with Network(docker_network_kw={"internal": True}) as network:
        recorded = ModelStub.from_trace(trace, name=MODEL)
        with ModelStubContainer(recorded, image=slim, network=network) as model:
            assert len(model.stub.missing) == 2
            with ComponentContainer(
                calculator, image=slim, model=model, network=network
            ) as container:
                assert container.url.endswith(":8000")
                assert container.run("What is 2 + 3?") == "It is 5."
                model.stub.verify()
                assert len(model.stub.requests) == 2
                with pytest.raises(ProblemError) as failed:
                    container.run("What is 3 + 3?")
                assert "What is 3 + 3?" in failed.value.__notes__[0]


def test_a_script_in_a_container(slim: str, calculator: Path) -> None:
    """A scripted stub works in a container; a function cannot be sent there, and a folder must exist."""
    script = ModelStub(
        ToolCall.of("add_numbers", numbers=[2, 3]), name=MODEL
    ).when("5.0", "It is 5.")
    with (
        ModelStubContainer(script, image=slim) as model,
        ComponentContainer(calculator, image=slim, model=model) as container,
    ):
        assert container.run("2 + 3?") == "It is 5."
    with pytest.raises(ConfigurationError):
        ModelStubContainer(ModelStub(lambda _: "x"), image=slim).start()
    with pytest.raises(ConfigurationError):
        ComponentContainer(Path("nowhere"))
