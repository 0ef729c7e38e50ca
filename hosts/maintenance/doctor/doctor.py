"""The doctor's examination: checks runs, limits, sinks, schedules and blobs, confirms each finding, and repairs."""

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence
from datetime import UTC, timedelta
from typing import Final, TypeVar

import attrs

from holdfast.hosts.execution.dispatcher import Dispatcher
from holdfast.hosts.inspection.limits import pause_text
from holdfast.hosts.inspection.schedules import SCHEDULE_LATE_AFTER, schedule_rows
from holdfast.hosts.inspection.triggers import trigger_entries
from holdfast.hosts.inspection.workers import queue_infos
from holdfast.hosts.maintenance.doctor.findings import (
    FINDINGS,
    NOT_REPAIRABLE,
    REPAIR,
    REPAIRED_BESIDE,
    REPAIRED_BY_COMMAND,
    REPAIRED_BY_MAINTENANCE,
    Diagnosis,
    DoctorFinding,
    FindingCollector,
    advice_for,
    of_run,
)
from holdfast.hosts.maintenance.doctor.rehearsal import violations_after
from holdfast.hosts.maintenance.doctor.scan import Page, Part, StoreReader
from holdfast.hosts.maintenance.tick import Maintenance
from holdfast.hosts.text import counted, format_duration
from holdfast.hosts.wiring.services import Core
from holdfast.hosts.wiring.stores import MEMORY, newest_schema, schema_of, schema_refusal
from holdfast.kernel.commands import RunRepair
from holdfast.kernel.dispatch.unreadable_runs import failed_decision, unreadable_of
from holdfast.kernel.invariants import Violation
from holdfast.kernel.limits.limit_names import names_of_place
from holdfast.kernel.rules.sink_batches import stored_batch
from holdfast.ports.clock import instant, micros
from holdfast.ports.errors import BlobCorruptError, BlobMissingError, InvalidKeyError, UnreadableRowError
from holdfast.ports.persistence import Query
from holdfast.ports.queries.audit import (
    BlobsOf,
    LiveSessions,
    OrphanedRows,
    SlotsOverLimit,
    StreamPlace,
    StreamPlaces,
)
from holdfast.ports.queries.limits import ListLimits, QueueStates
from holdfast.ports.queries.outbox import ListDeadLetters
from holdfast.ports.queries.runs import RunsByKey
from holdfast.ports.queries.schedules import FindSchedule, NextScheduleNamespace
from holdfast.ports.queries.triggers import FindTrigger, ListNumberedMessages, TriggerEntry
from holdfast.ports.records.job import remote_stage_of
from holdfast.ports.records.limits import QUEUE_LIMIT
from holdfast.ports.records.outbox import Sink
from holdfast.ports.records.run import TERMINAL, Run, RunStatus
from holdfast.ports.records.schedule import ScheduleRow
from holdfast.ports.records.values import Micros
from holdfast.ports.searches import AllSinks, RunOutlines, SlotPlace, Waiting
from holdfast.ports.tables import LIMITS
from holdfast.ports.unreadable import PARSE_ERRORS
from holdfast.ports.validation import check, integer

Answer = TypeVar("Answer")
T = TypeVar("T")

LATE_AFTER: Final = timedelta(minutes=5)
"""How late a due event must be, while workers are alive, to count as forgotten: maintenance runs every few seconds."""
LEASE: Final = 30.0
"""The lease of the maintenance that a repair runs, in seconds."""
ROUNDS_MAX: Final = 10_000
"""The maximum number of consecutive maintenance ticks in a repair, in case each tick causes another."""
_STREAMS_AT_ONCE: Final = 1_000
_LETTERS_AT_ONCE: Final = 100


def examine(
    dispatcher: Dispatcher,
    *,
    repair: bool = False,
    blobs: bool = False,
    limit: int = FINDINGS,
    all_namespaces: bool = False,
) -> Diagnosis:
    """Check a namespace, or all of a store, without locks and in bounded memory.

    Each problem is checked again before it is reported, as the first read may have seen a change in progress. Rows
    whose run does not exist belong to no namespace and are always reported.
    """
    check("doctor", integer(0), limit=limit)
    namespace = None if all_namespaces else dispatcher.core.namespace
    return _Examination(dispatcher, repair=repair, blobs=blobs, limit=limit, namespace=namespace).carry_out()


class _Examination:
    def __init__(
        self, dispatcher: Dispatcher, *, repair: bool, blobs: bool, limit: int, namespace: str | None
    ) -> None:
        self._dispatcher = dispatcher
        self._core = core = dispatcher.core
        self._namespace = namespace
        self._persistence = core.stores.persistence
        self._examiner = StoreReader(self._persistence)
        self._repair = repair
        self._notebook = FindingCollector(limit)
        self._notebook.blobs = 0 if blobs else None
        self._late_before: Micros | None = None
        self._is_maintained = False
        self._unread_before: Micros = 0
        """When a client that reads a sink must have acknowledged what it has. That needs no worker."""
        self._namespaces = {core.namespace}
        """The namespaces that were seen, of which the schedules are checked."""

    def carry_out(self) -> Diagnosis:
        schema = _schema_finding(self._core)
        if schema is not None:
            self._notebook.add(schema)
            return self._notebook.diagnosis()
        self._core.connect()
        now = micros(self._core.clock.now())
        self._unread_before = now - LATE_AFTER // timedelta(microseconds=1)
        if self._persistence.read(LiveSessions(now)):
            self._late_before = self._unread_before
        for page in self._examiner.pages():
            ours = [whole for whole in page.runs if self._is_ours(whole.run.namespace)]
            self._notebook.runs += len(ours)
            self._namespaces |= {whole.run.namespace for whole in page.runs}
            for part in self._examiner.parts(ours):
                self._look_at(part)
            self._note_unreadable(page)
            self._look_for_orphans(page)
        self._look_at_slots()
        all_sinks = self._persistence.transact(lambda tx: tx.find(AllSinks()))
        sinks = [sink for sink in all_sinks if self._is_ours(sink.namespace)]
        for sink in sinks:
            self._look_at_sink(sink)
        for namespace in sorted({sink.namespace for sink in sinks}):
            self._look_for_dead_letters(namespace)
        self._namespaces |= {sink.namespace for sink in all_sinks}
        if self._namespace is None:
            self._namespaces.update(self._namespaces_of_schedules())
        for namespace in sorted(self._namespaces):
            if self._is_ours(namespace):
                self._look_at_schedules(namespace, now)
                self._look_at_triggers(namespace, now)
                self._look_at_queues(namespace, now)
                self._look_for_unserved(namespace)
        return self._notebook.diagnosis()

    def _is_ours(self, namespace: str) -> bool:
        """Whether a namespace is to be checked."""
        return self._namespace in (None, namespace)

    # Runs ---------------------------------------------------------------------------------------------------------

    def _look_at(self, part: Part) -> None:
        try:
            self._judge(part)
            if self._notebook.blobs is not None:
                self._follow_blobs(part)
        except (UnreadableRowError, *PARSE_ERRORS) as error:
            # One of the runs, or its plan, can't be read: check each run alone to find it.
            if len(part.runs) > 1:
                for run in part.runs:
                    for alone in self._examiner.again((run.key,)):
                        self._look_at(alone)
                return
            (run,) = part.runs
            for one in unreadable_of(self._persistence, (run.key,)) or (failed_decision(run.key, error),):
                self._notebook.add(of_run("unreadable", str(one.error), run))

    def _note_unreadable(self, page: Page) -> None:
        keys = sorted({one.run for one in page.unreadable})
        if not keys:
            return
        outlines = {
            outline.key: outline
            for outline in self._persistence.transact(lambda tx: tx.find(RunOutlines(keys, locks=False)))
        }
        for one in page.unreadable:
            outline = outlines.get(one.run)
            if outline is None or not self._is_ours(outline.namespace):
                continue
            namespace, run_id, text = outline.namespace, outline.id, str(one.error)
            self._notebook.add(
                DoctorFinding(code="unreadable", text=text, namespace=namespace, run_id=run_id, key=one.run)
            )
        self._notebook.runs += sum(self._is_ours(outline.namespace) for outline in outlines.values())

    def _judge(self, part: Part) -> None:
        for run in part.runs:
            if run.status is RunStatus.BLOCKED:
                self._notebook.add(of_run("blocked", "it is blocked until an operator acts", run))
        first = _by_place(part.violations(late_before=self._late_before))
        if not first:
            return
        runs: dict[str, Run] = {}
        found: dict[tuple[str, str], list[str]] = {}
        for again in self._examiner.again(where for _, where in first):
            runs |= {run.key: run for run in again.runs}
            seen = _by_place(again.violations(late_before=self._late_before))
            found |= {place: what for place, what in seen.items() if place in first}
        hopeless = {where for code, where in found if code in NOT_REPAIRABLE}
        in_reach = {place for place in found if _is_in_reach(place, found, hopeless)}
        repaired = self._repair_found if self._repair else self._rehearse_repair
        left = repaired(in_reach, found) if in_reach else found.keys()
        for place in sorted(found, key=lambda one: (one[1], one[0])):
            code, where = place
            is_repaired = self._repair and place not in left
            is_promised = not self._repair and place not in left
            advice = REPAIR if is_promised else "" if is_repaired else advice_for(code)
            what = "; ".join(found[place])
            self._notebook.add(of_run(code, what, runs[where], advice=advice, repaired=is_repaired))

    def _rehearse_repair(
        self, in_reach: Collection[tuple[str, str]], found: Iterable[tuple[str, str]]
    ) -> set[tuple[str, str]]:
        """Return the problems that a repair would leave. Changes nothing."""
        by_maintenance = {place for place in in_reach if place[0] in REPAIRED_BY_MAINTENANCE}
        left = {place for place in found if place not in by_maintenance}
        for part in self._examiner.again(_named(in_reach)):
            after = _by_place(violations_after(self._core, part, _repairs(part)))
            ours = {run.key for run in part.runs}
            left -= {place for place in in_reach if place[1] in ours and place not in after}
        return left

    def _repair_found(
        self, in_reach: Collection[tuple[str, str]], found: Iterable[tuple[str, str]]
    ) -> set[tuple[str, str]]:
        """Repair what can be repaired, and return the problems that remain."""
        named = _named(in_reach)
        for repair in [repair for part in self._examiner.again(named) for repair in _repairs(part)]:
            self._dispatcher.dispatch_many((repair,))
        if not self._is_maintained and any(code in REPAIRED_BY_MAINTENANCE for code, _ in in_reach):
            self._maintain()
        return {
            place
            for again in self._examiner.again(where for _, where in found)
            for place in _by_place(again.violations(late_before=self._late_before))
        }

    def _maintain(self) -> None:
        """Run the maintenance that workers should have run, once."""
        maintenance = Maintenance(self._core, lease=LEASE)
        for _ in range(ROUNDS_MAX):
            if not maintenance.tick().more:
                break
        self._is_maintained = True

    def _look_for_orphans(self, page: Page) -> None:
        query = OrphanedRows(after=page.after, upto=page.upto)
        orphans: dict[str, list[str]] = {}
        for key, table in self._twice(query, lambda rows: rows):
            orphans.setdefault(key, []).append(table)
        for key, tables in orphans.items():
            text = f"there is no run with the key {key}, but rows of one: {', '.join(tables)}"
            self._notebook.add(DoctorFinding(code="orphan", text=text, key=key))

    # Blobs --------------------------------------------------------------------------------------------------------

    def _follow_blobs(self, part: Part) -> None:
        runs = {run.key: run for run in part.runs}
        for row, blob in part.blobs():
            self._follow(runs[row.run], f"history row {row.number}, which is {row.type},", blob)
        for use in self._persistence.read(BlobsOf(runs=tuple(runs))):
            named = {"ai_call": "a call of a model", "item": "an item of a map"}.get(use.what, "an artifact")
            self._follow(runs[use.run], named, use.blob)

    def _follow(self, run: Run, what: str, blob: str) -> None:
        self._notebook.blobs = (self._notebook.blobs or 0) + 1
        blobs = self._core.stores.blobs
        try:
            if blobs is not None:
                blobs.get(blob)
                return
            problem = "can't be checked, because this engine has no blob store"
        except BlobMissingError:
            problem = "is not there"
        except BlobCorruptError:
            problem = "is not what was stored"
        except InvalidKeyError:
            problem = "has an invalid key"
        if not self._persistence.read(RunsByKey((run.key,))):
            return  # the run was removed in the meantime, and its blobs with it
        self._notebook.add(of_run("B1", f"the value of {what} is in the blob {blob}, which {problem}", run))

    # What runs share ----------------------------------------------------------------------------------------------

    def _look_at_slots(self) -> None:
        for waiting in Waiting:
            for over in self._twice(SlotsOverLimit(waiting), lambda rows: rows):
                if not self._is_ours(over.place.namespace) or self._is_changed(over.place, waiting):
                    continue
                what = f"{over.used} {waiting.value} hold a slot of {over.place.key!r}, but at most {over.limit} may"
                namespace, key = over.place
                self._notebook.add(DoctorFinding(code="S10", text=what, namespace=namespace, key=key))

    def _is_changed(self, place: SlotPlace, waiting: Waiting) -> bool:
        """Whether a limit was ever changed while running: lowering it interrupts nothing."""
        names = names_of_place(place, waiting)
        return bool(self._persistence.transact(lambda tx: tx.get(LIMITS, names)))

    def _look_at_queues(self, namespace: str, now: Micros) -> None:
        """Report paused queues in which jobs wait."""
        query = ListLimits(namespace=namespace)
        while page := self._persistence.read(query):
            for row in page:
                queue = row.name.removeprefix(QUEUE_LIMIT)
                if not row.is_paused or not row.name.startswith(QUEUE_LIMIT):
                    continue
                (state,) = self._persistence.read(QueueStates(namespace, (queue,)))
                if state.queued:
                    wait = "waits" if state.queued == 1 else "wait"
                    text = f"{pause_text(row, now, UTC)}: {counted(state.queued, 'job')} {wait}"
                    self._notebook.add(
                        DoctorFinding(code="queue_paused", text=text, namespace=namespace, key=row.name)
                    )
            query = attrs.evolve(query, after=page[-1].name)

    def _look_for_unserved(self, namespace: str) -> None:
        """Report remote stages that have waited for long, and that no live worker runs.

        Of other code it can't be said: serverless hosts run it without being in the worker registry.
        """
        late_before = self._late_before
        if late_before is None:
            return
        core = self._core.in_namespace(namespace)
        for queue in queue_infos(core):
            for code in queue.unserved:
                stage, since = remote_stage_of(code.definition), code.waiting_since
                if stage is None or since is None or micros(since) >= late_before:
                    continue
                jobs = (
                    f"{counted(code.queued, 'job')} of the remote stage {stage!r} in the queue {queue.name!r}"
                )
                text = f"{jobs} {'waits' if code.queued == 1 else 'wait'} since {since}, and no live worker runs it"
                finding = DoctorFinding(code="unserved", text=text, namespace=namespace, key=queue.name)
                self._notebook.add(finding)

    def _look_at_sink(self, sink: Sink) -> None:
        late_before = self._late_before
        since = sink.succeeded_at or sink.created_at
        if late_before is not None and sink.failures and since < late_before:
            error = f": {sink.error}" if sink.error else ""
            failed = f"has failed {counted(sink.failures, 'time')} in a row"
            text = f"it has accepted nothing since {instant(since)} and {failed}{error}"
            self._note_sink(sink, "sink", text)
        batch = stored_batch(sink)
        if batch is not None and batch.streams and batch.read_at < self._unread_before:
            events = counted(batch.rows, "event")
            text = f"its client has not acknowledged {events} that it read at {instant(batch.read_at)}"
            self._note_sink(sink, "sink", text)
        late = 0
        for places in self._stream_pages(sink):
            for place in self._twice(places, _wrong_streams):
                self._note_sink(sink, "O4", _wrong_stream(place))
            if late_before is not None and not sink.failures:
                waiting = self._twice(places, lambda rows: _late_streams(rows, late_before))
                late += len(waiting)
        if late:
            self._note_sink(
                sink,
                "sink",
                f"events of {counted(late, 'run')} have waited for it for more than {LATE_AFTER}",
            )

    def _stream_pages(self, sink: Sink) -> Iterator[StreamPlaces]:
        """Yield queries that together cover all streams of a sink."""
        after = ""
        while True:
            query = StreamPlaces(sink=sink.key, after=after, limit=_STREAMS_AT_ONCE)
            yield query
            page = self._persistence.read(query)
            if len(page) < _STREAMS_AT_ONCE:
                return
            after = page[-1].run

    def _note_sink(self, sink: Sink, code: str, text: str) -> None:
        self._notebook.add(
            DoctorFinding(
                code=code,
                text=f"sink {sink.name!r}: {text}",
                advice=advice_for("sink"),
                namespace=sink.namespace,
                key=sink.name,
            )
        )

    def _look_for_dead_letters(self, namespace: str) -> None:
        query = ListDeadLetters(namespace=namespace, limit=_LETTERS_AT_ONCE)
        while page := self._persistence.read(query):
            for letter in page:
                text = (
                    f"sink {letter.sink!r} refuses its event {letter.number}, and later events are held:"
                    f" {letter.error}"
                )
                finding = DoctorFinding(
                    code="dead_letter", text=text, namespace=namespace, run_id=letter.run_id, key=letter.run
                )
                self._notebook.add(finding)
            query = attrs.evolve(query, after=page[-1].place)

    def _namespaces_of_schedules(self) -> Iterator[str]:
        found = self._persistence.read(NextScheduleNamespace())
        while found is not None:
            yield found
            found = self._persistence.read(NextScheduleNamespace(found))

    def _look_at_schedules(self, namespace: str, now: Micros) -> None:
        for row in schedule_rows(self._core, namespace):
            if _schedule_problem(row, now) is None:
                continue
            again = self._persistence.read(FindSchedule(row.schedule_name))
            problem = None if again is None else _schedule_problem(again, now)
            if problem is None:  # it was fired, changed or removed in the meantime
                continue
            code, text = problem
            text = f"schedule {row.name!r}: {text}"
            self._notebook.add(DoctorFinding(code=code, text=text, namespace=namespace, key=row.name))

    def _look_at_triggers(self, namespace: str, now: Micros) -> None:
        for entry in trigger_entries(self._core, namespace=namespace):
            if self._trigger_problem(entry, now) is None:
                continue
            again = self._persistence.read(FindTrigger(entry.row.trigger_name))
            problem = None if again is None else self._trigger_problem(again, now)
            if again is None or problem is None or again.row.next_number != entry.row.next_number:
                continue  # it has moved on, or was changed or removed in the meantime
            code, text = problem
            text = f"trigger {entry.row.name!r}: {text}"
            self._notebook.add(DoctorFinding(code=code, text=text, namespace=namespace, key=entry.row.name))

    def _trigger_problem(self, entry: TriggerEntry, now: Micros) -> tuple[str, str] | None:
        """Return the code of a finding about a trigger, and what is wrong; None if nothing is."""
        row = entry.row
        if row.paused is not None or not entry.behind:
            return None
        if row.problem is not None:
            return (
                "trigger_held",
                f"it is held up at message {row.next_number} of {row.topic!r}: {row.problem}",
            )
        following = ListNumberedMessages(
            namespace=row.namespace, topic=row.topic, number=row.next_number, limit=1
        )
        message = next(iter(self._persistence.read(following)), None)
        if message is None or now - message.at <= SCHEDULE_LATE_AFTER:
            return None
        late = format_duration(now - message.at)
        where = f"message {message.number} of {row.topic!r} was published {late} ago"
        return "trigger_late", f"{where}, and no host that has the code of {row.workflow!r} has handled it"

    def _twice(self, query: Query[Answer], wrong: Callable[[Answer], Iterable[T]]) -> list[T]:
        """Return the problems that two successive reads both show."""
        first = list(wrong(self._persistence.read(query)))
        if not first:
            return []
        second = list(wrong(self._persistence.read(query)))
        return [one for one in second if one in first]


def _schedule_problem(row: ScheduleRow, now: Micros) -> tuple[str, str] | None:
    """Return the code of a finding about a schedule, and what is wrong; None if nothing is."""
    if row.problem is not None:
        return "schedule_blocked", f"it can't fire: {row.problem}"
    if row.next_at is not None and now - row.next_at > SCHEDULE_LATE_AFTER:
        late = format_duration(now - row.next_at)
        return (
            "schedule_late",
            f"it was due {late} ago, and no host that has the code of {row.workflow!r} fired it",
        )
    return None


def _by_place(violations: Iterable[Violation]) -> dict[tuple[str, str], list[str]]:
    """Return violations by invariant and run key."""
    found: dict[tuple[str, str], list[str]] = {}
    for violation in violations:
        found.setdefault((violation.invariant, violation.where), []).append(violation.what)
    return found


def _named(in_reach: Iterable[tuple[str, str]]) -> set[str]:
    """Return the keys of the runs that the command `run.repair` is to repair."""
    return {where for code, where in in_reach if code in REPAIRED_BY_COMMAND}


def _repairs(part: Part) -> Iterator[RunRepair]:
    """Yield the repairs of these runs, and of ended runs that they wait for in vain."""
    waiting: set[str] = set()
    for run in part.runs:
        yield RunRepair(run=run.key)
        jobs = part.snapshot.jobs.get(run.key, {}).values()
        waiting |= {job.key.text for job in jobs if job.waits_for_child}
    for run in part.snapshot.runs.values():
        if run.parent in waiting and run.status in TERMINAL:
            yield RunRepair(run=run.key, redeliver=True)


def _is_in_reach(place: tuple[str, str], found: Container[tuple[str, str]], hopeless: set[str]) -> bool:
    code, where = place
    by_command = code in REPAIRED_BY_COMMAND or (REPAIRED_BESIDE.get(code, ""), where) in found
    return code in REPAIRED_BY_MAINTENANCE or (by_command and where not in hopeless)


def _schema_finding(core: Core) -> DoctorFinding | None:
    """Return a finding if the tables are missing or have another version, so that they can't be read."""
    there = schema_of(core.stores)
    if there == MEMORY:
        return None
    here = newest_schema()
    if there == here:
        return None
    found = "the tables are missing" if there is None else f"the tables have version {there}"
    refusal = None if there is None else schema_refusal(there)
    advice = advice_for("schema") if refusal is None else f"{refusal.remedy[0].upper()}{refusal.remedy[1:]}."
    return DoctorFinding(code="schema", text=f"{found}, and this version needs {here}", advice=advice)


def _wrong_streams(places: Sequence[StreamPlace]) -> list[StreamPlace]:
    return [
        place
        for place in places
        if place.last_row is None or place.head_row > place.last_row or place.delivered > place.head_row
    ]


def _wrong_stream(place: StreamPlace) -> str:
    if place.last_row is None:
        return f"it has pending events of the run with the key {place.run}, which does not exist"
    return (
        f"of the run with the key {place.run} it knows {place.head_row} events and has received {place.delivered}, "
        f"but there are {place.last_row}"
    )


def _late_streams(places: Sequence[StreamPlace], before: Micros) -> list[StreamPlace]:
    return [place for place in places if place.due_at is not None and place.due_at < before]
