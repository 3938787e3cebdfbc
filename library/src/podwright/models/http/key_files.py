"""API keys in files, which are read again so that they can be replaced without a restart."""

from __future__ import annotations

from pathlib import Path

from podwright.blueprints.content import read_bytes
from podwright.data.text import os_error_reason
from podwright.errors import ConfigurationError
from podwright.models.http.urls import is_header_value


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
