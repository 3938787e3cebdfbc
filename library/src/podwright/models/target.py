"""Where a request goes: what is left of a URL when it is used a thousand times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

_KEPT = "/:@!$&'()*+,;=~%?-._"


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
        if not url.isprintable() or " " in url:  # which the standard library would leave out
            raise ValueError("no URL")
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc or parts.fragment:
            raise ValueError("no URL of a service")
        host = parts.hostname if parts.hostname.isascii() else parts.hostname.encode("idna").decode()
        if any(not one.isprintable() or one in ' "<>\\^`{|}' for one in host):
            raise ValueError("no name of a host")
        secure = parts.scheme == "https"
        path = quote(parts.path, safe=_KEPT) + (f"?{quote(parts.query, safe=_KEPT)}" if parts.query else "")
        return cls(secure, host, parts.port or (443 if secure else 80), path or "/")

    def head(self, headers: Mapping[str, str]) -> bytes:
        """The head of a POST up to the length of its body.

        Raises:
            ValueError: A header is none.
        """
        host = f"[{self.host}]" if ":" in self.host else self.host
        usual = self.port == (443 if self.secure else 80)
        named = {"Host": host if usual else f"{host}:{self.port}", "Accept-Encoding": "gzip", **headers}
        lines = [f"{name}: {value}" for name, value in named.items()]
        if any(not line.isprintable() for line in lines):
            raise ValueError("a header has characters that none has")
        return "\r\n".join((f"POST {self.path} HTTP/1.1", *lines, "Content-Length: ")).encode()
