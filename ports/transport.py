"""The port for hints that there may be work. A worker that receives one queries the store before it acts."""

from collections.abc import Sequence
from typing import ClassVar, Protocol, TypeAlias, runtime_checkable

import attrs

from holdfast.ports.structs import frozen


@frozen(kw_only=True)
class JobHint:
    """A hint that a job may be ready to claim."""

    tag: ClassVar[str] = "job"
    job: str
    epoch: int
    """The job's epoch when the hint was sent."""
    queue: str


@frozen(kw_only=True)
class RunEnded:
    """A hint that a run has ended. Its attempts are cancelled, and whoever waits for its result can read it."""

    tag: ClassVar[str] = "run_ended"
    run: str
    """The key of the run."""


@frozen(kw_only=True)
class HistoryGrew:
    """A hint that the history of a run has new rows, which its function or the sender of an update waits for."""

    tag: ClassVar[str] = "history_grew"
    run: str
    """The key of the run."""


Hint: TypeAlias = JobHint | RunEnded | HistoryGrew


@attrs.frozen(kw_only=True)
class Delivery:
    """A received hint."""

    hint: Hint | None
    """None if it is only known that something changed."""
    receipt: str
    """The handle for `ack`, `retry` and `extend`."""


class JobTransport(Protocol):
    """A carrier of hints. Hints hold ids, never values.

    - It may lose, repeat, delay or reorder hints.
    - `announce` never raises for a fault of the carrier: the hint is lost, and the maintenance tick replaces it.
    - It is safe to use from several threads.
    - A queue, which delivers each hint to a single receiver of all processes, sets `delivers_run_hints = False`. It
      drops hints about runs, and processes without a worker do not receive, since they would take hints about jobs from
      workers.
    """

    def announce(self, hints: Sequence[Hint], /) -> None:
        """Send hints, after the commit that they are about. Return soon, whatever the carrier does."""
        ...

    def receive(self, limit: int, wait: float, /) -> Sequence[Delivery]:
        """Return up to `limit` hints, waiting up to `wait` seconds for the first. Empty if none arrived."""
        ...

    def ack(self, receipt: str, /) -> None:
        """Acknowledge a delivery. Does nothing if it was acknowledged before or is unknown."""
        ...

    def retry(self, receipt: str, delay: float, /) -> None:
        """Request redelivery after `delay` seconds."""
        ...

    def extend(self, receipt: str, by: float, /) -> None:
        """Delay redelivery by another `by` seconds."""
        ...

    def close(self) -> None:
        """Stop. A waiting `receive` returns. Can be called repeatedly."""
        ...


@runtime_checkable
class Reopenable(Protocol):
    """A transport that can be used again after `close`. An engine with any other transport can't be reopened."""

    def reopen(self) -> None:
        """Undo `close`. Does nothing if the transport is open."""
        ...


def delivers_run_hints(transport: JobTransport) -> bool:
    """Whether a transport delivers hints about runs to every receiver. True unless it declares otherwise."""
    return getattr(transport, "delivers_run_hints", True) is not False
