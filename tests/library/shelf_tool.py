"""A tool that is not a function: it has a JSON Schema of its own, and a coroutine that calls it."""

from __future__ import annotations

import asyncio
from typing import Any

from podwright.data.json_data import JsonObject
from podwright.errors import Problem
from podwright.messages.messages import ToolSchema
from podwright.tools.tool import Tool


class ShelfTool(Tool):
    """A tool that finds a book by its number."""

    calls: tuple[str, ...] = ()
    """The numbers that it was called with."""

    def validate(self, arguments: JsonObject) -> JsonObject:
        """Check the arguments as the schema says."""
        problems = [
            Problem(f"/{name}", "Unknown argument.")
            for name in arguments
            if name != "isbn"
        ]
        isbn = arguments.get("isbn")
        if not isinstance(isbn, str) or not isbn.isdigit():
            problems.append(Problem("/isbn", "Expected digits."))
        if problems:
            raise self.arguments_error(problems)
        return arguments

    async def perform(self, values: JsonObject, seconds: float | None) -> Any:
        """Find a book."""
        await asyncio.sleep(0)
        ShelfTool.calls = (*ShelfTool.calls, values["isbn"])
        return {"title": f"Book {values['isbn']}"}


SCHEMA: ToolSchema = {
    "type": "function",
    "function": {
        "name": "find_book",
        "description": "Find a book.",
        "parameters": {
            "type": "object",
            "properties": {
                "isbn": {"type": "string", "description": "Its number."}
            },
            "required": ["isbn"],
            "additionalProperties": False,
        },
    },
}
find_book = ShelfTool(SCHEMA)
