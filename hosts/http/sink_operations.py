"""Operations on sinks and on dead-lettered streams of events."""

from datetime import datetime
from types import NoneType
from typing import Final

import attrs

from holdfast.hosts.events.sink_reads import (
    ROWS_MAX,
    SinkBatch,
    SinkEvent,
    acknowledge_batch,
    cursor_from,
    has_due_events,
    read_batch,
)
from holdfast.hosts.events.sinks import DeadLetterInfo, SinkInfo, replay_some_dead_letters
from holdfast.hosts.http.operations import (
    NAMESPACE,
    Hint,
    Invocation,
    Nothing,
    Operation,
    PageQuery,
    Reason,
    ServerEvent,
    Table,
    Wait,
    page_of,
)
from holdfast.hosts.http.principals import Scope
from holdfast.hosts.http.run_actions import Removed
from holdfast.hosts.http.user_values import without_user_values
from holdfast.ports.errors import (
    InvalidArgumentError,
    InvalidCommandError,
    InvalidFilterError,
    RunNotFoundError,
    SinkCursorError,
    SinkExistsError,
    SinkNotFoundError,
)

_SINKS: Final = f"{NAMESPACE}/sinks"
_DEAD_LETTERS: Final = f"{NAMESPACE}/dead-letters"


@attrs.frozen(kw_only=True)
class SinkList:
    """The sinks of a namespace."""

    items: tuple[SinkInfo, ...]
    """The sinks, by name."""


@attrs.frozen(kw_only=True)
class NewSink:
    """The registration of a sink."""

    since: datetime | None = None
    """Deliver events that were stored at this instant or later; from now on if omitted."""
    types: tuple[str, ...] = ()
    """Deliver only these types of events: `run.failed`, or `user.*` for a prefix. All types if empty."""


@attrs.frozen(kw_only=True)
class SinkEventsQuery:
    """The query parameters of a read of a sink."""

    after: str | None = None
    """The `next` of the batch before, or the `cursor` of an event: what is before it is acknowledged. If omitted, the
    read begins after what was acknowledged."""
    limit: int = attrs.field(default=500, validator=[attrs.validators.ge(1), attrs.validators.le(ROWS_MAX)])
    """The most history rows of a new batch, at most 1,000."""


@attrs.frozen(kw_only=True)
class Acknowledgement:
    """What a client has processed."""

    cursor: str
    """The `next` of a batch, or the `cursor` of an event."""


@attrs.frozen(kw_only=True)
class SinkStreamEvent:
    """An event of the stream of a sink."""

    id: str
    type: str
    data: SinkEvent


class SinkReader:
    """Reads the next batch of a sink as events. Then the stream is over: the client acknowledges it by reconnecting."""

    def __init__(self, call: "Invocation[SinkEventsQuery, Nothing]", after: str | None) -> None:
        self._call = call
        self._after = after
        self._is_over = False

    @property
    def is_over(self) -> bool:
        """Whether a batch was read."""
        return self._is_over

    def read(self) -> list[ServerEvent]:
        """Return the events of the next batch; none if nothing is due."""
        batch = _batch(self._call, self._after)
        self._after = batch.next
        self._is_over = bool(batch.items)
        shown = batch.items if self._call.sees_values() else without_user_values(batch.items)
        return [SinkStreamEvent(id=one.cursor, type=one.type, data=one) for one in shown]


@attrs.frozen(kw_only=True)
class DeadLettersQuery(PageQuery):
    """The query parameters of the list of dead-lettered streams."""

    sink: str = ""
    """Only those of this sink."""
    run_id: str = ""
    """Only those of this run."""


@attrs.frozen(kw_only=True)
class DeadLetterPage:
    """A page of the list of dead-lettered streams."""

    items: tuple[DeadLetterInfo, ...]
    """The streams, by sink."""
    next: str | None
    """The `after` of the next page; null on the last one."""


@attrs.frozen(kw_only=True)
class ReplayRequest(Reason):
    """Which dead-lettered streams are delivered again."""

    sink: str = ""
    """Only those of this sink; of all sinks if omitted."""
    run_id: str = ""
    """Only those of this run; of all runs if omitted."""
    skip: bool = False
    """Whether the refused event is skipped. The sink gets an `event.skipped` in its place."""


@attrs.frozen(kw_only=True)
class Replayed:
    """The outcome of a replay."""

    replayed: int
    """How many streams are delivered again."""
    more: bool
    """Whether there are more: repeat the request."""


def list_sinks(call: Invocation[Nothing, Nothing]) -> SinkList:
    """List the sinks."""
    return SinkList(items=tuple(call.engine.sinks()))


def register_sink(call: Invocation[Nothing, NewSink]) -> SinkInfo:
    """Register a sink, so that events are delivered to it. An existing sink is not changed."""
    return call.engine.register_sink(call.path["name"], since=call.body.since, types=call.body.types)


def remove_sink(call: Invocation[Nothing, Nothing]) -> Removed:
    """Remove a sink, with its undelivered events and its dead letters."""
    return Removed(removed=call.engine.remove_sink(call.path["name"]))


def read_sink(call: Invocation[SinkEventsQuery, Nothing]) -> SinkBatch:
    """Read the events of the whole namespace, batch by batch: each once and in one order.

    Reading after a cursor acknowledges what is before it. Until then the same batch is returned again, by any server.
    A stream sends one batch and ends; the client acknowledges it with `Last-Event-ID` when it connects again. From its
    first read on, a sink is only read: workers deliver nothing to it. `data` needs the scope `payloads`.
    """
    return _batch(call, call.query.after)


def _batch(call: Invocation[SinkEventsQuery, Nothing], after: str | None) -> SinkBatch:
    core, name, limit = call.engine.core, call.path["name"], call.query.limit
    batch = read_batch(core, name, None if after is None else cursor_from(after), limit)
    if not batch.items:
        call.server.sweeps.sweep_if_due(core, name)
        if has_due_events(core, name):
            return read_batch(core, name, cursor_from(batch.next), limit)
    return batch


def has_due(call: Invocation[SinkEventsQuery, Nothing]) -> bool:
    """Return whether a sink has events for a new batch."""
    core, name = call.engine.core, call.path["name"]
    call.server.sweeps.sweep_if_due(core, name)
    return has_due_events(core, name)


def acknowledge(call: Invocation[Nothing, Acknowledgement]) -> None:
    """Acknowledge what was read of a sink before a cursor, without reading on."""
    acknowledge_batch(call.engine.core, call.path["name"], cursor_from(call.body.cursor))


def list_dead_letters(call: Invocation[DeadLettersQuery, Nothing]) -> DeadLetterPage:
    """List the dead-lettered streams: the runs with an event that a sink refused."""
    query = call.query
    letters = call.engine.dead_letters(
        sink=query.sink, run_id=query.run_id, after=query.after, limit=query.limit + 1
    )
    items, last = page_of(letters, query.limit)
    return DeadLetterPage(items=items, next=None if last is None else last.cursor)


def replay_dead_letters(call: Invocation[Nothing, ReplayRequest]) -> Replayed:
    """Deliver dead-lettered streams again, from the refused event on: up to 500 with each request."""
    body = call.body
    reply = replay_some_dead_letters(
        call.engine.client, body.sink, body.run_id, skip=body.skip, reason=body.reason
    )
    return Replayed(replayed=reply.replayed, more=reply.more)


OPERATIONS: Final[Table] = (
    Operation(
        name="sink.list",
        method="GET",
        path=_SINKS,
        scope=Scope.READ,
        reply=SinkList,
        handler=list_sinks,
        wait=Wait.CHANGE,
    ),
    Operation(
        name="sink.register",
        method="PUT",
        path=f"{_SINKS}/{{name}}",
        scope=Scope.ADMIN,
        body=NewSink,
        reply=SinkInfo,
        handler=register_sink,
        hint=Hint.CHANGES,
        errors=(InvalidCommandError, InvalidArgumentError, SinkExistsError),
    ),
    Operation(
        name="sink.remove",
        method="DELETE",
        path=f"{_SINKS}/{{name}}",
        scope=Scope.ADMIN,
        reply=Removed,
        handler=remove_sink,
        hint=Hint.DESTROYS,
    ),
    Operation(
        name="sink.read",
        method="GET",
        path=f"{_SINKS}/{{name}}/events",
        scope=Scope.OPERATE,
        query=SinkEventsQuery,
        reply=SinkBatch,
        handler=read_sink,
        hint=Hint.CHANGES,
        wait=Wait.ROWS,
        reread=lambda call, reply: _batch(call, reply.next),
        stream=lambda call, last: SinkReader(call, call.query.after if last is None else last),
        is_due=has_due,
        reconnect=100,
        errors=(SinkNotFoundError, SinkCursorError, InvalidFilterError),
    ),
    Operation(
        name="sink.acknowledge",
        method="POST",
        path=f"{_SINKS}/{{name}}/acknowledge",
        scope=Scope.OPERATE,
        body=Acknowledgement,
        reply=NoneType,
        handler=acknowledge,
        hint=Hint.CHANGES,
        errors=(SinkNotFoundError, SinkCursorError, InvalidFilterError),
    ),
    Operation(
        name="dead_letter.list",
        method="GET",
        path=_DEAD_LETTERS,
        scope=Scope.READ,
        query=DeadLettersQuery,
        reply=DeadLetterPage,
        handler=list_dead_letters,
        wait=Wait.CHANGE,
        errors=(SinkNotFoundError, RunNotFoundError, InvalidFilterError),
    ),
    Operation(
        name="dead_letter.replay",
        method="POST",
        path=f"{_DEAD_LETTERS}/replay",
        scope=Scope.OPERATE,
        body=ReplayRequest,
        reply=Replayed,
        handler=replay_dead_letters,
        hint=Hint.CHANGES,
        errors=(SinkNotFoundError, RunNotFoundError, InvalidCommandError),
    ),
)
