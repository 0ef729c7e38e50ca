"""Bounds on starts: how many runs of a concurrency key may be open, and what a start does beyond that."""

from collections.abc import Iterable, Mapping
from typing import Final

from holdfast.kernel.commands import RunCreate
from holdfast.kernel.limits.levels import is_innermost_there, nested_levels, path_of
from holdfast.kernel.pipelines.plan import Plan
from holdfast.ports.errors import InvalidCommandError
from holdfast.ports.records.limits import ENDING_OLDER, ConcurrencyPlan, OuterLevel, WhenFull
from holdfast.ports.records.run import Run
from holdfast.ports.searches import OpenRunsOfKey, SlotPlace
from holdfast.ports.structs import evolve, frozen

WAITING_MAX: Final = 1_000_000
"""Highest bound on the runs of a concurrency key that wait."""
ENDED_MAX: Final = 10
"""How many older runs one start ends at most. More than one is ended only after the bound was lowered."""

_ENDING_ACTIVE: Final = frozenset({WhenFull.CANCEL, WhenFull.TERMINATE})


@frozen
class StartBound:
    """The bound that one start obeys."""

    place: SlotPlace
    limit: int
    """Maximum number of runs of the key that are under way."""
    waiting: int
    """Maximum number that wait beside them."""
    full: WhenFull

    def limit_in_force(self, slots: int | None) -> int:
        """Return its limit, or the one that an operator has set. At least one run is open, even if none may begin."""
        return self.limit if slots is None else max(slots, 1)

    def open_max(self, slots: int | None) -> int:
        """Return how many runs of the key may be open, with the new one."""
        return self.limit_in_force(slots) + self.waiting


@frozen
class BoundedStarts:
    """All starts of a batch under one concurrency key."""

    bounds: tuple[StartBound, ...]
    """Their different bounds."""
    full: frozenset[WhenFull]
    """What they do beyond it."""
    starts: int
    """How many there are at most."""

    @property
    def ended_max(self) -> int:
        """How many runs they may end."""
        return ENDED_MAX * self.starts

    def beside(self, others: "BoundedStarts") -> "BoundedStarts":
        """Return these starts together with others under the same key."""
        bounds = tuple(dict.fromkeys((*self.bounds, *others.bounds)))
        return BoundedStarts(bounds, self.full | others.full, self.starts + others.starts)

    def candidates(self, found: OpenRunsOfKey, excluded: frozenset[str]) -> frozenset[str]:
        """Return the keys of the runs that they may end or return. These have to be locked, but for excluded ones."""
        open_max = min(bound.open_max(found.slots) for bound in self.bounds)
        over = min(found.total + self.starts - open_max, self.ended_max)
        if over <= 0:
            return frozenset()
        keys: set[str] = set()
        if self.full & ENDING_OLDER:
            keys.update([run for run in found.oldest_waiting if run not in excluded][:over])
        if self.full & _ENDING_ACTIVE:
            keys.update([run for run in found.oldest_under_way if run not in excluded][:over])
        if WhenFull.RETURN in self.full and found.newest is not None and found.newest not in excluded:
            keys.add(found.newest)
        return frozenset(keys)


def combined(bounds: Iterable[tuple[StartBound, int]]) -> dict[SlotPlace, BoundedStarts]:
    """Return bounds by concurrency key, each given with the number of its starts."""
    by_place: dict[SlotPlace, BoundedStarts] = {}
    for bound, starts in bounds:
        these = BoundedStarts((bound,), frozenset({bound.full}), starts)
        known = by_place.get(bound.place)
        by_place[bound.place] = these if known is None else known.beside(these)
    return by_place


def waiting_max(full: WhenFull, waiting: int | None) -> int | None:
    """Return how many runs may wait: the number given, or the default. None without a bound."""
    if full is WhenFull.WAIT or waiting is not None:
        return waiting
    return 1 if full is WhenFull.REPLACE else 0


def key_of(plan: ConcurrencyPlan, workflow: str, attributes: str | None) -> str | None:
    """Return the concurrency key of a run with these attributes, which are JSON text. None if it has none."""
    levels = nested_levels(plan, workflow, attributes)
    return path_of(levels) if levels else None


def with_concurrency(command: RunCreate, plan: Plan) -> RunCreate:
    """Return a start with the concurrency limit of its workflow, unless it has one of its own."""
    if plan.concurrency is None or command.concurrency_key is not None:
        return command
    return limited(command, plan.concurrency)


def limited(command: RunCreate, concurrency: ConcurrencyPlan) -> RunCreate:
    """Return a start under a concurrency limit, if the attributes of its run give it a key."""
    levels = nested_levels(concurrency, command.workflow, command.attributes)
    if not levels:
        return command
    *outer, (key, limit) = levels
    has_bound = is_innermost_there(concurrency, command.attributes)
    return evolve(
        command,
        concurrency_key=key,
        concurrency_limit=limit,
        concurrency_waiting=concurrency.waiting if has_bound else None,
        concurrency_full=concurrency.full if has_bound else WhenFull.WAIT,
        concurrency_within=tuple(OuterLevel(key=around, limit=most) for around, most in outer),
    )


def given_concurrency(command: RunCreate) -> ConcurrencyPlan | None:
    """Return the concurrency limit that a start itself has."""
    if command.concurrency_key is None:
        return None
    return ConcurrencyPlan(
        key=command.concurrency_key,
        limit=command.concurrency_limit,
        waiting=command.concurrency_waiting,
        full=command.concurrency_full,
        within=command.concurrency_within,
    )


def bound_of(
    concurrency: ConcurrencyPlan | None, namespace: str, workflow: str, attributes: str | None
) -> StartBound | None:
    """Return the bound of a start under a concurrency limit; None if any number may wait, or it has no key."""
    if concurrency is None or concurrency.full is WhenFull.WAIT:
        return None
    key = key_of(concurrency, workflow, attributes)
    if key is None or not is_innermost_there(concurrency, attributes):
        return None
    waiting = waiting_max(concurrency.full, concurrency.waiting) or 0
    return StartBound(SlotPlace(namespace, key), concurrency.limit, waiting, concurrency.full)


def bound_of_start(workflows: Mapping[tuple[str, str | None], Plan], command: RunCreate) -> StartBound | None:
    """Return the bound of a start, by its own concurrency limit or that of its workflow."""
    concurrency = given_concurrency(command)
    if concurrency is None:
        plan = workflows.get((command.workflow, command.version))
        concurrency = None if plan is None else plan.concurrency
    return bound_of(concurrency, command.namespace, command.workflow, command.attributes)


def bound_of_run(run: Run) -> StartBound | None:
    """Return the bound that a run obeys when it is started; None if any number may wait."""
    if run.concurrency_key is None or run.concurrency_full is None:
        return None
    place = SlotPlace(run.namespace, run.concurrency_key)
    return StartBound(place, run.concurrency_limit or 0, run.concurrency_waiting or 0, run.concurrency_full)


def check_bound(command: RunCreate) -> None:
    """Raise InvalidCommandError for a bound that can't be, or that other fields of the start rule out."""
    full, waiting = command.concurrency_full, command.concurrency_waiting
    if command.concurrency_key is None:
        if full is not WhenFull.WAIT or waiting is not None:
            raise InvalidCommandError(
                "concurrency_full and concurrency_waiting need a concurrency_key: they bound the runs of one key"
            )
        if command.concurrency_within:
            raise InvalidCommandError(
                "concurrency_within needs a concurrency_key, which is the innermost limit; for one limit alone, give "
                "its key as concurrency_key"
            )
        return
    if full is WhenFull.WAIT:
        if waiting is not None:
            raise InvalidCommandError(
                f"concurrency_waiting is {waiting}, but with concurrency_full='wait' any number of runs may wait; "
                "leave it out, or say what a start does beyond: 'refuse', 'return', 'replace', 'cancel' or 'terminate'"
            )
        return
    if waiting is not None and not 0 <= waiting <= WAITING_MAX:
        raise InvalidCommandError(f"concurrency_waiting is {waiting}; it must be from 0 to {WAITING_MAX}")
    if full is WhenFull.REPLACE and waiting == 0:
        raise InvalidCommandError(
            "concurrency_full='replace' replaces a run that waits, so concurrency_waiting must be at least 1; to end a "
            "run that is under way, use 'cancel' or 'terminate'"
        )
    if full is WhenFull.RETURN and command.signals:
        raise InvalidCommandError(
            "a start with signals can't return another run, which may not be meant to receive them: use "
            "concurrency_full='refuse'"
        )


def check_limit(concurrency: ConcurrencyPlan) -> None:
    """Raise InvalidCommandError unless a concurrency limit has either a key or an attribute."""
    if (concurrency.key is None) == (concurrency.by is None):
        raise InvalidCommandError(
            "a concurrency limit has a key, or the name of an attribute in `by`, but not both"
        )
    for level in concurrency.within:
        if (level.key is None) == (level.by is None):
            raise InvalidCommandError(
                "a concurrency limit around another one has a key, or the name of an attribute in `by`, but not both"
            )
