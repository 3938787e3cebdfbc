"""Sends POST requests, each again half a second after its response. The arguments are the URLs."""

import asyncio
import contextlib
import sys

import aiohttp


async def send(session: aiohttp.ClientSession, url: str) -> None:
    while True:
        with contextlib.suppress(aiohttp.ClientError, TimeoutError):
            async with session.post(url, json={"input": "the moon"}) as response:
                await response.read()
        await asyncio.sleep(0.5)


async def main() -> None:
    timeout = aiohttp.ClientTimeout(total=10)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        await asyncio.gather(*(send(session, url) for url in sys.argv[1:]))


asyncio.run(main())
