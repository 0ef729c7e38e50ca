"""What must be true of a store at every moment, and between any two: the invariants that Holdfast promises.

`check` looks at one moment, `check_step` at two. Both know nothing of how the engine decides: they read a run's
history from its beginning, work out from the plan alone what must be there now, and compare. They are meant for tests:
after each command, at the end of a simulation, on a database after a day of chaos.

    store = MemoryPersistence()
    ...
    assert check(snapshot_of(store)) == []

The names of the invariants are those of the design: S1 (epochs), S4 (outputs stay), S5 (legal transitions), S6
(truthful ends), S7 (no orphans), S8 (attempts), S9 (order of stages), O1 (numbered history).
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise, takewhile
from typing import Final, TypeAlias, cast

import attrs
from typing_extensions import override

from holdfast.adapters.memory.persistence import MemoryPersistence
from holdfast.kernel.plan import MapPlan, NodePlan, Plan, plan_from_json, stage_of
from holdfast.kernel.progress import Progress, progress_from
from holdfast.kernel.transitions import RUN_TRANSITIONS
from holdfast.ports.json import parse
from holdfast.ports.persistence import (
    HistoryOf,
    JobsOfRun,
    ListRuns,
    Persistence,
    PlansByFingerprint,
    RunsByKey,
)
from holdfast.ports.records import (
    TERMINAL,
    HistoryRow,
    Job,
    JobKind,
    JobState,
    Run,
    RunStatus,
    Session,
    SessionState,
)
from holdfast.ports.references import Reference, list_reference, map_reference, reference_text
from holdfast.ports.tables import Tables

_PAGE: Final = 500
_TRIES_MAX: Final = 20
_Item: TypeAlias = tuple[str, int | None]
"""A stage, or one item of a map: the node's name, and the item's index."""


@attrs.frozen
class Violation:
    """An invariant that does not hold: which, where (a run, a job, a session), and what was seen."""

    invariant: str
    where: str
    what: str

    @override
    def __str__(self) -> str:
        """Return it in one line."""
        return f"{self.invariant} {self.where}: {self.what}"


@attrs.frozen(kw_only=True)
class Snapshot:
    """The rows of a store at one moment, as far as the invariants speak of them.

    `jobs` and `history` are by run key, `plans` the stored JSON texts by fingerprint. `sessions` are at least those
    that hold a lease.
    """

    runs: Mapping[str, Run]
    jobs: Mapping[str, Mapping[int, Job]]
    history: Mapping[str, Sequence[HistoryRow]]
    plans: Mapping[str, str]
    sessions: Mapping[str, Session]


# Taking snapshots -----------------------------------------------------------------------------------------------


def snapshot_of(store: Persistence | Tables, namespaces: Sequence[str] = ("default",)) -> Snapshot:
    """Return what is in a store: all of it, if it is in memory; else the runs of these namespaces.

    A database is asked one run at a time, and again where a run changed meanwhile: what is returned of each run is of
    one moment, but not of the same for all. TimeoutError if a run changes faster than it can be read.
    """
    if isinstance(store, MemoryPersistence):
        store = store.dump()
    return _of_tables(store) if isinstance(store, Tables) else _of_database(store, namespaces)


def _of_tables(tables: Tables) -> Snapshot:
    return Snapshot(
        runs=tables.runs,
        jobs=tables.jobs,
        history=tables.history,
        plans={plan.fingerprint: plan.body for plan in tables.plans.values()},
        sessions=tables.sessions,
    )


def _of_database(store: Persistence, namespaces: Sequence[str]) -> Snapshot:
    runs: dict[str, Run] = {}
    jobs: dict[str, dict[int, Job]] = {}
    history: dict[str, list[HistoryRow]] = {}
    for listed in _runs(store, namespaces):
        run, jobs[run.key], history[run.key] = _read_run(store, listed)
        runs[run.key] = run
    fingerprints = tuple(sorted({run.plan for run in runs.values()}))
    holders = {job.session for of_run in jobs.values() for job in of_run.values() if job.session is not None}
    sessions = store.transact(lambda tx: tx.sessions(sorted(holders), lock=False))
    return Snapshot(
        runs=runs,
        jobs=jobs,
        history=history,
        plans={plan.fingerprint: plan.body for plan in store.read(PlansByFingerprint(fingerprints))},
        sessions={session.id: session for session in sessions},
    )


def _runs(store: Persistence, namespaces: Sequence[str]) -> Iterator[Run]:
    for namespace in namespaces:
        before: str | None = None
        while page := store.read(ListRuns(namespace=namespace, before=before, limit=_PAGE)):
            yield from page
            before = page[-1].key


def _read_run(store: Persistence, run: Run) -> tuple[Run, dict[int, Job], list[HistoryRow]]:
    for _ in range(_TRIES_MAX):
        jobs = {job.number: job for job in store.read(JobsOfRun(run.key))}
        history: list[HistoryRow] = []
        while page := store.read(HistoryOf(run.key, after=len(history), limit=_PAGE)):
            history.extend(page)
            if len(history) > run.last_row:
                break  # it goes on meanwhile, or it is broken
        (again,) = store.read(RunsByKey((run.key,)))
        if again == run:
            return run, jobs, history
        run = again
    raise TimeoutError(f"run {run.key} changes faster than it can be read")


# One moment -----------------------------------------------------------------------------------------------------


def check(store: Snapshot | Tables) -> list[Violation]:
    """Return what is wrong with the rows of a store; nothing, if the engine keeps its promises."""
    snapshot = _of_tables(store) if isinstance(store, Tables) else store
    found = [*_generations(snapshot)]
    for key in sorted(snapshot.runs.keys() | snapshot.jobs.keys() | snapshot.history.keys()):
        run = snapshot.runs.get(key)
        if run is None:
            found.append(Violation("S7", key, "rows of a run that is not there"))
            continue
        plan = snapshot.plans.get(run.plan)
        if plan is None:
            found.append(Violation("S7", key, f"its plan {run.plan} is not stored"))
            continue
        seen = _look(run, _plan(plan), snapshot)
        found += (Violation(name, key, what) for name, rule in _RULES for what in rule(seen))
    return found


@attrs.define
class _Place:
    """Where a run must be, worked out from its plan and its history and nothing else."""

    plan: Plan
    group: int = 0
    input: Reference = 1
    kept: dict[str, Reference] = attrs.field(factory=dict[str, Reference])
    totals: dict[str, int] = attrs.field(factory=dict[str, int])
    first_rows: dict[str, int] = attrs.field(factory=dict[str, int])
    done: dict[str, set[int]] = attrs.field(factory=dict[str, set[int]])
    outputs: dict[str, Reference] = attrs.field(factory=dict[str, Reference])

    @property
    def nodes(self) -> dict[str, NodePlan]:
        """The nodes of the current group; none at the end."""
        if self.group >= len(self.plan.groups):
            return {}
        return {node.name: node for node in self.plan.groups[self.group].nodes}

    def turn(self, node: MapPlan) -> int:
        """How many items of an expanded map have had their turn so far."""
        return min(self.totals[node.name], len(self.done[node.name]) + node.limit)

    def due(self) -> Iterator[tuple[JobKind, str, int | None]]:
        """Yield the jobs that the run must have."""
        for name, node in self.nodes.items():
            if name in self.outputs:
                continue
            if not isinstance(node, MapPlan):
                yield JobKind.STAGE, name, None
            elif name not in self.totals:
                yield JobKind.EXPAND, name, None
            else:
                yield from (
                    (JobKind.STAGE, name, item)
                    for item in range(self.turn(node))
                    if item not in self.done[name]
                )

    def expand(self, row: HistoryRow) -> str | None:
        """Take a `stage.expanded` row; return what is wrong with it."""
        name = row.node or ""
        if not isinstance(self.nodes[name], MapPlan) or name in self.totals:
            return f"row {row.number} expands {name!r}, which is no map or is expanded already"
        self.totals[name], self.first_rows[name] = _items(row), row.number
        self.done[name] = set()
        if not self.totals[name]:
            self._give(name, list_reference(()))
        return None

    def complete(self, row: HistoryRow) -> str | None:
        """Take a `stage.completed` row; return what is wrong with it."""
        name = row.node or ""
        if name in self.outputs:
            return f"row {row.number} completes {name!r} again"
        if row.item is None:
            if isinstance(self.nodes[name], MapPlan):
                return f"row {row.number} completes the map {name!r} as if it were a stage"
            self._give(name, row.number)
            return None
        if name not in self.totals or row.item not in range(self.totals[name]) or row.item in self.done[name]:
            return f"row {row.number} completes item {row.item} of {name!r}, which is not open"
        self.done[name].add(row.item)
        if len(self.done[name]) == self.totals[name]:
            self._give(name, map_reference(name, self.first_rows[name], row.number))
        return None

    def _give(self, name: str, output: Reference) -> None:
        self.outputs[name] = output
        if len(self.outputs) < len(self.nodes):
            return
        outputs = tuple(self.outputs[node] for node in self.nodes)
        self.kept |= {node: self.outputs[node] for node in self.nodes if node in self.plan.mapped_over}
        self.input = list_reference(outputs) if self.plan.groups[self.group].parallel else outputs[0]
        self.group += 1
        self.totals, self.first_rows, self.done, self.outputs = {}, {}, {}, {}


@attrs.frozen(kw_only=True)
class _Seen:
    """A run with all its rows, and what its history tells: `place`, and the rows that can't be."""

    run: Run
    jobs: Sequence[Job]
    history: Sequence[HistoryRow]
    sessions: Mapping[str, Session]
    progress: Progress
    place: _Place
    twice: Sequence[str]
    early: Sequence[str]

    @property
    def is_repaired(self) -> bool:
        """Whether rows of it were lost and replaced: counts of attempts and epochs then begin anew."""
        return any(row.type == "run.repaired" for row in self.history)

    def attempts(self) -> dict[_Item, list[HistoryRow]]:
        """Return for each stage and item the rows in which its attempts ended."""
        ends: dict[_Item, list[HistoryRow]] = {}
        for row in self.history:
            if row.type in _ATTEMPT_ENDS and row.node is not None:
                ends.setdefault((row.node, row.item), []).append(row)
        return ends


def _look(run: Run, plan: Plan, snapshot: Snapshot) -> _Seen:
    place = _Place(plan)
    twice: list[str] = []
    early: list[str] = []
    history = snapshot.history.get(run.key, ())
    for row in history:
        if row.type not in _ATTEMPT_ENDS:
            continue
        if row.node not in place.nodes:
            early.append(f"row {row.number} is a {row.type} of {row.node!r}, whose turn it is not")
        elif row.type == "stage.expanded":
            twice += filter(None, (place.expand(row),))
        elif row.type == "stage.completed":
            twice += filter(None, (place.complete(row),))
    return _Seen(
        run=run,
        jobs=[job for _, job in sorted(snapshot.jobs.get(run.key, {}).items())],
        history=history,
        sessions=snapshot.sessions,
        progress=progress_from(run.progress),
        place=place,
        twice=twice,
        early=early,
    )


def _generations(snapshot: Snapshot) -> Iterator[Violation]:
    """S5: one row for each generation of a run, and only the newest is active."""
    runs = sorted(snapshot.runs.values(), key=lambda run: (run.name, run.generation))
    for older, newer in pairwise(runs):
        if older.name == newer.name and older.generation == newer.generation:
            yield Violation("S5", newer.key, f"generation {newer.generation} of {newer.id!r} is there twice")
        elif older.name == newer.name and older.status not in TERMINAL:
            yield Violation("S5", older.key, "it is active, and there is a newer generation of it")


def _numbered(seen: _Seen) -> Iterator[str]:
    """O1: the history is numbered from 1 without gaps."""
    numbers = [row.number for row in seen.history]
    if numbers != list(range(1, seen.run.last_row + 1)):
        yield f"its rows are {_short(numbers)}, its row says that the last is {seen.run.last_row}"
    if seen.history and seen.history[0].type != "run.created":
        yield f"its history begins with {seen.history[0].type}"


def _epochs(seen: _Seen) -> Iterator[str]:
    """S1: one attempt for each epoch of a job, in order."""
    if seen.is_repaired:
        return
    live = {(job.node, job.item): job for job in seen.jobs}
    for item, rows in seen.attempts().items():
        epochs = [row.epoch or 0 for row in rows]
        if any(after <= before for before, after in pairwise(epochs)):
            yield f"the attempts of {_named(item)} ended in the epochs {epochs}"
        job = live.get(item)
        if job is not None and epochs and job.epoch - (job.state is JobState.LEASED) < epochs[-1]:
            yield f"job {job.number} is at epoch {job.epoch}, and one ended in epoch {epochs[-1]}"


def _outputs(seen: _Seen) -> Iterator[str]:
    """S4: what is completed is completed once, and the run's row refers to exactly that."""
    yield from seen.twice
    place, progress = seen.place, seen.progress
    if (place.group, place.input, place.kept) != (progress.group, progress.input, progress.kept):
        yield f"its history leads to group {place.group} with {place.input}, its row says {seen.run.progress}"
        return
    if place.nodes and place.nodes.keys() != progress.nodes.keys():
        yield f"the nodes of its group are {sorted(place.nodes)}, its row says {seen.run.progress}"
    for name, node in progress.nodes.items():
        if node.output != place.outputs.get(name):
            yield f"{name!r} gave {place.outputs.get(name)}, its row says {node.output}"


def _ends(seen: _Seen) -> Iterator[str]:
    """S6: a run ended for the reason that its last row gives, and no other."""
    run = seen.run
    ends = [row for row in seen.history if row.type in _ENDS]
    if run.status not in TERMINAL:
        if ends:
            yield f"it is {run.status}, and row {ends[0].number} is {ends[0].type}"
        return
    if len(ends) != 1 or ends[0] is not seen.history[-1] or _ENDS[ends[0].type] is not run.status:
        yield f"it is {run.status}, and its ends are {[(row.number, row.type) for row in ends]}"
    if run.status is RunStatus.COMPLETED:
        if seen.place.nodes:
            yield f"it completed in group {seen.place.group} of {len(seen.place.plan.groups)}"
        if run.result != reference_text(seen.place.input) or run.error is not None:
            yield f"its result is {run.result}, its last group gave {seen.place.input}, its error is {run.error}"
    elif run.result is not None or run.error is None:
        yield f"it is {run.status}, its result is {run.result}, its error is {run.error}"
    if run.status is RunStatus.FAILED and not any(row.type == "stage.failed" for row in seen.history):
        yield "it failed, and none of its stages did"


def _absorbed(seen: _Seen) -> Iterator[str]:
    """S5: a run that has ended has nothing left to do."""
    run = seen.run
    if (run.status in TERMINAL) != (run.ended_at is not None):
        yield f"it is {run.status}, and ended at {run.ended_at}"
    if run.status in TERMINAL and (seen.jobs or run.open_jobs):
        yield f"it is {run.status}, counts {run.open_jobs} jobs and has {len(seen.jobs)}"


def _orphans(seen: _Seen) -> Iterator[str]:
    """S7: an active run has exactly the jobs that its place in the plan asks for, and counts them right."""
    run, place = seen.run, seen.place
    if run.open_jobs != len(seen.jobs):
        yield f"its row counts {run.open_jobs} jobs, and it has {len(seen.jobs)}"
    if run.status in TERMINAL or run.status is RunStatus.PENDING:
        return
    if not seen.jobs:
        yield f"it is {run.status} and has no job"
    have = Counter((job.kind, job.node, job.item) for job in seen.jobs)
    want = Counter(place.due())
    if have != want:
        yield f"it lacks {_jobs(want - have)} and has {_jobs(have - want)} too many"
    for name, node in seen.progress.nodes.items():
        if node.job is not None and not any(job.number == node.job and job.node == name for job in seen.jobs):
            yield f"{name!r} waits for job {node.job}, which is not there"
        planned = place.nodes.get(name)
        if node.map is not None and isinstance(planned, MapPlan) and name in place.totals:
            counted = (node.map.total, node.map.done, node.map.next, node.map.first_row)
            true = (place.totals[name], len(place.done[name]), place.turn(planned), place.first_rows[name])
            if counted != true:
                yield f"{name!r} counts (total, done, next, first row) {counted}, and they are {true}"


def _leases(seen: _Seen) -> Iterator[str]:
    """S7: each job is in a state from which somebody or something will take it on."""
    for job in seen.jobs:
        if job.number > seen.run.last_job or job.namespace != seen.run.namespace:
            yield f"job {job.number} is none that the run has given out"
        if job.definition != seen.place.plan.definition:
            yield f"job {job.number} asks for the code of {job.definition}"
        match job.state:
            case JobState.LEASED:
                fine = job.session in seen.sessions and job.leased_at is not None and job.wake_at is None
            case JobState.SLEEPING:
                fine = job.session is None and job.leased_at is None and job.wake_at is not None
            case JobState.QUEUED:
                fine = job.session is None and job.leased_at is None and job.wake_at is None
            case _:
                fine = job.session is None and job.leased_at is None
        is_paused = seen.run.status is RunStatus.PAUSED
        if (job.state is JobState.HELD) != is_paused and job.state is not JobState.LEASED:
            yield f"the run is {seen.run.status}, and job {job.number} is {job.state}"
        if not fine:
            yield f"nobody will ever take {job}"


def _attempts(seen: _Seen) -> Iterator[str]:
    """S8: attempts are counted, one by one, and never exceed the maximum."""
    ends = seen.attempts()
    for job in seen.jobs:
        node = seen.place.plan.nodes.get(job.node)
        is_held = job.state is JobState.LEASED
        if node is None or job.max_attempts != stage_of(node).retry.attempts:
            yield f"job {job.number} may be tried {job.max_attempts} times; its plan says otherwise"
        if not is_held <= job.attempts <= job.max_attempts - (not is_held):
            yield f"job {job.number} is {job.state} with {job.attempts} of {job.max_attempts} attempts"
        if job.attempts > job.epoch:
            yield f"job {job.number} has {job.attempts} attempts in {job.epoch} claims"
        ended = [row for row in ends.get((job.node, job.item), ()) if row.type != "stage.expanded"]
        if not seen.is_repaired and len(ended) != job.attempts - is_held:
            yield f"job {job.number} counts {job.attempts} attempts, and {len(ended)} of them ended"
        lost = len(list(takewhile(lambda row: row.type == "stage.lost", reversed(ended))))
        if not seen.is_repaired and lost != job.losses:
            yield f"job {job.number} counts {job.losses} losses in a row, and there were {lost}"
    for item, rows in ends.items():
        node = seen.place.plan.nodes.get(item[0])
        numbers = [_fact(row, "attempt") for row in rows if row.type != "stage.expanded"]
        most = stage_of(node).retry.attempts if node else 0
        if not seen.is_repaired and numbers != list(range(1, len(numbers) + 1)):
            yield f"the attempts of {_named(item)} that ended are {numbers}"
        if any(number > most for number in numbers):
            yield f"{_named(item)} may be tried {most} times; the attempts that ended are {numbers}"


def _in_order(seen: _Seen) -> Iterator[str]:
    """S9: nothing of a stage happens before all groups before its own are done."""
    yield from seen.early
    if seen.run.status not in TERMINAL:
        for job in seen.jobs:
            if job.node not in seen.place.nodes:
                yield f"job {job.number} is of {job.node!r}, which is not of group {seen.place.group}"


_ENDS: Final = {
    "run.completed": RunStatus.COMPLETED,
    "run.failed": RunStatus.FAILED,
    "run.cancelled": RunStatus.CANCELLED,
    "run.terminated": RunStatus.CANCELLED,
}
_ATTEMPT_ENDS: Final = frozenset(
    {"stage.completed", "stage.expanded", "stage.retrying", "stage.failed", "stage.lost"}
)
_RULES: Final[Sequence[tuple[str, Callable[[_Seen], Iterator[str]]]]] = (
    ("O1", _numbered),
    ("S1", _epochs),
    ("S4", _outputs),
    ("S5", _absorbed),
    ("S6", _ends),
    ("S7", _orphans),
    ("S7", _leases),
    ("S8", _attempts),
    ("S9", _in_order),
)


# Two moments ----------------------------------------------------------------------------------------------------


def check_step(
    before: Snapshot | Tables, after: Snapshot | Tables, *, commands: int | None = 1
) -> list[Violation]:
    """Return what can't have happened between two moments, in which at most that many commands were carried out.

    With `commands` None it may have been any number, and only what holds for any number is checked.
    """
    old = _of_tables(before) if isinstance(before, Tables) else before
    new = _of_tables(after) if isinstance(after, Tables) else after
    found: list[Violation] = []
    for key, run in old.runs.items():
        if key not in new.runs:
            found.append(Violation("S5", key, "the run is gone"))
            continue
        then, now = _history(old, key), _history(new, key)
        if now[: len(then)] != then:
            found.append(Violation("O1", key, "rows of its history have changed"))
        found += (Violation("S5", key, what) for what in _run_steps(run, new.runs[key], commands))
        found += (Violation("S4", key, what) for what in _output_steps(run, new.runs[key]))
        found += (Violation("S1", key, what) for what in _job_steps(run, old, new, commands))
    for fingerprint, plan in old.plans.items():
        if new.plans.get(fingerprint, plan) != plan:
            found.append(Violation("S4", fingerprint, "a plan has changed"))
    for session in old.sessions.values():
        later = new.sessions.get(session.id, session)
        if session.state is SessionState.DEAD and later != session:
            found.append(Violation("S5", session.id, "a dead session has changed"))
        elif later.state is SessionState.OPEN and later.expires_at < session.expires_at:
            found.append(Violation("S5", session.id, "a session ends earlier than it did"))
    return found


def _run_steps(before: Run, after: Run, commands: int | None) -> Iterator[str]:
    """S5: from status to status only as the table says; a run that has ended stays as it is."""
    if before.status in TERMINAL and after != before:
        yield f"it had ended as {before}, and is {after}"
    if after.status not in _reachable(before.status, commands):
        yield f"it went from {before.status} to {after.status}"
    for field in (
        "namespace",
        "id",
        "generation",
        "workflow",
        "version",
        "plan",
        "queue",
        "priority",
        "created_at",
    ):
        if getattr(before, field) != getattr(after, field):
            yield f"its {field} has changed from {getattr(before, field)} to {getattr(after, field)}"
    if after.last_row < before.last_row or after.last_job < before.last_job:
        yield "numbers are given out a second time"


def _output_steps(before: Run, after: Run) -> Iterator[str]:
    """S4: what is done stays done, with the output that it has."""
    then, now = progress_from(before.progress), progress_from(after.progress)
    if now.group < then.group:
        yield f"it went back from group {then.group} to {now.group}"
    if any(now.kept.get(name) != output for name, output in then.kept.items()):
        yield f"an output that is kept has changed: {then.kept}, {now.kept}"
    if now.group != then.group:
        return
    for name, node in then.nodes.items():
        later = now.nodes.get(name)
        if node.output is not None and (later is None or later.output != node.output):
            yield f"the output of {name!r} has changed"
        if node.map is not None and later is not None and later.map is not None:
            is_same = (node.map.total, node.map.first_row) == (later.map.total, later.map.first_row)
            if not is_same or later.map.done < node.map.done or later.map.next < node.map.next:
                yield f"the counters of {name!r} went from {node.map} to {later.map}"


def _job_steps(run: Run, old: Snapshot, new: Snapshot, commands: int | None) -> Iterator[str]:
    """S1: a claim is a new epoch, one higher, with one attempt more; only a new epoch changes hands."""
    then, now = old.jobs.get(run.key, {}), new.jobs.get(run.key, {})
    for number, job in now.items():
        known = then.get(number)
        if known is None:
            if number <= run.last_job:
                yield f"job {number} is back"
            continue
        claims = job.epoch - known.epoch
        if claims < 0 or (commands is not None and claims > commands):
            yield f"the epoch of job {number} went from {known.epoch} to {job.epoch}"
        if job.attempts > known.attempts + max(claims, 0):
            yield f"the attempts of job {number} went from {known.attempts} to {job.attempts} in {claims} claims"
        if claims == 0 and job.state is JobState.LEASED and _lease(job) != _lease(known):
            yield f"job {number} changed hands within epoch {job.epoch}: {_lease(known)}, {_lease(job)}"
        fixed = (job.kind, job.node, job.item, job.definition, job.queue, job.max_attempts, job.input)
        if fixed != (
            known.kind,
            known.node,
            known.item,
            known.definition,
            known.queue,
            known.max_attempts,
            known.input,
        ):
            yield f"job {number} became another: {known}, {job}"


def _reachable(status: RunStatus, steps: int | None) -> frozenset[RunStatus]:
    reached = frozenset({status})
    for _ in range(len(RunStatus) if steps is None else min(steps, len(RunStatus))):
        reached |= {after for before in reached for after in RUN_TRANSITIONS[before]}
    return reached


# Saying it ------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def _plan(text: str) -> Plan:
    return plan_from_json(text)


def _history(snapshot: Snapshot, run: str) -> Sequence[HistoryRow]:
    return list(snapshot.history.get(run, ()))


def _lease(job: Job) -> tuple[object, ...]:
    return job.state, job.session, job.leased_at


def _fact(row: HistoryRow, name: str) -> int:
    return cast("dict[str, int]", parse(row.data or "{}")).get(name, 0)


def _items(row: HistoryRow) -> int:
    return _fact(row, "items")


def _named(item: _Item) -> str:
    return repr(item[0]) if item[1] is None else f"item {item[1]} of {item[0]!r}"


def _jobs(jobs: Counter[tuple[JobKind, str, int | None]]) -> str:
    return (
        "nothing"
        if not jobs
        else _short([f"{kind} {_named((node, item))}" for kind, node, item in jobs.elements()])
    )


def _short(things: Sequence[object]) -> str:
    return str(list(things)) if len(things) <= 10 else f"{[*things[:10]]} and {len(things) - 10} more"
