"""Turns: which place in the queue the runs of a workflow get whose keys share its workers (docs/decisions/0085).

Each start of a key costs it one turn, divided by its weight. Turns are counted, not timed: a key that waits goes on
from its own last turn, and one that does not wait joins at the turn that is served now. A run is ranked once, when its
first job is queued, between the jobs that wait with the turns around its own. So the line as a whole keeps the ranks
that its runs would have by arrival, and other workflows of the queue get what they would get without it.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import attrs

from holdfast.kernel.limits.concurrency import short_text
from holdfast.kernel.pipelines.plan import Plan, stage_of
from holdfast.ports.changes import Change, Insert
from holdfast.ports.records.job import Job, JobKind, waits_since
from holdfast.ports.records.limits import FairKey, FairKeyName
from holdfast.ports.records.run import attribute_texts
from holdfast.ports.records.values import Micros
from holdfast.ports.searches import PartTurn, QueuePart, TurnsAround, WaitingTurn
from holdfast.ports.structs import evolve

TURN: Final = 1_000_000
"""The length of a turn of weight 1: a number that most weights divide, and not a time."""
WEIGHT_MAX: Final = 1_000
"""The highest weight of a key."""
SPACING: Final[Micros] = 50
"""How far apart runs are ranked that a key starts at one instant, so that others find places between them."""
AHEAD_MAX: Final[Micros] = 10_000_000
"""How far after now a run is ranked at most, whatever waits with a lower turn: a clock may have been wrong."""


class FairPlace(NamedTuple):
    """Where a run waits: the account that its start is charged to, and the part of its first job."""

    name: FairKeyName
    part: QueuePart


class Turn(NamedTuple):
    """The turn of a start."""

    account: FairKey
    """The account of its key, charged."""
    number: int
    since: Micros
    """The instant by which the run is ranked."""


def fair_place(namespace: str, plan: Plan, queue: str, attributes: str | None) -> FairPlace | None:
    """Return where a run of this plan with this queue waits; None if its keys do not share workers."""
    if plan.fair is None:
        return None
    group = plan.groups[0]
    node = group.nodes[0]
    stage = stage_of(node)
    is_body = group.test is None and node is stage
    kind = JobKind.STAGE if is_body else JobKind.EXPAND_MAP
    first = stage.queue_of(queue, kind)
    text = short_text(attribute_texts(attributes).get(plan.fair))
    name = FairKeyName(namespace, f"{plan.workflow}/{first}", text)
    return FairPlace(name, QueuePart(namespace, first, stage.definition(plan.definition, kind)))


@attrs.define(init=False)
class FairLines:
    """What was read about the lines of a batch: accounts, and the turns that wait near those of its starts."""

    accounts: dict[FairKeyName, FairKey | None]
    """Locked. None for a key without a row."""
    highest: dict[FairKeyName, int]
    """The highest turn of any key of a line, by the line's name with an empty key."""
    waiting: dict[QueuePart, list[WaitingTurn]]
    """Ascending: the first one of the part, and the neighbours of the turns that are to be taken."""

    def __init__(self) -> None:
        self.accounts = {}
        self.highest = {}
        self.waiting = {}

    def copy(self) -> "FairLines":
        """Return a copy, for a decision that starts several runs."""
        other = FairLines()
        other.accounts.update(self.accounts)
        other.highest.update(self.highest)
        other.waiting.update((part, list(turns)) for part, turns in self.waiting.items())
        return other

    def next_turn(self, place: FairPlace) -> int:
        """Return the turn of the next start of a key.

        That of the first that waits, so that nothing is saved up, or the key's own next one, if that is later. If
        nobody waits, all keys begin anew at the highest turn so far.
        """
        account = self.accounts.get(place.name)
        waiting = self.waiting.get(place.part)
        line = FairKeyName(*place.name[:2], "")
        served = waiting[0].turn if waiting else self.highest.get(line, 0)
        return served if account is None else max(served, account.next_turn)

    def weight(self, place: FairPlace, given: int | None) -> int:
        """Return the weight of a start: the given one, or the last one of its key."""
        account = self.accounts.get(place.name)
        known = 1 if account is None else account.weight
        # A start with a weight out of range is refused, but only after its turn has been looked for.
        return min(max(known if given is None else given, 1), WEIGHT_MAX)

    def weighted(self, place: FairPlace, weight: int, now: Micros) -> tuple[Change, ...]:
        """Return the change that stores the weight of a key; without its account, no change."""
        if place.name not in self.accounts:
            return ()
        known = self.accounts[place.name]
        account = FairKey(
            namespace=place.name.namespace,
            line=place.name.line,
            key=place.name.key,
            next_turn=0 if known is None else known.next_turn,
            weight=weight,
            updated_at=now,
        )
        return (Insert(account),)

    def take(self, place: FairPlace, since: Micros, weight: int | None, now: Micros) -> Turn | None:
        """Return the turn of a run that waits since an instant; None if its account was not read."""
        if place.name not in self.accounts:
            return None
        number, own = self.next_turn(place), self.weight(place, weight)
        account = FairKey(
            namespace=place.name.namespace,
            line=place.name.line,
            key=place.name.key,
            next_turn=number + TURN // own,
            weight=own,
            updated_at=now,
        )
        return Turn(account, number, self._rank(place.part, number, since, now))

    def _rank(self, part: QueuePart, number: int, since: Micros, now: Micros) -> Micros:
        waiting = self.waiting.get(part, [])
        at = bisect_left(waiting, number, key=lambda one: one.turn)
        after = waiting[at] if at < len(waiting) else None
        before = waiting[at - 1] if at else None
        if after is None:
            later = since if before is None else max(since, before.since + SPACING)
            return later if later <= now + AHEAD_MAX else since
        if before is None or after.turn == number or after.since <= before.since:
            return after.since
        share = (after.since - before.since) * (number - before.turn) // (after.turn - before.turn)
        return before.since + share

    def note(self, changes: Iterable[Change]) -> None:
        """Note the turns that a decision has taken."""
        for change in changes:
            if not isinstance(change, Insert):
                continue
            match change.record:
                case FairKey() as account:
                    self.accounts[account.name] = account
                case Job(turn=int(turn)) as job:
                    part = QueuePart(job.namespace, job.queue, job.definition)
                    since = waits_since(job.queue_position, job.priority)
                    insort(self.waiting.setdefault(part, []), WaitingTurn(turn, since))
                case _:
                    pass

    def wanted(self, starts: Iterable[tuple[FairPlace, int | None]]) -> list[PartTurn]:
        """Return the turns that these starts will take, in order, where others may wait on both sides of them."""
        ahead = self.copy()
        found: list[PartTurn] = []
        for place, weight in starts:
            turn = ahead.take(place, 0, weight, 0)
            waiting = self.waiting.get(place.part)
            if turn is None:
                continue
            ahead.accounts[place.name] = turn.account
            if waiting and turn.number > waiting[0].turn:
                found.append(PartTurn(place.part, turn.number))
        return found

    def add_neighbours(self, found: Mapping[PartTurn, TurnsAround]) -> None:
        """Add the jobs that wait on both sides of some turns."""
        for part in {place.part for place in found}:
            around = (one for place, both in found.items() if place.part == part for one in both)
            known = {*self.waiting.get(part, ()), *(one for one in around if one is not None)}
            self.waiting[part] = sorted(known)


def with_turn(changes: Iterable[Change], run: str, turn: Turn | None) -> tuple[Change, ...]:
    """Return the changes that start a run, with its turn in its first job and in the account of its key."""
    if turn is None:
        return tuple(changes)
    first = (
        Insert(evolve(change.record, turn=turn.number))
        if isinstance(change, Insert)
        and isinstance(change.record, Job)
        and (change.record.run, change.record.number) == (run, 1)
        else change
        for change in changes
    )
    return (*first, Insert(turn.account))
