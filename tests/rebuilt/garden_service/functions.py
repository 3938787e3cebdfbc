"""What is known of the customer before the agent answers."""

import json
from pathlib import Path
from typing import Any

from podwright import RunContext

PROFILES = Path(__file__).parent / "profiles"


def load_customer(context: RunContext) -> dict[str, Any]:
    """Add the profile of the customer for whom the run is."""
    file = PROFILES / f"{int(context.user or 123)}.json"
    profile = json.loads(file.read_text(encoding="utf-8"))
    context.state["customer"] = profile["customer_id"]
    return {"profile": profile}
