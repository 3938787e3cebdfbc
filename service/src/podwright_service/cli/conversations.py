"""The commands `conversations …`: the conversations that a service keeps."""

from __future__ import annotations

from urllib.parse import quote

from podwright.client import Client
from podwright.errors import ConfigurationError
from podwright_service.cli.console import print_json, print_text


def list_conversations(client: Client, limit: int, *, as_json: bool) -> None:
    """Print the newest conversations of the caller, one a line."""
    page = client.request("GET", f"/conversations?limit={limit}")
    if as_json:
        print_json(page["conversations"])
        return
    for conversation in page["conversations"]:
        facts = (
            f"{conversation['updated_at'][:19]}Z",
            f"{conversation['turns']:>5}",
            f"{conversation['bytes']:>9}",
            conversation["session"],
        )
        print_text("  ".join(facts))


def show_conversation(client: Client, session: str) -> None:
    """Print a conversation as JSON, as the service sends it."""
    print_json(client.request("GET", _path_of(session)))


def delete_conversations(
    client: Client, session: str | None, user: str | None
) -> None:
    """Delete a conversation or those of a user, and print how much was deleted.

    Raises:
        ConfigurationError: There is neither a session nor a user, or there are both.
    """
    if (session is None) == (user is None):
        raise ConfigurationError(
            "Expected a session or --user, and not both.",
            suggestion="podwright conversations delete SESSION",
        )
    path = f"/conversations?user={quote(user or '', safe='')}"
    if session is not None:
        path = _path_of(session)
    deleted = client.request("DELETE", path)
    print_text(
        f"{deleted['conversations']} conversations, {deleted['runs']} background runs"
    )


def _path_of(session: str) -> str:
    return f"/conversations/{quote(session, safe='')}"
