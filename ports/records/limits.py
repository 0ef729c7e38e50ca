"""Concurrency slots, rate windows, and limits that were changed while running, by name."""

from enum import StrEnum
from typing import Final, NamedTuple

from holdfast.ports.actors import Actor
from holdfast.ports.records.values import Micros
from holdfast.ports.structs import frozen


class SlotName(NamedTuple):
    """The name of a concurrency limit."""

    namespace: str
    name: str
    """`run:<concurrency key>` or `stage:<workflow>/<stage>`; `start:<concurrency key>` orders bounded starts."""


class RateName(NamedTuple):
    """The name of a rate limit."""

    namespace: str
    name: str
    """The concurrency key of the jobs that share the limit; for starts of runs `run-rate:<name>`."""


class FairKeyName(NamedTuple):
    """The name of a key among which the runs of a line share workers. Sorts in the order in which keys are locked."""

    namespace: str
    line: str
    """`<workflow>/<queue>`."""
    key: str
    """The text of the attribute, or its hash if it is long; "" for runs without the attribute."""


class WhenFull(StrEnum):
    """What a start does if, with it, more runs of its concurrency key would be open than its bound allows."""

    WAIT = "wait"
    """There is no bound: the run waits."""
    REFUSE = "refuse"
    """The start is refused."""
    RETURN = "return"
    """The newest open run of the key is returned."""
    REPLACE = "replace"
    """The oldest run that waits is superseded."""
    CANCEL = "cancel"
    """The oldest run under way is cancelled and cleans up. If none is under way, the oldest one that waits is
    superseded."""
    TERMINATE = "terminate"
    """The oldest run under way ends at once. If none is under way, the oldest one that waits is superseded."""


ENDING_OLDER: Final = frozenset({WhenFull.REPLACE, WhenFull.CANCEL, WhenFull.TERMINATE})
"""What ends older runs to make way for a new one."""


LEVELS_MAX: Final = 3
"""How many concurrency limits a run can be under, one within the other."""
BETWEEN_LEVELS: Final = " :: "
"""What separates the levels of a concurrency key, the outermost first. No level contains it."""
BEYOND_LEVEL: Final = " ::!"
"""The first text after all texts that begin with `BETWEEN_LEVELS`."""


@frozen(kw_only=True)
class OuterLevel:
    """A concurrency limit around another one. Either `key` or `by` is set, as in a `ConcurrencyPlan`."""

    key: str | None = None
    by: str | None = None
    limit: int = 1
    """Maximum number of runs under way of all keys within it."""


def levels_of(key: str) -> tuple[str, ...]:
    """Return the concurrency keys of all levels of a key, the outermost first: the last one is the key itself."""
    if BETWEEN_LEVELS not in key:
        return (key,)
    parts = key.split(BETWEEN_LEVELS)
    return tuple(BETWEEN_LEVELS.join(parts[:many]) for many in range(1, len(parts) + 1))


def is_within(key: str, level: str) -> bool:
    """Return whether the runs of a concurrency key count at a level: it is the key, or one around it."""
    return key == level or key.startswith(f"{level}{BETWEEN_LEVELS}")


@frozen(kw_only=True)
class ConcurrencyPlan:
    """The concurrency limit of a workflow's runs, or of one child run. Either `key` or `by` is set."""

    key: str | None = None
    """The concurrency key, which all of these runs share."""
    by: str | None = None
    """An attribute: each of its texts is a separate key of the workflow. A run without the attribute has no key."""
    limit: int = 1
    """Maximum number of runs of the key that are under way."""
    waiting: int | None = None
    """Maximum number of runs of the key that wait; None without a bound."""
    full: WhenFull = WhenFull.WAIT
    within: tuple[OuterLevel, ...] = ()
    """The limits around it, the outermost first. A level by an attribute that the run lacks is left out."""


class OverRate(StrEnum):
    """What a start does if its rate does not allow it now."""

    WAIT = "wait"
    """The run waits in the line of the rate."""
    REFUSE = "refuse"
    """The start is refused."""


@frozen(kw_only=True)
class RunRatePlan:
    """The rate of starts of a workflow's runs, or of one child run (docs/decisions/0089)."""

    limit: int
    """How many units may start in any span of `period`."""
    period: Micros
    """Microseconds."""
    name: str | None = None
    """Runs of the namespace whose rates have this name share the limit; None: the name of the workflow."""
    by: str | None = None
    """An attribute: the limit is counted separately for each text that runs have in it."""
    units: str | None = None
    """An attribute whose text is the number of units that a run costs; None, or without the attribute: 1."""
    over: OverRate = OverRate.WAIT


class LimitName(NamedTuple):
    """The name of a limit that can be changed while running, or of a queue that can be paused."""

    namespace: str
    name: str
    """`run:<concurrency key>`, `run-rate:<name>`, `stage:<workflow>/<stage>`, `step:<step>`, `slots:<name>`,
    `rate:<name>` or `queue:<queue>`.

    `/<text>` after a stage, a step or the name of a rate limits the jobs or runs whose attribute has that text.
    """


_START_SLOT: Final = "start:"


_RUN_SLOT: Final = "run:"


_STAGE_SLOT: Final = "stage:"


@frozen(kw_only=True)
class RateWindow:
    """The recent starts that count against one rate limit: claims of jobs, or units of runs (docs/decisions/0023)."""

    namespace: str
    name: str
    starts: str = "{}"
    """JSON text of an object: `at` lists instants, each with the number of claims then; `span` is the longest
    `rate_period` of these jobs, in microseconds. Claims older than that are dropped.
    """
    wakes_at: Micros | None = None
    """When the first waiting job wakes; None if none waits."""
    admits_at: Micros | None = None
    """When the first waiting run may begin, as was known last; None if no run waits."""
    updated_at: Micros

    @property
    def rate_name(self) -> RateName:
        """The key in the store."""
        return RateName(self.namespace, self.name)


@frozen(kw_only=True)
class FairKey:
    """The account of one key: when it has its next turn, counted in turns and not in time (docs/decisions/0085)."""

    namespace: str
    line: str
    key: str
    next_turn: int
    """The earliest turn of its next start. A turn of weight 1 is `TURN` long."""
    weight: int = 1
    """The last weight that a start has given it."""
    updated_at: Micros

    @property
    def name(self) -> FairKeyName:
        """The key in the store."""
        return FairKeyName(self.namespace, self.line, self.key)


@frozen(kw_only=True)
class LimitRow:
    """The setting of an operator for one limit, or one queue, in place of that of plans.

    A row without any of it was cleared: its actor is who did that, and slots may still be taken by an earlier limit.
    """

    namespace: str
    name: str
    """See `LimitName.name`."""
    slots: int | None = None
    """How many may be under way; None: that of the plan."""
    rate_limit: int | None = None
    """How many may start in any span of `rate_period`; None: that of the plan."""
    rate_period: Micros | None = None
    is_paused: int = 0
    """1 if nothing is claimed from the queue, else 0."""
    reason: str = ""
    """Why, for people."""
    actor_kind: str = ""
    """Who set it: the parts of an `Actor`."""
    actor_id: str = ""
    actor_version: str = ""
    updated_at: Micros

    @property
    def limit_name(self) -> LimitName:
        """The key in the store."""
        return LimitName(self.namespace, self.name)

    @property
    def is_in_force(self) -> bool:
        """Whether anything is set."""
        return self.slots is not None or self.rate_limit is not None or self.is_paused != 0

    @property
    def actor(self) -> Actor | None:
        """Who set it; None if unknown."""
        actor = Actor(self.actor_kind, self.actor_id, self.actor_version)
        return actor if actor.text else None


_RUN_LIMIT: Final = "run:"


QUEUE_LIMIT: Final = "queue:"
"""The start of the names of queues among those of limits."""


def run_limit(namespace: str, key: str) -> LimitName:
    """Return the name of the limit of the runs with a concurrency key."""
    return LimitName(namespace, f"{_RUN_LIMIT}{key}")


def queue_limit(namespace: str, queue: str) -> LimitName:
    """Return the name under which a queue is paused."""
    return LimitName(namespace, f"{QUEUE_LIMIT}{queue}")


def run_slot(namespace: str, key: str) -> SlotName:
    """Return the name of the limit for runs with a concurrency key."""
    return SlotName(namespace, f"{_RUN_SLOT}{key}")


def stage_slot(namespace: str, key: str) -> SlotName:
    """Return the name of the limit for jobs with a concurrency key, `<workflow>/<stage>`."""
    return SlotName(namespace, f"{_STAGE_SLOT}{key}")


def start_slot(namespace: str, key: str) -> SlotName:
    """Return the name of the row that starts with a concurrency key lock if their number is bounded."""
    return SlotName(namespace, f"{_START_SLOT}{key}")
