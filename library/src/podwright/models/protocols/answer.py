"""What the protocols of model providers have in common: the pieces of an answer, and what is not an answer."""

from __future__ import annotations

from typing import NamedTuple

MAX_NAME = 200
"""Characters of the names and ids of a response that are kept; telemetry shows them."""


class InvalidResponseError(Exception):
    """The data is not of the provider's protocol, or has no answer."""

    def __init__(
        self,
        reason: str = "the response cannot be read as an answer of a model",
    ) -> None:
        super().__init__(reason)


class Piece(NamedTuple):
    """What a chunk adds to an answer, for who wants to see it at once."""

    text: str = ""
    reasoning: str = ""
