"""Writes the generated files of helm/podwright; with --check, lists those that are not up to date.

Generated are the chart's version, the table of values in its README, null in its schema, its defaults for the
templates, its copies of the observability files, two examples, and the rendered manifests of four.
"""

import json
import re
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import helm_python
import yaml

from podwright import __version__, blueprints
from podwright_service.fleet import chart_values

ROOT = Path(__file__).parents[1]
CHART = ROOT / "helm" / "podwright"
EXAMPLES = CHART / "examples"
NEWSROOM = ("desk", "newsroom", "researcher", "reviewer", "writer")
# For the keys in the rendered examples; each installation has a secret seed of its own.
SEED = "the public seed of the rendered examples"
RENDERED = ("minimal", "newsroom", "openshift", "production")
RELEASE, NAMESPACE = "fleet", "prod"
BEGIN = "<!-- values: written by deploy/chart.py from the comments in values.yaml -->\n"
# The comment in the schema of a value that null removes, and of a map with known keys that it empties.
NULL_REMOVES = "null removes it"
END = "<!-- end of values -->\n"
# Texts of numbers in the schema. JSON Schema's bounds are for numbers; Kubernetes checks those of texts.
DECIMAL = "^[0-9]+([.][0-9]+)?$"
INTEGER = "^-?[0-9]+$"
NATURAL = "^[0-9]+$"
POSITIVE = "^[1-9][0-9]*$"
SHARE = "^[0-9]+%?$"


def example_values(example: str) -> dict[str, Any]:
    return yaml.safe_load((EXAMPLES / example / "values.yaml").read_text())


def render(values: dict[str, Any], release: str = RELEASE) -> dict[str, str]:
    """The chart's manifests by template, as Helm 4 renders them."""
    with helm_python.Chart.load(CHART) as chart:
        return chart.render(values, name=release, namespace=NAMESPACE)


def rendered_example(example: str) -> str:
    values = example_values(example)
    values.setdefault("apiKeys", {}).setdefault("seeds", [SEED])
    manifests = {
        template: text.strip().removeprefix("---").strip()
        for template, text in render(values).items()
        if text.strip() and not template.endswith("NOTES.txt")
    }
    return "".join(
        f"---\n# Source: {template}\n{manifests[template]}\n"
        for template in sorted(manifests)
    )


def newsroom() -> str:
    folders = [
        ROOT / "deploy" / "examples" / "newsroom" / name for name in NEWSROOM
    ]
    return (
        "# The newsroom, from its component folders, with an offline model instead of the one in its blueprints.\n"
        + blueprints.to_yaml(
            {
                "defaults": {"model": "offline/echo"},
                **chart_values.render(folders),
            }
        )
    )


def hundred() -> str:
    """A tree of workflows over agents: 90 agents, 9 workflows of ten agents each, and one of the nine workflows."""

    def agent(name: str) -> dict[str, Any]:
        config = {"model": "offline/echo", "max_loops": 1}
        return {
            "type": "Agent",
            "name": name,
            "instructions": "Answer in a word.",
            "config": config,
            "tools": [],
        }

    def workflow(name: str, agents: list[str]) -> dict[str, Any]:
        steps = [
            {"type": "agent_step", "agent": agent, "name": agent}
            for agent in agents
        ]
        return {
            "blueprint": {
                "inline": {"type": "Workflow", "name": name, "steps": steps}
            },
            "agents": agents,
        }

    components: dict[str, Any] = {}
    for team in range(9):
        members = [f"agent-{team}-{number}" for number in range(10)]
        components |= {
            name: {"blueprint": {"inline": agent(name)}} for name in members
        }
        components[f"team-{team}"] = workflow(f"team-{team}", members)
    components["head"] = workflow("head", [f"team-{team}" for team in range(9)])
    return (
        "# A hundred components, written by deploy/chart.py.\n"
        + blueprints.to_yaml({"components": components})
    )


def commented_values(lines: list[str]) -> list[tuple[str, str, str]]:
    """Key, default and comment of each value that has a comment."""
    rows: list[tuple[str, str, str]] = []
    path: list[tuple[int, str]] = []
    comment: list[str] = []
    for number, line in enumerate(lines):
        text = line.strip()
        if text.startswith("#"):
            comment.append(text.lstrip("# "))
        elif match := re.match(r"( *)([A-Za-z]\w*):(.*)", line):
            indent, key, default = len(match[1]), match[2], match[3].strip()
            path = [
                *((outer, name) for outer, name in path if outer < indent),
                (indent, key),
            ]
            if comment:
                default = default or block_default(lines[number + 1 :], indent)
                rows.append(
                    (
                        ".".join(name for _, name in path),
                        default,
                        " ".join(comment),
                    )
                )
            comment = []
        elif not text:
            comment = []
    return rows


def block_default(lines: list[str], indent: int) -> str:
    """The value in the lines below a key, as JSON; empty if its parts have comments of their own."""
    block: list[str] = []
    for line in filter(None, lines):
        if len(line) - len(line.lstrip()) <= indent:
            break
        block.append(line)
    if any(line.lstrip().startswith("#") for line in block):
        return ""
    return json.dumps(yaml.safe_load("\n".join(block)))


def readme() -> str:
    head, _, rest = (CHART / "README.md").read_text().partition(BEGIN)
    _, _, tail = rest.partition(END)
    cells = [
        (
            f"`{key}`",
            f"`{default}`" if default else "",
            comment.replace("|", "\\|"),
        )
        for key, default, comment in commented_values(
            (CHART / "values.yaml").read_text().splitlines()
        )
    ]
    table = [
        "| value | default | description |",
        "|---|---|---|",
        *(f"| {' | '.join(row)} |" for row in cells),
    ]
    return head + BEGIN + "\n".join(table) + "\n" + END + tail


def chart_yaml() -> str:
    return re.sub(
        r"(?m)^(version|appVersion): .*$",
        rf"\1: {__version__}",
        (CHART / "Chart.yaml").read_text(),
    )


def schema() -> str:
    """The schema with null for every optional value, as Helm's users write it to get the default, and texts of numbers.

    `--set-string`, Argo CD's `forceString` and Terraform make texts of numbers.
    """
    file = CHART / "values.schema.json"
    written = json.loads(file.read_text())
    for part in objects_in(written):
        accept_number_text(part)
        for name, value in part.get("properties", {}).items():
            if name not in part.get("required", []):
                accept_null(value, written["definitions"])
    return json.dumps(written, indent=2, ensure_ascii=False) + "\n"


def objects_in(schema: Any) -> Iterator[dict[str, Any]]:
    """The schema and those in it."""
    if isinstance(schema, dict):
        yield cast("dict[str, Any]", schema)
        schema = list(cast("dict[str, Any]", schema).values())
    if isinstance(schema, list):
        for part in cast("list[Any]", schema):
            yield from objects_in(part)


def accept_number_text(schema: dict[str, Any]) -> None:
    """Change the schema of a number so that its text is valid too."""
    types = schema.get("type", [])
    if isinstance(types, str):
        types = [types]
    if "string" in types or not {"integer", "number"} & set(types):
        return
    schema["type"] = [*types, "string"]
    if "number" in types:
        schema["pattern"] = DECIMAL
    elif "minimum" not in schema:
        schema["pattern"] = INTEGER
    else:
        schema["pattern"] = POSITIVE if schema["minimum"] else NATURAL


def accept_null(schema: dict[str, Any], definitions: dict[str, Any]) -> None:
    """Change a schema so that null is valid."""
    if "$ref" in schema:
        accept_null(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    if "type" in schema:
        types = schema["type"]
        if isinstance(types, str):
            types = [types]
        if "null" not in types:
            schema["type"] = [*types, "null"]
    if "enum" in schema and None not in schema["enum"]:
        schema["enum"].append(None)
    for key in ("anyOf", "oneOf"):
        if key in schema and {"type": "null"} not in schema[key]:
            schema[key].append({"type": "null"})


def defaults() -> str:
    """The values as JSON, because Helm gives templates neither values.yaml nor a default for null.

    `removable` has what null removes: the lists that may be empty, the maps with free keys, and what the schema marks.
    `numbers` has the places of numbers, which may come as texts.
    """
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    written = json.loads((CHART / "values.schema.json").read_text())
    data = {
        "removable": removable(values, written, written["definitions"]),
        "numbers": numbers(written, written["definitions"]),
        "values": values,
    }
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False) + "\n"


def removable(
    values: dict[str, Any], schema: dict[str, Any], definitions: dict[str, Any]
) -> dict[str, Any]:
    """What null removes in the shape of the values: `list`, `map`, or true for a scalar."""
    marks: dict[str, Any] = {}
    for name, value in values.items():
        known = resolved(schema["properties"][name], definitions)
        if isinstance(value, dict):
            has_free_keys = not value or "properties" not in known
            if has_free_keys or known.get("$comment") == NULL_REMOVES:
                marks[name] = "map"
                continue
            below = removable(cast("dict[str, Any]", value), known, definitions)
            if below:
                marks[name] = below
        elif isinstance(value, list) and not known.get("minItems"):
            marks[name] = "list"
        elif known.get("$comment") == NULL_REMOVES:
            marks[name] = True
    return marks


def numbers(schema: dict[str, Any], definitions: dict[str, Any]) -> Any:
    """The numbers in the shape of the values, as true; `*` is any key, and `[]` an item. None if there are none."""
    schema = resolved(schema, definitions)
    if schema.get("pattern") in (DECIMAL, INTEGER, NATURAL, POSITIVE, SHARE):
        return True
    parts = dict(schema.get("properties", {}))
    for others in schema.get("patternProperties", {}).values():
        parts["*"] = others
    if isinstance(schema.get("additionalProperties"), dict):
        parts["*"] = schema["additionalProperties"]
    if "items" in schema:
        parts["[]"] = schema["items"]
    marks: dict[str, Any] = {}
    for choice in schema.get("anyOf", []):
        marks |= numbers(choice, definitions) or {}
    for name, part in parts.items():
        mark = numbers(part, definitions)
        if mark:
            marks[name] = mark
    return marks or None


def resolved(
    schema: dict[str, Any], definitions: dict[str, Any]
) -> dict[str, Any]:
    """The schema that a reference is to, or the schema itself."""
    if "$ref" in schema:
        return definitions[schema["$ref"].rpartition("/")[2]]
    return schema


def generated() -> list[tuple[Path, Callable[[], str]]]:
    """The generated files with the functions that return their text; later ones depend on earlier ones."""
    observability = ROOT / "deploy" / "observability"
    return [
        (CHART / "Chart.yaml", chart_yaml),
        (CHART / "README.md", readme),
        (CHART / "values.schema.json", schema),
        (CHART / "files" / "defaults.json", defaults),
        (
            CHART / "files" / "alerts.yaml",
            (observability / "alerts.yaml").read_text,
        ),
        (
            CHART / "files" / "dashboard.json",
            (observability / "dashboard.json").read_text,
        ),
        (EXAMPLES / "newsroom" / "values.yaml", newsroom),
        (EXAMPLES / "hundred" / "values.yaml", hundred),
        *(
            (
                EXAMPLES / example / "rendered.yaml",
                partial(rendered_example, example),
            )
            for example in RENDERED
        ),
    ]


def main() -> int:
    """Write the files, or check them; the exit code is 1 if a checked file is not up to date."""
    check = sys.argv[1:] == ["--check"]
    stale: list[str] = []
    for file, text_of in generated():
        text = text_of()
        if not file.exists() or file.read_text() != text:
            stale.append(str(file.relative_to(ROOT)))
            if not check:
                file.write_text(text)
    print(
        "\n".join(
            f"{'not up to date' if check else 'updated'}: {name}"
            for name in stale
        )
        or "all up to date"
    )
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
