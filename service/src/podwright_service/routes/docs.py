"""The interactive API page: Swagger UI, served from a package, so that the page needs no internet access."""

from __future__ import annotations

from importlib.resources import files

from fastapi import APIRouter
from fastapi.responses import HTMLResponse
from fastapi.staticfiles import StaticFiles

router = APIRouter()
static_files = StaticFiles(packages=[("fastapi_offline", "static")])
_PAGE = (files("podwright_service") / "docs.html").read_text(encoding="utf-8")


@router.get("/docs", include_in_schema=False)
async def docs() -> HTMLResponse:
    """The page, which asks for an API key if the service requires one."""
    return HTMLResponse(_PAGE)
