"""What the shop can do; the customer is that of the run, and never the model's choice."""

import datetime
import uuid
from typing import Any, Literal

from podwright import RunContext, tool

Kind = Literal["percentage", "flat"]


def send_call_companion_link(phone_number: str) -> str:
    """Send a link that starts a video call to a telephone."""
    return f"Sent to {phone_number}."


def approve_discount(kind: Kind, value: float, reason: str) -> str:
    """Approve a discount of at most 10."""
    if value > 10:
        return "Rejected: it is larger than 10. Ask the manager."
    return "Approved."


@tool(approval=lambda value: value > 10)
def ask_manager_for_discount(kind: Kind, value: float, reason: str) -> str:
    """Ask the manager to approve a discount that is larger than 10."""
    return "Approved."


def update_crm(details: dict[str, str], context: RunContext) -> str:
    """Record what the customer has bought or booked."""
    return f"Recorded for customer {context.state['customer']}."


def read_cart() -> dict[str, Any]:
    """Read what is in the customer's cart."""
    items = [
        {"product": "soil-123", "name": "Standard Potting Soil", "quantity": 1},
        {"product": "fert-456", "name": "General Fertilizer", "quantity": 1},
    ]
    return {"items": items, "subtotal": 25.98}


def change_cart(add: dict[str, int], remove: list[str]) -> str:
    """Change the customer's cart.

    Args:
        add: The quantities of products to add, by product.
        remove: The products to remove.
    """
    return f"Added {len(add)} and removed {len(remove)} products."


def recommend_products(plant: str) -> list[str]:
    """Recommend products for a kind of plant."""
    if plant.lower() == "petunias":
        return ["soil-456 Bloom Booster Potting Mix", "fert-789 Flower Power"]
    return ["soil-123 Standard Potting Soil", "fert-456 General Fertilizer"]


def check_stock(product: str, store: str) -> dict[str, Any]:
    """Check how much of a product a store has; the store may be 'pickup'."""
    return {"product": product, "store": store, "quantity": 10}


def list_planting_times(date: datetime.date) -> list[str]:
    """List the free times for planting on a day."""
    return ["9-12", "13-16"]


def book_planting(date: datetime.date, time: str, details: str) -> str:
    """Book planting at one of the free times."""
    return f"Booked {date} {time} as {uuid.uuid4()}."


def send_care_instructions(
    plant: str, by: Literal["email", "sms"] = "email"
) -> str:
    """Send instructions for the care of a plant."""
    return f"Instructions for {plant} sent by {by}."


def make_qr_code(value: float, kind: Kind, days: int) -> str:
    """Make a QR code with a discount for the next purchase, valid for some days."""
    if value > (10 if kind == "percentage" else 20):
        return "Refused: the discount is too large."
    end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days)
    return f"QR code, valid until {end.date()}."
