"""Runs as immutable records: one row for each generation."""

from enum import StrEnum
from typing import Final, NamedTuple, cast

import attrs

from holdfast.ports.json import parse
from holdfast.ports.pagination import ListPlace
from holdfast.ports.records.gatherings import ROWS_KEPT, GatheredStarts, gathered_from
from holdfast.ports.records.limits import (
    ConcurrencyPlan,
    RateName,
    RunRatePlan,
    SlotName,
    WhenFull,
    levels_of,
    run_slot,
)
from holdfast.ports.records.values import Micros
from holdfast.ports.references import KeptRows, Reference, kept_rows_from
from holdfast.ports.structs import frozen


class RunStatus(StrEnum):
    """The state of a run. `pending` waits for admission, `blocked` for an operator or for other code."""

    PENDING = "pending"
    RUNNING = "running"
    PAUSED = "paused"
    BLOCKED = "blocked"
    CANCELLING = "cancelling"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


TERMINAL: Final = frozenset({RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED})


def end_of(status: RunStatus) -> str:
    """Return the end of a run with a terminal status as a clause after "the run", for messages."""
    return "was cancelled" if status is RunStatus.CANCELLED else f"has already {status.value}"


ACTIVE: Final = frozenset(RunStatus) - TERMINAL


HELD: Final = frozenset({RunStatus.PAUSED, RunStatus.BLOCKED})
"""Statuses in which nothing of a run starts, because its jobs are paused, until it is resumed."""


GATHERING: Final = frozenset({RunStatus.PENDING, RunStatus.PAUSED})
"""Statuses in which a run may gather starts: it has not begun."""


class ClosePolicy(StrEnum):
    """What happens to a child run when its parent ends first."""

    CANCEL = "cancel"
    TERMINATE = "terminate"
    ABANDON = "abandon"


@frozen(kw_only=True)
class GivenOptions:
    """The options of a run that its caller sets.

    None: the default of its workflow; without one, what its parent has, but for its deadline.
    """

    queue: str | None = None
    priority: int | None = None
    attributes: str | None = None
    """JSON text of an object of strings."""
    headers: str | None = None
    """JSON text of an object of strings: all headers of the run, those of its parent included."""
    start_at: Micros | None = None
    """Instant before which the run stays pending."""
    deadline: Micros | None = None
    """Microseconds from its start after which it fails."""
    concurrency: ConcurrencyPlan | None = None
    """Its concurrency limit."""
    weight: int | None = None
    """How many turns its key gets for each one of a key of weight 1; None: as many as before."""
    rate: RunRatePlan | None = None
    """The rate of starts that it counts against."""
    units: int | None = None
    """How many units of that rate it costs."""


NO_OPTIONS: Final = GivenOptions()


class RunName(NamedTuple):
    """The public name of a run."""

    namespace: str
    id: str
    """The run id, unique in its namespace."""


def attribute_texts(attributes: str | None) -> dict[str, str]:
    """Return a run's attributes by name, leaving out values that are not texts."""
    if not attributes:
        return {}
    try:
        found = parse(attributes)
    except (ValueError, RecursionError):
        return {}
    items = cast("dict[str, object]", found).items() if isinstance(found, dict) else ()
    return {name: text for name, text in items if isinstance(text, str)}


def outer_limits_from(text: str) -> tuple[int, ...]:
    """Return the limits in the JSON text of `Run.concurrency_outer`. ValueError for anything else."""
    found = parse(text)
    limits = cast("list[object]", found) if isinstance(found, list) else [None]
    if not all(type(limit) is int and limit >= 0 for limit in limits):
        raise ValueError(f"expected a list of limits, not {text[:100]!r}")
    return tuple(cast("list[int]", limits))


def outer_limits_of_waiter(text: str | None) -> tuple[int, ...]:
    """Return the limits in `Run.concurrency_outer`, or none if they are damaged: the run must still be found."""
    try:
        return () if text is None else outer_limits_from(text)
    except (ValueError, TypeError, RecursionError):
        return ()


@frozen(kw_only=True)
class Run:
    """One generation of a run.

    `key`, the name, `workflow`, `created_at`, `attributes`, `headers`, `deadline`, and the fields about reruns,
    concurrency and its rate never change; `queue_position` only as the run is admitted, or gathers nothing more.
    """

    key: str
    """The key of this generation, which all its rows refer to."""
    namespace: str
    """Together with `id`, the name that users see."""
    id: str
    generation: int
    """1 for the first; a rerun or continue-as-new adds one."""
    workflow: str
    version: str
    """The version of the workflow's code that it runs."""
    plan: str
    """The fingerprint of its plan."""
    status: RunStatus
    queue: str
    """The queue of its jobs, unless a stage names another."""
    priority: int
    created_at: Micros
    updated_at: Micros
    ended_at: Micros | None = None
    """None until it has ended."""
    last_row: int = 0
    """The highest number used so far in its history."""
    last_job: int = 0
    """The highest job number used so far; 0 before admission."""
    open_jobs: int = 0
    """How many jobs it has that keep it going (see `Job.outlives_run`)."""
    progress: str = "{}"
    """JSON text: how far its plan has got."""
    result: str | None = None
    """A reference to its output. A completed run without one continues as the next generation."""
    error: str | None = None
    """JSON text of why it failed or was cancelled; while a function cleans up, of why it will have."""
    attributes: str | None = None
    """JSON text: an object of texts, by which runs are found."""
    rerun_of: str | None = None
    """The key of the generation that this one runs again."""
    rerun_from: str | None = None
    """The stage that the rerun starts with; of a function, the call or history row. None for the beginning."""
    inherited: str | None = None
    """JSON text, set in a rerun.

    Of a pipeline, an object: references to the outputs of stages that it does not run again, by name. Of a function, a
    list: the rows of earlier generations that precede its own (see `KeptRows`), whose numbers continue theirs.
    """
    start_at: Micros | None = None
    """The run stays pending until then; None again once it has passed."""
    deadline: Micros | None = None
    """If it has not ended by then, it fails; a function first gets to clean up."""
    concurrency_key: str | None = None
    """Limits how many runs of the namespace with this key are admitted at a time."""
    concurrency_limit: int | None = None
    """How many that is."""
    concurrency_waiting: int | None = None
    """How many runs with this key may wait beside them, if it was started under a bound; a rerun obeys it again."""
    concurrency_full: WhenFull | None = None
    """What its start did if more runs were open; None without a bound."""
    concurrency_outer: str | None = None
    """JSON text of a list: the limits of the outer levels of its concurrency key, the outermost first; None without."""
    parent: str | None = None
    """The id of the job in the parent run that waits for its end; None unless it is a child run."""
    parent_run: str | None = None
    """The id of that parent run, which its function may know; None unless it is a child run."""
    close_policy: ClosePolicy = ClosePolicy.CANCEL
    """What happens to it when its parent ends first."""
    children: int = 0
    """How many child runs it has started."""
    queue_position: Micros = 0
    """Its rank among the runs that wait for admission: lowest first (see `rank_of`)."""
    mailbox: str | None = None
    """JSON text of its unread messages and closed channels (see `Mailbox`)."""
    scheduled: str | None = None
    """JSON text of an object: the schedule that started the run, and the nominal time; None without a schedule."""
    reported_row: int = 0
    """Of a durable function: the last history row up to which the output of its code, such as its log, is stored."""
    gathered: str | None = None
    """JSON text of an object: the starts that joined it while it was pending (see `GatheredStarts`); None if it does
    not gather."""
    rate_key: str | None = None
    """The name of the rate of starts that it counts against, `run-rate:<name>`; None without one."""
    rate_limit: int | None = None
    """How many units may start in any span of `rate_period`."""
    rate_period: Micros | None = None
    rate_units: int | None = None
    """How many of these units it costs."""
    rate_counted_at: Micros | None = None
    """When its start was counted; None before that, and without a rate. A retry of the whole run keeps it."""
    in_rate_line: int = 0
    """1 while it waits for that rate, and no longer in the line for a slot; else 0."""
    headers: str | None = None
    """JSON text: an object of texts, which its steps and child runs have too, and by which nothing is found."""

    @property
    def name(self) -> RunName:
        """The name that users see."""
        return RunName(self.namespace, self.id)

    @property
    def kept_rows(self) -> tuple[KeptRows, ...]:
        """The rows of earlier generations that its history begins with; empty unless it is the fork of a function."""
        return kept_rows_from(self.inherited)

    def holder_of(self, number: int) -> str:
        """Return the key of the generation that stores the history row of this number: this one, or an earlier one."""
        kept = self.kept_rows
        return next((part.run for part in kept if number <= part.last), self.key)

    @property
    def first_row(self) -> int:
        """The number of the first history row of its own, which holds its input, or the first one that it gathered."""
        kept = self.kept_rows
        return kept[-1].last + 1 if kept else 1

    @property
    def gathered_starts(self) -> GatheredStarts | None:
        """The starts that it has gathered; None if it does not gather."""
        return None if self.gathered is None else gathered_from(self.gathered)

    @property
    def is_gathering(self) -> bool:
        """Whether starts may still join it."""
        gathered = self.gathered_starts
        return gathered is not None and gathered.is_open and self.status in GATHERING

    @property
    def input(self) -> Reference:
        """The reference to its input. If `has_list_of_inputs`, it is the list of the inputs of all starts."""
        gathered = self.gathered_starts
        return self.first_row if gathered is None else gathered.input

    @property
    def has_list_of_inputs(self) -> bool:
        """Whether its input is joined from those of several starts (see `joined_input`)."""
        gathered = self.gathered_starts
        return gathered is not None and gathered.keep == ROWS_KEPT

    @property
    def is_admitted(self) -> bool:
        """Whether it was ever admitted. If not, it is pending, or was paused, blocked or ended before its admission."""
        return self.last_job > 0

    @property
    def is_ending(self) -> bool:
        """Whether its function is to end and has not yet: it is cleaning up, or blocked while doing so."""
        return self.status in ACTIVE and self.error is not None

    @property
    def is_continued(self) -> bool:
        """Whether its function has continued as the next generation: it is completed, without a result."""
        return self.status is RunStatus.COMPLETED and self.result is None

    @property
    def is_retried(self) -> bool:
        """Whether it failed and the next generation is the next attempt (docs/decisions/0076)."""
        is_failed = self.status is RunStatus.FAILED and self.error is not None
        return is_failed and "retry_at" in cast("dict[str, object]", parse(self.error or "{}"))

    @property
    def has_successor(self) -> bool:
        """Whether the same commit ended it and stored its next generation: whatever waits for it waits for that."""
        return self.is_continued or self.is_retried

    @property
    def slot(self) -> SlotName | None:
        """The concurrency limit that it needs a slot of; None if it needs none."""
        return None if self.concurrency_key is None else run_slot(self.namespace, self.concurrency_key)

    @property
    def slots(self) -> tuple[SlotName, ...]:
        """All concurrency limits that it needs a slot of at once, the outermost first; the last one is `slot`."""
        key = self.concurrency_key
        return () if key is None else tuple(run_slot(self.namespace, level) for level in levels_of(key))

    @property
    def outer_limits(self) -> tuple[int, ...]:
        """The limits of the outer levels, the outermost first. ValueError if they are damaged."""
        return () if self.concurrency_outer is None else outer_limits_from(self.concurrency_outer)

    @property
    def rate(self) -> RateName | None:
        """The rate of starts that it counts against; None without one."""
        return None if self.rate_key is None else RateName(self.namespace, self.rate_key)

    @property
    def waits_for_rate(self) -> bool:
        """Whether its start has yet to be counted against its rate, so that it waits for that before it begins."""
        return self.rate_key is not None and self.rate_counted_at is None

    @property
    def has_slot(self) -> bool:
        """Whether it holds its slots. Only ending releases them."""
        is_under_way = self.status in ACTIVE and self.status is not RunStatus.PENDING
        return self.concurrency_key is not None and self.is_admitted and is_under_way

    @property
    def counts_for_starts(self) -> bool:
        """Whether it counts against the bound on starts with its concurrency key: it is open and not ending."""
        return self.concurrency_key is not None and self.status in ACTIVE and self.error is None

    @property
    def place(self) -> ListPlace:
        """The position in lists of runs."""
        return ListPlace(self.created_at, self.key)


def blocked_run(run: Run, now: Micros, last_row: int) -> Run:
    """Return a run blocked because rows of it can't be read. One that has ended keeps its status."""
    return attrs.evolve(
        run,
        status=run.status if run.status in TERMINAL else RunStatus.BLOCKED,
        close_policy=run.close_policy if run.close_policy in set(ClosePolicy) else ClosePolicy.CANCEL,
        concurrency_full=run.concurrency_full if run.concurrency_full in set(WhenFull) else None,
        updated_at=now,
        last_row=last_row,
    )
