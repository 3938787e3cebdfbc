"""The papers, and the search engine."""

import base64
import os
from pathlib import Path
from typing import Any

import aiohttp

Part = dict[str, Any]
PAPERS = Path(__file__).parent / "papers"


def retrieve(question: str) -> list[Part]:
    """Return the papers, as files, whose titles share a word with the question."""
    words = set(question.lower().strip("?").split())
    return [
        {
            "type": "file",
            "file": {
                "filename": paper.name,
                "file_data": "data:application/pdf;base64,"
                + base64.b64encode(paper.read_bytes()).decode(),
            },
        }
        for paper in sorted(PAPERS.glob("*.pdf"))
        if words & set(paper.stem.split("-"))
    ]


def keep_relevant(
    papers: list[Part], grades: list[dict[str, bool]]
) -> dict[str, Any]:
    """Return the relevant papers, and whether all are."""
    kept = [
        paper
        for paper, grade in zip(papers, grades, strict=True)
        if grade["relevant"]
    ]
    return {"documents": kept, "all_relevant": kept == papers != []}


async def search_web(query: str, documents: list[Part]) -> dict[str, Any]:
    """Search the web, and return the documents with what the best pages say."""
    url = os.environ.get("TAVILY_URL", "https://api.tavily.com")
    async with (
        aiohttp.ClientSession(raise_for_status=True) as session,
        session.post(
            f"{url}/search",
            json={"query": query, "max_results": 3},
            headers={"Authorization": f"Bearer {os.environ['TAVILY_API_KEY']}"},
        ) as response,
    ):
        results = (await response.json())["results"]
    pages = [{"type": "text", "text": page["content"]} for page in results]
    return {"documents": documents + pages}
