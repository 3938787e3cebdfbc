"""The lines of other libraries in the log: whose they are, and which of them are left out.

Libraries for HTTP, services and databases log each request at the level `info`, with the whole URL and some with the
body: keys, and what a user has asked. Their lines begin at `warning`. Lines that stay, of these and of all installed
packages, are without user and password, query and fragment of URLs.
"""

from __future__ import annotations

import functools
import logging
import site
import sysconfig
from pathlib import Path

from podwright.functions.run_context import FUNCTION_LOGGER

_OF_HTTP = (
    "aiohttp", "aiohttp_retry", "curl_cffi", "gql", "grpc", "h2", "hpack", "httpcore", "httpcore2", "httplib2", "httpx",
    "httpx2", "hypercorn.access", "niquests", "primp", "requests", "requests_oauthlib", "scrapy", "tornado", "urllib3",
    "uvicorn.access", "websocket", "websockets", "werkzeug", "zeep",
)  # fmt: skip
_OF_MODELS = (
    "anthropic", "autogen_agentchat", "autogen_core", "cohere", "crewai", "dspy", "fastmcp", "google_genai", "groq",
    "huggingface_hub", "langchain", "langchain_anthropic", "langchain_aws", "langchain_community", "langchain_core",
    "langchain_google_genai", "langchain_mcp_adapters", "langchain_openai", "langfuse", "langgraph", "langsmith",
    "litellm", "llama_index", "mcp", "mistralai", "ollama", "openai", "openai-agents", "pydantic_ai", "semantic_kernel",
    "sentence_transformers", "smolagents", "transformers",
)  # fmt: skip
_OF_SERVICES = (
    "aiobotocore", "algoliasearch", "arxiv", "azure", "boto", "boto3", "botocore", "ddgs", "duckduckgo_search",
    "google", "google_auth_httplib2", "googleapiclient", "kubernetes", "msal", "msrest", "python_http_client", "s3fs",
    "s3transfer", "sendgrid", "simple_salesforce", "slack_bolt", "slack_sdk", "stripe", "twilio",
)  # fmt: skip
_OF_DATABASES = (
    "aio_pika", "aiosqlite", "asyncpg", "chromadb", "databricks", "elastic_transport", "elasticsearch",
    "neo4j", "opensearch", "opensearchpy", "pika", "pinecone", "psycopg", "pymongo", "qdrant_client", "snowflake",
    "sqlalchemy", "weaviate",
)  # fmt: skip
AT_WARNING = (
    *_OF_HTTP,
    *_OF_MODELS,
    *_OF_SERVICES,
    *_OF_DATABASES,
    "asyncio",
)
"""Loggers whose lines begin at the level `warning`."""
_NAMES = {name.partition(".")[0] for name in AT_WARNING}
_OWN = ("podwright", "uvicorn", "gunicorn")


def is_of_library(record: logging.LogRecord) -> bool:
    """Whether a line is of Podwright or another library, and not of the code of a component."""
    if record.name == FUNCTION_LOGGER:
        return False
    name = record.name.partition(".")[0]
    return name in _OWN or name in _NAMES or _is_installed(record.pathname)


@functools.lru_cache(maxsize=1024)
def _is_installed(file: str) -> bool:
    """Whether a file is of Python itself or of an installed package."""
    path = Path(file)
    return any(path.is_relative_to(folder) for folder in _package_folders())


@functools.cache
def _package_folders() -> set[Path]:
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    paths = sysconfig.get_paths()
    folders = {paths[name] for name in names}
    folders.update(site.getsitepackages())
    folders.add(site.getusersitepackages())
    return {Path(folder) for folder in folders}
