"""A Service, as kube-proxy does it: each connection goes to one of the pods that are in a file at that moment.

Usage: service.py FILE ADDRESS PORT. The port is printed; 0 chooses a free one.
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
        pod_reader, pod_writer = await asyncio.open_connection(pods[next(turns) % len(pods)], 8000)
    except (OSError, ZeroDivisionError):
        writer.transport.abort()
        return
    await asyncio.gather(copy(reader, pod_writer), copy(pod_reader, writer))
    writer.close()
    pod_writer.close()


async def main() -> None:
    async with await asyncio.start_server(connect, sys.argv[2], int(sys.argv[3]), backlog=1024) as server:
        print(server.sockets[0].getsockname()[1], flush=True)
        await server.serve_forever()


asyncio.run(main())
