"""The search engine."""

import os

import aiohttp


async def search_web(query: str) -> list[str]:
    """Search the web, and return what the best pages say."""
    url = os.environ.get("TAVILY_URL", "https://api.tavily.com")
    async with (
        aiohttp.ClientSession(raise_for_status=True) as session,
        session.post(
            f"{url}/search",
            json={"query": query, "max_results": 3},
            headers={"Authorization": f"Bearer {os.environ['TAVILY_API_KEY']}"},
        ) as response,
    ):
        found = await response.json()
    return [page["content"] for page in found["results"]]
