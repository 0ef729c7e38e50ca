"""How often a process looks for objects that only they themselves refer to."""

import gc
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

YOUNG_MAX: Final = 50_000
"""How many objects a process may have made, and not lost, before it looks among them. Python's default is 700."""


@contextmanager
def collecting_seldom() -> Generator[None]:
    """Look for such objects seldom, and never among those that are there by now. Of a process that is ours.

    Each run has some hundreds of objects until it ends, and with many at once Python takes them for ones that stay: it
    goes through all that the process has every few runs, modules and all. Whoever looks more seldom already, or never,
    is left to it.
    """
    before = gc.get_threshold()
    if not gc.isenabled() or not 0 < before[0] < YOUNG_MAX:
        yield
        return
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_MAX, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
