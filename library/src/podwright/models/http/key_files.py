"""API keys in files, which are read again so that they can be replaced without a restart."""

from __future__ import annotations

import logging
from pathlib import Path

from podwright.blueprints.content import read_bytes
from podwright.data.text import os_error_reason
from podwright.errors import ConfigurationError
from podwright.models.http.urls import is_header_value

_log = logging.getLogger("podwright")


class ReplaceableKey:
    """The API key for a server, or the file with it.

    Args:
        whose: What the key is for, for messages: "the remote component 'writer'".
        key: The key; None or empty for none.
        path: The file; None for none.

    Raises:
        ConfigurationError: An invalid key, a key and a file, or a file that cannot be read or has no valid key.
    """

    def __init__(
        self, whose: str, key: str | None, path: str | Path | None
    ) -> None:
        self._path = path
        self._fault = ""
        """What the log has said of the file; empty while that has a key."""
        self._key = (key or "").strip()
        if path is None:
            if not is_header_value(self._key):
                raise invalid_key_error(whose)
            return
        if self._key:
            raise ConfigurationError(
                f"{whose[0].upper()}{whose[1:]} has an API key and a file with one.",
                suggestion="Remove one of them.",
            )
        self._key = read_key_file(whose, path)

    def read(self, whose: str) -> str:
        """Return the key; the one before if its file cannot be read; empty if there is none.

        Args:
            whose: What the key is for, for the log.
        """
        if self._path is None:
            return self._key
        try:
            self._key = read_key_file(whose, self._path)
        except ConfigurationError as error:
            # once, and not for each request
            if error.message != self._fault:
                _log.error("%s The previous key is sent.", error.message)
            self._fault = error.message
        else:
            self._fault = ""
        return self._key


def read_key_file(whose: str, path: str | Path) -> str:
    """Return the API key in a file.

    Args:
        whose: What the key is for, for messages: "the remote component 'writer'".
        path: The file.

    Raises:
        ConfigurationError: The file cannot be read, or has no valid key. The message does not have the key.
    """
    try:
        key = read_bytes(path).decode().strip()
    except UnicodeError:
        raise invalid_key_error(whose, f" in '{path}'") from None
    except (OSError, ValueError) as error:
        reason = os_error_reason(error)
        raise ConfigurationError(
            f"The file '{path}' with the API key for {whose} cannot be read: {reason}.",
            suggestion="Name a file that this user can read.",
        ) from error
    if not key:
        raise ConfigurationError(
            f"The file '{path}' has no API key for {whose}.",
            suggestion="Write the key into it.",
        )
    if not is_header_value(key):
        raise invalid_key_error(whose, f" in '{path}'")
    return key


def invalid_key_error(whose: str, place: str = "") -> ConfigurationError:
    """Return the error for a key that cannot stand in a header.

    Args:
        whose: What the key is for.
        place: Where it is: " in 'key.txt'".
    """
    return ConfigurationError(
        f"The API key for {whose}{place} has invalid characters.",
        suggestion="A key has printable ASCII characters only.",
    )
