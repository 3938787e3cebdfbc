"""The commands `runs …`: a client of the background runs of a service."""

from __future__ import annotations

import contextlib
import http.client
import json
import sys
import time
from collections.abc import Generator, Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from podwright.errors import ConfigurationError, RemoteConnectionError, RemoteError
from podwright.events import adapter
from podwright.json_data import as_object, to_json_bytes
from podwright.models.sse import EventParser, ServerSentEvent
from podwright.models.urls import is_header_value
from podwright.printer import Printer
from podwright_service.background import check_installed
from podwright_service.cli.console import print_json, print_text, read_key
from podwright_service.remotes import name_and_key
from podwright_service.settings import adopt_secrets, read_settings

_TIMEOUT = 60.0
"""Seconds to wait for a response, and between two pieces of a stream, which has a heartbeat every 15 seconds."""
_RECONNECT = 1.0
"""Seconds before a lost stream is opened again."""
_RECONNECTS = 30
"""Most attempts to open it without an event between them."""


class ServiceClient:
    """The background runs of a service.

    Args:
        url: Address of the service.
        api_key: Its API key, or `@FILE`; by default that of `PODWRIGHT_AGENT_KEYS`.

    Raises:
        ConfigurationError: The address or the key is invalid.
    """

    def __init__(self, url: str, api_key: str | None) -> None:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        try:
            is_valid = (
                parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
            )
        except ValueError:  # the port is no number, or too large
            is_valid = False
        if not is_valid:
            raise ConfigurationError(
                "Invalid address of the service.",
                suggestion="Write it as http://host:port.",
            )
        self._parts = parts
        key = (
            name_and_key(url, read_settings())[1]
            if api_key is None
            else read_key(api_key)
        )
        if key and not is_header_value(key):
            raise ConfigurationError("The API key has invalid characters.")
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """The JSON of a response.

        Raises:
            RemoteError: The service refused the request, or could not be reached.
        """
        with self._open(method, path, body) as response:
            try:
                return json.loads(response.read())
            except ValueError:
                raise RemoteError(
                    "What answered is not a Podwright service.",
                    suggestion="Check --url.",
                ) from None

    def follow(self, run_id: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Names and data of the events of a run to its end; a lost stream is opened again where it was.

        Raises:
            RemoteError: There is no such run, or the service could not be reached.
        """
        last = ""
        lost = 0
        while True:
            try:
                with self._open(
                    "GET",
                    f"/runs/{quote(run_id, safe='')}/events",
                    headers={"Last-Event-ID": last or "-1"},
                ) as response:
                    for event in _events(response):
                        data = json.loads(event.data)
                        yield event.name, data
                        if event.name in ("result", "problem"):
                            return
                        last = str(data["seq"])
                        lost = 0
            except (RemoteError, OSError, http.client.HTTPException) as error:
                lost += 1
                if lost > _RECONNECTS or not _is_passing(error):
                    raise
            time.sleep(_RECONNECT)

    @contextlib.contextmanager
    def _open(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Generator[http.client.HTTPResponse]:
        is_secure = self._parts.scheme == "https"
        connect = (
            http.client.HTTPSConnection if is_secure else http.client.HTTPConnection
        )
        connection = connect(
            self._parts.hostname or "", self._parts.port, timeout=_TIMEOUT
        )
        sent = (
            self._headers
            | dict(headers or {})
            | ({"Content-Type": "application/json"} if body is not None else {})
        )
        data = None if body is None else to_json_bytes(body)
        try:
            try:
                connection.request(
                    method, self._parts.path.rstrip("/") + path, data, sent
                )
                response = connection.getresponse()
            except (OSError, http.client.HTTPException) as error:
                address = (
                    f"{self._parts.scheme}://{self._parts.netloc.rpartition('@')[2]}"
                )
                raise RemoteConnectionError(
                    f"The service at {address} cannot be reached: {error}.",
                    suggestion="Check --url.",
                ) from error
            if response.status >= 300:
                raise _refused(response)
            yield response
        finally:
            connection.close()


def _is_passing(error: Exception) -> bool:
    """Whether a stream may be opened again later: the connection was lost, or the service cannot answer now."""
    return (
        not isinstance(error, RemoteError)
        or isinstance(error, RemoteConnectionError)
        or error.status == 503
    )


def _events(response: http.client.HTTPResponse) -> Iterator[ServerSentEvent]:
    parser = EventParser()
    while chunk := response.read1(65536):
        yield from parser.feed(chunk)


def _refused(response: http.client.HTTPResponse) -> RemoteError:
    try:
        problem = as_object(json.loads(response.read()))
    except ValueError:
        problem = {}
    detail = str(
        problem.get("detail")
        or f"The service answered {response.status} {response.reason}."
    )
    suggestion = str(problem.get("suggestion") or "Check --url.")
    code = str(problem.get("code") or "") or None
    error = RemoteError(detail, suggestion=suggestion, code=code)
    error.status = response.status
    return error


def start_run(client: ServiceClient, run_input: str | dict[str, Any]) -> None:
    """Start a run, and print its id."""
    body = (
        {"inputs": run_input} if isinstance(run_input, dict) else {"input": run_input}
    )
    print_text(client.request("POST", "/runs", body)["id"])


def list_runs(
    client: ServiceClient, statuses: list[str], limit: int, *, as_json: bool
) -> None:
    """Print the newest runs, one a line."""
    query = urlencode({"status": statuses, "limit": limit}, doseq=True)
    runs = client.request("GET", f"/runs?{query}")["runs"]
    if as_json:
        print_json(runs)
        return
    for run in runs:
        # a key that may only approve is shown no usage
        cost = run.get("usage", {}).get("cost")
        spent = f"{cost:.6f} USD" if isinstance(cost, float) else ""
        facts = (
            run["id"],
            f"{run['created_at'][:19]}Z",
            f"{run['status']:<20}",
            f"{run['component']:<24}",
            spent,
        )
        print_text("  ".join(facts).rstrip())


def show_run(client: ServiceClient, run_id: str) -> None:
    """Print a run as JSON."""
    print_json(client.request("GET", f"/runs/{quote(run_id, safe='')}"))


def follow_run(client: ServiceClient, run_id: str) -> int:
    """Print the steps of a run to standard error as they happen, and its output; returns the exit code."""
    printer = Printer(file=sys.stderr)
    for name, data in client.follow(run_id):
        if name == "result":
            output = data["output"] if set(data) == {"output"} else data
            if isinstance(output, str):
                print_text(output)
            else:
                print_json(output)
        elif name == "problem":
            print_text(f"The run ended: {data['detail']}", sys.stderr)
            return 1
        else:
            printer(adapter().validate_python(data))
    return 0


def change_run(
    client: ServiceClient, run_id: str, action: str, body: Any = None
) -> None:
    """Cancel, resume, approve or reject a run, and print its status."""
    print_text(
        client.request("POST", f"/runs/{quote(run_id, safe='')}/{action}", body)[
            "status"
        ]
    )


def migrate_database() -> None:
    """Create or update the tables in the database of `PODWRIGHT_RUNS_DATABASE`.

    Raises:
        ConfigurationError: It is not set, or the database cannot be used.
    """
    check_installed()
    # slow to import
    from podwright_service.background.database import database_url, migrate

    settings = read_settings()
    adopt_secrets()
    if settings.runs_database is None:
        raise ConfigurationError(
            "There is no database to migrate.",
            suggestion="Set PODWRIGHT_RUNS_DATABASE.",
        )
    migrate(database_url(settings.runs_database.get_secret_value()))
    print_text("The tables are up to date.")
