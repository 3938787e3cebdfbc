"""What a provider books is what a run reports, whatever becomes of its answers; or the cost is unknown, with a reason.

The provider of these tests has its own books: what it has answered, and what it has begun without a count.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from tests.library.model_clients import (
    LITELLM_OPENAI,
    LITELLM_VLLM,
    NO_LIMITS,
    OPENAI,
    Client,
)
from tests.library.upstream import (
    Script,
    Upstream,
    completion,
    delta,
    pass_time,
    reply,
    sse,
    streamed,
)

from podwright import Agent
from podwright.errors import PodwrightError, RunCancelledError
from podwright.messages.usage import RunLimits, Usage
from podwright.models.litellm.model import LiteLLMModel
from podwright.models.prices.price_file import VARIABLE
from podwright.models.retries import Retries, Timeouts
from podwright.run.run import Task, execute

INPUT = 2.0
CACHED = 1.0
OUTPUT = 8.0
PRIORITY = 16.0
SEARCHES = 10.0
"""USD for a million tokens, and for a thousand searches."""
RATES = {
    "input": INPUT,
    "cached_input": CACHED,
    "output": OUTPUT,
    "service_tiers": {"priority": {"output": PRIORITY}},
    "searches": SEARCHES,
}
COUNTS = {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100}
BOOKED = 1000 * INPUT + 100 * OUTPUT
"""Millionths of a USD for one answer with these counts."""
IMPATIENT = Timeouts(connect=30, first_byte=60, idle=60, total=100_000)
"""Shorter than the hour that a test lets pass."""


@dataclass(frozen=True)
class Books:
    """What a provider has booked."""

    answers: int = 1
    """Answers with `COUNTS`."""
    cost: float | None = None
    """Millionths of a USD; by default that of these answers."""
    uncounted: int = 0
    """Requests that it may bill, of which it gave no count."""
    incomplete: int = 0


@dataclass(frozen=True)
class Row:
    """A way in which a call can go."""

    name: str
    plain: list[Script]
    """What the provider sends, request by request, if the answer is not streamed."""
    streamed: list[Script]
    books: Books
    streamed_books: Books | None = None
    """Those of the streamed answer, if they differ."""
    streamed_by_litellm: Books | None = None
    """Those of an answer that LiteLLM streams, if they differ once more."""
    timeouts: Timeouts = NO_LIMITS
    limits: RunLimits | None = None
    leaves: bool = False
    """Whether the caller leaves once the provider has the request."""
    unseen_by: str = ""
    """The model of a client behind which LiteLLM repeats the request itself, so that nobody knows of the first one."""


def answer(text: str = "Hi.", usage: Any = COUNTS, **fields: Any) -> Script:
    """A whole answer."""
    return [reply({**completion(text, usage), **fields})]


def stream(*events: Any, usage: Any = COUNTS, **fields: Any) -> Script:
    """A streamed answer."""
    said = events or (delta(content="Hi."), delta("stop"))
    counted = [{"choices": [], "usage": usage}] if usage else []
    return streamed(sse(*({**event, **fields} for event in (*said, *counted))))


def cut(*events: Any) -> Script:
    """A stream that breaks off after these events."""
    whole = streamed(sse(*events))
    return [*whole[:-1], "close"] if len(whole) > 1 else [whole[0], "close"]


def refused(status: int) -> Script:
    """A refusal that has counts all the same, which nobody pays."""
    return [
        reply(
            {"error": {"message": "No.", "code": "x"}, "usage": COUNTS}, status
        )
    ]


HANGS: Script = [pass_time, "hang"]
RESETS: Script = ["reset"]
OPEN: Script = ["hang"]
DATED = "gpt-4o-mini-2024-07-18"
WITH_CACHE = {**COUNTS, "prompt_tokens_details": {"cached_tokens": 400}}
SEARCHED = {**COUNTS, "num_search_queries": 3}
ROWS = [
    Row("an answer", [answer()], [stream()], Books()),
    Row("a part of the input is cached", [answer(usage=WITH_CACHE)], [stream(usage=WITH_CACHE)],
        Books(cost=600 * INPUT + 400 * CACHED + 100 * OUTPUT)),
    Row("an answer of a dated model", [answer(model=DATED)], [stream(model=DATED)], Books(cost=1000 * 20 + 100 * 80),
        streamed_by_litellm=Books()),
    Row("an answer without counts", [answer(usage=None)], [stream(usage=None)], Books(0, uncounted=1)),
    Row("a priority answer", [answer(service_tier="priority")], [stream(service_tier="priority")],
        Books(cost=1000 * INPUT + 100 * PRIORITY)),
    Row("an answer of a tier without a price", [answer(service_tier="flex")], [stream(service_tier="flex")],
        Books(incomplete=1)),
    Row("an answer with searches", [answer(usage=SEARCHED)], [stream(usage=SEARCHED)],
        Books(cost=BOOKED + 3 * SEARCHES * 1000)),
    Row("rejected, then an answer", [answer(""), answer()], [stream(delta("stop")), stream()], Books(2)),
    Row("rejected each time", [answer("")], [stream(delta("stop"))], Books(3)),
    Row("refused, then an answer", [refused(429), answer()], [refused(429), stream()], Books()),
    Row("refused each time", [refused(503)], [refused(503)], Books(0)),
    Row("a wrong request", [refused(400)], [refused(400)], Books(0)),
    Row("no answer in time", [HANGS, answer()], [HANGS, stream()], Books(1, uncounted=1), timeouts=IMPATIENT),
    Row("the connection is lost", [RESETS, answer()], [RESETS, stream()], Books(1, uncounted=1),
        unseen_by="hosted_vllm/qwen"),
    Row("a page of a gateway", [[reply(b"<html>", content_type="text/html")], answer()],
        [[reply(b"<html>", content_type="text/html")], stream()], Books(1, uncounted=1)),
    Row("the caller leaves", [OPEN], [OPEN], Books(0, uncounted=1), leaves=True),
    Row("the time of the run is over", [HANGS], [HANGS], Books(0, uncounted=1), limits=RunLimits(wall_time=1000)),
    Row("cut off after the counts", [answer()], [cut(delta(content=""), {"choices": [], "usage": COUNTS}), stream()],
        Books(), Books(2)),
    Row("cut off before the counts", [answer()], [cut(delta(content="")), stream()], Books(), Books(1, uncounted=1)),
]  # fmt: skip


@pytest.fixture(autouse=True)
def prices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The prices of the provider."""
    file = tmp_path / "prices.json"
    dated = {"input": 20, "output": 80}
    names = ("openai/*", "hosted_vllm/*")
    dated_names = (f"openai/{DATED}", f"hosted_vllm/{DATED}")
    file.write_text(
        json.dumps(
            {**dict.fromkeys(names, RATES), **dict.fromkeys(dated_names, dated)}
        )
    )
    monkeypatch.setenv(VARIABLE, str(file))


async def used(
    row: Row, client: Client, provider: Upstream, *, streaming: bool
) -> Usage:
    """What a run reports that goes this way."""
    model = client.model_at(
        provider.url, row.timeouts, Retries(first_wait=0.001)
    )
    agent = Agent("guide", "Help.", model)
    run = asyncio.create_task(
        execute(agent, Task("?"), limits=row.limits, stream=streaming)
    )
    if row.leaves:
        await provider.asked.wait()
        run.cancel()
    try:
        return (await run).usage
    except PodwrightError as error:
        return error.usage or Usage()
    except asyncio.CancelledError as error:
        if not isinstance(error.__cause__, RunCancelledError):
            raise
        return error.__cause__.usage or Usage()


@pytest.mark.parametrize("streaming", [False, True], ids=["plain", "streamed"])
@pytest.mark.parametrize("client", [OPENAI, LITELLM_OPENAI, LITELLM_VLLM])
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
async def test_a_run_reports_what_is_booked(
    row: Row, client: Client, streaming: bool, provider: Upstream
) -> None:
    """Tokens and cost are those of the books, or the cost is unknown and what is known of it is that of the books."""
    provider.answers(*(row.streamed if streaming else row.plain))
    usage = await used(row, client, provider, streaming=streaming)
    books = (row.streamed_books if streaming else None) or row.books
    if streaming and client.make is LiteLLMModel:
        books = row.streamed_by_litellm or books
    if client.name == row.unseen_by:
        books = replace(books, uncounted=0)
    cost = BOOKED * books.answers if books.cost is None else books.cost
    assert usage.known_cost == pytest.approx(cost / 1e6, abs=1e-12)
    assert (usage.uncounted_model_calls, usage.incomplete_model_calls) == (
        books.uncounted,
        books.incomplete,
    )
    assert usage.unpriced_model_calls == books.uncounted + books.incomplete
    if usage.unpriced_model_calls:
        assert usage.cost is None
        assert usage.input_tokens >= 1000 * books.answers
    else:
        assert usage.cost == usage.known_cost
        assert (usage.input_tokens, usage.output_tokens) == (
            1000 * books.answers,
            100 * books.answers,
        )
