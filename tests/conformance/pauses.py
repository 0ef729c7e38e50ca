"""Pauses between the retries of a store."""

import random


def short_pauses() -> float:
    """Return a number that draws a fiftieth of the usual pause: conflicts of a test end soon, or never."""
    return random.random() / 50
