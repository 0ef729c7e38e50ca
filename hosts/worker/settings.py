"""What a worker is told when it is made."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

import attrs

from holdfast.hosts.execution.function_cache import FUNCTIONS_KEPT

MAINTENANCE_INTERVAL: Final = 5.0


@attrs.frozen(kw_only=True)
class Settings:
    """How a worker behaves. Seconds. `limits` are those of single queues; all `queues` share `concurrency`.

    `retention` is how long runs are kept that have ended; None: until somebody removes them. `function_cache` is how
    many functions that rest stay in memory.
    """

    definitions: tuple[str, ...]
    queues: tuple[str, ...]
    concurrency: int = 100
    limits: Mapping[str, int] = attrs.field(factory=dict[str, int])
    poll_interval: float = 1.0
    heartbeat_interval: float = 2.0
    maintenance_interval: float = MAINTENANCE_INTERVAL
    drain_grace: float = 20.0
    claim_again_after: float = 0.05
    sinks: tuple[str, ...] = ()
    retention: timedelta | None = None
    function_cache: int = FUNCTIONS_KEPT
