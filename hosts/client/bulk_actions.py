"""Bulk actions (cancel, pause, rerun, remove and so on): pages through runs and dispatches one command per run.

Each page is one transaction.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

import attrs

from holdfast.hosts.execution.dispatcher import Dispatcher
from holdfast.hosts.inspection.filters import FilterOptions, checked_limit, run_filter
from holdfast.hosts.wiring.pages import pages_of, place_of
from holdfast.hosts.wiring.services import Core
from holdfast.kernel.commands import (
    RunCancel,
    RunPause,
    RunPaused,
    RunRemove,
    RunRemoved,
    RunRerun,
    RunRerunFrom,
    RunResume,
    RunStopped,
    RunTerminate,
)
from holdfast.ports.clock import micros
from holdfast.ports.errors import CommandError, InvalidFilterError
from holdfast.ports.pagination import ListPlace
from holdfast.ports.queries.runs import ListRuns, RunFilter
from holdfast.ports.records.run import ACTIVE, HELD, TERMINAL, Run, RunStatus

AT_ONCE: Final = 500
"""The maximum number of runs changed in one transaction."""
RERUNS_AT_ONCE: Final = 100
"""The same for reruns, which carry the input of each run."""
REMOVALS_AT_ONCE: Final = 100
"""The same for removals, which delete all rows of each run."""
REFUSALS_MAX: Final = 10
"""How many refusals a `BulkResult` lists."""

ManyCommand: TypeAlias = RunCancel | RunTerminate | RunPause | RunResume | RunRerunFrom | RunRemove
Answer: TypeAlias = RunStopped | RunPaused | RunRerun | RunRemoved | CommandError


@attrs.frozen(kw_only=True)
class Refusal:
    """A run on which a bulk action was refused."""

    id: str
    """The run id."""
    code: str
    """The `code` of the error."""
    message: str
    """The reason, for people."""


@attrs.frozen(kw_only=True)
class BulkResult:
    """The result of a bulk action.

    Attributes:
        changed: How many runs were changed.
        unchanged: How many runs already had the requested state, or changed otherwise in the meantime.
        refused: How many runs could not be changed.
        refusals: The first ten refused runs, with the reasons.
    """

    changed: int = 0
    unchanged: int = 0
    refused: int = 0
    refusals: tuple[Refusal, ...] = ()

    @property
    def seen(self) -> int:
        """The total number of runs."""
        return self.changed + self.unchanged + self.refused

    def with_page(self, runs: Sequence[Run], answers: list[Answer]) -> "BulkResult":
        """Return this result plus the replies for a page of runs."""
        refusals = tuple(
            Refusal(id=run.id, code=answer.code, message=str(answer))
            for run, answer in zip(runs, answers, strict=True)
            if isinstance(answer, CommandError)
        )
        changed, refused = sum(_has_changed(answer) for answer in answers), len(refusals)
        unchanged = len(answers) - refused - changed
        return self.plus(BulkResult(changed=changed, unchanged=unchanged, refused=refused, refusals=refusals))

    def plus(self, other: "BulkResult") -> "BulkResult":
        """Return both results as one, with the first refusals."""
        return BulkResult(
            changed=self.changed + other.changed,
            unchanged=self.unchanged + other.unchanged,
            refused=self.refused + other.refused,
            refusals=(*self.refusals, *other.refusals)[:REFUSALS_MAX],
        )


@attrs.frozen(kw_only=True)
class Action:
    """An action on runs.

    Attributes:
        name: The verb, as in `cancel`.
        of: The statuses of the runs that allow the action.
        default_statuses: The statuses to act on if the caller filters neither by status nor by ids.
        named_statuses: The statuses to act on if the caller gives ids and no status.
        at_once: The maximum number of runs in one transaction.
    """

    name: str
    of: frozenset[RunStatus]
    default_statuses: frozenset[RunStatus]
    named_statuses: frozenset[RunStatus]
    at_once: int = AT_ONCE


CANCEL: Final = Action(name="cancel", of=ACTIVE, default_statuses=ACTIVE, named_statuses=ACTIVE)
TERMINATE: Final = Action(name="terminate", of=ACTIVE, default_statuses=ACTIVE, named_statuses=ACTIVE)
_CAN_PAUSE: Final = ACTIVE - {RunStatus.PAUSED, RunStatus.CANCELLING}
PAUSE: Final = Action(name="pause", of=_CAN_PAUSE, default_statuses=_CAN_PAUSE, named_statuses=_CAN_PAUSE)
# Blocked runs need an operator's attention, so they are resumed only with status="blocked", or by their ids.
RESUME: Final = Action(
    name="resume", of=HELD, default_statuses=frozenset({RunStatus.PAUSED}), named_statuses=HELD
)
RERUN: Final = Action(
    name="run again",
    of=frozenset(RunStatus),
    default_statuses=frozenset({RunStatus.FAILED}),
    named_statuses=TERMINAL,  # an active run would lose its work
    at_once=RERUNS_AT_ONCE,
)


REMOVE: Final = Action(
    name="remove",
    of=TERMINAL,
    default_statuses=TERMINAL,
    named_statuses=TERMINAL,
    at_once=REMOVALS_AT_ONCE,
)


def action_filter(core: Core, action: Action, options: FilterOptions, where: str) -> RunFilter:
    """Return the filter for the runs to act on: newest generations, with statuses that allow the action.

    Only runs that exist now match; otherwise a bulk action could run for ever. Raises InvalidFilterError if the
    statuses asked for exclude the action.
    """
    which = run_filter(core.namespace, options, where)
    unnamed = action.named_statuses if which.ids else action.default_statuses
    statuses = (which.statuses & action.of) if which.statuses else unnamed
    if not statuses:
        requested = " or ".join(sorted(which.statuses))
        possible = ", ".join(sorted(action.of))
        raise InvalidFilterError("status", f"is {requested}; to {action.name} a run, it must be {possible}")
    core.connect()
    now = micros(core.clock.now()) + 1
    before = now if which.created_before is None else min(now, which.created_before)
    return attrs.evolve(which, statuses=statuses, created_before=before, newest=True)


def apply_to_all(
    dispatcher: Dispatcher,
    action: Action,
    which: RunFilter,
    command: Callable[[Run], ManyCommand],
    *,
    limit: int | None = None,
    on_page: Callable[[BulkResult], None] = lambda _: None,
) -> BulkResult:
    """Apply an action to all runs that match, oldest first, and return the result.

    `on_page` is called with the result so far after each page. If an error interrupts the call, the earlier pages are
    stored; it is safe to repeat the call.
    """
    result = BulkResult()

    def read(after: ListPlace | None, wanted: int) -> Sequence[Run]:
        query = ListRuns(which, after=after, oldest_first=True, limit=wanted)
        return dispatcher.core.stores.persistence.read(query)

    for page in filter(None, pages_of(read, action.at_once, None, checked_limit(limit), place_of)):
        answers: list[Answer] = list(dispatcher.dispatch_many([command(run) for run in page]))
        result = result.with_page(page, answers)
        on_page(result)
    return result


def apply_page(
    dispatcher: Dispatcher,
    action: Action,
    which: RunFilter,
    command: Callable[[Run], ManyCommand],
    *,
    after: ListPlace | None,
    limit: int,
) -> tuple[BulkResult, ListPlace | None]:
    """Apply an action to the next runs that match, oldest first, in one transaction.

    Return the result and, if there may be more, the position to continue after. It is at most `limit` runs, and no more
    than the action takes in one transaction.
    """
    wanted = min(limit, action.at_once)
    query = ListRuns(which, after=after, oldest_first=True, limit=wanted)
    runs = dispatcher.core.stores.persistence.read(query)
    if not runs:
        return BulkResult(), None
    answers: list[Answer] = list(dispatcher.dispatch_many([command(run) for run in runs]))
    return BulkResult().with_page(runs, answers), runs[-1].place if len(runs) == wanted else None


def command_for(
    action: Action, *, reason: str = "", stage: str | None = None, version: str | None = None
) -> Callable[[Run], ManyCommand]:
    """Return a factory of the command for a run. The command applies only to the generation it was built from."""
    if action is REMOVE:
        return lambda run: RunRemove(namespace=run.namespace, run_id=run.id, generation=run.generation)
    if action is RERUN:
        return lambda run: RunRerunFrom(
            namespace=run.namespace,
            run_id=run.id,
            generation=run.generation,
            stage=stage,
            version=version,
            reason=reason,
        )
    return lambda run: build_command(
        action, namespace=run.namespace, run_id=run.id, generation=run.generation, reason=reason
    )


def build_command(
    action: Action, *, namespace: str, run_id: str, reason: str, generation: int | None = None
) -> RunCancel | RunTerminate | RunPause | RunResume:
    """Return the command for one run, for one of the actions CANCEL, TERMINATE, PAUSE and RESUME."""
    return _KINDS[action.name](namespace=namespace, run_id=run_id, generation=generation, reason=reason)


_KINDS: Final[Mapping[str, type[RunCancel] | type[RunTerminate] | type[RunPause] | type[RunResume]]] = {
    CANCEL.name: RunCancel,
    TERMINATE.name: RunTerminate,
    PAUSE.name: RunPause,
    RESUME.name: RunResume,
}


def _has_changed(answer: Answer) -> bool:
    match answer:
        case RunStopped(changed=changed) | RunPaused(changed=changed):
            return changed
        case RunRerun(started=started):
            return started
        case RunRemoved(removed=removed):
            return removed
        case CommandError():
            return False
