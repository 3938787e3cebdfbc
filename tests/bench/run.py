"""Measures what Podwright costs, and writes docs/benchmarks.md.

    PYTHONPATH=. python tests/bench/run.py [--rounds N] [library] [service] [background] [images] [scale] [hostile]

Each figure is compared with something well known that is measured in turns with it, so that it means the same on
another machine. The page is written if all parts are measured.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from pathlib import Path

import bench_background
import bench_images
import bench_library
import bench_scale
import bench_service
import hostile
import overload
from figures import Figure, table
from servers import CPUS

PAGE = Path(__file__).parents[2] / "docs" / "benchmarks.md"
PARTS = ("library", "images", "service", "background", "scale", "hostile")
PAGE_TEXT = """\
# Benchmarks

What Podwright costs, measured by `make bench`, which writes this page and fails if a figure misses its limit.
`PYTHONPATH=. python tests/bench/run.py service` measures one part: `library`, `service`, `background`, `images`,
`scale` or `hostile`.

Each ratio is the median of {rounds} or more pairs, measured in turns in one run, because the speed of a machine varies.
Only the two of a pair run, because idle ones slow them down unequally. They are in `tests/bench/apps.py`.

## The service

`POST /run` of an agent with one model call, against the same in plain FastAPI with aiohttp, and with LiteLLM. Each is
one process on one core; the load and the model provider, which responds at once, have the other core. There are 64
connections unless the table says otherwise. Defaults means `podwright serve` without any `OTEL_` variable: metrics and
log lines are on.

{service}

What each layer costs: CPU time of the process, including the threads that export spans. Throughput is relative to the
plain application. From the second row on, Python collects garbage as rarely as in the service.

{layers}

## Background runs

One process and PostgreSQL, which stores each run twice: when it is accepted, and with its events at its end. There are
16 connections, and as many runs at once.

{background}

## Hostile documents

Fifty documents of at most 1 MiB at once, each of a kind that once cost more than its size, while `/health` is asked
every 20 ms: the milliseconds within which 99 of 100 are answered. The details have the answers to the documents, the
slowest `/health`, and the highest memory of the process.

{hostile}

## The images

{images}

## The library

{library}

## Large fleets

Helm 4 installs fleets on the API server of `make cluster`: `hundred` is the chart's example, the others are workflows
over agents with instructions of about 500 bytes. Their pods are on a node of KWOK, which reports them as ready without
running them. Helm's rate is 500 requests a second. [The chart's README](../helm/podwright/README.md#large-fleets)
has the limit and how to split a fleet.

{scale}

The load average of the two cores was {loads[0]:.0f} before and {loads[1]:.0f} after these installations. The API server
runs with `GOGC=400`, which takes less CPU and more memory.

Measured with {python} on two shared cores, whose load average was {busy:.1f} before the run. The busier
the machine, the noisier are the ratios of throughput.
"""


async def measure_service(rounds: int) -> tuple[list[Figure], str]:
    """The figures of the service, and the table of layers."""
    os.sched_setaffinity(0, {CPUS[-1]})
    figures, layers = await bench_service.one_call(3 * rounds)
    print(layers, flush=True)
    for part in (
        bench_service.openai_routes,
        bench_service.slow_provider,
        bench_service.streaming,
        bench_service.start_up,
    ):
        figures += await part(rounds)
    return [*figures, *await bench_service.open_streams(), *await overload.figures()], layers


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure what Podwright costs.")
    parser.add_argument("parts", nargs="*", help=f"any of {', '.join(PARTS)}; by default all")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    parts, busy = options.parts or PARTS, os.getloadavg()[0]
    figures, layers, loads = dict[str, list[Figure]](), "", (0.0, 0.0)
    if "library" in parts:
        figures["library"] = bench_library.figures(options.rounds)
    if "images" in parts:
        figures["images"] = bench_images.figures()
    if "scale" in parts:
        before = os.getloadavg()[0]
        figures["scale"] = bench_scale.figures()
        loads = before, os.getloadavg()[0]
    if "service" in parts:
        figures["service"], layers = asyncio.run(measure_service(options.rounds))
    if "hostile" in parts:
        figures["hostile"] = asyncio.run(hostile.figures())
    if "background" in parts:
        os.sched_setaffinity(0, {CPUS[-1]})
        figures["background"] = asyncio.run(bench_background.figures(options.rounds))
    tables = {part: table(rows) for part, rows in figures.items()}
    print(*tables.values(), sep="\n\n")
    if set(parts) >= set(PARTS):
        python = f"CPython {sys.version.split()[0]}"
        PAGE.write_text(
            PAGE_TEXT.format(**tables, layers=layers, loads=loads, python=python, busy=busy, rounds=options.rounds)
        )
    failed = [figure.title for rows in figures.values() for figure in rows if not figure.ok]
    if failed:
        print(f"Outside the limit: {'; '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
