"""The agent's tools: each function here is the tool of that name in the blueprint."""


def add_numbers(numbers: list[float]) -> float:
    """Add numbers up.

    Args:
        numbers: The numbers, in any order.
    """
    return sum(numbers)
