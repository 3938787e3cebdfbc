"""Fails if library or service use internals of other packages, or pack assignments into one line; `make check` runs it.

A packed assignment gives several values to several names (`a, b = x, y`): it hides which value goes where, and what
happens first. An exchange (`a, b = b, a`) is none.

Found are also: private names of other packages in imports, suppressed warnings about private names, attributes of other
packages that are assigned (objects called `…config` are there to be changed), and assignments to `sys.modules` (except
where a file is loaded as a module). ruff's SLF001 finds private attributes.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

OWN = ("podwright", "podwright_service", "__future__")
SUPPRESSED = re.compile(r"SLF001|reportPrivate\w+")


def imported_names(tree: ast.AST) -> tuple[set[str], list[tuple[int, str]]]:
    """The names that imports of other packages bind, and those that are private there, with their lines."""
    names: set[str] = set()
    private: list[tuple[int, str]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            paths = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            paths = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for alias, path in zip(node.names, paths, strict=True):
            if path.split(".")[0] in OWN:
                continue
            names.add((alias.asname or alias.name).split(".")[0])
            if any(
                part.startswith("_") and not part.startswith("__")
                for part in path.split(".")
            ):
                private.append((node.lineno, f"imports {path}"))
    return names, private


def assignments(
    tree: ast.AST, foreign: set[str], loads_files: bool
) -> Iterator[tuple[int, str]]:
    """Assignments to attributes of imported modules, and to `sys.modules`."""
    for node in ast.walk(tree):
        targets = (
            node.targets if isinstance(node, ast.Assign | ast.Delete) else []
        )
        targets = (
            [node.target]
            if isinstance(node, ast.AugAssign | ast.AnnAssign)
            else targets
        )
        for target in targets:
            if isinstance(target, ast.Attribute) and isinstance(
                target.value, ast.Name
            ):
                name = target.value.id
                if (
                    name in foreign
                    and name.islower()
                    and not name.endswith("config")
                ):
                    yield target.lineno, f"assigns {name}.{target.attr}"
            if (
                isinstance(target, ast.Subscript)
                and ast.unparse(target.value) == "sys.modules"
                and not loads_files
            ):
                yield target.lineno, "assigns sys.modules"


def packed_assignments(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Assignments of several values to several names, without exchanges."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign) or not isinstance(
            node.value, ast.Tuple
        ):
            continue
        target = node.targets[0]
        if not isinstance(target, ast.Tuple):
            continue
        names = sorted(map(ast.unparse, target.elts))
        values = sorted(map(ast.unparse, node.value.elts))
        if names != values:
            yield node.lineno, "assigns several values in one line"


def findings(path: Path) -> Iterator[tuple[int, str]]:
    """What is wrong in a file, with line numbers."""
    text = path.read_text(encoding="utf-8")
    for number, line in enumerate(text.splitlines(), 1):
        if match := SUPPRESSED.search(line):
            yield number, f"suppresses {match[0]}"
    tree = ast.parse(text)
    foreign, private = imported_names(tree)
    yield from private
    yield from assignments(tree, foreign, "module_from_spec" in text)
    yield from packed_assignments(tree)


def main() -> int:
    """Print what was found; the exit code is 1 if there is anything."""
    root = Path(__file__).parents[1]
    count = 0
    for path in sorted(
        [*root.glob("library/src/**/*.py"), *root.glob("service/src/**/*.py")]
    ):
        for line, text in findings(path):
            print(f"{path.relative_to(root)}:{line}: {text}")
            count += 1
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
