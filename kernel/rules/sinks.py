"""Rules for event sinks: registering, removing, pausing after failures."""

import re
from difflib import get_close_matches
from typing import Final, cast

import attrs

from holdfast.kernel.commands import SinkRegister, SinkRegistered, SinkRemove, SinkRemoved
from holdfast.kernel.state import Decision, Reads, State
from holdfast.ports.actors import Actor
from holdfast.ports.changes import Delete, Insert
from holdfast.ports.clock import Ids
from holdfast.ports.errors import InvalidCommandError, SinkExistsError
from holdfast.ports.events import EVENT_TYPES, is_possible
from holdfast.ports.json import canonical, parse
from holdfast.ports.records.outbox import Sink, SinkName
from holdfast.ports.records.values import Micros
from holdfast.ports.tables import SINKS

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_.-]{0,99}")
_TYPE: Final = re.compile(r"[a-z][a-z0-9_.]{0,99}(?<!\.)|([a-z][a-z0-9_.]{0,98}\.)?\*")
_TYPES_MAX: Final = 100


def reads_of_named(command: SinkRegister | SinkRemove) -> Reads:
    """Lock the sink. Raises InvalidCommandError if its name is not valid."""
    if not _NAME.fullmatch(command.sink):
        raise InvalidCommandError(
            f"{command.sink[:120]!r} is not a sink name: use 1 to 100 of a-z 0-9 _ . -, the first a letter or a digit"
        )
    return Reads(sinks=(SinkName(command.namespace, command.sink),), locks_sinks=True)


def decide_register(state: State, command: SinkRegister, now: Micros, ids: Ids) -> Decision[SinkRegistered]:
    """Register the sink, or return the registered one. Raises SinkExistsError, InvalidCommandError."""
    if len(command.types) > _TYPES_MAX:
        raise InvalidCommandError(f"a sink takes all types or names at most {_TYPES_MAX}")
    for pattern in command.types:
        if not _TYPE.fullmatch(pattern):
            raise InvalidCommandError(
                f"{pattern[:120]!r} is not an event type: write run.failed, or run.* for all types with that prefix"
            )
        if not is_possible(pattern):
            close = get_close_matches(pattern, EVENT_TYPES, n=1)
            hint = f" (did you mean {close[0]!r}?)" if close else ""
            raise InvalidCommandError(
                f"there are no events of the type {pattern!r}{hint}; there are {', '.join(sorted(EVENT_TYPES))}, and "
                "user.* for published events"
            )
    known = state.tables.sink_named(SinkName(command.namespace, command.sink))
    if known is not None and sorted(types_of(known)) != sorted(command.types):
        raise SinkExistsError(known.name, types_of(known))
    if known is not None:
        return Decision(SinkRegistered(sink=known.name, since=known.since, created=False))
    sink = Sink(
        key=ids.new(),
        namespace=command.namespace,
        name=command.sink,
        since=now if command.since is None else command.since,
        created_at=now,
        options=_options(command),
    )
    return Decision(SinkRegistered(sink=sink.name, since=sink.since, created=True), (Insert(sink),))


def decide_remove(state: State, command: SinkRemove, _: Micros, __: Ids) -> Decision[SinkRemoved]:
    """Remove the sink. Its streams, which may be millions, are pruned later."""
    known = state.tables.sink_named(SinkName(command.namespace, command.sink))
    if known is None:
        return Decision(SinkRemoved(removed=False))
    return Decision(SinkRemoved(removed=True), (Delete(SINKS, known.key),))


def _options(command: SinkRegister) -> str | None:
    options: dict[str, object] = {"types": command.types} if command.types else {}
    if command.actor is not None:
        options["actor"] = command.actor.data
    return canonical(options) if options else None


def types_of(sink: Sink) -> tuple[str, ...]:
    """Return the event types that a sink receives; none means all."""
    options = cast("dict[str, list[str]]", parse(sink.options)) if sink.options else {}
    return tuple(options.get("types", ()))


def registered_by(sink: Sink) -> Actor | None:
    """Return who registered a sink; None if unknown."""
    options = cast("dict[str, object]", parse(sink.options)) if sink.options else {}
    return Actor.of(options["actor"]) if "actor" in options else None


def with_failure(sink: Sink, now: Micros, error: str, retry_after: Micros) -> Sink:
    """Return the sink after one more failure, paused with exponential backoff up to five minutes.

    `retry_after`, at most an hour, is the shortest pause in microseconds.
    """
    failures = sink.failures + 1
    delay = min(_DELAY_MAX, _DELAY_MIN * 2 ** min(failures - 1, 20))
    return attrs.evolve(
        sink, failures=failures, retry_at=now + max(delay, min(retry_after, _RETRY_AFTER_MAX)), error=error
    )


def with_success(sink: Sink, now: Micros) -> Sink:
    """Return the sink after a success. Written at most once a second unless it was failing."""
    if not sink.failures and sink.succeeded_at is not None and now - sink.succeeded_at < _NOTED_EVERY:
        return sink
    return attrs.evolve(sink, failures=0, retry_at=None, succeeded_at=now, error=None)


_DELAY_MIN: Final[Micros] = 1_000_000
_DELAY_MAX: Final[Micros] = 300_000_000
_RETRY_AFTER_MAX: Final[Micros] = 3_600_000_000
_NOTED_EVERY: Final[Micros] = 1_000_000
