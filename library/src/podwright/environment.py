"""The variables of Podwright in the environment of this process."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache

PREFIX = "PODWRIGHT_"


@cache
def variables() -> Mapping[str, str]:
    """Return the variables that are set, read once; an empty one counts as unset.

    `podwright.settings` has their values; it is the module to use, except where it cannot be imported.
    """
    return {
        name: value
        for name, value in os.environ.items()
        if value and name.startswith(PREFIX)
    }
