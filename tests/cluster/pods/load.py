"""Clients that send the same request again and again to one of some URLs, each on a connection that is kept open.

The argument is JSON with `urls`, `key`, `body`, the number of `clients` for each URL, and `pause`: the seconds between
a response and the next request. Each second, the number of responses by outcome is printed as JSON. It ends when its
standard input is closed.
"""

import asyncio
import collections
import contextlib
import json
import sys

import aiohttp

ask = json.loads(sys.argv[1])
outcomes: collections.Counter[str] = collections.Counter()
texts: dict[int, str] = {}  # the first response of each status
done = asyncio.Event()


async def send(url: str) -> None:
    headers = {"authorization": f"Bearer {ask['key']}"}
    # the address of a Service does not change, and a name server of a busy machine may be late
    connector = aiohttp.TCPConnector(ttl_dns_cache=None)
    timeout = aiohttp.ClientTimeout(total=60)
    async with aiohttp.ClientSession(
        headers=headers, timeout=timeout, connector=connector
    ) as session:
        await connect(session, url)
        while not done.is_set():
            try:
                async with session.post(url, json=ask["body"]) as response:
                    text = await response.text()
                    first = texts.setdefault(response.status, text[:2000])
                    outcome = (
                        "ok" if response.ok else f"{response.status}: {first}"
                    )
            except (aiohttp.ClientError, TimeoutError) as error:
                outcome = repr(error)
            outcomes[outcome] += 1
            await asyncio.sleep(ask["pause"])


async def connect(session: aiohttp.ClientSession, url: str) -> None:
    """Wait until the URL is reached, because a new pod is refused until the network policies know it."""
    for _ in range(300):
        with contextlib.suppress(aiohttp.ClientError):
            (await session.get(url)).release()
            return
        await asyncio.sleep(0.2)


async def report() -> None:
    while not done.is_set():
        print(json.dumps(outcomes), flush=True)
        await asyncio.sleep(1)


async def main() -> None:
    asyncio.get_running_loop().run_in_executor(
        None, sys.stdin.read
    ).add_done_callback(lambda _: done.set())
    await asyncio.gather(
        report(),
        *(send(url) for url in ask["urls"] for _ in range(ask["clients"])),
    )
    print(json.dumps(outcomes), flush=True)


asyncio.run(main())
