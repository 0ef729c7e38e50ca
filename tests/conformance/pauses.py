"""Pauses between the retries of a store."""

import random


def draw_short_pause() -> float:
    """Return a fiftieth of what usually draws a pause: conflicts of a test end soon, or never."""
    return random.random() / 50
