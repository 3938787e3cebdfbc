"""The served document against the service: what it says is what is done, whatever is sent."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

Command = Callable[..., subprocess.Popen[str]]
Address = Callable[[subprocess.Popen[str]], str]

EXAMPLES = 1300 if os.environ.get("PROOF") else 40
"""Cases for each route and way of making them: over 5000 in all in `make proof`, some hundred otherwise."""
KEY = "a-key-of-some-length"


@pytest.mark.parametrize("key", [None, KEY], ids=["no key", "key"])
def test_the_document_holds(
    command: Command, address: Address, newsroom: Path, tmp_path: Path, key: str | None
) -> None:
    """With all of schemathesis's checks: no 5xx, nothing undocumented, what fits is taken and what does not is not."""
    settings = {"PODWRIGHT_API_KEYS": key} if key else {}
    served = str(newsroom / "newsroom")
    process = command("serve", served, "--port", "0", PODWRIGHT_MODEL="offline/echo", **settings)
    url = address(process)
    assert process.stdout is not None
    threading.Thread(target=process.stdout.read, daemon=True).start()  # a full pipe would stop the service
    header = ["--header", f"Authorization: Bearer {key}"] if key else []
    run = subprocess.run(
        [
            f"{Path(sys.executable).parent}/schemathesis", "--config-file", str(Path(__file__).with_suffix(".toml")),
            "run", f"{url}/openapi.json", "--checks", "all", "--max-examples", str(EXAMPLES), *header,
            "--continue-on-failure", "--max-failures", "20", "--no-shrink", "--suppress-health-check", "all",
        ],
        capture_output=True, text=True, cwd=tmp_path, timeout=1500,
    )  # fmt: skip
    said = "\n".join(line[:1000] for line in run.stdout.splitlines())
    assert run.returncode == 0, f"{said}\n{run.stderr}"
    generated, passed = map(int, re.findall(r"(\d+) generated, (\d+) passed", said)[-1])
    assert generated == passed > 4 * EXAMPLES
