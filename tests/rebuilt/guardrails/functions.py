"""The guards."""

from pathlib import Path

import podwright
from podwright.errors import Refusal

guard = podwright.load(Path(__file__).parent / "agents" / "guard.yaml")


async def no_homework(input: str) -> None:
    """Refuse to do homework, as another agent sees it."""
    verdict = await guard.arun(input)
    if verdict["is_math_homework"]:
        raise Refusal("math_homework", "I cannot do your homework for you.")


def no_phone_number(output: dict[str, str]) -> None:
    """Refuse an answer with a telephone number."""
    if "650" in output["response"] + output["reasoning"]:
        raise Refusal("phone_number", "I may not say that.")
