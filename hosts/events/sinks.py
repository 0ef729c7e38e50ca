"""Sinks of events as users see them: registering them, and what they refuse."""

from collections.abc import Collection, Iterator
from datetime import datetime

import attrs

from holdfast.hosts.wiring.services import Core
from holdfast.kernel.commands import DeadLetterReplay, SinkRegister, SinkRegistered, SinkRemove
from holdfast.kernel.rules.sinks import types_of
from holdfast.ports.clock import instant, micros
from holdfast.ports.errors import RunNotFoundError, SinkNotFoundError
from holdfast.ports.persistence import CountDeadLetters, DeadLetter, FindRun, ListDeadLetters, ListSinks
from holdfast.ports.records import RunName
from holdfast.ports.validation import AWARE, TEXT, check, several

_PAGE = 100


@attrs.frozen(kw_only=True)
class SinkInfo:
    """A sink as it was when it was asked for. Instants are aware, in UTC.

    Attributes:
        name: What it is called; what takes its events is given to workers under this name.
        since: Events stored from then on go there.
        created_at: When it was registered.
        types: The types of events that it gets, as `run.failed` or `user.*`; none stands for all.
        failures: How often in a row it has taken nothing.
        retry_at: It is left alone until then, because it failed.
        error: How it failed the last time; None if it takes events.
        parked: How many runs' events are parked, because it refuses one of them.
    """

    name: str
    since: datetime
    created_at: datetime
    types: tuple[str, ...]
    failures: int
    retry_at: datetime | None
    error: str | None
    parked: int


@attrs.frozen(kw_only=True)
class DeadLetterInfo:
    """A run's events that are parked, because a sink has refused one of them again and again.

    Attributes:
        sink: The sink that refuses it.
        run_id: The run.
        number: The number of the event. It and those after it have not been taken.
        waiting: How many events of the run wait, this one among them.
        attempts: How often it was refused while the sink took others.
        dead_lettered_at: When the sink was not asked any more. Aware, in UTC.
        error: How the sink refused it the last time.
    """

    sink: str
    run_id: str
    number: int
    waiting: int
    attempts: int
    dead_lettered_at: datetime
    error: str


def register_sink(core: Core, name: str, since: datetime | None, types: Collection[str]) -> SinkRegistered:
    """Register a sink. InvalidArgumentError."""
    check("register_sink", TEXT, name=name)
    check("register_sink", AWARE.or_none, since=since)
    listed = several("register_sink", "types", types, "a list of types of events, as ['run.failed']")
    for one in listed:
        check("register_sink", TEXT, types=one)
    command = SinkRegister(
        namespace=core.namespace,
        sink=name,
        since=None if since is None else micros(since),
        types=listed,
    )
    return core.kernel.dispatch(command)


def remove_sink(core: Core, name: str) -> bool:
    """Remove a sink. Return whether there was one."""
    return core.kernel.dispatch(SinkRemove(namespace=core.namespace, sink=name)).removed


def list_sinks(core: Core) -> list[SinkInfo]:
    """Return the sinks of the engine's namespace, by name."""
    core.connect()
    dead_letters = core.stores.persistence.read(CountDeadLetters(core.namespace))
    return [
        SinkInfo(
            name=sink.name,
            since=instant(sink.since),
            created_at=instant(sink.created_at),
            types=types_of(sink),
            failures=sink.failures,
            retry_at=None if sink.retry_at is None else instant(sink.retry_at),
            error=sink.error,
            parked=dead_letters.get(sink.name, 0),
        )
        for sink in core.stores.persistence.read(ListSinks(core.namespace))
    ]


def dead_letters(core: Core, sink: str, run_id: str) -> Iterator[DeadLetterInfo]:
    """Return dead letters one by one, read some at a time. RunNotFoundError, SinkNotFoundError."""
    _check_known(core, sink, run_id)
    return _dead_letters(core, sink, run_id)


def _dead_letters(core: Core, sink: str, run_id: str) -> Iterator[DeadLetterInfo]:
    query = ListDeadLetters(namespace=core.namespace, sink=sink, run_id=run_id, limit=_PAGE)
    while True:
        page = core.stores.persistence.read(query)
        yield from map(_dead_letter, page)
        if len(page) < _PAGE:
            return
        query = attrs.evolve(query, after=page[-1])


def replay_dead_letters(core: Core, sink: str, run_id: str, *, skip: bool, reason: str) -> int:
    """Let dead letters go on. Return how many. RunNotFoundError, SinkNotFoundError."""
    _check_known(core, sink, run_id)
    command = DeadLetterReplay(namespace=core.namespace, sink=sink, run_id=run_id, skip=skip, reason=reason)
    replayed = 0
    while True:
        answer = core.kernel.dispatch(command)
        replayed += answer.replayed
        if not answer.more:
            return replayed


def _check_known(core: Core, sink: str, run_id: str) -> None:
    """Raise unless there are such a sink and such a run, where they are named: nothing is parked under a wrong name."""
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
    )
