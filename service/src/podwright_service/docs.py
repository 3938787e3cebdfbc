"""The interactive API page: one file of ours, which draws the OpenAPI document and needs nothing from elsewhere."""

from __future__ import annotations

import base64
import hashlib
import re
from importlib.resources import files

from starlette.responses import HTMLResponse


class DocsPage:
    """`/docs`. The page's one script is pinned by its digest, and can reach this service only."""

    def __init__(self) -> None:
        self._html = (files("podwright_service") / "docs.html").read_text(encoding="utf-8")
        script = re.search(r"<script>(.*?)</script>", self._html, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256((script[1] if script else "").encode()).digest()).decode()
        self._policy = (
            f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; connect-src 'self'; "
            "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )

    async def page(self) -> HTMLResponse:
        """The page."""
        return HTMLResponse(self._html, headers={"content-security-policy": self._policy})
