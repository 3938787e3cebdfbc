"""Connections to the database of background runs, its transactions, and its migrations.

What a transaction has read is still so when it writes: in SQLite it has the whole database to itself from its first
statement on, and in PostgreSQL it locks the rows that it reads (`with_for_update`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, TypeVar

from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from psycopg.errors import (
    InsufficientPrivilege,
    InvalidSchemaName,
    UndefinedColumn,
    UndefinedTable,
)
from sqlalchemy import (
    Connection,
    CursorResult,
    Executable,
    RowMapping,
    Table,
    create_engine,
    event,
    literal,
    literal_column,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DataError, DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import (
    AsyncConnection,
    AsyncEngine,
    create_async_engine,
)
from sqlalchemy.sql.elements import ColumnElement

from podwright.data.json_data import to_json_bytes
from podwright.errors import ConfigurationError
from podwright_service.background.storage.sqlite_file import (
    DatabaseFileError,
    SQLiteFile,
)
from podwright_service.http.errors.problems import RequestError

TRANSACTION_TIMEOUT = 10.0
"""Seconds that a transaction may take in PostgreSQL, and that it may wait for a connection or for a lock in SQLite."""

_MIGRATION_SECONDS = 60.0
"""Seconds to wait for another process that migrates a SQLite file."""

_UNPREPARED: Mapping[str, Any] = {"prepare_threshold": None}
"""Has psycopg prepare no statements. With a pooler that pools transactions, each of them may use another connection of
the server, where the statement of this name is that of another client:
https://www.psycopg.org/psycopg3/docs/advanced/prepare.html#using-prepared-statements-with-pgbouncer"""

_OWN_BEGIN: Mapping[str, Any] = {"isolation_level": None}
"""Has the driver of SQLite begin no transactions: it would do so only before the first statement that writes.
https://docs.sqlalchemy.org/en/20/dialects/sqlite.html#enabling-non-legacy-sqlite-transactional-modes-with-the-sqlite3-or-aiosqlite-driver"""

_READING: Mapping[str, Any] = {"podwright_reading": True}
"""Execution option of the transactions that only read."""

T = TypeVar("T")


class DatabaseUnavailableError(RequestError):
    """The database cannot be used at present: 503.

    Args:
        detail: What is wrong.
        suggestion: What to do about it.
    """

    def __init__(self, detail: str, suggestion: str) -> None:
        super().__init__(
            503, "runs_unavailable", detail, suggestion, {"retry-after": "5"}
        )


_CLOCK: ColumnElement[float] = literal_column(
    "extract(epoch from statement_timestamp())"
)
"""The time is the same in all of a statement, because the planner uses no index for conditions with another one."""


class Transaction:
    """The statements of a transaction.

    The caller may be cancelled at any time, but the step that it waits for goes on to its end, in a task of its own:
    drivers and connection pools may lose a connection if they are cancelled while they open, use or close it.

    Args:
        connection: A connection that is not open.
        timeout: Seconds after which a step is cut off all the same; None cuts off none.
    """

    def __init__(
        self, connection: AsyncConnection, timeout: float | None
    ) -> None:
        self._connection = connection
        self._timeout = timeout
        self._deadline: float | None = None
        if timeout is not None:
            self._deadline = asyncio.get_running_loop().time() + timeout
        self._step: asyncio.Task[Any] | None = None

    async def open(self) -> None:
        """Take a connection from the pool."""
        await self._run(self._connection.start())

    async def execute(
        self, statement: Executable, parameters: Any = None
    ) -> CursorResult[*tuple[Any, ...]]:
        """Execute a statement.

        Args:
            statement: Its expression.
            parameters: Values by name; a list of them executes it for each.
        """
        return await self._run(self._connection.execute(statement, parameters))

    async def scalar(self, statement: Executable) -> Any:
        """The first column of the first row of a query."""
        result = await self.execute(statement)
        return result.scalar()

    async def first(
        self, statement: Executable, parameters: Any = None
    ) -> RowMapping | None:
        """The first row that a statement returns, by column."""
        result = await self.execute(statement, parameters)
        return result.mappings().first()

    async def all(self, statement: Executable) -> Sequence[RowMapping]:
        """The rows that a statement returns, by column."""
        result = await self.execute(statement)
        return result.mappings().all()

    async def commit(self) -> None:
        """Commit what the statements have changed."""
        await self._run(self._connection.commit())

    async def close_after(self, end: asyncio.Event) -> None:
        """Wait for the end of the transaction and of its last step, and return the connection to the pool.

        What has not been committed is rolled back.
        """
        await end.wait()
        if self._step is not None:
            await asyncio.wait([self._step])
        if self._connection.sync_connection is None:
            return
        # how the transaction ended is known by now, and the pool discards a connection that cannot be rolled back
        with contextlib.suppress(DBAPIError, OSError, TimeoutError):
            async with asyncio.timeout(self._timeout):
                await self._connection.close()

    async def _run(self, step: Coroutine[Any, Any, T]) -> T:
        task = asyncio.create_task(self._within_deadline(step))
        self._step = task
        return await asyncio.shield(task)

    async def _within_deadline(self, step: Coroutine[Any, Any, T]) -> T:
        async with asyncio.timeout_at(self._deadline):
            return await step


class Database:
    """A database, in short transactions.

    Args:
        url: Its URL, as `database_url` returns it.
    """

    def __init__(self, url: URL) -> None:
        self._engine = _engine(url)
        self._reading_engine = self._engine.execution_options(**_READING)
        self.is_sqlite = self._engine.dialect.name == "sqlite"
        self._file: SQLiteFile | None = None
        if self.is_sqlite:
            self._file = SQLiteFile(url)
        self.reached_since: float | None = None
        """Since when the database has been reached, by `time.monotonic()`; None while it cannot be reached."""
        self._closing: set[asyncio.Task[None]] = set()
        """Tasks that close the connections of the transactions in progress."""

    async def close(self) -> None:
        """Close all connections, once the transactions in progress have ended."""
        await asyncio.shield(asyncio.create_task(self._dispose()))

    async def _dispose(self) -> None:
        # the pool does not close the connections that are in use
        if self._closing:
            await asyncio.wait(self._closing)
        await self._engine.dispose()

    def now(self) -> ColumnElement[float]:
        """Unix time in seconds, by the clock that all processes share."""
        if self.is_sqlite:
            return literal(time.time())
        return _CLOCK

    def insert(self, table: Table) -> Any:
        """An INSERT that may say what happens if the row exists: standard SQL has no statement for it."""
        if self.is_sqlite:
            return sqlite.insert(table)
        return postgresql.insert(table)

    def seconds_reached(self) -> float:
        """For how long the database has been reached; 0 while it cannot be reached."""
        if self.reached_since is None:
            return 0.0
        return time.monotonic() - self.reached_since

    def transaction(self) -> AbstractAsyncContextManager[Transaction]:
        """A transaction that may write: it is committed at the end of this context, unless that fails or is cancelled.

        A cancelled caller waits until the connection is back in the pool; if it is cancelled again, it does not.

        Raises:
            DatabaseUnavailableError: The database cannot be reached, or has no tables.
            RequestError: 422: the database cannot represent a value of the request, such as a text with a NUL.
        """
        return self._transaction(self._engine)

    def reading(self) -> AbstractAsyncContextManager[Transaction]:
        """A transaction that only reads; in SQLite it waits for no other. Otherwise as `transaction`."""
        return self._transaction(self._reading_engine)

    @contextlib.asynccontextmanager
    async def _transaction(
        self, engine: AsyncEngine
    ) -> AsyncGenerator[Transaction]:
        try:
            async with self._open_transaction(engine) as transaction:
                yield transaction
            if self.reached_since is None:
                self.reached_since = time.monotonic()
        except (DataError, OverflowError) as error:
            detail = "The request has a value that the database of background runs cannot represent."
            raise RequestError(422, "request_invalid", detail) from error
        except (DBAPIError, PoolTimeoutError, OSError, TimeoutError) as error:
            cause = getattr(error, "orig", None)
            if isinstance(cause, UndefinedTable | UndefinedColumn):
                detail = "The database of background runs does not have the tables of this release."
                suggestion = "Run `podwright runs migrate`."
                raise DatabaseUnavailableError(detail, suggestion) from error
            self.reached_since = None
            detail = (
                "The database of background runs cannot be used at present."
            )
            suggestion = (
                "Try again after the seconds in the header 'Retry-After'."
            )
            raise DatabaseUnavailableError(detail, suggestion) from error

    @contextlib.asynccontextmanager
    async def _open_transaction(
        self, engine: AsyncEngine
    ) -> AsyncGenerator[Transaction]:
        timeout: float | None = TRANSACTION_TIMEOUT
        # SQLite works in threads, which cannot be cut off; it has time-outs of its own
        if self.is_sqlite:
            timeout = None
        transaction = Transaction(engine.connect(), timeout)
        end = asyncio.Event()
        closing = asyncio.create_task(transaction.close_after(end))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)
        try:
            self._check_file()
            await transaction.open()
            yield transaction
            await transaction.commit()
            # what was committed is lost if the file has changed meanwhile
            self._check_file()
        except DBAPIError:
            # a file that has changed meanwhile is the cause, and no fault of SQLite
            self._check_file()
            raise
        finally:
            end.set()
            await asyncio.shield(closing)

    def _check_file(self) -> None:
        """Check that the file of SQLite is the one that the connections have open.

        Raises:
            OSError: It is not, or cannot be read.
        """
        if self._file is not None:
            self._file.check()


_DRIVERS = {
    "sqlite": "sqlite+aiosqlite",
    "postgresql": "postgresql+psycopg",
    "postgres": "postgresql+psycopg",
}


def database_url(text: str) -> URL:
    """The URL of a database, with the driver that is used for it.

    Raises:
        ConfigurationError: It is neither a SQLite nor a PostgreSQL URL. The message does not repeat it.
    """
    try:
        url = make_url(text)
        driver = _DRIVERS.get(url.drivername)
        if driver is None or url.database in (None, "", ":memory:"):
            raise ArgumentError
        for host in (url.host or "").split(","):
            # as the resolver does, which says of some hosts no more than that they cannot be encoded
            host.encode("idna")
    except (ArgumentError, ValueError):
        raise ConfigurationError(
            "PODWRIGHT_RUNS_DATABASE: Expected the URL of a database.",
            suggestion="Write sqlite:////data/runs.db or postgresql://user:password@host/name.",
        ) from None
    return url.set(drivername=driver)


def migrate(url: URL) -> None:
    """Create the tables, or bring those of an earlier release up to date.

    Raises:
        ConfigurationError: The database cannot be reached or changed, or is of a later release.
    """
    config = Config()
    config.set_main_option(
        "script_location", str(Path(__file__).with_name("migrations"))
    )
    driver = url.drivername.replace("+aiosqlite", "")
    options = dict(_UNPREPARED)
    if driver == "sqlite":
        options = {"timeout": _MIGRATION_SECONDS, **_OWN_BEGIN}
    try:
        engine = create_engine(url.set(drivername=driver), connect_args=options)
        # several processes may start at once: the first one migrates, and the others wait for it
        if engine.dialect.name == "sqlite":
            event.listen(engine, "begin", _begin_in_sqlite)
        try:
            with engine.begin() as connection:
                if engine.dialect.name == "postgresql":
                    connection.exec_driver_sql(
                        "SELECT pg_advisory_xact_lock(7240117)"
                    )
                config.attributes["connection"] = connection
                command.upgrade(config, "head")
        finally:
            engine.dispose()
    except (SQLAlchemyError, CommandError, OSError) as error:
        raise explain_database_error(error) from None


def explain_database_error(error: BaseException) -> ConfigurationError:
    """What the database or its driver says of an error, in a line, and what its operator can do about it."""
    cause = getattr(error, "orig", None) or error
    text = str(cause).strip() or type(cause).__name__
    reason, _, _ = text.partition("\n")
    suggestion = (
        "Check that the server is up and can be reached, and the host, port, user, password and name in "
        "PODWRIGHT_RUNS_DATABASE; of SQLite, that the file can be written, and the disk has room."
    )
    if isinstance(cause, DatabaseFileError):
        suggestion = "Stop the service, put the file back or delete it, delete those with -wal and -shm, and start it."
    elif isinstance(cause, UndefinedTable | UndefinedColumn):
        suggestion = "Run `podwright runs migrate`."
    elif isinstance(cause, InsufficientPrivilege | InvalidSchemaName):
        suggestion = "Let the user in PODWRIGHT_RUNS_DATABASE create tables: GRANT USAGE, CREATE ON SCHEMA."
    elif isinstance(cause, CommandError):
        suggestion = (
            "Use the release that has changed the tables, or a newer one."
        )
    return ConfigurationError(
        f"The database of background runs cannot be used: {reason.rstrip('.')}.",
        suggestion=suggestion,
    )


def _begin_in_sqlite(connection: Connection) -> None:
    """Begin a transaction, alone if it may write: else another one could change what it has read."""
    if connection.get_execution_options().keys() >= _READING.keys():
        connection.exec_driver_sql("BEGIN")
    else:
        connection.exec_driver_sql("BEGIN IMMEDIATE")


def _engine(url: URL) -> AsyncEngine:
    """An engine with the settings that a store needs."""
    options: dict[str, Any] = {
        "json_serializer": _to_json,
        # unlike orjson, it reads the lone surrogates that a model may write
        "json_deserializer": json.loads,
    }
    if url.drivername.startswith("sqlite"):
        engine = create_async_engine(
            url,
            pool_timeout=TRANSACTION_TIMEOUT,
            connect_args={"timeout": TRANSACTION_TIMEOUT, **_OWN_BEGIN},
            **options,
        )
        event.listen(engine.sync_engine, "connect", _set_up_sqlite)
        event.listen(engine.sync_engine, "begin", _begin_in_sqlite)
        return engine
    return create_async_engine(
        url,
        pool_size=8,
        max_overflow=0,
        pool_timeout=TRANSACTION_TIMEOUT,
        connect_args={"connect_timeout": 5, **_UNPREPARED},
        **options,
    )


def _to_json(data: Any) -> str:
    return to_json_bytes(data).decode()


def _set_up_sqlite(connection: Any, _: object) -> None:
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=FULL"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()
