"""Registration of sinks, and their dead letters."""

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime

import attrs

from holdfast.hosts.execution.dispatcher import Dispatcher
from holdfast.hosts.wiring.pages import pages_of
from holdfast.hosts.wiring.services import Core
from holdfast.kernel.commands import (
    DeadLetterReplay,
    DeadLettersReplayed,
    SinkRegister,
    SinkRegistered,
    SinkRemove,
)
from holdfast.kernel.rules.sink_batches import stored_batch
from holdfast.kernel.rules.sinks import registered_by, types_of
from holdfast.ports.actors import Actor
from holdfast.ports.clock import instant, micros
from holdfast.ports.errors import InvalidFilterError, RunNotFoundError, SinkNotFoundError
from holdfast.ports.queries.outbox import (
    CountDeadLetters,
    DeadLetter,
    DeadLetterPlace,
    ListDeadLetters,
    ListSinks,
    dead_letter_place,
)
from holdfast.ports.queries.runs import FindRun
from holdfast.ports.records.outbox import Sink
from holdfast.ports.records.run import RunName
from holdfast.ports.validation import AWARE, TEXT, check, several

_PAGE = 100


@attrs.frozen(kw_only=True)
class SinkInfo:
    """A registered sink as it was when it was read. Instants are aware, in UTC."""

    name: str
    """The name under which workers get the sink."""
    since: datetime
    """It gets events stored at this instant or later."""
    created_at: datetime
    """When it was registered."""
    registered_by: Actor | None
    """Who registered it; None if unknown."""
    types: tuple[str, ...]
    """The types of events that it gets, such as `run.failed` or `user.*`; empty for all."""
    failures: int
    """How many times in a row it took nothing."""
    retry_at: datetime | None
    """When delivery is tried again after a failure; None if it is not failing."""
    error: str | None
    """The last failure; None if it takes events."""
    dead_letters: int
    """The number of its dead-lettered streams."""
    read_at: datetime | None = None
    """When a client of the server last read or acknowledged a batch; None if hosts deliver its events."""
    unacknowledged: int = 0
    """How many history rows the batch has that was read last, if it is not acknowledged."""


@attrs.frozen(kw_only=True)
class DeadLetterInfo:
    """A dead-lettered stream: a run's events for a sink, stopped because the sink repeatedly refused one of them."""

    sink: str
    """The name of the sink."""
    run_id: str
    """The run id."""
    number: int
    """The number of the refused event. Neither it nor the later ones were delivered."""
    waiting: int
    """How many events of the run are held, the refused one included."""
    attempts: int
    """How often it was refused while the sink took other events."""
    dead_lettered_at: datetime
    """When the stream was stopped. Aware, in UTC."""
    error: str
    """The last refusal."""
    cursor: str
    """An opaque position; pass it to `dead_letters(after=...)` to list the streams that follow."""


def register_sink(
    dispatcher: Dispatcher, name: str, since: datetime | None, types: Collection[str]
) -> SinkRegistered:
    """Register a sink. Raises InvalidArgumentError, InvalidCommandError or SinkExistsError."""
    check("register_sink", TEXT, name=name)
    check("register_sink", AWARE.or_none, since=since)
    listed = several("register_sink", "types", types, "a list of event types, such as ['run.failed']")
    for one in listed:
        check("register_sink", TEXT, types=one)
    command = SinkRegister(
        namespace=dispatcher.core.namespace,
        sink=name,
        since=None if since is None else micros(since),
        types=listed,
    )
    return dispatcher.dispatch(command)


def remove_sink(dispatcher: Dispatcher, name: str) -> bool:
    """Remove a sink. Return whether it existed."""
    return dispatcher.dispatch(SinkRemove(namespace=dispatcher.core.namespace, sink=name)).removed


def list_sinks(core: Core) -> list[SinkInfo]:
    """Return the sinks of the engine's namespace, sorted by name."""
    core.connect()
    dead_letters = core.stores.persistence.read(CountDeadLetters(core.namespace))
    sinks = core.stores.persistence.read(ListSinks(core.namespace))
    return [_sink_info(sink, dead_letters.get(sink.name, 0)) for sink in sinks]


def _sink_info(sink: Sink, dead_letters: int) -> SinkInfo:
    batch = stored_batch(sink)
    return SinkInfo(
        name=sink.name,
        since=instant(sink.since),
        created_at=instant(sink.created_at),
        registered_by=registered_by(sink),
        types=types_of(sink),
        failures=sink.failures,
        retry_at=None if sink.retry_at is None else instant(sink.retry_at),
        error=sink.error,
        dead_letters=dead_letters,
        read_at=None if batch is None else instant(batch.read_at),
        unacknowledged=0 if batch is None else batch.rows,
    )


def dead_letters(
    core: Core, sink: str, run_id: str, *, after: str | None = None, limit: int | None = None
) -> Iterator[DeadLetterInfo]:
    """Return dead-lettered streams, read page by page.

    Raises RunNotFoundError or SinkNotFoundError; InvalidFilterError if `after` is not a cursor.
    """
    place = _place(after)
    _check_known(core, sink, run_id)

    def read(after: DeadLetterPlace | None, wanted: int) -> Sequence[DeadLetter]:
        query = ListDeadLetters(namespace=core.namespace, sink=sink, run_id=run_id, after=after, limit=wanted)
        return core.stores.persistence.read(query)

    pages = pages_of(read, _PAGE, place, limit, lambda letter: letter.place)
    return (_dead_letter(letter) for page in pages for letter in page)


def _place(after: str | None) -> DeadLetterPlace | None:
    if after is None:
        return None
    try:
        return dead_letter_place(after)
    except (ValueError, AttributeError, TypeError):
        raise InvalidFilterError("after", f"is {after!r}; it must be a cursor from an earlier list") from None


def replay_dead_letters(dispatcher: Dispatcher, sink: str, run_id: str, *, skip: bool, reason: str) -> int:
    """Deliver dead-lettered streams again. Return how many. Raises RunNotFoundError or SinkNotFoundError."""
    replayed = 0
    while True:
        answer = replay_some_dead_letters(dispatcher, sink, run_id, skip=skip, reason=reason)
        replayed += answer.replayed
        if not answer.more:
            return replayed


def replay_some_dead_letters(
    dispatcher: Dispatcher, sink: str, run_id: str, *, skip: bool, reason: str
) -> DeadLettersReplayed:
    """Deliver as many dead-lettered streams again as one transaction does. Raises as `replay_dead_letters`."""
    core = dispatcher.core
    _check_known(core, sink, run_id)
    return dispatcher.dispatch(
        DeadLetterReplay(namespace=core.namespace, sink=sink, run_id=run_id, skip=skip, reason=reason)
    )


def _check_known(core: Core, sink: str, run_id: str) -> None:
    """Raise SinkNotFoundError or RunNotFoundError unless the named sink and run exist."""
    core.connect()
    persistence = core.stores.persistence
    if sink and all(one.name != sink for one in persistence.read(ListSinks(core.namespace))):
        raise SinkNotFoundError(sink)
    if run_id and persistence.read(FindRun(RunName(core.namespace, run_id))) is None:
        raise RunNotFoundError(run_id)


def _dead_letter(letter: DeadLetter) -> DeadLetterInfo:
    return DeadLetterInfo(
        sink=letter.sink,
        run_id=letter.run_id,
        number=letter.number,
        waiting=max(1, letter.head_row - letter.number + 1),
        attempts=letter.attempts,
        dead_lettered_at=instant(letter.dead_lettered_at),
        error=letter.error,
        cursor=letter.place.text,
    )
