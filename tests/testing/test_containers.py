"""Components in real containers: started, asked, counted, traced, and what is said where that fails."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.image_support import engine

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
    containers,
)

MODEL = "openai/gpt-4o-mini"
ADDS = (ToolCall.of("add_numbers", numbers=[2, 3]), "It is 5.")


@pytest.fixture(scope="module")
def stub() -> Iterator[ModelStub]:
    with ModelStub(name=MODEL) as started:
        yield started


@pytest.fixture(scope="module")
def collector() -> Iterator[SpanCollector]:
    with SpanCollector() as started:
        yield started


@pytest.fixture(scope="module")
def container(image: str, calculator: Path, stub: ModelStub, collector: SpanCollector) -> Iterator[ComponentContainer]:
    with ComponentContainer(calculator, image=image, model=stub, spans=collector) as started:
        yield started


@pytest.fixture(scope="module", params=["container", "process"])
def served(
    request: pytest.FixtureRequest, calculator: Path, stub: ModelStub, collector: SpanCollector
) -> Iterator[Served]:
    """The calculator, which both ways of serving it must show alike."""
    if request.param == "container":
        yield request.getfixturevalue("container")
        return
    with ComponentProcess(calculator, model=stub, spans=collector) as started:
        yield started


def test_a_run(served: Served, stub: ModelStub, collector: SpanCollector) -> None:
    """A run gives the value, its events and its usage; counters and spans agree with it, and the stub was asked."""
    before = served.metrics()
    stub.answers(*ADDS, *ADDS)
    assert served.run("What is 2 + 3?") == "It is 5."
    result = served.run({"input": "What is 2 + 3?"}, trace=True)
    assert result.value == "It is 5."
    assert_events(result, "tool_call_finished tool=add_numbers output=5.0", "run_finished")
    assert_usage(result, model_calls=2, tool_calls=1)
    assert_counted(result.usage + result.usage, served.metrics(), before)
    assert (
        served.metrics().get("podwright_runs_total", status="ok") - before.get("podwright_runs_total", status="ok") == 2
    )
    [tool] = assert_spans(collector, "POST /run > invoke_agent calculator > execute_tool add_numbers")
    assert tool.resource["service.name"] == "calculator"
    [chat] = assert_spans(collector, "POST /run > chat gpt-4o-mini", gen_ai__response__finish_reasons=["tool_calls"])
    assert chat.attributes["gen_ai.usage.input_tokens"] > 0
    assert [request.messages[-1].content for request in stub.requests[:2]] == ["What is 2 + 3?", "5.0"]
    stub.verify()


def test_a_stream(served: Served, stub: ModelStub) -> None:
    """A stream gives typed events as they happen, those of a model that fails first and streams then."""
    stub.answers(Fault(503, retry_after=0.0), "It is five.")
    events = list(served.stream("What is 2 + 3?"))
    assert isinstance(events[0], RunStarted)
    assert [event for event in events if isinstance(event, ModelCallRetried)]
    assert "".join(event.text for event in events if isinstance(event, Token)) == "It is five."
    last = events[-1]
    assert isinstance(last, RunFinished)
    assert last.value == "It is five."


def test_problems(served: Served, stub: ModelStub) -> None:
    """A refused request and a failed run are problems with their codes; what the stub says of it is a note."""
    with pytest.raises(ProblemError, match="request_invalid") as refused:
        served.run({})
    assert (refused.value.status, refused.value.problem["title"]) == (422, "Request invalid")
    stub.answers()
    for ask in (lambda: served.run("Anything?"), lambda: list(served.stream("Anything?"))):
        with pytest.raises(ProblemError) as failed:
            ask()
        assert failed.value.code == "model_request_refused"
        assert "no answer left for a request that ends with 'Anything?'" in failed.value.__notes__[0]


def test_info_and_logs(served: Served) -> None:
    """It says what it is, and what it has printed."""
    assert served.info()["blueprint"]["name"] == "calculator"
    assert served.info()["models"]["effective"] == [MODEL]
    assert "running on" in served.logs()


def test_it_is_hardened(container: ComponentContainer) -> None:
    """A container runs as in production, and is published to this machine only."""
    wrapped = container.get_wrapped_container()
    wrapped.reload()
    host: Any = wrapped.attrs["HostConfig"]
    assert host["ReadonlyRootfs"]
    assert host["CapDrop"] == ["ALL"]
    assert host["SecurityOpt"] == ["no-new-privileges:true"]
    assert wrapped.attrs["Config"]["User"] == "65532:65532"
    assert {one["HostIp"] for one in wrapped.attrs["NetworkSettings"]["Ports"]["8000/tcp"]} == {"127.0.0.1"}
    assert container.url.startswith("http://127.0.0.1:")
    assert container.exec(["touch", "/component/x"]).exit_code != 0


def test_keys_and_variables(image: str, calculator: Path) -> None:
    """A container that wants a key is sent it, and variables are passed on."""
    options: dict[str, Any] = {"image": image, "api_key": "s3cret-s3cret-s3cret", "env": {"PODWRIGHT_TITLE": "Sums"}}
    with ComponentContainer(calculator, model="offline/echo", **options) as container:
        assert container.info()["title"] == "Sums"
        assert container.run("2 + 3").startswith("Echo: 2 + 3")
        assert httpx.post(f"{container.url}/run", json={"input": "x"}).status_code == 401


def test_it_drains(image: str, calculator: Path) -> None:
    """Told to stop, it ends with 0; its last words can be read, and then it is gone."""
    with ComponentContainer(calculator, image=image) as container:
        name = container.get_container_id()
        assert container.drain() == 0
        assert "shutdown complete" in container.logs()
    listed = subprocess.run([engine(), "ps", "-aq", "--no-trunc"], capture_output=True, text=True, check=True).stdout
    assert name not in listed


def test_one_that_ends_early(image: str, tmp_path: Path) -> None:
    """A component that cannot be served fails at once, with the reason from its log, and leaves no container."""
    begin = time.monotonic()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "blueprint.json").write_text('{"type": "Agent", "name": "broken"}')
    failing = ComponentContainer(tmp_path / "broken", image=image, startup=600)
    with pytest.raises(StartError, match=r"ended with exit code 1 before it was ready.(\n|.)*instructions"):
        failing.start()
    assert time.monotonic() - begin < 60
    with pytest.raises(StartError, match=r"did not become ready.(\n|.)*instructions"):
        ComponentProcess(tmp_path / "broken").start()


def test_one_that_is_late(image: str, calculator: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A component that is not ready in time says so, with its log."""
    wait = containers._Ready.wait_until_ready

    def wait_from_its_first_words(strategy: containers._Ready, container: ComponentContainer) -> None:
        deadline = time.monotonic() + 60
        while "thinking" not in container.logs() and time.monotonic() < deadline:
            time.sleep(0.05)
        wait(strategy, container)

    monkeypatch.setattr(containers._Ready, "wait_until_ready", wait_from_its_first_words)
    slow = {"entrypoint": ["python"], "startup": 0.5}
    container = ComponentContainer(calculator, image=image, **slow)
    container.with_command(["-uc", "print('thinking'); import time; time.sleep(600)"])
    with pytest.raises(StartError, match=r"was not ready within 0.5 s.(\n|.)*thinking"):
        container.start()


def test_a_stub_that_would_not_be_asked(image: str, calculator: Path) -> None:
    """A blueprint with an offline model asks no stub, which is told instead of tested."""
    with ModelStub("never") as nameless:
        with pytest.raises(Exception, match="'offline/echo', which answers by itself"):
            ComponentContainer(calculator, image=image, model=nameless).start()
        with pytest.raises(Exception, match="'offline/echo', which answers by itself"):
            ComponentProcess(calculator, model=nameless).start()


def test_a_folder_that_is_not_there() -> None:
    """A path that leads nowhere is told before an engine is asked."""
    with pytest.raises(Exception, match="There is no folder 'nowhere'"):
        ComponentContainer(Path("nowhere"))


def test_a_network_without_this_machine(image: str, calculator: Path) -> None:
    """In a network that leads nowhere, a stub in a container answers, and tells what it was asked."""
    from testcontainers.core.network import Network

    with Network(docker_network_kw={"internal": True}) as network:
        script = ModelStub(ToolCall.of("add_numbers", numbers=[2, 3]), name=MODEL).when("5.0", "It is 5.")
        with ModelStubContainer(script, image=image, network=network) as model:
            with ComponentContainer(calculator, image=image, model=model, network=network) as container:
                assert container.run("2 + 3?") == "It is 5."
                assert ":8000" in container.url
            assert [request.messages[-1].content for request in model.stub.requests] == ["2 + 3?", "5.0"]
            model.stub.verify()


def test_a_stub_in_a_container(image: str, calculator: Path, tmp_path: Path) -> None:
    """A stub made from a trace works in a container too, and knows what was not asked."""
    with ModelStub(*ADDS, name=MODEL) as stub, ComponentProcess(calculator, model=stub) as process:
        trace = process.run("What is 2 + 3?", trace=True)
    with ModelStubContainer(ModelStub.from_trace(trace, name=MODEL), image=image) as model:
        with pytest.raises(AssertionError, match="a model call of 'calculator' that was not made"):
            model.stub.verify()
        with ComponentContainer(calculator, image=image, model=model) as container:
            assert container.run("What is 2 + 3?") == "It is 5."
            model.stub.verify()
            with pytest.raises(ProblemError) as failed:
                container.run("What is 3 + 3?")
            assert "'What is 2 + 3?', now 'What is 3 + 3?'" in failed.value.__notes__[0]


def test_a_function_cannot_go_into_a_container(image: str) -> None:
    """A stub that answers by a function stays on this machine, and says so."""
    with pytest.raises(Exception, match="A function cannot answer in a container"):
        ModelStubContainer(ModelStub(lambda _: "x"), image=image).start()
