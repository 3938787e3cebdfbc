"""What has been done."""

from podwright import RunContext


def note(step: str, result: str, context: RunContext) -> list[dict[str, str]]:
    """Note the result of a step, and return all results so far."""
    done = context.state.setdefault("done", [])
    done.append({"step": step, "result": result})
    return done
