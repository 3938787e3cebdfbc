"""Data URLs (RFC 2397) in base64, as images and files of messages have them."""

from __future__ import annotations

import base64
import re
from typing import NamedTuple

PDF = "application/pdf"

_DATA_URL = re.compile(r"data:([a-z0-9.+-]+/[a-z0-9.+-]+);base64,", re.ASCII)
_TEXT_TYPE = re.compile(
    r"text/.+|application/(.+\+)?(json|xml|yaml|x-yaml|toml|javascript)"
)
"""Media types whose data are a text."""


class DataURL(NamedTuple):
    """The parts of a data URL."""

    media_type: str
    """Such as `image/png`, in lower case, without parameters."""
    data: str
    """The data in base64."""

    @property
    def is_text(self) -> bool:
        """Whether the data are a text, by their media type."""
        return _TEXT_TYPE.fullmatch(self.media_type) is not None

    def text(self) -> str:
        """Return the data as a text.

        Raises:
            ValueError: They are not base64, or not UTF-8.
        """
        return base64.b64decode(self.data, validate=True).decode("utf-8-sig")


def parse_data_url(url: str) -> DataURL | None:
    """Return the parts of a data URL in base64; None if it is any other URL."""
    match = _DATA_URL.match(url)
    if match is None:
        return None
    return DataURL(match[1], url[match.end() :])
