"""What users and we test with: a world whose time passes at once, fakes, the simulator, conformance suites.

Each name is imported when it is first asked for, as those of `holdfast` are.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from holdfast.adapters.memory.sink import MemorySink
    from holdfast.testing.async_world import AsyncWorld
    from holdfast.testing.blobs import MemoryBlobStore
    from holdfast.testing.clock import ManualClock
    from holdfast.testing.histories import check_history, recorded
    from holdfast.testing.passing import RunStuckError
    from holdfast.testing.stubs import StageCall, Stub
    from holdfast.testing.world import Asleep, World

__all__ = [
    "Asleep",
    "AsyncWorld",
    "ManualClock",
    "MemoryBlobStore",
    "MemorySink",
    "RunStuckError",
    "StageCall",
    "Stub",
    "World",
    "check_history",
    "recorded",
]

_WHERE: Final = {
    name: module
    for module, names in {
        "holdfast.adapters.memory.sink": ("MemorySink",),
        "holdfast.testing.async_world": ("AsyncWorld",),
        "holdfast.testing.blobs": ("MemoryBlobStore",),
        "holdfast.testing.clock": ("ManualClock",),
        "holdfast.testing.histories": ("check_history", "recorded"),
        "holdfast.testing.passing": ("RunStuckError",),
        "holdfast.testing.stubs": ("StageCall", "Stub"),
        "holdfast.testing.world": ("Asleep", "World"),
    }.items()
    for name in names
}


def __getattr__(name: str) -> object:
    module = _WHERE.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
