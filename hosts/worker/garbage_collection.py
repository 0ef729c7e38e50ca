"""Garbage collection settings of a worker's process."""

import gc
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

YOUNG_MAX: Final = 50_000
"""Threshold of the youngest generation, in objects. Python's default is 700."""


@contextmanager
def collecting_seldom() -> Generator[None]:
    """Run the garbage collector less often, and never over the objects that exist now.

    For a process that the worker owns. A run holds some hundreds of objects until it ends. With many runs at once
    these outlive Python's default threshold, and the collector walks all objects of the process every few runs
    (docs/decisions/0008). A higher threshold, or a disabled collector, is left as it is. The settings are restored at
    the end.
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
