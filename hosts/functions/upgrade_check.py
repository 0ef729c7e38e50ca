"""What the code that there is now would make of runs that were begun with older code: looked at, and never touched."""

from asyncio import CancelledError
from collections.abc import Iterator
from enum import StrEnum
from typing import Any, Final, Literal, TypeAlias, cast, get_args

import attrs

from holdfast.hosts.execution.off_loop import drive_away
from holdfast.hosts.functions.history_document import RunHistory, read_history
from holdfast.hosts.functions.input_compatibility import unreadable_input, unreadable_later
from holdfast.hosts.functions.replay_check import Replayed, replay_here
from holdfast.hosts.wiring.registry import Authored
from holdfast.hosts.wiring.services import Core
from holdfast.kernel.authoring.calls import Definition
from holdfast.kernel.authoring.functions import Workflow
from holdfast.kernel.history.exceptions import error_words
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
from holdfast.ports.persistence import ListRuns, RunFilter, SchemaVersion
from holdfast.ports.records import ACTIVE, Run, RunStatus
from holdfast.ports.validation import TEXT, an, check, integer

LOOKED_AT: Final = 1_000
"""How many runs are looked at unless it is said otherwise."""
_PAGE: Final = 100

Sample: TypeAlias = Literal["both", "newest", "oldest"]
"""Which runs are looked at if not all are: the newest, the oldest, or half of each."""


class Verdict(StrEnum):
    """What the code would make of a run.

    `compatible` goes on. `diverges` would be blocked: the code asks for something else than is recorded. `blocked`
    would be so for another reason. `fails` would fail, by an error of the code that it has not met before. Of
    `no_code` nothing would be done: the engine has no such workflow, or not in that version. `unreadable` is what a
    history or one of its values could not be read of.
    """

    COMPATIBLE = "compatible"
    DIVERGES = "diverges"
    BLOCKED = "blocked"
    FAILS = "fails"
    NO_CODE = "no_code"
    UNREADABLE = "unreadable"


@attrs.frozen(kw_only=True)
class Upgrade:
    """What the code would make of one run.

    Attributes:
        run_id, generation, workflow, version: Which run that is.
        verdict: What would become of it.
        message: Why, for people.
        rows: How many rows its history has.
        row: In which row the history and the code differ, or what the code can't read; None if there is no such row.
        call: Which call that row is about. Together with `recorded` and `asked`, as in `NondeterminismError`.
        recorded: What is recorded there, and where in the code that was.
        asked: What the code asks for instead, and where.
    """

    run_id: str
    generation: int
    workflow: str
    version: str
    verdict: Verdict
    message: str
    rows: int
    row: int | None = None
    call: str | None = None
    recorded: str | None = None
    asked: str | None = None

    @property
    def is_compatible(self) -> bool:
        """Whether the run goes on with this code."""
        return self.verdict is Verdict.COMPATIBLE


def judged(history: RunHistory, code: Definition[Any] | None) -> Upgrade:
    """Return what this code would make of a history. Nothing that the history or the code gives rise to is raised."""
    if code is None:
        return _no_code(history)
    if not isinstance(code, Workflow):
        return _upgrade(history, Verdict.COMPATIBLE, "it is a pipeline, and keeps the plan that it has")
    function = cast("Workflow[..., object]", code)
    try:
        replayed = drive_away(lambda: replay_here(history, function))
    except NondeterminismError as error:
        return attrs.evolve(
            _upgrade(history, Verdict.DIVERGES, str(error)),
            row=error.row,
            call=error.call or None,
            recorded=error.recorded,
            asked=error.asked,
        )
    except InvalidHistoryError as error:
        return _upgrade(history, Verdict.UNREADABLE, str(error))
    except HoldfastError as error:
        row = error.row if isinstance(error, UnreadableValueError) else None
        return attrs.evolve(_upgrade(history, Verdict.BLOCKED, str(error)), row=row)
    except Exception as error:  # noqa: BLE001  # as where it is driven: it is that run's, and no other's
        return _upgrade(history, Verdict.BLOCKED, f"it can't be driven: {error_words(error)}")
    return _upgrade(history, _verdict(replayed), str(replayed))


def check_upgrade(
    core: Core,
    *,
    workflow: Definition[Any] | str | None = None,
    limit: int | None = LOOKED_AT,
    sample: Sample = "both",
    known_only: bool = False,
) -> Iterator[Upgrade]:
    """Look at runs that have not ended. See `SyncEngine.check_upgrade`."""
    check("check_upgrade", an("a workflow, or the name of one", Definition, str).or_none, workflow=workflow)
    check("check_upgrade", integer(1).or_none, limit=limit)
    check("check_upgrade", TEXT, sample=sample)
    if sample not in get_args(Sample):
        raise InvalidArgumentError("sample", f"sample is {sample!r}; it must be one of {get_args(Sample)}")
    name = workflow.name if isinstance(workflow, Definition) else workflow
    which = RunFilter(namespace=core.namespace, workflow=name, statuses=ACTIVE, newest=True)
    return _upgrades(core, which, limit, sample, known_only)


def _upgrades(
    core: Core, which: RunFilter, limit: int | None, sample: Sample, known_only: bool
) -> Iterator[Upgrade]:
    if core.stores.persistence.read(SchemaVersion()) is None:
        raise SchemaError("the database has no tables of Holdfast's; run `holdfast db upgrade` first")
    for run in _sampled(core, which, limit, sample):
        if known_only and core.registry.pipeline(run.workflow) is None:
            continue
        yield looked_at(core, run)


def looked_at(core: Core, run: Run) -> Upgrade:
    """Return what the code that there is would make of a run. UnavailableError, and the others of `STORE_ERRORS`."""
    code = core.registry.pipeline(run.workflow, run.version)
    if code is None:
        return _no_code(run)
    try:
        return _looked_at(core, run, code)
    except STORE_ERRORS:
        raise
    except UnreadableValueError as error:
        return attrs.evolve(_upgrade(run, Verdict.BLOCKED, str(error)), row=error.row)
    except (BlobMissingError, BlobCorruptError, NoBlobStoreError, InvalidHistoryError) as error:
        return _upgrade(run, Verdict.UNREADABLE, str(error))


def _looked_at(core: Core, run: Run, code: Authored) -> Upgrade:
    if isinstance(code, Workflow):
        upgrade = judged(read_history(core, run), code)
        if upgrade.is_compatible and (error := unreadable_input(core, run)) is not None:
            raise error
        return upgrade
    lacking = [name for name in core.inputs.plan(run.plan).nodes if name not in code.bodies]
    if lacking:
        message = f"the code of {run.workflow}@{run.version} has no stage {lacking[0]!r}, which the run's plan names"
        return _upgrade(run, Verdict.NO_CODE, message)
    # One that is blocked goes on once the code reads what its stages are given: what comes later is looked at then.
    later = None if run.status is RunStatus.BLOCKED else unreadable_later(core, run, code)
    if (error := unreadable_input(core, run) or later) is not None:
        raise error
    message = "it is a pipeline, and the code has all stages of its plan, and reads what they are given"
    return _upgrade(run, Verdict.COMPATIBLE, message)


def _sampled(core: Core, which: RunFilter, limit: int | None, sample: Sample) -> Iterator[Run]:
    """Yield runs: all, or as many of the newest and of the oldest as were asked for. Each of them once."""
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
    after, left = None, limit
    while left is None or left > 0:
        most = _PAGE if left is None else min(_PAGE, left)
        page = core.stores.persistence.read(
            ListRuns(which, after=after, oldest_first=oldest_first, limit=most)
        )
        yield from page
        if len(page) < most:
            return
        after = page[-1].place
        left = None if left is None else left - len(page)


def _verdict(replayed: Replayed) -> Verdict:
    if replayed.is_stuck:
        return Verdict.BLOCKED
    # By the recorded rows the function had not failed when they were made, or else its end would be recorded too.
    failed = replayed.error is not None and not isinstance(replayed.error, CancelledError)
    return Verdict.FAILS if failed and not replayed.as_recorded else Verdict.COMPATIBLE


def _no_code(run: Run | RunHistory) -> Upgrade:
    message = f"this engine has no {run.workflow}@{run.version}: keep that version until no run of it is left"
    return _upgrade(run, Verdict.NO_CODE, message)


def _upgrade(run: Run | RunHistory, verdict: Verdict, message: str) -> Upgrade:
    return Upgrade(
        run_id=run.id,
        generation=run.generation,
        workflow=run.workflow,
        version=run.version,
        verdict=verdict,
        message=message,
        rows=len(run.rows) if isinstance(run, RunHistory) else run.last_row,
    )
