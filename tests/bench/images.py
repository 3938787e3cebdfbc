"""What the images cost: their size, how soon a container answers, and what it holds in memory when idle.

Against a plain FastAPI app with aiohttp in a container of the same base, Python and libraries, in turns, on the host's
network: the provider is a process here.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import socket
import statistics
import subprocess
import tempfile
import time
import uuid
from collections.abc import Generator
from pathlib import Path

import serving
from figures import Figure

ROOT = Path(__file__).parents[2]
BASE = "python:3.13-slim-trixie"
ROUNDS = 9
MIB = 1024 * 1024
LARGEST = {"slim": 90, "full": 350}
AGENT = {"name": "guide", "instructions": "You are a guide.", "config": {"model": "openai/gpt-4o-mini"}}


def docker(*arguments: str) -> str:
    return subprocess.run([CLIENT, *arguments], check=True, capture_output=True, text=True).stdout.strip()


CLIENT = subprocess.run(
    [ROOT / "deploy" / "engine.sh", "docker"], check=True, stdout=subprocess.PIPE, text=True
).stdout.strip()


@contextlib.contextmanager
def built() -> Generator[dict[str, str]]:
    """The images of both flavours."""
    names = {flavour: f"podwright-bench-{uuid.uuid4().hex[:8]}:{flavour}" for flavour in LARGEST}
    try:
        for flavour, name in names.items():
            docker("build", "--quiet", f"--tag={name}", f"--build-arg=FLAVOUR={flavour}", str(ROOT))
        yield names
    finally:
        subprocess.run([CLIENT, "image", "rm", "--force", *names.values()], capture_output=True)


def sizes(names: dict[str, str]) -> list[Figure]:
    def size(name: str) -> int:
        return int(docker("image", "inspect", "--format", "{{.Size}}", name))

    base = size(BASE)
    return [
        Figure(
            f"size of `{flavour}`",
            (size(name) - base) / 1e6,
            "MB",
            f"above {BASE}, which has {base / 1e6:.0f} MB here",
            LARGEST[flavour],
        )
        for flavour, name in names.items()
    ]


def open_port() -> int:
    """A free port that no connection takes before the container does: those have the ports above."""
    while True:
        port = random.randrange(20_000, 30_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


async def measured(*arguments: str, port: int) -> tuple[float, float]:
    """Seconds from `docker run` to its first answer, and MiB that it holds then, at rest."""
    name = f"podwright-bench-{uuid.uuid4().hex[:8]}"
    start = time.perf_counter()
    run = subprocess.Popen(
        [CLIENT, "run", "--detach", "--network=host", f"--name={name}", *arguments],
        stdout=subprocess.DEVNULL,
    )
    try:
        await serving.first_answer(port)
        seconds = time.perf_counter() - start
        await asyncio.sleep(1)  # at rest
        return seconds, held(docker("container", "inspect", "--format", "{{.State.Pid}}", name)) / MIB
    finally:
        run.wait()
        subprocess.run([CLIENT, "rm", "--force", name], check=True, capture_output=True)


def held(process: str) -> int:
    """Bytes that the control group of a process is charged with, without its file cache, which any other may share."""
    groups = dict(line.split(":", 2)[1:] for line in Path(f"/proc/{process}/cgroup").read_text().splitlines())
    old = "memory" in groups
    place = Path("/sys/fs/cgroup" + ("/memory" + groups["memory"] if old else groups[""]))
    stat = dict(line.split() for line in (place / "memory.stat").read_text().splitlines())
    used, cache, shared = (
        ("memory.usage_in_bytes", "total_cache", "total_shmem") if old else ("memory.current", "file", "shmem")
    )
    return int((place / used).read_text()) - int(stat[cache]) + int(stat[shared])


async def containers(names: dict[str, str]) -> list[Figure]:
    with serving.provider() as upstream, tempfile.TemporaryDirectory() as folder:
        component = Path(folder)
        component.chmod(0o755)
        (component / "blueprint.json").write_text(json.dumps(AGENT))
        columns: dict[str, list[tuple[float, float]]] = {"plain": [], **{flavour: [] for flavour in names}}
        for number in range(ROUNDS + 1):
            for one, column in columns.items():
                port = open_port()
                # in the image that has aiohttp: ours do without
                plain = [names["full"], str(serving.HERE / "apps.py"), "plain", str(port), str(upstream)]
                plain = ["--entrypoint=python", f"--volume={serving.HERE}:{serving.HERE}:ro", *plain]
                ours = [f"--env=PODWRIGHT_PORT={port}", "--env=PODWRIGHT_HOST=127.0.0.1", "--env=OPENAI_API_KEY=x"]
                ours += [f"--env=PODWRIGHT_MODEL_BASE_URL=http://127.0.0.1:{upstream}/v1"]
                ours += [f"--volume={component}:/component:ro", names.get(one, "")]
                taken = await measured(*(plain if one == "plain" else ours), port=port)
                if number:  # the first ones read the image from the disk
                    column.append(taken)
    found: list[Figure] = []
    for flavour in names:
        pairs = list(zip(columns[flavour], columns["plain"], strict=True))
        for place, title, unit, scale, limit in (
            (0, "`docker run` to first answer", "ms", 1000, 1.5),
            (1, "idle memory of a container", "MiB", 1, 1.7),
        ):
            ratio = statistics.median(ours[place] / plain[place] for ours, plain in pairs)
            ours, plain = (statistics.median(one[place] for one in side) * scale for side in zip(*pairs, strict=True))
            detail = f"ours {ours:.0f} {unit}, plain {plain:.0f} {unit}"
            found.append(Figure(f"{title}, `{flavour}`", ratio, "×", detail, limit))
    return found


def figures() -> list[Figure]:
    with built() as names:
        return [*sizes(names), *asyncio.run(containers(names))]


if __name__ == "__main__":
    from figures import table

    print(table(figures()))
