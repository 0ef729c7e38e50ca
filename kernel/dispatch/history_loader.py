"""Reads history rows for commands that depend on them: repairs, reruns, forks, removals, messages, annotations."""

from collections.abc import Iterable, Iterator

from holdfast.kernel.dispatch.read_set import ReadSet
from holdfast.kernel.dispatch.start_lines import leave_out
from holdfast.kernel.history import events
from holdfast.kernel.history.reader import last_row_of
from holdfast.kernel.history.stage_history import StageHistory
from holdfast.kernel.rules.sink_batches import stored_batch
from holdfast.kernel.runs.forks import open_children
from holdfast.kernel.runs.stored_starts import plan_of_start
from holdfast.kernel.search_results import RunRemains
from holdfast.kernel.state import Reads, State
from holdfast.ports.mailboxes import mailbox_from
from holdfast.ports.persistence import Transaction
from holdfast.ports.records.history import STAGE_OUTCOMES
from holdfast.ports.records.outbox import Stream, StreamKey
from holdfast.ports.records.run import TERMINAL, Run, RunName
from holdfast.ports.references import KeptRows
from holdfast.ports.searches import (
    AllSinks,
    AnnotationKeys,
    Generations,
    JobsOfRuns,
    LatestRuns,
    NodeResults,
    NodeSummaries,
    RunAnnotations,
    UndeliveredHeads,
)
from holdfast.ports.tables import ANNOTATIONS, HISTORY, STREAMS


def read_whole(tx: Transaction, state: State, _: list[Reads], wanted: ReadSet) -> None:
    """Read the outcomes of stages and queued steps of runs, as far as a repair needs them to recreate jobs."""
    whole = wanted.whole
    if not whole:
        return
    types = (
        *STAGE_OUTCOMES,
        *events.CANCELLATION_OUTCOMES,
        events.StageExpanded.type,
        events.StageTested.type,
    )
    for row in tx.find(NodeResults(sorted(whole), types=types)):
        state.completed.setdefault(row.run, []).append(row)
    rows = list(_suspended_without_job(state, whole))
    for suspension in tx.get(HISTORY, rows) if rows else ():
        state.suspensions[suspension.run, suspension.number] = suspension
    _read_steps(tx, state, whole)


def read_past(tx: Transaction, state: State, _: list[Reads], wanted: ReadSet) -> None:
    """Read the stage rows and the input of runs that are rerun."""
    if not wanted.past:
        return
    keys = sorted(state.tables.newest[name] for name in wanted.past if name in state.tables.newest)
    state.past = past = {key: StageHistory() for key in keys}
    if keys:
        for rows in tx.find(NodeSummaries(keys)):
            past[rows.run].add(rows)
        for row in tx.get(HISTORY, [(key, state.tables.runs[key].first_row) for key in keys]):
            past[row.run].input = row.payload


def read_histories(tx: Transaction, state: State, needs: list[Reads], _: ReadSet) -> None:
    """Read the complete histories of functions that are run again, and lock the open child runs of those forked.

    A run that is retried as a whole keeps its annotations, which are read too, and none of its children.
    """
    forked = _functions(state, state.past or ())
    retried = [
        run
        for run in _functions(state, {key for reads in needs for key in reads.retried})
        if run.status not in TERMINAL and state.plans[run.plan].run_attempts > 1
    ]
    if not forked and not retried:
        return
    _read_histories(tx, state, {run.key: run for run in (*forked, *retried)}.values())
    for annotation in tx.find(RunAnnotations(sorted(run.key for run in retried))) if retried else ():
        state.tables.put(annotation)
    children = {
        RunName(run.namespace, child) for run in forked for child in open_children(state.histories[run.key])
    }
    # Locks on runs are taken in ascending order of keys. Keys are ULIDs and a child is newer than its parent, so
    # locking the children last keeps that order.
    for child in tx.find(LatestRuns(sorted(children))) if children else ():
        if child.key not in state.tables.runs:
            leave_out(state, child)
        state.tables.put(child)


def _functions(state: State, keys: Iterable[str]) -> list[Run]:
    """Return the runs of durable functions among those with these keys that were read."""
    runs = (state.tables.runs[key] for key in sorted(keys) if key in state.tables.runs)
    return [run for run in runs if run.plan in state.plans and state.plans[run.plan].function is not None]


def _read_histories(tx: Transaction, state: State, functions: Iterable[Run]) -> None:
    functions = list(functions)
    wanted: list[tuple[str, int]] = []
    for run in functions:
        first = 1
        for part in (*run.kept_rows, KeptRows(run.key, last_row_of(run))):
            wanted += ((part.run, number) for number in range(first, part.last + 1))
            first = part.last + 1
    rows = {(row.run, row.number): row for row in tx.get(HISTORY, wanted)}
    for run in functions:
        kept = {number: part.run for part in reversed(run.kept_rows) for number in range(1, part.last + 1)}
        numbers = range(1, last_row_of(run) + 1)
        state.histories[run.key] = [rows[kept.get(number, run.key), number] for number in numbers]


def read_messages(tx: Transaction, state: State, needs: list[Reads], _: ReadSet) -> None:
    """Read the unread messages of runs, and note the plans of starts stored with messages."""
    tables, newest = state.tables, state.tables.newest
    if not any(run.mailbox is not None for run in tables.runs.values()):
        return
    named = (one for reads in needs for one in reads.messages)
    keys = {newest.get(one, "") if isinstance(one, RunName) else one for one in named}
    by_start = {key for reads in needs for key in reads.kept_starts}
    searches = (reads.search for reads in needs if reads.found_starts)
    by_start.update(key for search in searches if search is not None for key in state.found[search].runs)
    wanted: list[tuple[str, tuple[str, int]]] = []
    for key in sorted((keys | by_start) & tables.runs.keys()):
        run = tables.runs[key]
        mailbox = mailbox_from(run.mailbox)
        if key in keys or mailbox.starts:
            wanted += ((key, (run.holder_of(number), number)) for number in mailbox.rows())
    places = sorted({place for _, place in wanted})
    rows = {(row.run, row.number): row for row in tx.get(HISTORY, places)} if places else {}
    state.messages.update(((key, place[1]), rows[place]) for key, place in wanted)
    starts = (row for row in rows.values() if row.type == events.StartReceived.type)
    state.plans_of_starts.update(map(plan_of_start, starts))


def read_run_remains(tx: Transaction, state: State, _: list[Reads], wanted: ReadSet) -> None:
    """Read the remains of runs that are removed. The newest generations are locked already, so no more can appear."""
    names = wanted.run_remains
    if not names:
        return
    generations: dict[RunName, list[str]] = {}
    first_rows: list[tuple[str, int]] = []
    for run in tx.find(Generations(sorted(names))):
        generations.setdefault(run.name, []).append(run.key)
        first_rows.append((run.key, run.first_row))
        gathered = run.gathered_starts
        if gathered is not None and gathered.of is None:
            first_rows += ((run.key, number) for number in gathered.numbers)
    keys = sorted(key for of_name in generations.values() for key in of_name)
    jobs = tx.find(JobsOfRuns(keys))
    for job in jobs:
        state.tables.put(job)
    with_jobs = {job.run for job in jobs}
    inputs: dict[str, list[str]] = {}
    for row in tx.get(HISTORY, sorted(set(first_rows))):
        if row.payload is not None and row.payload.blob is not None:
            inputs.setdefault(row.run, []).append(row.payload.blob)
    sinks = tx.find(AllSinks())
    streams: dict[str, list[Stream]] = {}
    undelivered: dict[str, set[str]] = {}
    for namespace in sorted({name.namespace for name in names}):
        of_namespace = [sink for sink in sinks if sink.namespace == namespace]
        of_names = [
            key for name, found in generations.items() if name.namespace == namespace for key in found
        ]
        places = [StreamKey(sink.key, key) for sink in of_namespace for key in of_names]
        for stream in tx.lock(STREAMS, places):
            streams.setdefault(stream.run, []).append(stream)
        for head in tx.find(UndeliveredHeads(namespace, [sink.name for sink in of_namespace], of_names)):
            undelivered.setdefault(head.run, set()).add(head.sink)
    # Read again, now that the streams are locked: a batch that has rows of theirs is in the row of its sink by now.
    for sink in tx.find(AllSinks()) if streams else ():
        batch = stored_batch(sink)
        for stream_range in () if batch is None else batch.streams:
            undelivered.setdefault(stream_range.run, set()).add(sink.key)
    for name, of_name in generations.items():
        state.run_remains[name] = RunRemains(
            runs=tuple(of_name),
            inputs=tuple(dict.fromkeys(blob for key in of_name for blob in inputs.get(key, ()))),
            streams=tuple(stream for key in of_name for stream in streams.get(key, ())),
            has_deliveries=any(key in with_jobs for key in of_name),
            lagging_sinks=frozenset(sink for key in of_name for sink in undelivered.get(key, ())),
            sinks={sink.key: sink.name for sink in sinks},
        )


def read_annotation_keys(tx: Transaction, state: State, needs: list[Reads], _: ReadSet) -> None:
    """Read annotations by idempotency key. After the runs, because a run may be given by its name."""
    newest = state.tables.newest
    requested = {
        (newest.get(run) if isinstance(run, RunName) else run, key)
        for reads in needs
        for run, key in reads.annotation_keys
    }
    wanted = sorted((run, key) for run, key in requested if run is not None)
    if wanted:
        state.tables.names[ANNOTATIONS].update(tx.find(AnnotationKeys(wanted)))


def read_annotations(tx: Transaction, state: State, needs: list[Reads], _: ReadSet) -> None:
    """Read the annotations of runs as a whole."""
    runs = sorted({run for reads in needs for run in reads.annotations})
    for annotation in tx.find(RunAnnotations(runs)) if runs else ():
        state.tables.put(annotation)


def _read_steps(tx: Transaction, state: State, runs: set[str]) -> None:
    """Read the rows that queued steps of these runs, and the rows with their ends."""
    queued = tx.find(NodeResults(sorted(runs), types=(events.StepQueued.type,)))
    queuing = {row.run for row in queued}
    if queuing:
        ends = tx.find(NodeResults(sorted(queuing), types=tuple(sorted(events.STEP_ENDS))))
        for row in tx.get(HISTORY, [(row.run, row.number) for row in (*queued, *ends)]):
            state.steps.setdefault(row.run, []).append(row)


def _suspended_without_job(state: State, runs: set[str]) -> Iterator[tuple[str, int]]:
    """Yield the rows of suspended stages and map items that have no job, and the rows in which such a stage failed."""
    for run in runs & state.completed.keys():
        live = {(job.node, job.item) for job in state.tables.jobs.get(run, {}).values()}
        last = {(row.node, row.item): row for row in state.completed[run]}
        suspended = {
            (row.node, row.item): row
            for row in state.completed[run]
            if row.type == events.StageSuspended.type
        }
        for item, row in sorted(suspended.items(), key=lambda pair: pair[1].number):
            if item not in live and last[item].type in (events.StageSuspended.type, events.StageFailed.type):
                yield run, row.number
            if last[item].type == events.StageFailed.type:
                yield run, last[item].number
