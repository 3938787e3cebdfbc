"""Stops at every event of a background run: what is recorded is not made again, and nothing is lost.

A process is stopped before, at or after each event of a run: gracefully with time left, gracefully without, or as by
`kill -9`. Another one performs the rest. Models, tools and conditions keep books of what has finished, those of remotes
too. The processes are workers on one event loop, so that they stop exactly where they are told; the database is real.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import json
import os
import threading
from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
from tests.service.background_support import runs_of
from tests.service.support import Served

from podwright import (
    Agent,
    AgentStep,
    ApprovalStep,
    Component,
    ConditionStep,
    Conductor,
    EventManager,
    FunctionModel,
    FunctionStep,
    LoopStep,
    MapStep,
    ParallelStep,
    Remote,
    RunContext,
    TryStep,
    Workflow,
    WorkflowStep,
    tool,
)
from podwright.errors import ModelRetry
from podwright.events import Event
from podwright.folders.walks import models_of, remotes_in
from podwright.messages.usage import Usage
from podwright.models.retries import Retries
from podwright.testing import ModelRequest, ModelResponse, ToolCall
from podwright_service.background.caller_runs import CallerRuns, StoredRun
from podwright_service.background.previous import Previous
from podwright_service.background.storage.database import (
    Database,
    DatabaseUnavailableError,
    database_url,
    migrate,
)
from podwright_service.background.store import RunStore
from podwright_service.background.worker import BackgroundWorker
from podwright_service.inline.policy import inline_policy
from podwright_service.observability import Observability
from podwright_service.settings import Settings

USAGE = Usage(10, 5, cost=0.25)

Stop = Literal["graceful", "without time", "kill"]
STOPS: tuple[Stop, ...] = ("graceful", "without time", "kill")
Moment = Literal["before", "at", "after"]
"""Before the journal has the event, directly after, or in the next turn of the event loop."""
MOMENTS: tuple[Moment, ...] = ("before", "at", "after")

# --- Effects ----------------------------------------------------------------------------------------------------------


class Books:
    """The effects that have finished, by the process that made them; None is that of a remote."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._finished: dict[Process | None, Counter[str]] = {}

    def finish(self, process: Process | None, effect: str) -> None:
        with self._lock:
            self._finished.setdefault(process, Counter())[effect] += 1

    def of(self, process: Process | None) -> Counter[str]:
        """What a process has finished."""
        with self._lock:
            return Counter(self._finished.get(process, {}))

    def clear(self) -> None:
        with self._lock:
            self._finished.clear()


books = Books()
current: ContextVar[Process | None] = ContextVar("process", default=None)


async def effect(name: str) -> str:
    """Take a few turns of the event loop, and be in the books at the end."""
    process = current.get()
    for _ in range(3):
        if process and process.is_killed:
            await asyncio.get_running_loop().create_future()
        await asyncio.sleep(0)
    books.finish(process, name)
    return name


@tool(idempotent=True)
async def look(place: str) -> str:
    """Look."""
    return await effect(f"look {place}")


async def pay(amount: int) -> str:
    """Pay."""
    return await effect(f"pay {amount}")


async def charge(amount: int) -> str:
    """Charge a card."""
    return await effect(f"charge {amount}")


@tool(approval=True)
async def refund(amount: int) -> str:
    """Refund, if a person approves."""
    return await effect(f"refund {amount}")


@tool(idempotent=True)
async def find(what: str) -> str:
    """Find something."""
    return await effect(f"find {what}")


@tool(idempotent=True)
async def note(context: RunContext) -> str:
    """Count in the state of the run."""
    context.report("counting", {"so far": dict(context.state)})
    context.state["notes"] = context.state.get("notes", 0) + 1
    return await effect(f"note {context.state['notes']}")


@tool(idempotent=True)
async def record(context: RunContext) -> str:
    """Count in the state of the run, and tell how it goes."""
    return await note(context)


@tool(idempotent=True)
async def break_down() -> None:
    """Fail."""
    raise OSError


@tool(idempotent=True)
async def prepare(input: str) -> dict[str, str]:
    """A value for instructions."""
    return {"prepared": await effect(f"prepare {input}")}


@tool(idempotent=True)
async def judge(output: str, context: RunContext) -> dict[str, str]:
    """Ask for another answer once."""
    name = await effect(f"judge {output}")
    context.state["judged"] = context.state.get("judged", 0) + 1
    if context.state["judged"] == 1:
        raise ModelRetry(name)
    return {"judged": name}


async def settle(output: str) -> dict[str, str]:
    """Another answer."""
    return {"output": await effect(f"settle {output}")}


async def ask(question: str) -> str:
    """Ask another agent."""
    return await effect(
        "ask " + await Agent("expert", "Know.", MODEL).arun(question)
    )


async def again(context: Any) -> bool:
    """Whether the loop may end."""
    answer = context["again_output"]
    await effect(f"check {answer}")
    return answer.count("again") > 1


async def is_long(context: Any) -> bool:
    """Whether the input is long."""
    await effect(f"is_long {context['input']}")
    return False


CALLS: dict[str, list[ToolCall]] = {
    "look": [
        ToolCall.of("look", "1", place="here"),
        ToolCall.of("look", "2", place="there"),
    ],
    "pay": [
        ToolCall.of("pay", "1", amount="much"),
        ToolCall.of("pay", "2", amount=3),
    ],
    "charge": [ToolCall.of("charge", "1", amount=7)],
    "note": [ToolCall.of("note", "1")],
    "refund": [ToolCall.of("refund", "1", amount=9)],
    "ask": [
        ToolCall.of("ask", "1", question="why"),
        ToolCall.of("ask", "2", question="how"),
    ],
    "transfer_to_teller": [ToolCall.of("transfer_to_teller", "1")],
    "record": [
        ToolCall.of("record", "1"),
        ToolCall.of("transfer_to_teller", "2"),
    ],
    "looker": [
        ToolCall.of("looker", "1", task="find it"),
        ToolCall.of("payer", "2", task="pay it"),
    ],
}
"""What a model with this tool first asks for."""


async def respond(request: ModelRequest) -> ModelResponse:
    """An answer that follows from the request, and is the name of the effect."""
    last = request.messages[-1]
    names = [entry["function"]["name"] for entry in request.tools]
    text = hashlib.sha256(last.text.encode()).hexdigest()[:8]
    text = f"{request.component} {'/'.join(map(str, request.path))} {text}"
    if request.component == "again":
        text = f"again {last.text.count('again')} {text}"
    if request.output is not None:
        steps = [
            {"skill": "looker", "task": "one"},
            {"skill": "payer", "task": "two"},
        ]
        text = json.dumps({"steps": steps})
    elif names and (last.role != "tool" or "transferred_to" in last.text):
        await effect(text)
        return ModelResponse(
            text,
            tool_calls=tuple(CALLS[names[0]]),
            usage=USAGE,
            finish_reason="tool_calls",
        )
    await effect(text)
    return ModelResponse(text, usage=USAGE)


MODEL = FunctionModel(respond)
STEPS = {"type": "object", "properties": {"steps": {"type": "array"}}}
writer, last = Agent("writer", "Write.", MODEL), Agent("last", "End.", MODEL)
looker, payer = (
    Agent("looker", "Look.", MODEL, tools=[look]),
    Agent("payer", "Pay.", MODEL, tools=[pay]),
)
asker, cashier = (
    Agent("asker", "Ask.", MODEL, tools=[ask]),
    Agent("cashier", "Charge.", MODEL, tools=[charge]),
)


@pytest.fixture(scope="module")
def components(served: Served) -> Iterator[dict[str, Component]]:
    """Components with each kind of effect, and services of those that are remote."""
    with served(cashier) as near:
        front = Workflow(
            "front",
            [
                AgentStep(Remote("cashier", str(near.base_url)), "pay"),
                AgentStep(writer, "note"),
            ],
        )
        with served(front) as far:
            yield {
                component.name: component
                for component in _components(
                    str(near.base_url), str(far.base_url)
                )
            }


def _components(cashier_url: str, front_url: str) -> list[Component]:
    remote = Remote("cashier", cashier_url)
    manager = EventManager()
    return [
        Workflow(
            "tools",
            [looker, payer, AgentStep(asker, "ask"), last],
            event_manager=manager,
        ),
        Workflow(
            "remote", [AgentStep(remote, "pay"), last], event_manager=manager
        ),
        Workflow(
            "nested remote",
            [AgentStep(Remote("front", front_url), "shop"), last],
            event_manager=manager,
        ),
        Conductor(
            "planner",
            "Lead.",
            MODEL,
            skills=[looker, payer],
            planning=True,
            event_manager=manager,
        ),
        Workflow(
            "steps",
            conditions={"again": again, "is_long": is_long},
            steps=[
                ParallelStep(
                    [
                        [payer],
                        [AgentStep(writer, "beside"), looker],
                        [AgentStep(remote, "far")],
                    ],
                    "both",
                ),
                ConditionStep(
                    "is_long", then=[last], else_=[AgentStep(writer, "short")]
                ),
                LoopStep(
                    [Agent("again", "Repeat.", MODEL)],
                    until="again",
                    max_iterations=4,
                ),
                MapStep(
                    "items",
                    "item",
                    [AgentStep(writer, "each", input="{item}")],
                    max_concurrency=2,
                ),
                ApprovalStep("Go on?"),
                WorkflowStep(
                    Workflow(
                        "inner",
                        [AgentStep(writer, "in"), ApprovalStep("Sure?"), last],
                    )
                ),
            ],
            event_manager=manager,
        ),
        Workflow(
            "data",
            [
                FunctionStep(find, {"what": "{input}"}, output="found"),
                AgentStep(
                    Agent("sorter", "Sort.", MODEL, response_model=STEPS),
                    output="sorted",
                ),
                ParallelStep(
                    [
                        [FunctionStep(pay, {"amount": 3})],
                        [AgentStep(writer, "beside")],
                    ]
                ),
                TryStep(
                    [AgentStep(writer, "first"), FunctionStep(break_down)],
                    catch=[AgentStep(last, "instead", "{error.code}")],
                    retries=1,
                ),
                MapStep(
                    "sorted.steps",
                    "item",
                    [FunctionStep(find, {"what": "{item.task}"})],
                    max_concurrency=2,
                ),
                ApprovalStep("Go on?", "go", options=["approve", "wait"]),
                Agent("clerk", "{go.decision}: refund.", MODEL, [refund]),
            ],
            event_manager=manager,
        ),
        Workflow(
            "state",
            [
                FunctionStep(note, name="first", output="first"),
                Agent("noter", "Note.", MODEL, tools=[note]),
                FunctionStep(note, name="last", output="last"),
            ],
            event_manager=manager,
        ),
        Agent(
            "desk",
            "Sort.",
            MODEL,
            handoffs=[Agent("teller", "Pay.", MODEL, tools=[pay])],
            event_manager=manager,
        ),
        Agent(
            "reception",
            "It is {run.date}. {prepared}",
            MODEL,
            tools=[record],
            before=prepare,
            after=[judge, settle],
            handoffs=[Agent("teller", "Pay.", MODEL, tools=[pay])],
            event_manager=manager,
        ),
        Workflow(
            "hooks",
            [
                Agent(
                    "guarded",
                    "Use {prepared}.",
                    MODEL,
                    tools=[look],
                    before=prepare,
                    after=[judge, settle],
                ),
                last,
            ],
            event_manager=manager,
        ),
        Workflow(
            "at the end", [AgentStep(payer, "pay")], event_manager=manager
        ),
    ]


KINDS = (
    "tools",
    "remote",
    "nested remote",
    "planner",
    "state",
    "desk",
    "hooks",
    "reception",
    "at the end",
    pytest.param("data", marks=pytest.mark.servers),
    pytest.param("steps", marks=pytest.mark.servers),
)
"""The last two have so many events that a stop at each of them takes a minute."""

# --- Processes --------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Process:
    """A process of a service: the worker of its background runs, which may be stopped at an event.

    Args:
        component: What it performs.
        database: The URL of the database.
        stop: How it is stopped.
        moment: When, about the event.
        number: The event, counted from 0 over all runs; -1 is none.
    """

    component: Component
    database: str
    stop: Stop = "graceful"
    moment: Moment = "at"
    number: int = -1
    is_killed: bool = False
    seen: int = 0
    """How many events there were."""
    transactions: int = 0
    """Those that have begun and not ended."""
    stopping: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        settings = Settings(secrets_dir="/nowhere")
        if self.stop != "graceful":
            settings = settings.model_copy(update={"shutdown_timeout": 0})
        policy = inline_policy(self.component, settings, {})
        models = models_of(self.component)
        remotes = remotes_in(self.component)
        self.observability = Observability(
            self.component, settings, policy, models, remotes
        )
        self.observability.subscribers = (
            self._before,
            *self.observability.subscribers,
        )
        url = database_url(self.database)
        self.worker = BackgroundWorker(
            url, self.component, settings, self.observability, Previous()
        )

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """The life of the process, in tasks of its own; at the end it has ended, however that was."""
        current.set(self)
        ready = asyncio.Event()

        async def live() -> None:
            async with self.worker.working():
                ready.set()
                await self.stopping.wait()
                # a cancelled one would keep its lock for a while
                while self.is_killed and self.transactions:  # noqa: ASYNC110 - only this test counts them
                    await asyncio.sleep(0.001)

        manager = self.component._options.get("event_manager")
        assert manager is not None
        unsubscribe = manager.subscribe(self._at)
        life = asyncio.create_task(live())
        current.set(None)
        await ready.wait()
        try:
            yield
        finally:
            self.stopping.set()
            await life
            unsubscribe()

    def _before(self, event: Event) -> None:
        if self.seen == self.number and self.moment == "before":
            self._stop()

    def _at(self, event: Event) -> None:
        if self.seen == self.number and self.moment == "at":
            self._stop()
        elif self.seen == self.number and self.moment == "after":
            asyncio.get_running_loop().call_soon(self._stop)
        self.seen += 1

    def _stop(self) -> None:
        self.is_killed = self.stop == "kill"
        self.worker.drain()
        self.stopping.set()

    def counted(self, name: str, **labels: str) -> float:
        """The sum of the samples of a metric with these labels."""
        samples = (
            each
            for metric in self.observability.metrics.registry.collect()
            for each in metric.samples
        )
        return sum(
            each.value
            for each in samples
            if each.name == name and labels.items() <= each.labels.items()
        )


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch, stop: Stop) -> None:
    """A killed process reaches no database, and its lease ends at once."""
    transaction = Database.transaction

    @contextlib.asynccontextmanager
    async def refuse_dead(database: Database) -> AsyncGenerator[Any]:
        process = current.get()
        if process is None:
            async with transaction(database) as connection:
                yield connection
            return
        if process.is_killed:
            raise DatabaseUnavailableError("It is dead.", "")
        process.transactions += 1
        try:
            async with transaction(database) as connection:
                yield connection
        finally:
            process.transactions -= 1

    monkeypatch.setattr(Database, "transaction", refuse_dead)
    monkeypatch.setattr(Workflow, "retries", Retries(first_wait=0))
    monkeypatch.setattr("podwright_service.background.store.LEASE_SECONDS", 0.0)
    monkeypatch.setattr(
        "podwright_service.background.worker.RESPONSE_SECONDS",
        0.0 if stop == "kill" else 60.0,
    )


# --- Stories ----------------------------------------------------------------------------------------------------------


@dataclass
class Story:
    """What became of some runs, and of the processes that performed them."""

    processes: list[Process]
    runs: list[StoredRun]
    events: list[list[dict[str, Any]]]
    """Of each run."""
    recorded: Counter[str]
    """The effects that were recorded before the second process began."""
    remote_effects: Counter[str]
    resumed: int
    """How often a person has resumed a run that was interrupted."""


class Teller:
    """Performs runs until their end, with persons who approve, and who resume what was interrupted."""

    def __init__(
        self, component: Component, database: str, store: RunStore
    ) -> None:
        self._component = component
        self._database = database
        self._store = store
        self._resumed = 0

    async def tell(
        self,
        count: int,
        stop: Stop = "graceful",
        moment: Moment = "at",
        number: int = -1,
    ) -> Story:
        """Perform some runs, of which the first process is stopped."""
        books.clear()
        self._resumed = 0
        first = Process(self._component, self._database, stop, moment, number)
        ids: list[str] = []
        async with first.running():
            for _ in range(count):
                ids.append(os.urandom(16).hex())
                await self._store.add(
                    self._new_run(ids[-1], first.worker.digest)
                )
            first.worker.wake()
            await self._until_ended(ids, first)
        recorded = Counter[str]()
        for run_id in ids:
            recorded.update(_effects(await self._store.events(run_id)))
        processes = [first]
        if not await self._have_ended(ids, first):
            processes.append(Process(self._component, self._database))
            async with processes[1].running():
                await self._until_ended(ids, processes[1])
        runs = [run for run_id in ids if (run := await self._runs.get(run_id))]
        events = [
            [data for _, data in await self._store.events(run_id)]
            for run_id in ids
        ]
        return Story(
            processes, runs, events, recorded, books.of(None), self._resumed
        )

    @property
    def _runs(self) -> CallerRuns:
        return runs_of(self._store, self._component.name)

    def _new_run(self, run_id: str, digest: str) -> dict[str, Any]:
        inputs = {"inputs": {"input": "go", "items": '["one", "two", "three"]'}}
        body = (
            inputs if isinstance(self._component, Workflow) else {"input": "go"}
        )
        run = {
            "id": run_id,
            "component": self._component.name,
            "digest": digest,
        }
        return {
            **run,
            "request": {"body": body, "headers": {}},
            "idempotency_key": None,
            "fingerprint": None,
        }

    async def _until_ended(self, ids: list[str], process: Process) -> None:
        async with asyncio.timeout(60):
            while not process.stopping.is_set():
                if await self._have_ended(ids, process):
                    return
                await asyncio.sleep(0.02)

    async def _have_ended(self, ids: list[str], process: Process) -> bool:
        ended = True
        for run_id in ids:
            run = await self._runs.get(run_id)
            assert run is not None
            if run["status"] == "waiting_for_approval":
                await self._runs.decide(
                    run_id,
                    run["attempt"],
                    {"approved": True, "comment": ""},
                    goes_on=True,
                )
                process.worker.wake()
            elif run["status"] == "interrupted":
                self._resumed += 1
                await self._runs.resume(run_id)
                process.worker.wake()
            else:
                assert run["status"] in ("queued", "running", "succeeded"), run[
                    "problem"
                ]
            ended &= run["status"] == "succeeded"
        return ended


def _effects(events: Any) -> Iterator[str]:
    """The effects whose end is among these events."""
    for _, data in events:
        if data["type"] == "model_call_finished":
            yield data["response"]["text"]
        elif (
            data["type"] == "tool_call_finished" and data["kind"] != "conductor"
        ):
            # whose tools are runs
            output = data["output"]
            # a function before or after the work gives its effect a name
            if isinstance(output, str):
                yield output
            else:
                yield from output.values()
        elif data["type"] == "tool_call_failed":
            # "judge" asks for another answer by the name of its effect
            yield from [data["report"]] * data["report"].startswith("judge")


def ends(events: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    """What has ended in this process according to the events, each with how often."""
    found: Counter[tuple[Any, ...]] = Counter()
    for data in events:
        is_end = data["type"].endswith("_finished") or data["type"] in (
            "plan_made",
            "condition_checked",
        )
        if (
            is_end
            and data["remote"] is None
            and data.get("outcome", "ok") == "ok"
        ):
            names = (
                "type",
                "component",
                "call",
                "tool",
                "step",
                "condition",
                "result",
            )
            found[*(data.get(name) for name in names), tuple(data["path"])] += 1
    return found


def check(story: Story, reference: Story, stop: Stop) -> None:
    """Nothing is lost and nothing that was recorded is made again; events, usage and counters are true."""
    first, *second = (books.of(process) for process in story.processes)
    made_later = sum(second, Counter[str]())
    runs = len(story.runs)
    wanted = Counter(
        {
            name: runs * count
            for name, count in REFERENCE_EFFECTS[
                story.runs[0]["component"]
            ].items()
        }
    )
    local = Counter(
        {
            name: count
            for name, count in story.recorded.items()
            if name in wanted
        }
    )
    assert not (made_later + local) - wanted, "what was recorded is made again"
    if stop != "kill":
        assert first + made_later == wanted, "an effect is lost, or made twice"
    if stop == "graceful":
        expected = Counter(
            {
                name: runs * count
                for name, count in reference.remote_effects.items()
            }
        )
        assert story.remote_effects == expected, (
            "an effect of a remote is lost, or made twice"
        )
        assert story.resumed == 0
    charged = story.remote_effects["charge 7"]
    assert (
        charged <= runs * reference.remote_effects["charge 7"] + story.resumed
    ), "charged twice, and nobody was asked"
    for run, events in zip(story.runs, story.events, strict=True):
        check_run(run, events, reference, stop)
    if stop != "kill":
        check_counters(story)


REFERENCE_EFFECTS: dict[str, Counter[str]] = {}
"""The effects of one run that is not stopped, by component."""


def check_run(
    run: StoredRun, events: list[dict[str, Any]], reference: Story, stop: Stop
) -> None:
    """The run has the result of the reference; its events are complete and in order, and add up to its usage."""
    (known,) = reference.runs
    assert run["status"] == "succeeded"
    assert run["result"] == known["result"]
    assert [data["seq"] for data in events] == list(range(len(events)))
    assert events[-1]["type"] == "run_finished"
    assert events[-1]["run_id"] == run["id"]
    assert ends(events) == ends(reference.events[0])
    last_of = {
        data["run_id"]: data["type"]
        for data in events
        if data["remote"] is None
    }
    assert set(last_of.values()) == {"run_finished"}
    answers = [
        data["response"]["usage"]
        for data in events
        if data["type"] == "model_call_finished"
    ]
    usage = run["usage"]
    assert usage["model_calls"] == len(answers)
    assert usage["input_tokens"] == sum(
        each["input_tokens"] for each in answers
    )
    assert usage["cost"] == 0.25 * len(answers)
    if stop == "graceful":
        assert usage == known["usage"]


def check_counters(story: Story) -> None:
    """The metrics of all processes count each attempt, each call and its cost once."""
    local = [
        data
        for events in story.events
        for data in events
        if data["remote"] is None
    ]
    kinds = Counter(data["type"] for data in local)

    def counted(name: str, **labels: str) -> float:
        return sum(
            process.counted(name, **labels) for process in story.processes
        )

    assert counted("podwright_background_attempts_total") == sum(
        run["attempt"] for run in story.runs
    )
    assert (
        counted("podwright_model_calls_total", status="ok")
        == kinds["model_call_finished"]
    )
    assert (
        counted("podwright_tool_calls_total", status="ok")
        == kinds["tool_call_finished"]
    )
    assert (
        counted("podwright_cost_usd_total")
        == 0.25 * kinds["model_call_finished"]
    )


@dataclass(frozen=True)
class Form:
    """Where runs are stored, and whether a process is stopped at all moments of all events, or at some."""

    database: str
    is_long: bool

    def places(
        self, stop: Stop, runs: int, boundaries: int
    ) -> Iterator[tuple[int, Moment]]:
        """The events and moments of the stops to try.

        Short: graceful stops of one run at each event, with one of the moments; of all others a third.
        """
        if self.is_long:
            yield from itertools.product(range(boundaries), MOMENTS)
            return
        step = 1 if stop == "graceful" and runs == 1 else 3
        for number in range(STOPS.index(stop), boundaries, step):
            yield number, MOMENTS[(number // 3) % 3]


FORMS = [
    pytest.param(Form("sqlite", is_long=False), id="short"),
    pytest.param(
        Form("sqlite", is_long=True), id="long-sqlite", marks=pytest.mark.proof
    ),
    pytest.param(
        Form("postgresql", is_long=True),
        id="long-postgresql",
        marks=pytest.mark.proof,
    ),
]


@pytest.fixture
async def database(request: pytest.FixtureRequest, form: Form) -> str:
    """The URL of a database with the tables."""
    url = request.getfixturevalue(f"{form.database}_database")
    migrate(database_url(url))
    return url


@pytest.fixture
async def store(database: str) -> AsyncGenerator[RunStore]:
    """The store of that database."""
    store = RunStore(database_url(database))
    yield store
    await store.close()


async def tell_reference(
    component: Component, database: str, store: RunStore
) -> Story:
    """The story of one run that is not stopped."""
    story = await Teller(component, database, store).tell(1)
    (process,) = story.processes
    REFERENCE_EFFECTS[component.name] = books.of(process)
    check(story, story, "graceful")
    return story


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("kind", KINDS)
async def test_a_stop_at_every_event(
    components: dict[str, Component],
    database: str,
    store: RunStore,
    processes: None,
    kind: str,
    stop: Stop,
    form: Form,
) -> None:
    """One run, whose process is stopped about each of its events."""
    await _try_all(components[kind], database, store, stop, form, runs=1)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "stop", [pytest.param(stop, marks=pytest.mark.servers) for stop in STOPS]
)
async def test_a_stop_of_several_runs(
    components: dict[str, Component],
    database: str,
    store: RunStore,
    processes: None,
    stop: Stop,
    form: Form,
) -> None:
    """Three runs at once, whose process is stopped about an event of any of them."""
    await _try_all(components["remote"], database, store, stop, form, runs=3)


async def _try_all(
    component: Component,
    database: str,
    store: RunStore,
    stop: Stop,
    form: Form,
    runs: int,
) -> None:
    reference = await tell_reference(component, database, store)
    teller = Teller(component, database, store)
    tried = 0
    for number, moment in form.places(
        stop, runs, runs * reference.processes[0].seen
    ):
        story = await teller.tell(runs, stop, moment, number)
        try:
            check(story, reference, stop)
        except AssertionError as error:
            events = "\n".join(str(data)[:200] for data in story.events[0])
            raise AssertionError(
                f"{moment} event {number}: {error}\n{events}"
            ) from error
        tried += 1
    print(
        f"{form.database}: {component.name}, {runs} runs, {stop}: stopped {tried} times, made twice 0, events missing 0"
    )
