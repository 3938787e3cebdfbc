"""The functions of the desk's steps: orders and letters in SQLite, and what stands in if something fails."""

import os
import sqlite3
import tempfile
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

from podwright import call_key, tool

_TABLES = """
    CREATE TABLE IF NOT EXISTS orders (number INTEGER PRIMARY KEY, customer TEXT, item TEXT, state TEXT);
    CREATE TABLE IF NOT EXISTS letters (customer TEXT, number INTEGER, text TEXT, key TEXT UNIQUE);
    INSERT OR IGNORE INTO orders VALUES
        (7, 'Ann', 'a blue cup', 'on its way'),
        (8, 'Bob', 'two plates', 'delivered');
"""


@contextmanager
def database() -> Generator[sqlite3.Connection]:
    """A transaction in the shop's database: `DESK_DATABASE`, or a file for temporary use; it has two orders."""
    default = Path(tempfile.gettempdir()) / "desk.db"
    path = os.environ.get("DESK_DATABASE", default)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.row_factory = sqlite3.Row
        connection.executescript(_TABLES)
        yield connection


@tool(idempotent=True, timeout=10)
def look_up_order(number: int, customer: str) -> dict[str, str | int]:
    """The order of a customer."""
    with database() as connection:
        row = connection.execute(
            "SELECT number, item, state FROM orders WHERE number = ? AND customer = ?",
            (number, customer),
        ).fetchone()
    if row is None:
        raise LookupError(f"{customer} has no order {number}")
    return dict(row)


@tool(idempotent=True)
def no_order(reason: str) -> dict[str, str | None]:
    """What stands in for an order that was not found."""
    return {"number": None, "item": "unknown", "state": f"not found: {reason}"}


@tool(idempotent=True)
def standard_letter(customer: str, category: str) -> str:
    """The answer if no model can write one."""
    return f"Dear {customer},\nthank you for your letter ({category}). We will write to you soon.\nYour shop"


@tool(idempotent=True)
def send_letter(
    customer: str, order: int | None, text: str
) -> dict[str, str | None]:
    """Send a letter: here, put it into the database; once, though a crash may have the call made again."""
    key = call_key()
    with database() as connection:
        connection.execute(
            "INSERT INTO letters VALUES (?, ?, ?, ?) ON CONFLICT (key) DO NOTHING",
            (customer, order, text, key),
        )
    return {"letter": key}
