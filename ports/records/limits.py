"""Concurrency slots and rate windows, by name."""

from typing import Final, NamedTuple

from holdfast.ports.records.values import Micros
from holdfast.ports.structs import frozen


class SlotName(NamedTuple):
    """The name of a concurrency limit."""

    namespace: str
    name: str
    """`run:<concurrency key>` or `stage:<workflow>/<stage>`."""


class RateName(NamedTuple):
    """The name of a rate limit."""

    namespace: str
    name: str
    """The concurrency key of the jobs that share the limit."""


_RUN_SLOT: Final = "run:"


_STAGE_SLOT: Final = "stage:"


@frozen(kw_only=True)
class RateWindow:
    """The recent claims that count against one rate limit (docs/decisions/0023)."""

    namespace: str
    name: str
    starts: str = "{}"
    """JSON text of an object: `at` lists instants, each with the number of claims then; `span` is the longest
    `rate_period` of these jobs, in microseconds. Claims older than that are dropped.
    """
    wakes_at: Micros | None = None
    """When the first waiting job wakes; None if none waits."""
    updated_at: Micros

    @property
    def rate_name(self) -> RateName:
        """The key in the store."""
        return RateName(self.namespace, self.name)


def run_slot(namespace: str, key: str) -> SlotName:
    """Return the name of the limit for runs with a concurrency key."""
    return SlotName(namespace, f"{_RUN_SLOT}{key}")


def stage_slot(namespace: str, key: str) -> SlotName:
    """Return the name of the limit for jobs with a concurrency key, `<workflow>/<stage>`."""
    return SlotName(namespace, f"{_STAGE_SLOT}{key}")
