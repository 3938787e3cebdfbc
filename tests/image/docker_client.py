"""A stand-in for the Docker client: writes what buildx would write, and notes with which arguments.

The folder of this file has `scenario.json`: `digest` of a pushed image, and `errors` that a build prints.
"""

import json
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
FACTS = {
    "name": "calculator", "kind": "agent", "description": "", "unserved": [], "digest": "sha256:0",
}  # fmt: skip
LABELS = {"org.opencontainers.image.base.name": "python"}


def option(name: str) -> str:
    """The value of an option of the build."""
    prefix = f"--{name}="
    values = [
        argument.removeprefix(prefix)
        for argument in sys.argv
        if argument.startswith(prefix)
    ]
    return next(iter(values), "")


def build() -> int:
    """Write the facts of a component, or the description of an image."""
    scenario = json.loads((FOLDER / "scenario.json").read_text())
    with (FOLDER / "builds.jsonl").open("a") as builds:
        builds.write(json.dumps(sys.argv[3:]) + "\n")
    if scenario["errors"] and not option("target"):
        sys.stderr.write("\n".join(scenario["errors"]) + "\n")
        return 1
    if option("target"):
        output = Path(option("output"))
        output.mkdir()
        (output / "facts.json").write_text(json.dumps(FACTS))
        (output / "requirements.lock").write_text("")
    else:
        metadata = {"containerimage.digest": scenario["digest"]}
        Path(option("metadata-file")).write_text(json.dumps(metadata))
    return 0


match sys.argv[1:3]:
    case ["buildx", "version"]:
        sys.exit(0)
    case ["buildx", "build"]:
        sys.exit(build())
    case ["image", "inspect"]:
        # the tag of a base image is its flavour
        flavour = sys.argv[3].rpartition(":")[2]
        labels = {**LABELS, "podwright.flavour": flavour}
        sys.stdout.write(json.dumps([{"Config": {"Labels": labels}}]))
    case _:
        sys.exit(2)
