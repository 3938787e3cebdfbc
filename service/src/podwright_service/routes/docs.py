"""The interactive API page: Swagger UI, served from a package, so that the page needs no internet access."""

from __future__ import annotations

from html import escape
from importlib.resources import files

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from fastapi.staticfiles import StaticFiles

from podwright_service.runtime import get_runtime

router = APIRouter()
static_files = StaticFiles(packages=[("fastapi_offline", "static")])
_PAGE = (files("podwright_service") / "docs.html").read_text(encoding="utf-8")


@router.get("/docs", include_in_schema=False)
async def docs(request: Request) -> HTMLResponse:
    """The page. If the service requires an API key, the page asks for one, and names the component only then."""
    title = request.app.title
    if get_runtime(request).api_keys.required:
        title = "API"
    return HTMLResponse(_PAGE.replace("{title}", escape(title), 1))
