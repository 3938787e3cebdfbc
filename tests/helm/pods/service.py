"""A Service, as kube-proxy makes one: each connection goes to one of the pods that are in the list at that moment.

Usage: service.py FILE ADDRESS PORT; the file is the list, a port of 0 takes a free one, and the one taken is printed.
"""

import asyncio
import itertools
import pathlib
import sys

PODS = pathlib.Path(sys.argv[1])
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
    async with await asyncio.start_server(connect, sys.argv[2], int(sys.argv[3]), backlog=1024) as server:
        print(server.sockets[0].getsockname()[1], flush=True)
        await server.serve_forever()


asyncio.run(main())
