"""Makes what is derived in helm/podwright, or, with --check, tells what is not up to date.

The chart's README and version, its copies of the observability files, two of the examples, and the renders of three.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

import helm_python
import yaml

from podwright import __version__
from podwright_service import deploy

ROOT = Path(__file__).parents[1]
CHART = ROOT / "helm" / "podwright"
EXAMPLES = CHART / "examples"
NEWSROOM = ("desk", "newsroom", "researcher", "reviewer", "writer")
# The keys in the renders are made from this: those of an installation are made from a text that nobody else knows.
SEED = "the seed of the renders, and of nothing else"
RENDERED = ("minimal", "newsroom", "production")
RELEASE, NAMESPACE = "fleet", "prod"


def values(example: str) -> dict[str, Any]:
    return yaml.safe_load((EXAMPLES / example / "values.yaml").read_text())


def render(given: dict[str, Any], release: str = RELEASE) -> dict[str, str]:
    """The chart's manifests by template, as Helm 4 renders them."""
    with helm_python.Chart.load(CHART) as chart:
        return chart.render(given, name=release, namespace=NAMESPACE)


def golden(example: str) -> str:
    given = values(example)
    given.setdefault("apiKeys", {}).setdefault("seeds", [SEED])
    rendered = render(given)
    notes = {template for template in rendered if template.endswith("NOTES.txt")}
    texts = [
        f"---\n# Source: {template}\n{rendered[template].strip().removeprefix('---').strip()}\n"
        for template in sorted(set(rendered) - notes)
        if rendered[template].strip()
    ]
    return "".join(texts)


def newsroom() -> str:
    folders = [ROOT / "deploy" / "examples" / "newsroom" / name for name in NEWSROOM]
    return (
        "# The newsroom, from its folders. Its agents name a vendor's model; here the echo model answers for all.\n"
        + deploy.write_values({"defaults": {"model": "offline/echo"}, **deploy.render(folders)})
    )


def hundred() -> str:
    """A tree of workflows over agents: 90 agents, 9 workflows of ten agents each, and one of the nine workflows."""

    def agent(name: str) -> dict[str, Any]:
        config = {"model": "offline/echo", "max_loops": 1}
        return {"type": "Agent", "name": name, "instructions": "Answer in a word.", "config": config, "tools": []}

    def workflow(name: str, agents: list[str]) -> dict[str, Any]:
        steps = [{"type": "agent_step", "agent": one, "name": one} for one in agents]
        return {"blueprint": {"inline": {"type": "Workflow", "name": name, "steps": steps}}, "agents": agents}

    components: dict[str, Any] = {}
    for team in range(9):
        members = [f"agent-{team}-{number}" for number in range(10)]
        components |= {name: {"blueprint": {"inline": agent(name)}} for name in members}
        components[f"team-{team}"] = workflow(f"team-{team}", members)
    components["head"] = workflow("head", [f"team-{team}" for team in range(9)])
    return "# A hundred components, made by deploy/chart.py.\n" + deploy.write_values({"components": components})


def described(lines: list[str]) -> list[tuple[str, str, str]]:
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
            path = [*(one for one in path if one[0] < indent), (indent, key)]
            if comment:
                if not default:
                    block = [one for one in lines[number + 1 :] if one.strip()]
                    ends = next(
                        (n for n, one in enumerate(block) if len(one) - len(one.lstrip()) <= indent), len(block)
                    )
                    inside = block[:ends]
                    plain = not any(one.lstrip().startswith("#") for one in inside)
                    default = json.dumps(yaml.safe_load("\n".join(inside))) if plain else ""
                rows.append((".".join(one for _, one in path), default, " ".join(comment)))
            comment = []
        elif not text:
            comment = []
    return rows


def readme() -> str:
    begin, end = (
        "<!-- values: made by deploy/chart.py from the comments in values.yaml -->\n",
        "<!-- end of values -->\n",
    )
    text = (CHART / "README.md").read_text()
    head, _, rest = text.partition(begin)
    _, _, tail = rest.partition(end)
    cells = [
        (f"`{key}`", f"`{default}`" if default else "", comment.replace("|", "\\|"))
        for key, default, comment in described((CHART / "values.yaml").read_text().splitlines())
    ]
    table = ["| value | default | what it sets |", "|---|---|---|", *(f"| {' | '.join(row)} |" for row in cells)]
    return f"{head}{begin}" + "\n".join(table) + f"\n{end}{tail}"


def versioned() -> str:
    return re.sub(r"(?m)^(version|appVersion): .*$", rf"\1: {__version__}", (CHART / "Chart.yaml").read_text())


def derived() -> list[tuple[Path, Any]]:
    """The files that are made, with what makes their text; later ones are made from earlier ones."""
    observability = ROOT / "deploy" / "observability"
    return [
        (CHART / "Chart.yaml", versioned),
        (CHART / "README.md", readme),
        (CHART / "files" / "alerts.yaml", (observability / "alerts.yaml").read_text),
        (CHART / "files" / "dashboard.json", (observability / "dashboard.json").read_text),
        (EXAMPLES / "newsroom" / "values.yaml", newsroom),
        (EXAMPLES / "hundred" / "values.yaml", hundred),
        *((EXAMPLES / one / "rendered.yaml", lambda one=one: golden(one)) for one in RENDERED),
    ]


def main() -> None:
    check = sys.argv[1:] == ["--check"]
    stale = []
    for file, make in derived():
        text = make()
        if not file.exists() or file.read_text() != text:
            stale.append(str(file.relative_to(ROOT)))
            if not check:
                file.write_text(text)
    print("\n".join(f"{'not up to date' if check else 'made'}: {one}" for one in stale) or "all up to date")
    sys.exit(1 if check and stale else 0)


if __name__ == "__main__":
    main()
