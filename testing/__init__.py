"""Test utilities: an in-memory world with skipped time, stubs, fakes, the simulator and conformance suites.

Names are imported on first use, as in `holdfast`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from holdfast.adapters.memory.sink import MemorySink
    from holdfast.hosts.functions.replay_check import replay
    from holdfast.testing.async_world import AsyncWorld
    from holdfast.testing.blobs import MemoryBlobStore
    from holdfast.testing.clock import ManualClock
    from holdfast.testing.effects import Effects
    from holdfast.testing.histories import check_history, recorded
    from holdfast.testing.pytest_plugin import GoldenHistory, GoldenReplay, Simulate
    from holdfast.testing.step_stubs import StepCall, StepStub
    from holdfast.testing.stubs import StageCall, Stub, Stubs
    from holdfast.testing.time_travel import RunStuckError
    from holdfast.testing.workflow_simulation import Simulation, SimulationFailedError, simulate
    from holdfast.testing.world import Asleep, World

__all__ = [
    "Asleep",
    "AsyncWorld",
    "Effects",
    "GoldenHistory",
    "GoldenReplay",
    "ManualClock",
    "MemoryBlobStore",
    "MemorySink",
    "RunStuckError",
    "Simulate",
    "Simulation",
    "SimulationFailedError",
    "StageCall",
    "StepCall",
    "StepStub",
    "Stub",
    "Stubs",
    "World",
    "check_history",
    "recorded",
    "replay",
    "simulate",
]

_WHERE: Final = {
    name: module
    for module, names in {
        "holdfast.adapters.memory.sink": ("MemorySink",),
        "holdfast.hosts.functions.replay_check": ("replay",),
        "holdfast.testing.async_world": ("AsyncWorld",),
        "holdfast.testing.blobs": ("MemoryBlobStore",),
        "holdfast.testing.clock": ("ManualClock",),
        "holdfast.testing.effects": ("Effects",),
        "holdfast.testing.histories": ("check_history", "recorded"),
        "holdfast.testing.time_travel": ("RunStuckError",),
        "holdfast.testing.pytest_plugin": ("GoldenHistory", "GoldenReplay", "Simulate"),
        "holdfast.testing.workflow_simulation": ("Simulation", "SimulationFailedError", "simulate"),
        "holdfast.testing.step_stubs": ("StepCall", "StepStub"),
        "holdfast.testing.stubs": ("StageCall", "Stub", "Stubs"),
        "holdfast.testing.world": ("Asleep", "World"),
    }.items()
    for name in names
}

_EXTRA: Final = ("greenlet", "hypothesis", "pytest")
"""Packages that the extra `testing` installs."""


def __getattr__(name: str) -> object:
    module = _WHERE.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        value: object = getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        if error.name not in _EXTRA:
            raise
        raise ModuleNotFoundError(
            f'holdfast.testing.{name} needs {error.name}: pip install "holdfast[testing]"', name=error.name
        ) from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
