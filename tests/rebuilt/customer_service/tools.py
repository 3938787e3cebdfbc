"""What the airline knows and does."""

import random

from podwright import RunContext

BAGGAGE = "One bag is allowed, of at most 50 pounds and 22 x 14 x 9 inches."
SEATS = (
    "There are 120 seats: 22 in business and 98 in economy class. "
    "Rows 4 and 16 are at the exits, and rows 5 to 8 have more room."
)
WIFI = "There is free wifi on board, called Airline-Wifi."
ANSWERS = {
    ("bag", "luggage", "carry"): BAGGAGE,
    ("seat", "plane"): SEATS,
    ("wifi", "internet", "wireless", "connect", "network", "online"): WIFI,
}


def look_up_faq(question: str) -> str:
    """Look up the answer to a frequent question."""
    for words, answer in ANSWERS.items():
        if any(word in question.lower() for word in words):
            return answer
    return "There is no answer to that question."


def update_seat(
    confirmation_number: str, new_seat: str, context: RunContext
) -> str:
    """Update the seat of a booking.

    Args:
        confirmation_number: The number of the booking.
        new_seat: The seat that the customer wants.
    """
    flight = f"FLT-{random.randint(100, 999)}"
    flight = context.state.setdefault("flight", flight)
    return f"{confirmation_number} has seat {new_seat} on {flight}."
