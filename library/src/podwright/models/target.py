"""Where a request goes: what is left of a URL when it is used a thousand times."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

_KEPT = "/:@!$&'()*+,;=~%?-._"
_PLACE = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s\[\]@:%/\\\"<>^`{|}]+)(:\d{1,5})?")
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_OURS = ("host", "accept-encoding", "content-length", "transfer-encoding", "expect")


@dataclass(frozen=True, slots=True)
class Target:
    """Where requests go."""

    secure: bool
    host: str
    port: int
    path: str

    @classmethod
    def of(cls, url: str) -> Target:
        """The target that an http or https URL names.

        Raises:
            ValueError: It is none, or has a user's name in it.
        """
        parts = urlsplit(url)
        # the standard library leaves out line breaks, and takes nearly anything for a host
        if not (url.isprintable() and parts.scheme in ("http", "https") and _PLACE.fullmatch(parts.netloc)):
            raise ValueError("no URL of a service")
        host = parts.hostname or ""
        if not host or parts.fragment or parts.port == 0:
            raise ValueError("no URL of a service")
        path = quote(parts.path or "/", safe=_KEPT) + (f"?{quote(parts.query, safe=_KEPT)}" if parts.query else "")
        secure = parts.scheme == "https"
        known = host if host.isascii() else host.encode("idna").decode()
        return cls(secure, known, parts.port or (443 if secure else 80), path)

    @classmethod
    def below(cls, base: str, path: str) -> Target:
        """The target at a path below a base URL, which has no query.

        Raises:
            ValueError: As `of`.
        """
        if "?" in base or "#" in base:
            raise ValueError("no URL that a path can follow")
        return cls.of(base.rstrip("/") + path)

    def head(self, headers: Mapping[str, str]) -> bytes:
        """The head of a POST up to the length of its body.

        Raises:
            ValueError: A header is none, or one that is written here.
        """
        host = f"[{self.host}]" if ":" in self.host else self.host.rstrip(".")
        usual = self.port == (443 if self.secure else 80)
        for name, value in headers.items():
            if not _NAME.fullmatch(name) or name.lower() in _OURS or not value.replace("\t", " ").isprintable():
                raise ValueError("a header has characters that none has, or is not for others to write")
        # what is said to models and by them is short, and to compress it is to wait for the end of it
        ours = (f"Host: {host if usual else f'{host}:{self.port}'}", "Accept-Encoding: identity")
        lines = [f"{name}: {value}" for name, value in headers.items()]
        return "\r\n".join((f"POST {self.path} HTTP/1.1", *ours, *lines, "Content-Length: ")).encode()
