"""The number of processors that this process may use."""

import math
import os
from pathlib import Path
from typing import Final

_CGROUP: Final = Path("/sys/fs/cgroup/cpu.max")


def available_processors(limit_file: Path = _CGROUP) -> int:
    """Return how many processors this process may use, at least 1: by its affinity, and by the limit of its container.

    Args:
        limit_file: The file in which a Linux control group has its limit: a quota and a period, in microseconds.
    """
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = limit_file.read_text(encoding="ascii").split()
        return max(1, min(allowed, math.ceil(int(quota) / int(period))))
    except (OSError, ValueError, ZeroDivisionError):  # no container, or "max": no limit
        return allowed
