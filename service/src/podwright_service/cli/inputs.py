"""The inputs of a run on the command line, and the command `inputs`."""

from __future__ import annotations

import base64
import mimetypes
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from podwright.blueprints import from_json
from podwright.blueprints.inputs import DeclaredInputs
from podwright.components import Component
from podwright.data.json_data import JsonMapping, JsonObject, as_array, to_text
from podwright.data.media import parts_with_media
from podwright.data.names import INPUT
from podwright.data.text import short_repr, truncate
from podwright.errors import (
    BlueprintValidationError,
    InputError,
    InputsError,
)
from podwright.functions.run_context import RunAttributes
from podwright.messages.messages import (
    AUDIO_FORMATS,
    AudioData,
    ContentPart,
    FileData,
    ImagePart,
    TextPart,
)
from podwright_service.cli.console import (
    print_json,
    print_table,
    print_text,
    read_bytes,
    read_text,
    table_of,
)
from podwright_service.mcp_servers import servers_of
from podwright_service.remotes import remotes_of
from podwright_service.settings import read_settings
from podwright_service.source import load_component

_INPUTS_EXAMPLE = """Write --inputs '{"input": "the moon"}', or @FILE."""
_ANY = DeclaredInputs("", {})
_URL_SCHEMES = ("https://", "data:")
"""The start of a URL; the others are names of files."""


def read_input(
    text: str | None,
    inputs: str | None,
    declared: DeclaredInputs = _ANY,
    pairs: Sequence[str] = (),
) -> str | dict[str, Any]:
    """The input of a run: a text, standard input, or named inputs.

    Args:
        text: The text; `-`, or None without named inputs, is standard input.
        inputs: Named inputs as a JSON object, or `@FILE`.
        declared: The inputs that the component declares.
        pairs: Further named inputs as `NAME=VALUE`, where a value may be JSON for a declared input that is no text.

    Raises:
        InputError: An input is given twice, or is wrong.
    """
    if inputs is None and not pairs:
        if text is None and declared.required:
            # not what standard input has: they are missing
            return ""
        if text is None and declared.may_be_left_out and sys.stdin.isatty():
            # rather than to wait for what is typed
            return {}
        if text is None:
            text = "-"
        return _input_text(text)
    values: dict[str, Any] = {}
    if inputs is not None:
        values = _named_inputs(inputs)
    for pair in pairs:
        name, value = split_pair(pair, "--input")
        if name in values:
            raise _given_twice_error(name, "Give it once.")
        values.update(declared.convert_texts({name: value}))
    if text is None:
        return values
    if "input" in values:
        raise _given_twice_error(
            "input", "Give INPUT, or 'input' among the named inputs."
        )
    return {**values, "input": _input_text(text)}


def read_attributes(
    user: str | None, session: str | None, pairs: Sequence[str] | None
) -> RunAttributes:
    """What a command line says of a run.

    Args:
        user: For whom it is.
        session: The session that it is a part of.
        pairs: What else its functions are to know, as `NAME=VALUE`.

    Raises:
        InputError: A pair is not written so, or its name is given twice.
        ConfigurationError: They are too many or too long.
    """
    metadata: dict[str, str] = {}
    for pair in pairs or ():
        name, value = split_pair(pair, "--metadata")
        if name in metadata:
            raise InputError(
                f"--metadata has '{truncate(name, 60)}' twice.",
                suggestion="Give each name once.",
            )
        metadata[name] = value
    attributes = RunAttributes(user or "", session or "", metadata)
    attributes.check()
    return attributes


def options_of(attributes: RunAttributes) -> list[str]:
    """The options of a command line that `read_attributes` reads."""
    options: list[str] = []
    if attributes.user:
        options += ["--user", attributes.user]
    if attributes.session:
        options += ["--session", attributes.session]
    for name, value in attributes.metadata.items():
        options += ["--metadata", f"{name}={value}"]
    return options


def split_pair(pair: str, option: str) -> tuple[str, str]:
    """The parts of `NAME=VALUE`, as an option has it.

    Raises:
        InputError: It is not written so.
    """
    name, equals, value = pair.partition("=")
    if not name or not equals:
        raise InputError(
            f"Invalid {option} '{truncate(pair, 60)}'.",
            suggestion=f"Write {option} NAME=VALUE.",
        )
    return name, value


def _given_twice_error(name: str, suggestion: str) -> InputError:
    return InputError(
        f"The input '{truncate(name, 60)}' is given twice.",
        suggestion=suggestion,
    )


def _input_text(text: str) -> str:
    """A text of the command line; for `-`, that of standard input."""
    if text != "-":
        return text
    if sys.stdin.isatty():
        print_text(
            "Reading the input from standard input; end it with Ctrl-D.",
            sys.stderr,
        )
    return read_text("-").rstrip("\n")


def _named_inputs(text: str) -> dict[str, Any]:
    try:
        if text.startswith("@"):
            text = read_text(text[1:])
        values = from_json(text)
    except BlueprintValidationError as error:
        raise InputError(
            f"Invalid --inputs: {error.problems[0].detail}",
            suggestion=_INPUTS_EXAMPLE,
        ) from error
    if not isinstance(values, dict):
        raise InputError(
            "Invalid --inputs: not a JSON object.", suggestion=_INPUTS_EXAMPLE
        )
    return cast("dict[str, Any]", values)


def read_image(source: str, option: str = "--image") -> ImagePart:
    """An image of the command line: a file, or a URL, which only the provider fetches.

    Args:
        source: The name of the file, or the URL.
        option: Where it was given, for errors.

    Raises:
        InputError: The file is not an image by its name, or the URL is one of http.
        ConfigurationError: The file cannot be read.
    """
    if source.startswith(_URL_SCHEMES):
        return {"type": "image_url", "image_url": {"url": source}}
    if source.startswith("http://"):
        raise InputError(
            f"Invalid {option} '{truncate(source, 200)}': providers fetch images over https only.",
            suggestion=f"Give an https URL, or a file: {option} photo.png.",
        )
    media_type, _ = mimetypes.guess_type(source, strict=False)
    if media_type is None or not media_type.startswith("image/"):
        raise InputError(
            f"'{truncate(source, 200)}' is not an image, by its name.",
            suggestion="Name a file such as photo.png or photo.jpg, or an https URL.",
        )
    data = base64.b64encode(read_bytes(source)).decode("ascii")
    url = f"data:{media_type};base64,{data}"
    return {"type": "image_url", "image_url": {"url": url}}


def read_file(source: str, option: str = "--file") -> ContentPart:
    """A document, an image or audio of the command line: a file, or a document's URL, which only the provider fetches.

    Args:
        source: The name of the file, or the URL.
        option: Where it was given, for errors.

    Raises:
        InputError: The name of the file does not say its type, or the URL is one of http.
        ConfigurationError: The file cannot be read.
    """
    if source.startswith(_URL_SCHEMES):
        return {"type": "file", "file": {"file_data": source}}
    if source.startswith("http://"):
        raise InputError(
            f"Invalid {option} '{truncate(source, 200)}': providers fetch files over https only.",
            suggestion=f"Give an https URL, or a file: {option} report.pdf.",
        )
    media_type, _ = mimetypes.guess_type(source, strict=False)
    if media_type is None:
        raise InputError(
            f"The name '{truncate(source, 200)}' does not say the type of the file.",
            suggestion="Name a file such as report.pdf or notes.txt, or an https URL.",
        )
    if media_type.startswith("image/"):
        return read_image(source, option)
    data = base64.b64encode(read_bytes(source)).decode("ascii")
    if media_type in AUDIO_FORMATS:
        audio: AudioData = {"data": data, "format": AUDIO_FORMATS[media_type]}
        return {"type": "input_audio", "input_audio": audio}
    file: FileData = {
        "filename": Path(source).name,
        "file_data": f"data:{media_type};base64,{data}",
    }
    return {"type": "file", "file": file}


def read_media(
    images: Sequence[str], documents: Sequence[str]
) -> list[ContentPart]:
    """The images of a command line, and then its documents and audio; see `read_image` and `read_file`."""
    return [*map(read_image, images), *map(read_file, documents)]


def with_media(
    run_input: str | dict[str, Any],
    media: Sequence[ContentPart],
    declared: DeclaredInputs = _ANY,
) -> Any:
    """The input of a run with images and files after its text, in the named input `input` if there are named inputs.

    Args:
        run_input: What `read_input` returned.
        media: The images and files; none leave the input as it is.
        declared: The inputs that the component declares.

    Raises:
        InputError: There are some, and the component's input cannot have any.
    """
    if not media:
        return run_input
    option = "--image" if media[0]["type"] == "image_url" else "--file"
    _check_takes_media(declared.schemas.get(INPUT, {}), option)
    if isinstance(run_input, dict):
        value = run_input.get(INPUT, "")
        return {**run_input, INPUT: _parts(value, media)}
    return _parts(run_input, media)


def _check_takes_media(schema: JsonMapping, option: str) -> None:
    """Check the schema of the input: with images and files, its value is a list.

    Raises:
        InputError: It allows none.
    """
    if "type" not in schema or "array" in schema["type"]:
        return
    raise InputError(
        f"Invalid {option}: the input '{INPUT}' takes no images and files, because its type is '{_type_name(schema)}'.",
        suggestion=f"Leave {option} out, or declare the input without a type.",
    )


def _parts(value: Any, media: Sequence[ContentPart]) -> list[Any]:
    """A value followed by images and files; one that is text or data is a part of text, an empty text none."""
    parts = parts_with_media(value)
    if not parts and value != "":
        parts = [TextPart(type="text", text=to_text(value))]
    return [*parts, *media]


def with_all_inputs(error: InputsError, component: Component) -> InputsError:
    """The error with everything that the component takes."""
    described = ", ".join(map(_describe_input, _rows(component)))
    return InputsError(
        error.message,
        problems=error.problems,
        suggestion=f"'{component.name}' takes: {described}.",
    )


def _describe_input(row: JsonMapping) -> str:
    """An input in a few words: `count (integer, default 3)`."""
    notes = [row["type"], "required"]
    if "default" in row:
        notes = [row["type"], f"default {short_repr(row['default'])}"]
    shown = ", ".join(filter(None, notes))
    return f"{row['name']} ({shown})"


def _rows(component: Component) -> list[JsonObject]:
    """The declared inputs of a component: name, type, description, and unless it is required the default."""
    rows: list[JsonObject] = []
    for name, schema in component.inputs.schemas.items():
        row: JsonObject = {
            "name": name,
            "type": _type_name(schema),
            "description": str(schema.get("description", "")),
        }
        if "default" in schema:
            row["default"] = schema["default"]
        rows.append(row)
    return rows


def _type_name(schema: JsonMapping) -> str:
    """The type of an input for people; empty if its schema names none."""
    choices = as_array(schema.get("enum"))
    if choices:
        return " | ".join(map(to_text, choices))
    types = schema.get("type", "")
    if isinstance(types, str):
        return types
    return " | ".join(types)


def print_inputs(path: str, as_json: bool) -> None:
    """Print the inputs that a component declares.

    Raises:
        PodwrightError: It cannot be loaded.
    """
    settings = read_settings()
    component = load_component(
        path, remotes_of(settings), servers_of(settings) or None
    )
    if as_json:
        print_json(component.inputs.schemas)
        return
    if not component.inputs:
        print_text(
            f"'{component.name}' declares no inputs: it takes any.", sys.stderr
        )
        return
    table = table_of("input", "type", "default", "description")
    for row in _rows(component):
        default = "required"
        if "default" in row:
            default = to_text(row["default"])
        table.add_row(row["name"], row["type"], default, row["description"])
    print_table(table)
