"""Copies the pages of this repository to `.site`, from which `make docs` builds the documentation site.

The pages have links that work in the repository. Each is changed to the place of its target in the site; a linked file
that is not a page is copied too.
"""

import os
import re
import shutil
from pathlib import Path

ROOT = Path(__file__).parents[1]
STAGED = ROOT / ".site"
PAGES = {
    "README.md": "index.md",
    **{
        f"docs/{path.name}": path.name
        for path in sorted(ROOT.glob("docs/*.md"))
    },
    **{
        f"docs/decisions/{path.name}": f"decision-{path.name}"
        for path in sorted(ROOT.glob("docs/decisions/*.md"))
    },
    "docs/decisions/README.md": "decisions.md",
    "helm/podwright/README.md": "chart.md",
    "deploy/examples/newsroom/README.md": "newsroom.md",
    "service/src/podwright_service/scaffold/examples/desk/README.md": "desk-example.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
"""Where a page of the repository is in the site."""
MODULES = (
    "",
    ".blueprints",
    ".client",
    ".conditions",
    ".errors",
    ".evaluation",
    ".events",
    ".models",
    ".testing",
    "_service",
    "_service.testing",
)
"""The modules of the reference, without `podwright`."""
LINK = re.compile(r"\]\(([^)#:]+)(#[^)]*)?\)")
SITE_LINK = re.compile(r"\]\(https://podwright\.readthedocs\.io/([\w-]+)\.html")
"""A link into this site, of a page that is also read elsewhere: the chart's README."""


def stage(source: str) -> None:
    """Copy a page with changed links, and the files that it links to."""

    def link(match: re.Match[str]) -> str:
        path = os.path.normpath(Path(source).parent / match[1])
        target = PAGES.get(path) or f"files/{path}"
        if path not in PAGES:
            (STAGED / target).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / path, STAGED / target)
        return f"]({target}{match[2] or ''})"

    text = LINK.sub(link, (ROOT / source).read_text())
    (STAGED / PAGES[source]).write_text(SITE_LINK.sub(r"](\1.md", text))


def main() -> None:
    """Write the pages of the site, the reference included."""
    shutil.rmtree(STAGED, ignore_errors=True)
    STAGED.mkdir()
    for page in PAGES:
        stage(page)
    for module in MODULES:
        # once is enough for the many errors and events
        inherited = str(not module).lower()
        page = f"::: podwright{module}\n    options: {{inherited_members: {inherited}}}\n"
        (STAGED / f"podwright{module}.md").write_text(page)


if __name__ == "__main__":
    main()
