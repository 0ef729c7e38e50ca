"""Events, which are history rows as sinks receive them, and the port for sinks."""

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Final, Protocol

import attrs

USER_EVENTS: Final = "user."
"""The prefix of the types of events that stages publish."""

EVENT_TYPES: Final = frozenset(
    {
        "cancel.sent",
        "child.completed",
        "child.failed",
        "signal.sent",
        "child.started",
        "channel.closed",
        "clock.read",
        "event.skipped",
        "function.began",
        "run.admitted",
        "message.published",
        "patch.marked",
        "result.refused",
        "run.blocked",
        "run.cancelled",
        "run.cancelling",
        "run.completed",
        "run.continued",
        "run.created",
        "run.failed",
        "run.gathered",
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
        "topic.subscribed",
        "topic.unsubscribed",
        "update.completed",
        "update.failed",
        "update.received",
        "update.rejected",
        "update.replied",
        "update.sent",
        "value.published",
    }
)
"""All types of events, except those that stages publish."""

RUN_ENDS: Final = frozenset(
    {"run.cancelled", "run.completed", "run.continued", "run.failed", "run.terminated"}
)
"""The types of the events that end a generation."""

EVENT_BYTES_MAX: Final = 65_536
"""The most characters of the JSON text of an event that a stage publishes."""

_TYPE: Final = re.compile(r"[a-z][a-z0-9_]*(\.[a-z0-9_]+)*")
_TYPE_MAX: Final = 100


def is_event_type(text: str) -> bool:
    """Whether a stage may publish an event of this type: dot-separated words of a-z 0-9 _."""
    return len(text) <= _TYPE_MAX and _TYPE.fullmatch(text) is not None


def is_possible(pattern: str) -> bool:
    """Whether any event can match a pattern: a type, or a prefix with `*`, as `run.*`."""
    if pattern.startswith(USER_EVENTS):
        return True
    if not pattern.endswith("*"):
        return pattern in EVENT_TYPES
    return any(one.startswith(pattern[:-1]) for one in (*EVENT_TYPES, USER_EVENTS))


@attrs.frozen(kw_only=True)
class Event:
    """One history row as sinks receive it. (`run`, `number`) identifies it, and is the same in every redelivery."""

    namespace: str
    run_id: str
    run: str
    """The key of the generation."""
    number: int
    """The number of the history row."""
    type: str
    at: datetime
    data: str
    """JSON text: what a stage published, or an object of small facts."""
    workflow: str = ""
    generation: int = 1
    stage: str | None = None
    """The stage that the event is about, if any."""
    item: int | None = None
    """The index of the map item that it is about, if any."""

    @property
    def id(self) -> str:
        """The identity as one text: `<run key>/<number>`."""
        return f"{self.run}/{self.number}"


class EventSink(Protocol):
    """A receiver of events. Each is delivered at least once, those of a run in order."""

    def emit(self, events: Sequence[Event], /) -> None:
        """Accept a batch of events.

        - Return once they are accepted. After an error they are delivered again, whether or not they were accepted.
        - Block for less than half a minute.
        - Expect calls from one thread at a time, but not always the same one, and from several processes at once.
        - Raise UnavailableError if nothing can be accepted now (SinkUnavailableError says for how long),
          EventRefusedError for an event that will never be accepted. Any other error may mean either.
        """
        ...
