"""References of images: `registry.example:5000/team/calculator:1.0@sha256:…`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from podwright.data.text import truncate
from podwright.errors import ConfigurationError

_DOMAIN_PART = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_PATH_PART = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_REFERENCE = re.compile(
    rf"(?P<repository>(?:(?:{_DOMAIN_PART}(?:\.{_DOMAIN_PART})*|\[[0-9A-Fa-f:]+\])(?::[0-9]+)?/)?"
    rf"{_PATH_PART}(?:/{_PATH_PART})*)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}))?"
    r"(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)
"""As https://pkg.go.dev/github.com/distribution/reference has it, with the only digest that registries use."""
_MAX_LENGTH = 255
"""The longest repository."""


@dataclass(frozen=True)
class ImageReference:
    """The parts of a reference."""

    repository: str
    """With the registry and its port, if the reference names one."""
    tag: str = ""
    digest: str = ""
    """`sha256:…`, or empty."""


def parse_reference(text: str) -> ImageReference:
    """The parts of an image's reference.

    Raises:
        ConfigurationError: It is not one.
    """
    match = _REFERENCE.fullmatch(text)
    if match is None or len(match["repository"]) > _MAX_LENGTH:
        raise ConfigurationError(
            f"Invalid image name '{truncate(text, 100)}'.",
            suggestion="Write it as NAME, NAME:TAG or NAME@DIGEST, where NAME is in lower case and DIGEST is sha256:….",
        )
    return ImageReference(
        match["repository"], match["tag"] or "", match["digest"] or ""
    )


def check_reference(text: str) -> str:
    """Return an image reference, such as `calculator` or `registry.example/team/calculator:1.0`, if it is valid.

    Raises:
        ConfigurationError: It is not.
    """
    parse_reference(text)
    return text
