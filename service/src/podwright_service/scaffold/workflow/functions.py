"""The functions of the workflow's steps: each function here is called by the step that names it."""

from podwright import tool


@tool(idempotent=True)
def compare_lengths(text: str, summary: str) -> dict[str, int]:
    """Count the words of a text and of its summary."""
    return {"before": len(text.split()), "after": len(summary.split())}
