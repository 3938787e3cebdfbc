"""Docstrings of tools: every style, and every section in every order; nothing is lost, and nothing is there twice."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from itertools import permutations
from typing import Any

import pytest

from podwright import Agent, RunContext


def shown(docstring: str) -> tuple[str, dict[str, str]]:
    """What a model is told of a function: its description, and those of its parameters."""

    def search(query: str, *, limit: int = 10, context: RunContext) -> str:
        return query

    search.__doc__ = docstring
    agent = Agent("guide", "Help.", "offline/echo", tools=[search])
    function = agent.to_blueprint()["tools"][0]["schema"]["function"]
    properties = function["parameters"]["properties"]
    assert properties.keys() == {"query", "limit"}
    return function.get("description", ""), {
        name: schema["description"]
        for name, schema in properties.items()
        if "description" in schema
    }


def google(title: str, *lines: str) -> str:
    return "\n".join([f"{title}:", *[f"    {line}" for line in lines]])


def numpy(title: str, *lines: str) -> str:
    return "\n".join([title, "-" * len(title), *lines])


BOTH = {"query": "What to look for.", "limit": "How many\nat most."}
PARAMETERS: dict[str, tuple[str, ...]] = {
    "Google": (
        google("Args", "query: What to look for.", "limit: How many", "    at most."),
    ),
    "Google with types": (
        google("Args", "query (str): What to look for.", "limit (int, optional): How many", "    at most."),
    ),
    "Google in two sections": (
        google("Args", "query: What to look for."),
        google("Keyword Args", "limit: How many", "    at most."),
    ),
    "Google with a context": (
        google(
            "Parameters", "query: What to look for.", "context: The run.", "limit: How many", "    at most.",
        ),
    ),
    "Google, other parameters": (
        google("Arguments", "query: What to look for."),
        google("Other Parameters", "limit (int): How many", "    at most."),
    ),
    "Google, keyword arguments": (
        google("Keyword Arguments", "limit: How many", "    at most."),
        google("Params", "query: What to look for."),
    ),
    "NumPy": (
        numpy(
            "Parameters", "query : str", "    What to look for.", "limit : int, optional", "    How many",
            "    at most.",
        ),
    ),
    "NumPy in two sections": (
        numpy("Parameters", "query", "    What to look for."),
        numpy("Other Parameters", "limit : int", "    How many", "    at most."),
    ),
    "reStructuredText": (
        ":param query: What to look for.\n:param int limit: How many\n    at most.",
    ),
    "reStructuredText with types": (
        ":param query: What to look for.\n:type query: str\n:keyword limit: How many\n    at most.\n:type limit: int",
    ),
    "Epytext": (
        "@param query: What to look for.\n@type query: str\n@keyword limit: How many\n    at most.",
    ),
}  # fmt: skip
"""The sections that describe the same two parameters, by style."""
REST = {
    "Returns": google("Returns", "Hits, newest first."),
    "Raises": google("Raises", "ValueError: Nothing was found."),
    "Note": google("Note", "Never call it twice.", "", "    Nor thrice."),
    "Warning": google("Warning", "Deletes the old index."),
    "Examples": google("Examples", ">>> search('tea')", "'green tea'"),
    "Yields": google("Yields", "str: A hit."),
    "NumPy returns": numpy("Returns", "str", "    Hits, newest first."),
    "NumPy notes": numpy("Notes", "Never call it twice."),
    "a field of returns": ":returns: Hits,\n    newest first.",
    "a field of errors": ":raises ValueError: Nothing was found.",
    "a field of Epytext": "@return: Hits, newest first.",
    "a directive": ".. warning::\n    Deletes the old index.",
    "a sentence": "Only for books that are in print.",
    "a list": "- one: of them\n- two: of them",
}
"""Sections that describe no parameter."""


@pytest.mark.parametrize("rest", REST)
@pytest.mark.parametrize("style", PARAMETERS)
def test_each_section_in_each_style(style: str, rest: str) -> None:
    """Wherever the sections stand, parameters have their descriptions, and the description has all the rest, once."""
    parts = [*PARAMETERS[style], REST[rest]]
    for order in permutations(parts):
        description, parameters = shown("\n\n".join(["Search.", *order]))
        assert parameters == BOTH, order
        assert description == f"Search.\n\n{REST[rest]}", order


@pytest.mark.parametrize("style", PARAMETERS)
def test_all_sections_together(style: str) -> None:
    """Many sections after and between those of the parameters stay in their order."""
    first, *others = PARAMETERS[style]
    notes = [REST["Note"], REST["Warning"], REST["Returns"]]
    parts = ["Search.", "In all books.", notes[0], first, notes[1], *others]
    description, parameters = shown("\n\n".join([*parts, notes[2]]))
    assert parameters == BOTH
    assert description == "\n\n".join(["Search.", "In all books.", *notes])


@pytest.mark.parametrize(
    ("docstring", "description", "parameters"),
    [
        ("", "", {}),
        ("Search.", "Search.", {}),
        ("Search.\nIn all books.", "Search.\nIn all books.", {}),
        ("Search.\n\n\nIn books.\n\n\nIn print.", "Search.\n\nIn books.\n\n\nIn print.", {}),
        ("Args:\n    query: What.", "", {"query": "What."}),
        ("Search.\nArgs:\n    query: What.", "Search.", {"query": "What."}),
        ("Search.\n\nArgs:\n    query: What: a word.", "Search.", {"query": "What: a word."}),
        ("Search.\n\nArgs:\n    query: One\n\n        two.", "Search.", {"query": "One\ntwo."}),
        ("Search.\n\nArgs:\n  query: What.\n  limit: Max.", "Search.", {"query": "What.", "limit": "Max."}),
        ("Search.\n\nThe args:\n    are many.", "Search.\n\nThe args:\n    are many.", {}),
    ],
)  # fmt: skip
def test_simple_docstrings(
    docstring: str, description: str, parameters: dict[str, str]
) -> None:
    """Docstrings with a description and one section have exactly these texts, which digests and recordings contain."""
    assert shown(docstring) == (description, parameters)


@pytest.mark.parametrize(
    "docstring",
    [
        "Search.\n\nArgs:\n    A sentence without a name.",
        "Search.\n\nArgs:\nquery: not indented.",
        "Search.\n\nArgs:\n    qeury: A name that is wrong.",
        "Search.\n\nArgs:\n    query: What.\n    qeury: A name that is wrong.",
        "Search.\n\nParameters\n----------\nA sentence without a name.",
        "Search.\n\nParameters\n----------\nqeury : str\n    A name that is wrong.",
        "Search.\n\n:param qeury: A name that is wrong.",
        "Search.\n\n:param: without a name.",
        "Search.\n\n@param qeury: A name that is wrong.",
        "Args:",
        "Search.\n\nParameters\n----------",
    ],
)
def test_what_cannot_be_read_stays(docstring: str) -> None:
    """Sections without entries, and those of other names, are in the description."""
    description, parameters = shown(docstring)
    everything = " ".join([description, *parameters.values()])
    for word in docstring.replace("query: What.", "What.").split():
        if word.strip("-"):
            assert word.strip(":") in everything


def test_one_description_of_several_parameters() -> None:
    """Names with a comma between them share a description."""
    for docstring in (
        "Search.\n\nArgs:\n    query, limit: Both.",
        "Search.\n\nParameters\n----------\nquery, limit : int\n    Both.",
    ):
        assert shown(docstring) == (
            "Search.", {"query": "Both.", "limit": "Both."},
        )  # fmt: skip


def test_the_docstring_of_an_indented_function() -> None:
    """Docstrings are read without the indentation of their function."""

    def search(query: str) -> str:
        """Search.

        Args:
            query: What.

        Returns:
            Hits.
        """
        return query

    text = inspect.getdoc(search)
    assert text is not None
    function: Callable[..., Any] = search
    agent = Agent("guide", "Help.", "offline/echo", tools=[function])
    schema = agent.to_blueprint()["tools"][0]["schema"]["function"]
    assert schema["description"] == "Search.\n\nReturns:\n    Hits."
    assert schema["parameters"]["properties"]["query"]["description"] == "What."
