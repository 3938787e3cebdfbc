"""A real PostgreSQL server from the programs of this machine, with a database for each test."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import psycopg
from psycopg.sql import SQL, Identifier
from tests.helpers import skip
from tests.ports import free_port

DEBIAN = Path("/usr/lib/postgresql")
"""Where Debian installs the programs, one folder for each version."""


def programs() -> Path | None:
    """The folder with `initdb` and `pg_ctl`; None if PostgreSQL is not installed."""
    found = shutil.which("pg_ctl")
    folders = (
        [Path(found).resolve().parent]
        if found
        else sorted(DEBIAN.glob("*/bin"))
    )
    return folders[-1] if folders else None


class PostgreSQL:
    """A server that listens on a Unix socket and on a port of 127.0.0.1.

    Args:
        programs: The folder with its programs.
        folder: A folder for its data, which its user may write.
        port: A free port.
    """

    def __init__(self, programs: Path, folder: Path, port: int) -> None:
        self.port = port
        self._programs, self._folder = programs, folder
        self._names = (f"test{number}" for number in count())
        self._call(
            "initdb",
            "--auth=trust",
            "--username=postgres",
            "--encoding=UTF8",
            "--no-sync",
        )

    @property
    def pid(self) -> int:
        """The process that starts all others of the server."""
        return int(
            (self._folder / "data" / "postmaster.pid")
            .read_text()
            .partition("\n")[0]
        )

    def start(self) -> None:
        """Start it, and wait until it answers."""
        options = (
            f"-p {self.port} -c listen_addresses=127.0.0.1 -k {self._folder}"
        )
        self._call(
            "pg_ctl",
            "--wait",
            f"--log={self._folder}/log",
            f"--options={options}",
            "start",
        )

    def stop(self, mode: str = "fast") -> None:
        """Stop it; with the mode `immediate`, as if it were killed."""
        self._call("pg_ctl", "--wait", f"--mode={mode}", "stop")

    def database(self) -> str:
        """The URL of a new, empty database."""
        name = next(self._names)
        with psycopg.connect(
            self._url("postgres"), autocommit=True
        ) as connection:
            connection.execute(
                SQL("CREATE DATABASE {}").format(Identifier(name))
            )
        return self._url(name)

    def _url(self, name: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{name}"

    def _call(self, program: str, *arguments: str) -> None:
        command = [
            str(self._programs / program),
            f"--pgdata={self._folder}/data",
            *arguments,
        ]
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            command = [
                "setpriv",
                "--reuid=postgres",
                "--regid=postgres",
                "--init-groups",
                *command,
            ]
        # its output goes to a file, because the server keeps a pipe open
        with (self._folder / "output").open("w+") as output:
            done = subprocess.run(
                command, stdout=output, stderr=subprocess.STDOUT, cwd="/"
            )
            output.seek(0)
            assert done.returncode == 0, output.read()


@contextlib.contextmanager
def serve_postgresql() -> Iterator[PostgreSQL]:
    """A running server, in a folder that is deleted at the end."""
    found = programs()
    if found is None:
        skip("PostgreSQL is missing: `make tools` installs it on Debian.")
    with tempfile.TemporaryDirectory() as folder:
        if os.geteuid() == 0:
            shutil.chown(folder, "postgres")
        server = PostgreSQL(found, Path(folder), free_port())
        server.start()
        try:
            yield server
        finally:
            with contextlib.suppress(AssertionError):
                server.stop("immediate")
