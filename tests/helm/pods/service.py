"""A Service, as kube-proxy makes one: each connection goes to one of the pods that are in the list at that moment."""

import asyncio
import itertools
import pathlib
import sys

PODS = pathlib.Path("/endpoints", sys.argv[1])
turns = itertools.count()


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
    except OSError:
        writer.transport.abort()


async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    pods = PODS.read_text().split()
    try:
        there, back = await asyncio.open_connection(pods[next(turns) % len(pods)], 8000)
    except (OSError, ZeroDivisionError):
        writer.transport.abort()
        return
    await asyncio.gather(copy(reader, back), copy(there, writer))
    writer.close()
    back.close()


async def main() -> None:
    async with await asyncio.start_server(connect, "0.0.0.0", 8000, backlog=1024) as server:  # noqa: S104 - in a container
        await server.serve_forever()


asyncio.run(main())
