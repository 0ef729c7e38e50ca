"""Shorter intervals for workers in tests: polls of the store, and the time until a function is parked."""

from functools import partial
from typing import Any, Final

import pytest

from holdfast.hosts.execution import bodies
from holdfast.hosts.worker import worker as worker_module
from holdfast.hosts.worker.settings import Settings

OFTEN: Final = 0.05


def look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the intervals at which workers check bodies, sessions and the store.

    The intervals do not change what workers do, and a test would spend most of its time waiting.
    """

    def settings(*, poll_interval: float, **others: Any) -> Settings:
        return Settings(poll_interval=min(poll_interval, OFTEN), heartbeat_interval=OFTEN, **others)

    monkeypatch.setattr(worker_module, "Settings", settings)
    monkeypatch.setattr(worker_module, "MAINTENANCE_INTERVAL", OFTEN)


def rest_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make functions go to sleep at every wait, even for less than a second."""
    monkeypatch.setattr(bodies, "Parts", partial(bodies.Parts, park_after=0))
