"""The client of services, in a program that has the library alone."""

import asyncio
import json
import subprocess
import sys

from tests.helpers import environment
from tests.library.upstream import reply, streamed, upstream

from podwright import Agent

PROGRAM = """
import sys

FORBIDDEN = {
    "fastapi", "gunicorn", "opentelemetry", "podwright_service", "prometheus_client", "starlette", "uvicorn",
}

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in FORBIDDEN:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Absent())

from podwright.client import Client, ProblemError

client = Client(sys.argv[1], api_key="made-up")
print(client.run("x").value)
print([event.type for event in client.stream("x")][-1])
print(client.runs.get("r").status)
try:
    client.info()
except ProblemError as error:
    print(error.code)
"""
RUN = {
    "id": "r",
    "component": "far",
    "status": "queued",
    "attempt": 0,
    "created_at": "2026-01-01T00:00:00Z",
    "usage": {},
    "decisions": [],
}


def sse(name: str, data: object) -> bytes:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()


async def test_the_client_needs_the_library_alone() -> None:
    """It calls a service without a package of servers, telemetry or the service."""
    events = Agent("far", "Repeat.", "offline/echo").run("x", trace=True).events
    whole = [sse(event.type, event.to_dict()) for event in events]
    refusal = {"status": 403, "code": "scope_missing", "detail": "No."}
    async with upstream() as server:
        server.answers(
            [reply({"output": "Done."})],
            streamed(*whole, sse("result", {"output": "Done."})),
            [reply(RUN)],
            [reply(refusal, 403, "application/problem+json")],
        )
        done = await asyncio.to_thread(
            subprocess.run,
            [
                sys.executable,
                "-W",
                "error",
                "-c",
                PROGRAM,
                f"http://127.0.0.1:{server.port}",
            ],
            capture_output=True,
            text=True,
            env=environment(),
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [
        "Done.",
        "run_finished",
        "queued",
        "scope_missing",
    ]
    assert {headers["authorization"] for headers in server.headers} == {
        "Bearer made-up"
    }
