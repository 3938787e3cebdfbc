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
}
_lock = threading.Lock()
_litellm: Any = None


def installed() -> bool:
    """Whether LiteLLM can be imported."""
    return importlib.util.find_spec("litellm") is not None


def loaded() -> Any:
    """The module `litellm` if it was loaded before, else None."""
    return _litellm


def load() -> Any:
    """The module `litellm`. Call this in a thread: the first call takes seconds."""
    global _litellm  # noqa: PLW0603 - one module for the process, as in `sys.modules`
    with _lock:
        if _litellm is None:
            for name, value in _SET_BEFORE_IMPORT.items():
                os.environ.setdefault(name, value)
            module: Any = importlib.import_module("litellm")
            module.suppress_debug_info = True
            if "LITELLM_LOG" not in os.environ:  # it logs requests and responses
                for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
                    logging.getLogger(name).setLevel(logging.CRITICAL)
            # this warning quotes responses, and services write warnings to their logs
            warnings.filterwarnings("ignore", "Pydantic serializer warnings", UserWarning)
            _litellm = module
        return _litellm
