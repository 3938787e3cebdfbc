"""The keys that the settings of a component may not have, because those are the operator's or code."""

from __future__ import annotations

import re

from podwright.data.json_data import JsonMapping, walk_json
from podwright.errors import Problem

_UNSAFE = re.compile(
    # words are separated by other characters, or by a capital letter
    r"(?:^|[^A-Za-z]|(?<=[a-z])(?=[A-Z]))(?i:"
    r"[a-z]*_?ur[il]s?|(?:api|base)_?base|endpoints?|hosts?|hostname|servers?|address(?:es)?|prox(?:y|ies)"
    r"|headers?|cookies?|extra_?(?:body|query)|api_?keys?|(?<!cache_)keys?|token$|secrets?|passw(?:or)?ds?|passphrase"
    r"|pwd|(?:access|client|private|secret)_?(?:keys?|secrets?|tokens?)|creds?|credentials?|o?auth(?:orization|entication)?"
    r"|bearer|jwt|certificates?|limits|callbacks?|(?:web)?hooks?|handlers?"
    r"|(?<!_)code|scripts?|modules?|imports?|functions?|commands?|exec|eval)(?:$|[^a-z])"
)
"""Names of addresses, credentials, limits and code, which settings may not contain at any depth."""
_HINT = (
    "Addresses and credentials belong in the environment, limits in 'limits' beside it, code in Python, and notes "
    "in metadata."
)


def unsafe_key_in(settings: JsonMapping) -> str:
    """Return the JSON pointer of the first unsafe key, at any depth; empty if there is none."""
    for pointer, _, _ in walk_json(dict(settings)):
        if _UNSAFE.search(pointer.rpartition("/")[2]):
            return pointer
    return ""


def unsafe_key_problem(pointer: str) -> Problem:
    """Return the problem of an unsafe key."""
    return Problem(
        pointer,
        detail="Unsafe key: like an address, a credential, a limit or code.",
        suggestion=_HINT,
    )
