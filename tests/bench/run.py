"""Measures what Podwright costs, and writes the tables of docs/benchmarks.md.

    PYTHONPATH=. python tests/bench/run.py [--rounds N] [PART …]

Each figure is compared with something well known that is measured in turns with it, so that it means the same on
another machine. Of the page, only the tables of the parts that are measured change.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path

import bench_background
import bench_growth
import bench_images
import bench_library
import bench_scale
import bench_service
import hostile
import overload
from figures import Figure, table
from servers import CPUS

PAGE = Path(__file__).parents[2] / "docs" / "benchmarks.md"

Measured = tuple[list[Figure], dict[str, str]]
"""The figures of a part, and further tables by name."""


def on_last_cpu() -> None:
    """Leave the other CPUs to what is measured."""
    os.sched_setaffinity(0, CPUS[-1:])


def library(rounds: int) -> Measured:
    return bench_library.figures(rounds), {}


def images(rounds: int) -> Measured:
    return bench_images.figures(), {}


def scale(rounds: int) -> Measured:
    return bench_scale.figures(), {}


def service(rounds: int) -> Measured:
    on_last_cpu()
    return asyncio.run(measure_service(rounds))


def drift(rounds: int) -> Measured:
    on_last_cpu()
    return asyncio.run(bench_service.drift(3 * rounds)), {}


def hostile_documents(rounds: int) -> Measured:
    return asyncio.run(hostile.figures()), {}


def background(rounds: int) -> Measured:
    on_last_cpu()
    return asyncio.run(bench_background.figures(rounds)), {}


def growth(rounds: int) -> Measured:
    figures, capacities = asyncio.run(bench_growth.measure())
    return figures, {"capacities": capacities}


async def measure_service(rounds: int) -> Measured:
    figures, layers = await bench_service.one_call(3 * rounds)
    print(layers, flush=True)
    for part in (
        bench_service.openai_routes,
        bench_service.slow_provider,
        bench_service.streaming,
        bench_service.start_up,
    ):
        figures += await part(rounds)
    figures += await bench_service.open_streams()
    figures += await overload.figures()
    return figures, {"layers": layers}


PARTS: dict[str, Callable[[int], Measured]] = {
    "library": library,
    "images": images,
    "scale": scale,
    "service": service,
    "drift": drift,
    "hostile": hostile_documents,
    "growth": growth,
    "background": background,
}


def with_table(page: str, name: str, text: str) -> str:
    """The page with another text between the two comments with its name.

    Raises:
        ValueError: The page has no such comments.
    """
    begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
    start, stop = page.index(begin) + len(begin), page.index(end)
    return f"{page[:start]}\n{text}\n\n{page[stop:]}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Measure what Podwright costs."
    )
    parser.add_argument(
        "parts",
        nargs="*",
        metavar="PART",
        help=f"any of {', '.join(PARTS)}; by default all",
    )
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    failed = list[str]()
    for part in options.parts or PARTS:
        busy = os.getloadavg()[0]
        os.sched_setaffinity(0, CPUS)
        figures, tables = PARTS[part](options.rounds)
        python = f"CPython {sys.version.split()[0]}"
        below = f"Measured with {python} on two shared cores, whose load average was {busy:.1f} before."
        tables |= {part: f"{table(figures)}\n\n{below}"}
        for name, text in tables.items():
            print(text, flush=True)
            PAGE.write_text(with_table(PAGE.read_text(), name, text))
        failed += [figure.title for figure in figures if not figure.ok]
    if failed:
        print(f"Outside the limit: {'; '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
