"""The settings of a worker."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

import attrs

from holdfast.hosts.execution.function_cache import FUNCTIONS_KEPT

MAINTENANCE_INTERVAL: Final = 5.0
"""Seconds between two maintenance ticks at most."""


@attrs.frozen(kw_only=True)
class Settings:
    """The settings of a worker, as its machine needs them. Durations are in seconds unless they are timedeltas."""

    definitions: tuple[str, ...]
    """The code that the worker has: `<workflow>@<version>`, and `step:<name>` for queued steps."""
    queues: tuple[str, ...]
    """The queues that it serves."""
    concurrency: int = 100
    """How many bodies may run at once, over all queues."""
    limits: Mapping[str, int] = attrs.field(factory=dict[str, int])
    """How many bodies of single queues may run at once."""
    poll_interval: float = 1.0
    heartbeat_interval: float = 2.0
    maintenance_interval: float = MAINTENANCE_INTERVAL
    drain_grace: float = 20.0
    claim_again_after: float = 0.05
    """How long after a claim that was filled the next one follows at the latest."""
    sinks: tuple[str, ...] = ()
    """The names of the sinks that it delivers events to."""
    retention: timedelta | None = None
    """How long ended runs are kept; None for ever."""
    name: str | None = None
    """Its name in the worker registry; None: that of its machine."""
    function_cache: int = FUNCTIONS_KEPT
    """How many waiting durable functions stay in memory."""
