"""The history of runs, seen from outside."""

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Final, Protocol

import attrs

USER_EVENTS: Final = "user."
"""What the types of events begin with that stages publish."""

EVENT_TYPES: Final = frozenset(
    {
        "child.cancelling",
        "child.completed",
        "child.failed",
        "child.signalled",
        "child.started",
        "channel.closed",
        "clock.read",
        "event.skipped",
        "function.began",
        "run.admitted",
        "patch.marked",
        "result.refused",
        "run.blocked",
        "run.cancelled",
        "run.cancelling",
        "run.completed",
        "run.continued",
        "run.created",
        "run.failed",
        "run.history_long",
        "run.paused",
        "run.repaired",
        "run.resumed",
        "run.terminated",
        "signal.received",
        "signal.refused",
        "stage.cancel_failed",
        "stage.cancelled",
        "stage.completed",
        "stage.expanded",
        "stage.failed",
        "stage.lost",
        "stage.retrying",
        "stage.skipped",
        "stage.started",
        "stage.suspended",
        "stage.tested",
        "start.received",
        "step.cancelled",
        "step.completed",
        "step.failed",
        "step.queued",
        "step.retrying",
        "step.started",
        "timer.fired",
        "update.completed",
        "update.failed",
        "update.received",
        "update.rejected",
        "value.published",
    }
)
"""The types of events that there are, but for those that stages publish."""

RUN_ENDS: Final = frozenset(
    {"run.cancelled", "run.completed", "run.continued", "run.failed", "run.terminated"}
)
"""The types of the events with which a run ends."""

EVENT_BYTES_MAX: Final = 65_536
"""How long the JSON text of an event that a stage publishes may be."""

_TYPE: Final = re.compile(r"[a-z][a-z0-9_]*(\.[a-z0-9_]+)*")
_TYPE_MAX: Final = 100


def is_event_type(text: str) -> bool:
    """Whether an event that a stage publishes may have this type: words of a-z 0-9 _ with dots between them."""
    return len(text) <= _TYPE_MAX and _TYPE.fullmatch(text) is not None


def is_possible(pattern: str) -> bool:
    """Whether there may be events that a pattern of types means: a type, or `run.*` for all that begin so."""
    if pattern.startswith(USER_EVENTS):
        return True
    if not pattern.endswith("*"):
        return pattern in EVENT_TYPES
    return any(one.startswith(pattern[:-1]) for one in (*EVENT_TYPES, USER_EVENTS))


@attrs.frozen(kw_only=True)
class Event:
    """One history row as others see it.

    (`run`, `number`) is its stable identity: it is the same whenever the event comes again. `data` is JSON text: what a
    stage published, or an object of small facts. `stage` and `item` are what the event is about, if that is a stage.
    """

    namespace: str
    run_id: str
    run: str
    number: int
    type: str
    at: datetime
    data: str
    workflow: str = ""
    generation: int = 1
    stage: str | None = None
    item: int | None = None

    @property
    def id(self) -> str:
        """Its identity in one text: `<run key>/<number>`."""
        return f"{self.run}/{self.number}"


class EventSink(Protocol):
    """Takes events: at least once, in order for each run."""

    def emit(self, events: Sequence[Event], /) -> None:
        """Take these events. When it returns they are taken; if it raises they may or may not be, and come again.

        It may block, but not for ever: half a minute is too long. It is called from one thread at a time, but not
        always from the same, and by several processes at once if several have it.

        UnavailableError if it can't take anything now (SinkUnavailableError says how long to leave it alone);
        EventRefusedError if it is an event that it will never take. Any other error may be either.
        """
        ...
