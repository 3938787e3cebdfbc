"""The documentation site that `make docs` builds."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from playwright.sync_api import Page, expect
from tests.helpers import ROOT, environment

from podwright.errors import DOCS_URL, help_page

SITE = ROOT / "site"


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    """The pages by name, without that of a wrong address, which is only right at the root of a server."""
    done = subprocess.run(
        ["make", "--assume-old=install", "docs"],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return {
        page.name: page.read_text()
        for page in SITE.glob("*.html")
        if page.name != "404.html"
    }


def has(pages: dict[str, str], link: str) -> bool:
    """Whether the file of a link exists, with its anchor."""
    path, _, anchor = link.partition("#")
    return (SITE / path).is_file() and (
        not anchor or f'id="{anchor}"' in pages[path]
    )


def test_every_link_resolves(pages: dict[str, str]) -> None:
    """Each link of a page to another, to an anchor or to a file of the site resolves; all files are of the site."""
    for name, text in pages.items():
        for tag, link in re.findall(
            r'<(\w+)\b[^>]*? (?:href|src)="([^"]*)"', text
        ):
            if link.startswith("http"):
                is_canonical = f'rel="canonical" href="{link}"' in text
                assert tag == "a" or is_canonical, (name, link)
                # a copy of the site leads to its own pages
                assert is_canonical or not link.startswith(DOCS_URL), (
                    name,
                    link,
                )
            elif link != "#__skip":
                assert has(
                    pages, name + link if link.startswith("#") else link
                ), (
                    name,
                    link,
                )


def test_errors_and_alerts_link_into_the_site(pages: dict[str, str]) -> None:
    """The help link of each documented error, and the runbook of each alert, is an anchor of the site."""
    alerts = (ROOT / "deploy" / "observability" / "alerts.yaml").read_text()
    codes = re.findall(
        r"^## (\w+)$", (ROOT / "docs" / "errors.md").read_text(), re.MULTILINE
    )
    links = [*re.findall("runbook_url: (.*)", alerts), *map(help_page, codes)]
    assert [
        link
        for link in links
        if not has(pages, link.removeprefix(f"{DOCS_URL}/"))
    ] == []


@pytest.fixture
def url(pages: dict[str, str]) -> Iterator[str]:
    """The address at which the site is served."""
    with ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=SITE)
    ) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_the_search_finds_a_class(page: Page, url: str) -> None:
    """A reader without internet access searches for a class, and gets to its description."""
    with page.expect_response("**/search.json"):  # a click before it is lost
        page.goto(f"{url}/index.html")
    page.get_by_role("button", name="Search").click()
    page.get_by_placeholder("Search").fill("ScriptedModel")
    page.locator("a", has_text="ScriptedModel").first.click()
    expect(page).to_have_url(
        re.compile(r"/podwright\.html#podwright\.ScriptedModel$")
    )
