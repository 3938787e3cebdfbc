"""Imports LiteLLM on first need: it takes seconds and more than 100 MB."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import threading
import warnings
from typing import Any

_SET_BEFORE_IMPORT = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # else it downloads a price list
    "LITELLM_MODE": "PRODUCTION",  # else it reads a .env file
    # else it fetches images for providers that take no URLs
    "MAX_IMAGE_URL_DOWNLOAD_SIZE_MB": "0",
    # else a stream with 101 equal pieces, as of a table, is an error
    "REPEATED_STREAMING_CHUNK_LIMIT": "1000000000",
}
LOGGERS = ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy")
"""Its loggers, which log requests and responses."""
_lock = threading.Lock()
_modules: list[Any] = []
"""The module `litellm`, once it is loaded."""


def installed() -> bool:
    """Whether LiteLLM can be imported."""
    return importlib.util.find_spec("litellm") is not None


def is_silent() -> bool:
    """Whether LiteLLM logs nothing: unless its own variable says otherwise."""
    return "LITELLM_LOG" not in os.environ


def loaded() -> Any:
    """The module `litellm` if it was loaded before, else None."""
    return _modules[0] if _modules else None


def load() -> Any:
    """The module `litellm`. Call this in a thread: the first call takes seconds."""
    with _lock:
        if not _modules:
            for name, value in _SET_BEFORE_IMPORT.items():
                os.environ.setdefault(name, value)
            module: Any = importlib.import_module("litellm")
            module.suppress_debug_info = True
            # else it asks huggingface.co for the tokenizer of models with certain names, on the event loop
            module.disable_hf_tokenizer_download = True
            if is_silent():
                for name in LOGGERS:
                    logging.getLogger(name).setLevel(logging.CRITICAL)
            # this warning quotes responses, and services write warnings to their logs
            warnings.filterwarnings(
                "ignore", "Pydantic serializer warnings", UserWarning
            )
            _modules.append(module)
        return _modules[0]
