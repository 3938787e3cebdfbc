"""An application in which others are mounted, for tests and the programs that they start."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator

from fastapi import FastAPI

import podwright_service


def mount(**apps: FastAPI) -> FastAPI:
    """An application with others below their names, whose lifespans it enters."""

    @contextlib.asynccontextmanager
    async def lifespan(parent: FastAPI) -> AsyncGenerator[None]:
        async with contextlib.AsyncExitStack() as stack:
            for app in apps.values():
                await stack.enter_async_context(podwright_service.lifespan(app))
            yield

    parent = FastAPI(lifespan=lifespan)
    for name, app in apps.items():
        parent.mount(f"/{name}", app)
    return parent
