"""The service against its OpenAPI document: schemathesis sends valid and invalid requests."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.service.support import Address, Command, discard_output

KEY = "a-key-of-some-length"
FEW = 8
MANY = 1300
"""Cases of each route and kind of generation: some hundred in all, or over 5000."""
RANDOM_PHASES = "examples,fuzzing,stateful"
ALL_PHASES = f"{RANDOM_PHASES},coverage"
"""The phase `coverage` generates the same in each run, so the short form does it on the stricter database only."""


@pytest.mark.parametrize(
    ("key", "database", "phases", "examples"),
    [
        pytest.param(None, "sqlite", RANDOM_PHASES, FEW, id="no key, SQLite"),
        pytest.param(KEY, "postgresql", ALL_PHASES, FEW, id="key, PostgreSQL"),
        pytest.param(
            None,
            "sqlite",
            ALL_PHASES,
            MANY,
            id="no key, SQLite, long",
            marks=pytest.mark.proof,
        ),
        pytest.param(
            KEY,
            "postgresql",
            ALL_PHASES,
            MANY,
            id="key, PostgreSQL, long",
            marks=pytest.mark.proof,
        ),
    ],
)
def test_the_service_is_as_documented(
    command: Command, address: Address, newsroom: Path, tmp_path: Path, request: pytest.FixtureRequest,
    key: str | None, database: str, phases: str, examples: int,
) -> None:  # fmt: skip
    """All checks of schemathesis pass: no 5xx, nothing undocumented, and invalid data is rejected."""
    # the stored response to an earlier request would hide that a header is rejected
    settings = {
        "PODWRIGHT_IDEMPOTENCY_TTL": "0",
        "PODWRIGHT_RUNS_DATABASE": request.getfixturevalue(
            f"{database}_database"
        ),
    }
    settings |= {"PODWRIGHT_API_KEYS": key} if key else {}
    component = str(newsroom / "newsroom")
    process = command(
        "serve",
        component,
        "--port",
        "0",
        PODWRIGHT_MODEL="offline/echo",
        **settings,
    )
    url = address(process)
    discard_output(process)
    header = ["--header", f"Authorization: Bearer {key}"] if key else []
    # a few random cases fail by chance: Schemathesis cannot generate some of the arrays that it chooses
    cases = ["--generation-deterministic"] if examples == FEW else []
    run = subprocess.run(
        [
            f"{Path(sys.executable).parent}/schemathesis", "--config-file", str(Path(__file__).with_suffix(".toml")),
            "run", f"{url}/openapi.json", "--checks", "all", "--max-examples", str(examples), "--phases", phases,
            *cases, *header, "--continue-on-failure", "--max-failures", "20", "--no-shrink",
            "--suppress-health-check", "all",
        ],
        capture_output=True, text=True, cwd=tmp_path, timeout=1500,
    )  # fmt: skip
    output = "\n".join(line[:1000] for line in run.stdout.splitlines())
    assert run.returncode == 0, f"{output}\n{run.stderr}"
    generated, passed = map(
        int, re.findall(r"(\d+) generated, (\d+) passed", output)[-1]
    )
    assert generated == passed > 4 * examples
