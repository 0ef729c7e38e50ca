"""Check of new code against the runs that have not ended. Reads only.

It replays the histories of functions, and reads the stored input of each run's next work.
"""

from asyncio import CancelledError
from collections.abc import Iterator, Sequence
from enum import StrEnum
from itertools import chain
from typing import Any, Final, Literal, TypeAlias, cast, get_args

import attrs

from holdfast.hosts.execution.bodies import Bodies
from holdfast.hosts.execution.off_loop import run_off_loop
from holdfast.hosts.functions.history_document import RunHistory, read_history
from holdfast.hosts.functions.replay_check import ReplayResult, replay_here
from holdfast.hosts.wiring.pages import pages_of, place_of
from holdfast.hosts.wiring.registry import Authored
from holdfast.hosts.wiring.services import Core
from holdfast.kernel.authoring.calls import WorkflowDefinition
from holdfast.kernel.authoring.functions import Workflow
from holdfast.kernel.history import events
from holdfast.kernel.history.exceptions import error_words
from holdfast.kernel.history.reader import rows_of
from holdfast.kernel.pipelines.plan import Plan, stage_of
from holdfast.kernel.pipelines.progress import progress_from
from holdfast.kernel.rules.leases import attempt_of
from holdfast.kernel.values.stored_values import decode_recorded
from holdfast.ports.errors import (
    STORE_ERRORS,
    BlobCorruptError,
    BlobMissingError,
    HoldfastError,
    InvalidArgumentError,
    InvalidHistoryError,
    NoBlobStoreError,
    NondeterminismError,
    SchemaError,
    UnreadableValueError,
)
from holdfast.ports.pagination import ListPlace
from holdfast.ports.queries.runs import JobsOfRun, ListRuns, RunFilter
from holdfast.ports.queries.store import SchemaVersion
from holdfast.ports.records.job import JobKind
from holdfast.ports.records.run import ACTIVE, Run, RunStatus
from holdfast.ports.validation import TEXT, an, check, integer

RUNS_CHECKED_DEFAULT: Final = 1_000
"""The default number of runs to check."""
_PAGE: Final = 100

Sample: TypeAlias = Literal["both", "newest", "oldest"]
"""Which runs to check if there are more than the limit: the newest, the oldest, or half of each."""
_ELSEWHERE = (JobKind.WORKFLOW, JobKind.CANCEL, JobKind.DELIVER)
"""Kinds of jobs whose input is checked elsewhere, or never blocks a run."""


class UpgradeVerdict(StrEnum):
    """What the code would do with a run.

    `compatible`: the run continues. `diverges`: it would be blocked, because the code makes another call than the
    recorded one. `blocked`: it would be blocked for another reason. `fails`: it would fail, with an error that is not
    recorded. `no_code`: the engine does not have the workflow in this version. `unreadable`: its history or a value
    could not be read.
    """

    COMPATIBLE = "compatible"
    DIVERGES = "diverges"
    BLOCKED = "blocked"
    FAILS = "fails"
    NO_CODE = "no_code"
    UNREADABLE = "unreadable"


@attrs.frozen(kw_only=True)
class UpgradeCheck:
    """What the code would do with one run.

    Attributes:
        run_id: The run id.
        generation: The number of its generation, from 1.
        workflow: The name of its workflow.
        version: The version that it runs.
        verdict: What the code would do: `compatible`, `diverges`, `blocked`, `fails`, `no_code` or `unreadable`.
        message: The reason, for people.
        rows: Number of rows of its history.
        row: The row in which history and code differ, or that the code cannot read; None if there is no such row.
        call: The call of that row. This and the next two are as in `NondeterminismError`.
        recorded: What is recorded there, with its file and line.
        requested: What the code requests instead, with its file and line.
    """

    run_id: str
    generation: int
    workflow: str
    version: str
    verdict: UpgradeVerdict
    message: str
    rows: int
    row: int | None = None
    call: str | None = None
    recorded: str | None = None
    requested: str | None = None

    @property
    def is_compatible(self) -> bool:
        """Whether the run continues with this code."""
        return self.verdict is UpgradeVerdict.COMPATIBLE


def judge_history(history: RunHistory, code: WorkflowDefinition[Any] | None) -> UpgradeCheck:
    """Return the verdict on a history. Errors of the history or the code are not raised."""
    if code is None:
        return _no_code(history)
    if not isinstance(code, Workflow):
        return _upgrade(history, UpgradeVerdict.COMPATIBLE, "it is a pipeline, and keeps its plan")
    function = cast("Workflow[..., object]", code)
    try:
        replayed = run_off_loop(lambda: replay_here(history, function))
    except NondeterminismError as error:
        return attrs.evolve(
            _upgrade(history, UpgradeVerdict.DIVERGES, str(error)),
            row=error.row,
            call=error.call or None,
            recorded=error.recorded,
            requested=error.requested,
        )
    except InvalidHistoryError as error:
        return _upgrade(history, UpgradeVerdict.UNREADABLE, str(error))
    except HoldfastError as error:
        row = error.row if isinstance(error, UnreadableValueError) else None
        return attrs.evolve(_upgrade(history, UpgradeVerdict.BLOCKED, str(error)), row=row)
    except Exception as error:  # noqa: BLE001  # the same as in a driver: an error blocks its run only
        return _upgrade(history, UpgradeVerdict.BLOCKED, f"it can't be driven: {error_words(error)}")
    return _upgrade(history, _verdict(replayed), str(replayed))


def check_upgrade(
    core: Core,
    *,
    workflow: WorkflowDefinition[Any] | str | None = None,
    limit: int | None = RUNS_CHECKED_DEFAULT,
    sample: Sample = "both",
    known_only: bool = False,
) -> Iterator[UpgradeCheck]:
    """Check the runs that have not ended. See `SyncEngine.check_upgrade`."""
    check(
        "check_upgrade",
        an("a workflow, or the name of one", WorkflowDefinition, str).or_none,
        workflow=workflow,
    )
    check("check_upgrade", integer(1).or_none, limit=limit)
    check("check_upgrade", TEXT, sample=sample)
    if sample not in get_args(Sample):
        raise InvalidArgumentError("sample", f"sample is {sample!r}; it must be one of {get_args(Sample)}")
    name = workflow.name if isinstance(workflow, WorkflowDefinition) else workflow
    which = RunFilter(namespace=core.namespace, workflow=name, statuses=ACTIVE, newest=True)
    return _upgrades(core, which, limit, sample, known_only)


def _upgrades(
    core: Core, which: RunFilter, limit: int | None, sample: Sample, known_only: bool
) -> Iterator[UpgradeCheck]:
    if core.stores.persistence.read(SchemaVersion()) is None:
        raise SchemaError("the database has no tables of Holdfast's; run `holdfast db upgrade` first")
    for run in _sampled(core, which, limit, sample):
        if known_only and core.registry.find_workflow(run.workflow) is None:
            continue
        yield check_run(core, run)


def check_run(core: Core, run: Run) -> UpgradeCheck:
    """Return the verdict on a run. UnavailableError, and the other errors of `STORE_ERRORS`."""
    code = core.registry.find_workflow(run.workflow, run.version)
    if code is None:
        return _no_code(run)
    try:
        return _looked_at(core, run, code)
    except STORE_ERRORS:
        raise
    except UnreadableValueError as error:
        return attrs.evolve(_upgrade(run, UpgradeVerdict.BLOCKED, str(error)), row=error.row)
    except (BlobMissingError, BlobCorruptError, NoBlobStoreError, InvalidHistoryError) as error:
        return _upgrade(run, UpgradeVerdict.UNREADABLE, str(error))


def _looked_at(core: Core, run: Run, code: Authored) -> UpgradeCheck:
    if isinstance(code, Workflow):
        upgrade = judge_history(read_history(core, run), code)
        if upgrade.is_compatible and (error := _unreadable_input(core, run)) is not None:
            raise error
        return upgrade
    lacking = [name for name in core.inputs.plan(run.plan).nodes if name not in code.bodies]
    if lacking:
        message = f"the code of {run.workflow}@{run.version} has no stage {lacking[0]!r}, which the run's plan names"
        return _upgrade(run, UpgradeVerdict.NO_CODE, message)
    # A blocked run is resumed once the code reads its jobs' input: later stages are checked then.
    later = None if run.status is RunStatus.BLOCKED else _unreadable_later(core, run, code)
    if (error := _unreadable_input(core, run) or later) is not None:
        raise error
    message = "it is a pipeline, and the code has all stages of its plan, and reads their inputs"
    return _upgrade(run, UpgradeVerdict.COMPATIBLE, message)


def _sampled(core: Core, which: RunFilter, limit: int | None, sample: Sample) -> Iterator[Run]:
    """Yield all runs, or the given number of the newest and the oldest; each run once."""
    if limit is None:
        yield from _listed(core, which, limit, oldest_first=sample == "oldest")
        return
    newest = {"both": limit - limit // 2, "newest": limit, "oldest": 0}[sample]
    seen: set[str] = set()
    for run in _listed(core, which, newest, oldest_first=False):
        seen.add(run.key)
        yield run
    for run in _listed(core, which, limit - newest, oldest_first=True):
        if run.key in seen:
            return
        yield run


def _listed(core: Core, which: RunFilter, limit: int | None, *, oldest_first: bool) -> Iterator[Run]:
    def page(after: ListPlace | None, most: int) -> Sequence[Run]:
        query = ListRuns(which, after=after, oldest_first=oldest_first, limit=most)
        return core.stores.persistence.read(query)

    return chain.from_iterable(pages_of(page, _PAGE, None, limit, place_of))


def _verdict(replayed: ReplayResult) -> UpgradeVerdict:
    if replayed.is_stuck:
        return UpgradeVerdict.BLOCKED
    # The recorded code had not failed after these rows: its end would be recorded.
    failed = replayed.error is not None and not isinstance(replayed.error, CancelledError)
    return UpgradeVerdict.FAILS if failed and not replayed.as_recorded else UpgradeVerdict.COMPATIBLE


def _no_code(run: Run | RunHistory) -> UpgradeCheck:
    message = (
        f"this engine has no {run.workflow}@{run.version}: keep that version until all its runs have ended"
    )
    return _upgrade(run, UpgradeVerdict.NO_CODE, message)


def _upgrade(run: Run | RunHistory, verdict: UpgradeVerdict, message: str) -> UpgradeCheck:
    return UpgradeCheck(
        run_id=run.id,
        generation=run.generation,
        workflow=run.workflow,
        version=run.version,
        verdict=verdict,
        message=message,
        rows=len(run.rows) if isinstance(run, RunHistory) else run.last_row,
    )


def _unreadable_input(core: Core, run: Run) -> UnreadableValueError | None:
    """Return the error of a job, or queued step, whose input the code cannot read; None if all are readable.

    Jobs whose code this process lacks are skipped. Raises the errors of values that cannot be loaded.
    """
    jobs = core.stores.persistence.read(JobsOfRun(run.key))
    attempts = [attempt_of(job) for job in jobs if job.kind not in _ELSEWHERE and not job.outlives_run]
    # Without the engine's substitute: a stub reads the input of what it replaces, and would count this as its call.
    bodies, _ = Bodies(core).prepare(attempts)
    for body in bodies:
        try:
            body.check_input()
        except UnreadableValueError as error:
            return error
    return None


def _unreadable_later(core: Core, run: Run, code: Authored) -> UnreadableValueError | None:
    """Return the error of a later pipeline stage whose input the code cannot read; None if all are readable.

    Checks the values that exist already: configs, and the outputs of stages that ran or were kept.
    """
    if isinstance(code, Workflow):
        return None
    plan, progress = core.inputs.plan(run.plan), progress_from(run.progress)
    try:
        for name in _stages_left(plan, progress.group):
            stage = code.bodies[name]
            stage.read_config(stage_of(plan.node(name)).config)
        current = {*progress.nodes, *progress.kept}
        for row in rows_of(core.stores.persistence, run, upto=run.last_row):
            if row.type == events.StageCompleted.type and row.node in current and row.payload is not None:
                text = core.payloads.get(row.payload)
                decode_recorded(
                    text,
                    code.bodies[row.node].output_type,
                    f"the output of stage {row.node!r} gave",
                    row.number,
                )
    except UnreadableValueError as error:
        return error
    return None


def _stages_left(plan: Plan, group: int) -> Iterator[str]:
    for one in plan.groups[group:]:
        yield from (node.name for node in one.nodes)
