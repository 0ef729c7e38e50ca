"""Acts on many runs: finds them page by page, and sends one command for each; a page is one transaction."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeAlias

import attrs

from holdfast.hosts.inspection.filters import FilterOptions, checked_limit, run_filter
from holdfast.hosts.wiring.services import Core
from holdfast.kernel.commands import (
    RunCancel,
    RunEnded,
    RunPause,
    RunPaused,
    RunRemove,
    RunRemoved,
    RunRerun,
    RunRerunFrom,
    RunResume,
    RunTerminate,
)
from holdfast.ports.clock import micros
from holdfast.ports.errors import CommandError, InvalidFilterError
from holdfast.ports.persistence import ListRuns, RunFilter
from holdfast.ports.records import ACTIVE, HELD, TERMINAL, Run, RunStatus

AT_ONCE: Final = 500
"""How many runs are changed in one transaction, at most."""
RERUNS_AT_ONCE: Final = 100
"""Of reruns fewer: each carries what its run was given."""
REMOVALS_AT_ONCE: Final = 100
"""Of removals too: each takes as many rows as its run has."""
REFUSALS_MAX: Final = 10
"""How many of the runs that were refused are named."""

ManyCommand: TypeAlias = RunCancel | RunTerminate | RunPause | RunResume | RunRerunFrom | RunRemove
Answer: TypeAlias = RunEnded | RunPaused | RunRerun | RunRemoved | CommandError


@attrs.frozen(kw_only=True)
class Refusal:
    """A run that was left as it was, and why."""

    id: str
    code: str
    message: str


@attrs.frozen(kw_only=True)
class BulkResult:
    """What became of many runs.

    Attributes:
        changed: How many were changed.
        unchanged: How many were so already, or became something else meanwhile, and were left as they are.
        refused: How many were refused.
        refusals: The first ten of these, and why.
    """

    changed: int = 0
    unchanged: int = 0
    refused: int = 0
    refusals: tuple[Refusal, ...] = ()

    @property
    def seen(self) -> int:
        """How many there were in all."""
        return self.changed + self.unchanged + self.refused

    def with_page(self, runs: "list[Run] | tuple[Run, ...]", answers: list[Answer]) -> "BulkResult":
        """Return the same with what became of some more."""
        refusals = [
            Refusal(id=run.id, code=answer.code, message=str(answer))
            for run, answer in zip(runs, answers, strict=True)
            if isinstance(answer, CommandError)
        ]
        changed = sum(_has_changed(answer) for answer in answers)
        return BulkResult(
            changed=self.changed + changed,
            unchanged=self.unchanged + len(answers) - len(refusals) - changed,
            refused=self.refused + len(refusals),
            refusals=(*self.refusals, *refusals)[:REFUSALS_MAX],
        )


@attrs.frozen(kw_only=True)
class Action:
    """Something that can be done to runs.

    Attributes:
        name: What it is called: `cancel`.
        of: The statuses of the runs to which it can be done.
        default_statuses: Those of the runs to which it is done if no status is asked for.
        at_once: To how many in one transaction.
    """

    name: str
    of: frozenset[RunStatus]
    default_statuses: frozenset[RunStatus]
    at_once: int = AT_ONCE


CANCEL: Final = Action(name="cancel", of=ACTIVE, default_statuses=ACTIVE)
TERMINATE: Final = Action(name="terminate", of=ACTIVE, default_statuses=ACTIVE)
_CAN_PAUSE: Final = ACTIVE - {RunStatus.PAUSED, RunStatus.CANCELLING}
PAUSE: Final = Action(name="pause", of=_CAN_PAUSE, default_statuses=_CAN_PAUSE)
# What is blocked needs somebody who has looked: it is resumed when it is asked for.
RESUME: Final = Action(name="resume", of=HELD, default_statuses=frozenset({RunStatus.PAUSED}))
RERUN: Final = Action(
    name="run again",
    of=frozenset(RunStatus),
    default_statuses=frozenset({RunStatus.FAILED}),
    at_once=RERUNS_AT_ONCE,
)


REMOVE: Final = Action(name="remove", of=TERMINAL, default_statuses=TERMINAL, at_once=REMOVALS_AT_ONCE)


def chosen_runs(core: Core, action: Action, options: FilterOptions, where: str) -> RunFilter:
    """Return to which runs something is to be done: newest generations, of statuses to which it can be done.

    Only those that there are now: what is created from now on does not count, or there might be no end of it.
    InvalidFilterError if there can be none.
    """
    which = run_filter(core.namespace, options, where)
    statuses = (which.statuses & action.of) if which.statuses else action.default_statuses
    if not statuses:
        requested = " or ".join(sorted(which.statuses))
        possible = ", ".join(sorted(action.of))
        raise InvalidFilterError("status", f"is {requested}; to {action.name} a run, it must be {possible}")
    core.connect()
    now = micros(core.clock.now()) + 1
    before = now if which.created_before is None else min(now, which.created_before)
    return attrs.evolve(which, statuses=statuses, created_before=before, newest=True)


def act_on_all(
    core: Core,
    action: Action,
    which: RunFilter,
    command: Callable[[Run], ManyCommand],
    *,
    limit: int | None = None,
    on_page: Callable[[BulkResult], None] = lambda _: None,
) -> BulkResult:
    """Do something to all these runs, oldest first, and return what became of them.

    `told` is called after each page. If it ends half-way, the pages until then are done; to repeat it does no harm.
    """
    result = BulkResult()
    for page in _pages(core, which, action.at_once, checked_limit(limit)):
        answers: list[Answer] = list(core.kernel.dispatch_many([command(run) for run in page]))
        core.follow_up(*answers)
        result = result.with_page(page, answers)
        on_page(result)
    return result


def command_for(
    action: Action, *, reason: str = "", stage: str | None = None, version: str | None = None
) -> Callable[[Run], ManyCommand]:
    """Return what gives the command for a run: for this generation of it, whatever becomes of it meanwhile."""
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
    return lambda run: steering(
        action, namespace=run.namespace, run_id=run.id, generation=run.generation, reason=reason
    )


def steering(
    action: Action, *, namespace: str, run_id: str, reason: str, generation: int | None = None
) -> RunCancel | RunTerminate | RunPause | RunResume:
    """Return the command that does this to one run: any of CANCEL, TERMINATE, PAUSE and RESUME."""
    return _KINDS[action.name](namespace=namespace, run_id=run_id, generation=generation, reason=reason)


_KINDS: Final[Mapping[str, type[RunCancel] | type[RunTerminate] | type[RunPause] | type[RunResume]]] = {
    CANCEL.name: RunCancel,
    TERMINATE.name: RunTerminate,
    PAUSE.name: RunPause,
    RESUME.name: RunResume,
}


def _pages(core: Core, which: RunFilter, size: int, limit: int | None) -> Iterator[tuple[Run, ...]]:
    """Yield runs, each once: a page goes on where the last one ended, whatever became of the runs of that."""
    after, left = None, limit
    while left is None or left > 0:
        wanted = size if left is None else min(size, left)
        query = ListRuns(which, after=after, oldest_first=True, limit=wanted)
        page = core.stores.persistence.read(query)
        if page:
            yield page
        if len(page) < wanted:
            return
        after, left = page[-1].place, None if left is None else left - wanted


def _has_changed(answer: Answer) -> bool:
    match answer:
        case RunEnded(changed=changed) | RunPaused(changed=changed):
            return changed
        case RunRerun(started=started):
            return started
        case RunRemoved(removed=removed):
            return removed
        case CommandError():
            return False
