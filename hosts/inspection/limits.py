"""Limits as the client shows them: what is in force, those of plans, what is under way and what waits."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta, tzinfo
from typing import Final

import attrs

from holdfast.hosts.text import format_duration, format_instant
from holdfast.hosts.wiring.services import Core
from holdfast.kernel.limits.limit_names import LimitKind, ParsedLimit, names_of_line, parsed_limit
from holdfast.kernel.limits.overrides import waited_for_in_force
from holdfast.kernel.limits.rates import starts_from
from holdfast.ports.actors import Actor
from holdfast.ports.clock import instant, micros
from holdfast.ports.queries.limits import LineState, LineStates, ListLimits, QueueStates, RateLines
from holdfast.ports.records.limits import LimitName, LimitRow, RateName, RateWindow, levels_of
from holdfast.ports.records.values import Micros
from holdfast.ports.searches import AllKeysWaitedFor, SlotPlace, WaitedFor, Waiting
from holdfast.ports.tables import LIMITS, RATES

LINES_MAX: Final = 1_000
"""The most lines that are listed of those for which something waits, and the most that one limit sums up."""
_PAGE: Final = 100


@attrs.frozen(kw_only=True)
class LimitInfo:
    """A limit, or a queue, as it is now."""

    name: str
    """`run:<concurrency key>`, `run-rate:<name>`, `stage:<workflow>/<stage>`, `step:<step>`, `slots:<name>`,
    `rate:<name>` or `queue:<queue>`; after a stage, step or rate `/<text>` of the attribute that a rate goes by."""
    slots: int | None = None
    """How many may be under way; None without such a limit, or if nothing shows it now."""
    planned_slots: int | None = None
    """The limit in the plans of those that wait, or of those under way; None without any."""
    rate_limit: int | None = None
    """How many may start in a period, for starts of runs in units; None without such a limit, or if nothing shows it
    now."""
    rate_period: timedelta | None = None
    """That period."""
    planned_rate_limit: int | None = None
    """The rate in their plans."""
    planned_rate_period: timedelta | None = None
    """The period of that rate."""
    is_paused: bool = False
    """Whether nothing is claimed from the queue."""
    under_way: int = 0
    """How many slots are taken; of a queue, how many of its jobs are running."""
    started: int = 0
    """How many starts count against the rate now."""
    waiting: int = 0
    """How many runs or jobs wait. At most 10,000 of a line are counted."""
    waiting_since: datetime | None = None
    """Since when the first of them waits."""
    next_turn: datetime | None = None
    """When the rate allows the next start, if something waits for that."""
    is_set: bool = False
    """Whether an operator has set it."""
    set_at: datetime | None = None
    """When it was last set or cleared; None if it never was."""
    actor: Actor | None = None
    """Who did that, if known."""
    reason: str = ""
    """Why."""


def limit_infos(core: Core) -> tuple[LimitInfo, ...]:
    """Return the limits of the namespace that are set, and those for which something waits, by name."""
    rows = {row.name: row for row in limit_rows(core) if row.is_in_force}
    names = dict.fromkeys(rows)
    for waiting in Waiting:
        for place in _places_waited_for(core, waiting):
            if waiting is Waiting.RUNS:
                names |= dict.fromkeys(f"run:{level}" for level in levels_of(place.key))
            else:
                names[names_of_line(place.key)[0]] = None
    return tuple(limit_info(core, parsed_limit(name)) for name in sorted(names))


def limit_rows(core: Core) -> Iterator[LimitRow]:
    """Yield what was ever set in the namespace, by name."""
    core.connect()
    query = ListLimits(namespace=core.namespace, limit=_PAGE)
    while page := core.stores.persistence.read(query):
        yield from page
        query = attrs.evolve(query, after=page[-1].name)


def _places_waited_for(core: Core, waiting: Waiting) -> Iterator[SlotPlace]:
    search = AllKeysWaitedFor(waiting, SlotPlace(core.namespace, ""), LINES_MAX)
    found = core.stores.persistence.transact(lambda tx: tx.find(search))
    yield from (one.place for one in found if one.place.namespace == core.namespace)


def limit_info(core: Core, limit: ParsedLimit) -> LimitInfo:
    """Return one limit as it is now, whether or not it is set."""
    core.connect()
    name = LimitName(core.namespace, limit.name)
    general = LimitName(core.namespace, attrs.evolve(limit, text=None).name)
    found = core.stores.persistence.transact(lambda tx: tx.get(LIMITS, sorted({name, general})))
    rows = {row.limit_name: row for row in found}
    info = _with_row(LimitInfo(name=limit.name), rows.get(name))
    if limit.kind is LimitKind.QUEUE:
        (state,) = core.stores.persistence.read(QueueStates(core.namespace, limit.names))
        return attrs.evolve(
            info, under_way=state.leased, waiting=state.queued, waiting_since=_instant(state.since)
        )
    keys = _keys_of(core, limit)
    places = [SlotPlace(core.namespace, key) for key in keys]
    states = core.stores.persistence.read(LineStates(limit.waiting, places)) if places else ()
    windows: Sequence[RateWindow] = ()
    if limit.waiting is not Waiting.RUNS and keys:
        rates = sorted(RateName(core.namespace, key) for key in keys)
        windows = core.stores.persistence.transact(lambda tx: tx.get(RATES, rates))
    return _with_states(info, rows, limit, states, windows, micros(core.clock.now()))


def _keys_of(core: Core, limit: ParsedLimit) -> list[str]:
    """Return the concurrency keys of a limit: its own, and those of attributes and periods that were ever used."""
    keys = {} if limit.key is None else {limit.key: None}
    if limit.waiting is not Waiting.RUNS and (limit.key is None or limit.text is None):
        end = "" if limit.text is None else f"/{limit.text}"
        query = RateLines(namespace=core.namespace, start=limit.start, end=end, limit=LINES_MAX)
        keys |= dict.fromkeys(key for key in core.stores.persistence.read(query) if limit.has_line(key))
        if limit.kind is LimitKind.SLOTS:  # its lines have no rows of rates
            waited_for = (place.key for place in _places_waited_for(core, Waiting.JOBS))
            keys |= dict.fromkeys(key for key in waited_for if limit.has_line(key))
    return list(keys)


def _with_row(info: LimitInfo, row: LimitRow | None) -> LimitInfo:
    if row is None:
        return info
    return attrs.evolve(
        info,
        slots=row.slots,
        rate_limit=row.rate_limit,
        rate_period=_length(row.rate_period),
        is_paused=row.is_paused != 0,
        is_set=row.is_in_force,
        set_at=instant(row.updated_at),
        actor=row.actor,
        reason=row.reason,
    )


def _with_states(
    info: LimitInfo,
    rows: Mapping[LimitName, LimitRow],
    limit: ParsedLimit,
    states: Sequence[LineState],
    windows: Iterable[RateWindow],
    now: Micros,
) -> LimitInfo:
    planned = max(states, key=lambda one: (one.waiting > 0, one.used), default=None)
    if planned is not None and (planned.waiting or planned.used):
        waited = WaitedFor(
            planned.place, planned.limit, planned.used, planned.rate_limit, planned.rate_period
        )
        force = waited_for_in_force(rows, limit.waiting, waited)
        info = attrs.evolve(
            info,
            slots=force.limit if info.slots is None else info.slots,
            planned_slots=planned.limit,
            rate_limit=force.rate_limit if info.rate_limit is None else info.rate_limit,
            rate_period=_length(force.rate_period) if info.rate_period is None else info.rate_period,
            planned_rate_limit=planned.rate_limit,
            planned_rate_period=_length(planned.rate_period),
        )
    windows = tuple(windows)
    asleep = [one.wakes_at for one in windows if one.wakes_at is not None and one.wakes_at > now]
    next_turns = [
        *asleep,
        *(one.admits_at for one in windows if one.admits_at is not None and one.admits_at > now),
    ]
    waiting = [one.since for one in states if one.since is not None]
    counted = 0
    if info.rate_period is not None:
        period = info.rate_period // timedelta(microseconds=1)
        counted = sum(-starts_from(window).capacity(0, period, now) for window in windows)
    return attrs.evolve(
        info,
        under_way=sum(one.used for one in states),
        started=counted,
        waiting=sum(one.waiting for one in states) + len(asleep),
        waiting_since=_instant(min(waiting, default=None)),
        next_turn=_instant(min(next_turns, default=None)),
    )


def _instant(at: Micros | None) -> datetime | None:
    return None if at is None else instant(at)


def _length(length: Micros | None) -> timedelta | None:
    return None if length is None else timedelta(microseconds=length)


def set_text(row: LimitRow, now: Micros, zone: tzinfo | None) -> str:
    """Return who set a limit, when and why: `set by user ann 2h ago (at ...) because 'provider is slow'`."""
    by = "" if row.actor is None else f" by {row.actor.text}"
    ago = f" {format_duration(max(0, now - row.updated_at))} ago (at {format_instant(row.updated_at, zone)})"
    because = f" because {row.reason!r}" if row.reason else ""
    return f"set{by}{ago}{because}"


def slots_text(row: LimitRow, planned: int | None, now: Micros, zone: tzinfo | None) -> str:
    """Return the sentence about slots that were set in place of those of the plan."""
    return f" The limit of {row.name} is {row.slots}, {set_text(row, now, zone)}; the plan says {planned}."


def rate_text(
    row: LimitRow, planned: tuple[int | None, Micros | None], now: Micros, zone: tzinfo | None
) -> str:
    """Return the sentence about a rate that was set in place of that of the plan."""
    limit, period = planned
    planned_rate = (
        f"{limit:,}" if period == row.rate_period else f"{limit:,} in {format_duration(period or 0)}"
    )
    in_force = f"{row.rate_limit:,} in {format_duration(row.rate_period or 0)}"
    return (
        f" The limit of {row.name} is {in_force}, {set_text(row, now, zone)}; the plan says {planned_rate}."
    )


def pause_text(row: LimitRow, now: Micros, zone: tzinfo | None) -> str:
    """Return the clause about a paused queue: its actor, instant and reason."""
    by = "" if row.actor is None else f" by {row.actor.text}"
    since = f"{format_duration(max(0, now - row.updated_at))} ago (at {format_instant(row.updated_at, zone)})"
    because = f", because {row.reason!r}" if row.reason else ""
    queue = row.name.removeprefix("queue:")
    return f"the queue {queue!r} is paused{by}, since {since}{because}; `holdfast limit clear {row.name}` unpauses it"
