"""The states of runs that have stopped, or wait for a person, until another request has them go on.

The client sends back what it was given, and the service believes none of it: it keeps the state in the database of
background runs, or seals it. A state belongs to a component with its blueprint and to a caller, has an age, and is used
once.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Protocol

from pydantic import TypeAdapter, ValidationError

from podwright.components import Component
from podwright.data.json_data import JsonObject, to_json_bytes, to_json_data
from podwright.errors import ConfigurationError
from podwright.folders.walks import component_digest, walk
from podwright.messages.templates import visible
from podwright_service.http.errors.problems import RequestError
from podwright_service.http.sealing import Seal
from podwright_service.settings import Settings
from podwright_service.shared_folders import make_shared_folder

STATE = "_state"
"""The name in the `context` of a problem under which the state is."""
_KEPT = "kept."
"""Begins the token of a state that is in the database; others are sealed, and base64 has no dot."""
_CLEANUP_INTERVAL = 60.0
"""Seconds between two removals of states that are too old to be used."""
_ID = re.compile("[0-9a-f]{32}")
_ID_PATTERN = "?" * 32

_log = logging.getLogger("podwright.service")


@dataclass(frozen=True, slots=True)
class SavedState:
    """What a run needs to go on."""

    id: str
    """32 hexadecimal digits, new for each state."""
    component: str
    digest: str
    """Digest of the blueprints of the component and all its parts."""
    owner: str
    """What identifies the caller; empty without API keys."""
    expires_at: float
    """Unix time in seconds."""
    context: JsonObject
    resume_path: list[int] | None = None
    question: JsonObject | None = None
    """What a person is asked; None if the run does not wait for one."""
    is_kept: bool = False
    """Whether the database has it."""
    turn: JsonObject | None = None
    """The turn of a conversation that the run is; see `podwright_service.conversations.values.SavedTurn`."""

    @property
    def public_context(self) -> JsonObject:
        """The part of the context that its caller sees: inputs and outputs."""
        return visible(self.context)


_STATES = TypeAdapter(SavedState)


class StateStore(Protocol):
    """Keeps states."""

    async def add(self, state: Mapping[str, Any]) -> None:
        """Keep a state, by column."""
        ...

    async def get(self, state_id: str) -> Mapping[str, Any] | None:
        """Return a state by column; None if there is none."""
        ...

    async def use(self, state: SavedState) -> None:
        """Mark a state as used, kept or sealed.

        Raises:
            RequestError: 409: it was used before.
        """
        ...


class SavedStates:
    """The states of the runs of a service.

    Args:
        settings: The keys, and how old a state may be.
    """

    def __init__(self, settings: Settings) -> None:
        self._seal = Seal(settings.state_keys)
        self._ttl = settings.state_ttl
        self._used: _UsedStates = _UsedInProcess(self._ttl)
        # a database notes it for all processes
        if settings.workers > 1 and settings.runs_database is None:
            self._used = _UsedInFolder(self._ttl)

    async def save(
        self, state: SavedState, store: StateStore | None
    ) -> JsonObject:
        """Keep or seal a state.

        Args:
            state: The state.
            store: The database; None to seal.

        Returns:
            The context that its caller is given, and sends back.
        """
        token = ""
        if store is not None:
            try:
                await store.add(columns_of(state))
                token = _KEPT + state.id
            except RequestError as error:
                # a run that waits is not lost because of its database
                _log.warning("A state is sealed, not kept: %s", error.detail)
        if not token:
            token = self._seal.close(to_json_bytes(columns_of(state)))
        return {**state.public_context, STATE: token}

    async def open(
        self,
        token: object,
        component: Component,
        owner: str,
        store: StateStore | None,
    ) -> SavedState:
        """Return the state that a caller sends back.

        Args:
            token: What the caller sends.
            component: What is to go on.
            owner: What identifies the caller.
            store: The database, if there is one.

        Raises:
            RequestError: 422: it is not a state of this service, component, blueprint and caller, or too old.
        """
        state = await self._read(token, store)
        if state.component != component.name:
            raise _invalid_state("It is of another component.")
        if state.digest != digest_of(component):
            raise _invalid_state(
                "The blueprint of the component has changed since."
            )
        if state.owner != owner:
            raise _invalid_state("It was given to another caller.")
        if time.time() > state.expires_at:
            raise _invalid_state("It has expired.")
        return state

    async def _read(
        self, token: object, store: StateStore | None
    ) -> SavedState:
        if not isinstance(token, str):
            raise _invalid_state("It is not a text.")
        if not token.startswith(_KEPT):
            return self._opened(token)
        if store is None:
            raise _invalid_state(
                "It is in a database, and this service has none."
            )
        state_id = token.removeprefix(_KEPT)
        row = None
        if _ID.fullmatch(state_id):
            row = await store.get(state_id)
        if row is None:
            raise _invalid_state("The database does not have it.")
        return SavedState(**row, is_kept=True)

    def _opened(self, token: str) -> SavedState:
        try:
            data = self._seal.open(token)
        except ValueError as error:
            raise _invalid_state(f"It cannot be opened: {error}.") from None
        try:
            # unlike pydantic, it reads the lone surrogates that a model may write
            return _STATES.validate_python(json.loads(data))
        except ValidationError:
            raise _invalid_state("It is of another release.") from None

    async def use(self, state: SavedState, store: StateStore | None) -> None:
        """Use a state, which is possible once.

        Raises:
            RequestError: 409: it was used before.
        """
        if store is not None:
            await store.use(state)
        elif not self._used.add(state.id):
            raise used_state_error()


class _UsedStates(Protocol):
    """The states that were used."""

    def add(self, state_id: str) -> bool:
        """Add a state; false if it is there already."""
        ...


class _UsedInProcess:
    """The states that this process has used.

    Args:
        ttl: Seconds after which a state is too old to be used.
    """

    def __init__(self, ttl: float) -> None:
        self._ttl = ttl
        self._times: OrderedDict[str, float] = OrderedDict()

    def add(self, state_id: str) -> bool:
        """Add a state; false if it is there already."""
        while self._times and (
            time.monotonic() - next(iter(self._times.values())) > self._ttl
        ):
            self._times.popitem(last=False)
        if state_id in self._times:
            return False
        self._times[state_id] = time.monotonic()
        return True


class _UsedInFolder:
    """The states that the processes of a service have used: a file for each, in a folder made before they fork.

    Args:
        ttl: Seconds after which a state is too old to be used.

    Raises:
        ConfigurationError: The folder cannot be made.
    """

    def __init__(self, ttl: float) -> None:
        self._ttl = ttl
        try:
            self._folder = make_shared_folder("podwright-used-states-")
        except OSError as error:
            raise ConfigurationError(
                f"The processes cannot share a folder for the states that were used: {error}.",
                suggestion="Let this user write to /dev/shm or to a folder for temporary files.",
            ) from error
        self._cleaned_at = time.monotonic()

    def add(self, state_id: str) -> bool:
        """Add a state; false if it is there already."""
        if time.monotonic() - self._cleaned_at > _CLEANUP_INTERVAL:
            self._remove_old()
        try:
            (self._folder / state_id).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def _remove_old(self) -> None:
        self._cleaned_at = time.monotonic()
        for file in self._folder.glob(_ID_PATTERN):
            # another process removes them too
            with contextlib.suppress(FileNotFoundError):
                if time.time() - file.stat().st_mtime > self._ttl:
                    file.unlink()


def new_state(
    component: Component,
    owner: str,
    context: Mapping[str, Any],
    resume_path: list[int] | None,
    question: JsonObject | None,
    *,
    ttl: float,
    turn: JsonObject | None = None,
) -> SavedState:
    """Return the state of a run that has stopped now.

    Args:
        component: What stopped.
        owner: What identifies its caller.
        context: The context of the error.
        resume_path: Where it resumes; None in a chat.
        question: What it waits for; None if it failed or was cancelled.
        ttl: Seconds for which it can go on.
        turn: The turn of a conversation that it is.
    """
    return SavedState(
        id=os.urandom(16).hex(),
        component=component.name,
        digest=digest_of(component),
        owner=owner,
        expires_at=time.time() + ttl,
        context=to_json_data(dict(context)),
        resume_path=resume_path,
        question=question,
        turn=turn,
    )


def columns_of(state: SavedState) -> JsonObject:
    """Return a state by column."""
    # unlike `asdict`, it copies nothing: contexts may have megabytes
    return {
        field.name: getattr(state, field.name)
        for field in fields(state)
        if field.name != "is_kept"
    }


def digest_of(component: Component) -> str:
    """Digest of the blueprints of a component and all its parts."""
    digests = map(component_digest, walk(component))
    return hashlib.sha256(" ".join(digests).encode()).hexdigest()


def used_state_error() -> RequestError:
    """Return the error about a state that was used before."""
    return RequestError(
        409,
        "state_used",
        f"The run has gone on from this '{STATE}' before, and goes on from it once.",
        "Use the response to that request. Send an Idempotency-Key with a request that may be repeated.",
    )


def _invalid_state(reason: str) -> RequestError:
    return RequestError(
        422,
        "state_invalid",
        f"The '{STATE}' of the context is not a state of a run here. {reason}",
        "Send the `context` of the problem unchanged, to the same service, with the same API key; or run it again. "
        "With PODWRIGHT_STATE_KEYS or PODWRIGHT_RUNS_DATABASE, a state outlasts a restart.",
    )
