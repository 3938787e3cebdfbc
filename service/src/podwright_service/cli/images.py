"""The commands that make images and look at them: `build` and `inspect`."""

from __future__ import annotations

import sys

from podwright.errors import ConfigurationError
from podwright.json_data import as_array, as_object
from podwright.text import truncate
from podwright_service.cli.console import say, say_json
from podwright_service.images import building, labels
from podwright_service.images.docker import Docker, image_name


def build_image(folder: str, image: str, base: str, locked: bool, docker: str | None, verbose: bool) -> None:
    """Build an image, and say what is in it.

    Raises:
        PodwrightError: It cannot be built.
    """
    image_name(image)  # before an engine is looked for
    built = building.build(folder, image, base=base, locked=locked, docker=Docker(docker), verbose=verbose, told=_tell)
    if built.lock_changed:
        _tell("Wrote requirements.lock beside the blueprint; commit it, and the next build installs the same.")
    if missing := built.facts["unserved"]:
        _tell(
            f"Note: nobody in {base} provides {', '.join(missing)}. Build with --base podwright:full, or set "
            "PODWRIGHT_MODEL where it runs."
        )
    listed = truncate(", ".join(built.files), 300)
    say(f"Built {image}: {built.facts['kind']} '{built.facts['name']}', {built.facts['digest']}; {listed}.")


def inspect_image(image: str, as_json: bool, docker: str | None) -> None:
    """Print what the labels of an image say of its component.

    Raises:
        PodwrightError: There is no such image, or no component in it.
    """
    known = Docker(docker).image(image_name(image))
    if known is None:
        raise ConfigurationError(f"There is no image '{image}' here.", suggestion="Build it, or `docker pull` it.")
    facts = labels.facts_in(known)
    if facts is None:
        raise ConfigurationError(
            f"The image '{image}' does not say what component it holds.",
            suggestion="`podwright build` makes images that do.",
        )
    facts["image"] = {
        "id": known["Id"],
        "created": known["Created"],
        "bytes": known["Size"],
        "platform": f"{known['Os']}/{known['Architecture']}",
        "user": known["Config"]["User"],
    }
    if as_json:
        say_json(facts)
        return
    for key, value in facts.items():
        if text := _text(value):
            say(f"{key:<12} {text}")


def _text(value: object) -> str:
    if listed := as_array(value):
        return ", ".join(map(str, listed))
    members = [f"{key} {one}" for key, one in as_object(value).items() if one is not None]
    return ", ".join(members) if members or value in ({}, []) else " ".join(str(value).split())


def _tell(line: str) -> None:
    say(line, sys.stderr)
