"""The descriptions of an engine's workers for the worker registry."""

import platform
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from itertools import accumulate
from typing import Final

import attrs

from holdfast.hosts.wiring.services import Core
from holdfast.kernel.commands import ServedQueue, WorkerAbout
from holdfast.kernel.commands.worker_about import ABOUT_MAX
from holdfast.ports.json import canonical

_QUEUES_MAX: Final = ABOUT_MAX // 2
"""The most characters of JSON for the queues, so that code has a place."""


def worker_about(
    core: Core, name: str | None, *, queues: Iterable[str], concurrency: int, limits: Mapping[str, int]
) -> WorkerAbout:
    """Return the description of a worker of this engine, shortened to what a row may have.

    Without a name it is that of its machine.
    """
    about = WorkerAbout(
        name=core.host.rpartition(":")[0] if name is None else name,
        versions=_versions(),
        concurrency=concurrency,
    )
    served = [ServedQueue(name=queue, limit=limits.get(queue)) for queue in queues]
    some_queues = served[: _fitting((canonical(attrs.asdict(queue)) for queue in served), _QUEUES_MAX)]
    about = attrs.evolve(about, queues=tuple(some_queues))
    known = core.registry.definitions
    some_code = known[: _fitting(map(canonical, known), ABOUT_MAX - len(about.to_json()))]
    has_more = len(some_queues) < len(served) or len(some_code) < len(known)
    return attrs.evolve(about, definitions=some_code, has_more=has_more)


def _fitting(texts: Iterable[str], space: int) -> int:
    """Return how many of these texts fit into a number of characters, each with a comma."""
    lengths = accumulate(len(text) + 1 for text in texts)
    return sum(1 for length in lengths if length <= space)


@cache
def _versions() -> tuple[str, ...]:
    try:
        own = version("holdfast")
    except PackageNotFoundError:
        own = "(not installed)"
    return f"holdfast {own}", f"python {platform.python_version()}"
