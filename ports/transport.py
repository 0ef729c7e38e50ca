"""How processes hear that there is something to do. Only hints: the store is asked before anything is done."""

from collections.abc import Sequence
from typing import ClassVar, Protocol, TypeAlias, runtime_checkable

import attrs

from holdfast.ports.structs import frozen


@frozen(kw_only=True)
class JobHint:
    """There may be a job to claim. `epoch` is the one that the job had when this was sent."""

    tag: ClassVar[str] = "job"
    job: str
    epoch: int
    queue: str


@frozen(kw_only=True)
class RunHint:
    """A run may have ended. `run` is its key."""

    tag: ClassVar[str] = "run"
    run: str


Hint: TypeAlias = JobHint | RunHint


@attrs.frozen(kw_only=True)
class Delivery:
    """A hint that arrived. `hint` is None where all that is known is that something changed."""

    hint: Hint | None
    receipt: str


class JobTransport(Protocol):
    """Carries hints. May lose, repeat, delay or reorder them; carries ids, never values.

    One that gives each hint to one receiver, of all processes, has the attribute `tells_of_runs = False`. Hints at runs
    are then lost, and processes without a worker do not receive: they would take hints at jobs from those who run them.

    `announce` never raises for a fault of the carrier: a hint that can't be sent is lost, and the sweep makes up for
    it. Safe to use from several threads.
    """

    def announce(self, hints: Sequence[Hint], /) -> None:
        """Send hints, after the commit that they speak of. Returns soon, whatever the carrier does."""
        ...

    def receive(self, limit: int, wait: float, /) -> Sequence[Delivery]:
        """Return up to `limit` hints, waiting up to `wait` seconds for the first. Empty if none came."""
        ...

    def ack(self, receipt: str, /) -> None:
        """Say that a delivery is dealt with. Nothing happens if it was already, or was never."""
        ...

    def retry(self, receipt: str, delay: float, /) -> None:
        """Ask for a delivery again after `delay` seconds."""
        ...

    def extend(self, receipt: str, by: float, /) -> None:
        """Keep a delivery from being repeated for another `by` seconds."""
        ...

    def close(self) -> None:
        """Stop. A `receive` that waits returns. Harmless when repeated."""
        ...


@runtime_checkable
class Reopenable(Protocol):
    """A transport that can be used again after `close`; an engine on any other can't be opened again."""

    def reopen(self) -> None:
        """Undo `close`: from here on hints are sent and received as before. Nothing happens if it is open."""
        ...


def tells_of_runs(transport: JobTransport) -> bool:
    """Whether a transport brings hints at runs to whoever waits for them. True unless it says otherwise."""
    return getattr(transport, "tells_of_runs", True) is not False
