"""A real PgBouncer in front of a PostgreSQL server, which pools transactions and knows no prepared statements."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from sqlalchemy.engine import make_url
from tests.helpers import skip, until
from tests.ports import free_port
from tests.postgresql import PostgreSQL

CONFIGURATION = """
[databases]
* = host=127.0.0.1 port={server} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 2
logfile = {folder}/log
pidfile = {folder}/pid
"""
"""Fewer connections of the server than two services have, so that they share them."""


class PgBouncer:
    """A pooler that listens on a port of 127.0.0.1.

    Args:
        program: Its program.
        folder: A folder for its files, which its user may write.
        server: Port of the PostgreSQL server.
        port: A free port.
    """

    def __init__(
        self, program: str, folder: Path, server: int, *, port: int
    ) -> None:
        self.port = port
        self._folder = folder
        file = folder / "pgbouncer.ini"
        file.write_text(
            CONFIGURATION.format(server=server, port=port, folder=folder)
        )
        self._command = [program, "--quiet", str(file)]
        if os.geteuid() == 0:  # PgBouncer refuses to run as root
            self._command.append("--user=postgres")

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Run it for as long as this context."""
        process = subprocess.Popen(self._command)
        try:
            until(self._listens, report=self._log)
            yield
        finally:
            process.kill()
            process.wait()

    def pooled(self, url: str) -> str:
        """The URL at which the pooler has a database of the server."""
        pooled = make_url(url).set(port=self.port)
        return pooled.render_as_string(hide_password=False)

    def _listens(self) -> bool:
        with contextlib.suppress(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", self.port)).close()
            return True
        return False

    def _log(self) -> str:
        return (self._folder / "log").read_text()


@contextlib.contextmanager
def serve_pgbouncer(postgresql: PostgreSQL) -> Iterator[PgBouncer]:
    """A running pooler in front of a server, in a folder that is deleted at the end."""
    program = shutil.which("pgbouncer")
    if program is None:
        skip("PgBouncer is missing: `make tools` installs it on Debian.")
    with tempfile.TemporaryDirectory() as folder:
        if os.geteuid() == 0:
            shutil.chown(folder, "postgres")
        pooler = PgBouncer(
            program, Path(folder), postgresql.port, port=free_port()
        )
        with pooler.running():
            yield pooler
