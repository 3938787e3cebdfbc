"""The sizes of the images."""

from __future__ import annotations

import subprocess
from pathlib import Path

from figures import Figure

ROOT = Path(__file__).parents[2]
BASE = "python:3.13-slim-trixie"
LARGEST = {"slim": 100, "full": 400}
"""Largest size of each flavour in MB above the base image."""


def figures() -> list[Figure]:
    engine = [ROOT / "deploy" / "engine.sh", "docker"]
    program = subprocess.run(
        engine, check=True, stdout=subprocess.PIPE, text=True
    ).stdout.strip()

    def docker(*arguments: str) -> str:
        return subprocess.run(
            [program, *arguments], check=True, stdout=subprocess.PIPE, text=True
        ).stdout.strip()

    def megabytes(image: str) -> float:
        return (
            int(docker("image", "inspect", "--format", "{{.Size}}", image))
            / 1e6
        )

    results: list[Figure] = []
    for flavour, limit in LARGEST.items():
        image = docker(
            "build", "--quiet", f"--build-arg=FLAVOUR={flavour}", str(ROOT)
        )
        detail = f"above {BASE}, which has {megabytes(BASE):.0f} MB"
        results.append(
            Figure(
                f"size of `{flavour}`",
                megabytes(image) - megabytes(BASE),
                "MB",
                detail,
                limit,
            )
        )
        docker("image", "rm", image)
    return results
