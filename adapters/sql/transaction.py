"""The reads and the write of a transaction, for any database."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, TypeVar

import attrs

from holdfast.adapters.sql import rows
from holdfast.adapters.sql.database import Link, Parameters
from holdfast.adapters.sql.dialect import Dialect, encode_rows
from holdfast.adapters.sql.errors import TransientError
from holdfast.adapters.sql.narrow_updates import LockedRows
from holdfast.adapters.sql.queries.admissions import PLACE, WANTED, Searches
from holdfast.adapters.sql.rows import Row, askable, is_askable
from holdfast.adapters.sql.statements import Reads, Writes
from holdfast.adapters.sql.writes import WritePlan, is_sure, write_plan
from holdfast.ports.attempt_output import Annotation
from holdfast.ports.changes import Change, NetChanges, net_changes
from holdfast.ports.errors import HoldfastError
from holdfast.ports.persistence import (
    CompletedRow,
    LockedAttempts,
    NodeRows,
    QueueClaim,
    SlotPlace,
    WaitedFor,
    Waiting,
)
from holdfast.ports.records.history import STAGE_COMPLETED, HistoryRow
from holdfast.ports.records.job import Job, JobKey, JobKind, PassOver
from holdfast.ports.records.limits import RateName, RateWindow, SlotName
from holdfast.ports.records.outbox import Sink, SinkName, Stream, StreamHead, StreamKey
from holdfast.ports.records.run import Run, RunName
from holdfast.ports.records.session import LeaderLease, Session
from holdfast.ports.records.values import IdempotencyReply, Micros, PlanRow
from holdfast.ports.unreadable import RunOutline

T = TypeVar("T")

NUMBER_MAX: Final = 2**63 - 1
NEWEST_TRIES_MAX: Final = 5
_JOB_KEY: Final = ("run", "number")
_QUEUE_CLAIM: Final = ("claim", "queue", "definition", "most")


@attrs.frozen
class Statements:
    """The statements of transactions for one database, built once."""

    dialect: Dialect
    reads: Reads
    writes: Writes
    waiting: Mapping[Waiting, Searches]


class SqlTransaction:
    """See `Transaction`.

    An error of the database is sticky: even if `work` catches it, the transaction can't be committed any more.
    """

    def __init__(self, link: Link, statements: Statements, receipt: str | None) -> None:
        """`receipt` is stored with the changes; None if it is stored already."""
        self._link = link
        self._dialect = statements.dialect
        self._reads = statements.reads
        self._writes = statements.writes
        self._waiting = statements.waiting
        self._receipt = receipt
        self._known = LockedRows()
        self._is_over = False
        self.wrote = False
        self.failure: HoldfastError | None = None

    def end(self) -> None:
        """Refuse further use. Raise the error that the database has raised before, if any."""
        self._is_over = True
        if self.failure is not None:
            raise self.failure

    def commit(self) -> None:
        """Commit the applied changes."""
        self._link.commit()

    def runs(self, keys: Collection[str], /) -> Sequence[Run]:
        """See `Transaction.runs`."""
        return self._known.note_runs(self._by_text(self._reads.lock_runs, "keys", keys, rows.run_from))

    def latest_runs(self, names: Collection[RunName], /) -> Sequence[Run]:
        """See `Transaction.latest_runs`.

        While the first statement waits for a lock, another transaction may add a generation, which it does not see.
        The second statement, sent along with it, does; so both must agree.
        """
        wanted = sorted(name for name in set(names) if is_askable(name.namespace) and is_askable(name.id))
        if not wanted:
            return ()
        parameters = {"names": encode_rows(("namespace", "id"), wanted)}
        statements = [(self._reads.lock_latest_runs, parameters), (self._reads.latest_keys, parameters)]
        for _ in range(NEWEST_TRIES_MAX):
            found, newest = self._do(lambda: self._locking().queries(statements))
            if [row[0] for row in found] == [row[0] for row in newest]:
                return self._known.note_runs([rows.run_from(row) for row in found])
        raise TransientError("a run gets new generations faster than they can be locked")

    def generations(self, names: Collection[RunName], /) -> Sequence[Run]:
        """See `Transaction.generations`."""
        wanted = sorted(name for name in set(names) if is_askable(name.namespace) and is_askable(name.id))
        if not wanted:
            return ()
        parameters = {"names": encode_rows(("namespace", "id"), wanted)}
        return self._plain(self._reads.generations, parameters, rows.run_from, keyed=True)

    def jobs(self, keys: Collection[JobKey], /, *, lock: bool = True) -> Sequence[Job]:
        """See `Transaction.jobs`."""
        wanted = askable_jobs(keys)
        if not wanted:
            return ()
        parameters = {"keys": encode_rows(_JOB_KEY, wanted)}
        if lock:
            return self._known.note_jobs(self._locked(self._reads.lock_jobs, parameters, rows.job_from))
        return self._plain(self._reads.jobs, parameters, rows.job_from)

    def lock_attempts(
        self, runs: Collection[str], jobs: Collection[JobKey], sessions: Collection[str], /
    ) -> LockedAttempts:
        """See `Transaction.lock_attempts`."""
        keys, pairs, ids = askable(runs), askable_jobs(jobs), askable(sessions)
        statements: list[tuple[str, Parameters]] = []
        if keys:
            statements.append((self._reads.lock_runs, {"keys": self._dialect.texts(keys)}))
        if pairs:
            statements.append((self._reads.lock_jobs, {"keys": encode_rows(_JOB_KEY, pairs)}))
        if ids:
            statements.append((self._reads.sessions, {"ids": self._dialect.texts(ids)}))
        answers = iter(self._do(lambda: self._locking().queries(statements)) if statements else ())
        return LockedAttempts(
            self._known.note_runs([rows.run_from(row) for row in next(answers)] if keys else ()),
            self._known.note_jobs([rows.job_from(row) for row in next(answers)] if pairs else ()),
            [rows.session_from(row) for row in next(answers)] if ids else (),
        )

    def jobs_of(self, runs: Collection[str], /) -> Sequence[Job]:
        """See `Transaction.jobs_of`."""
        return self._known.note_jobs(self._by_text(self._reads.lock_jobs_of, "runs", runs, rows.job_from))

    def claimable(
        self,
        session: str,
        namespace: str,
        queue_claims: Sequence[QueueClaim],
        limit: int,
        /,
        *,
        pass_over: PassOver = PassOver.NOTHING,
    ) -> LockedAttempts:
        """See `Transaction.claimable`."""
        pairs: dict[tuple[str, str], Row] = {}
        for place, queue_claim in enumerate(queue_claims):
            most = min(queue_claim.limit, limit)
            if most > 0 and is_askable(queue_claim.queue):
                for definition in askable(queue_claim.definitions):
                    pairs.setdefault(
                        (queue_claim.queue, definition), (place, queue_claim.queue, definition, most)
                    )
        if not pairs or not is_askable(namespace):
            return LockedAttempts((), (), ())
        parameters: Parameters = {
            "session": session if is_askable(session) else "",
            "namespace": namespace,
            "queue_claims": encode_rows(_QUEUE_CLAIM, pairs.values()),
            "most": max(pair[3] for pair in pairs.values()),
            "limit": limit,
            "pass_over": pass_over.value,
        }
        found = self._search(self._reads.lock_claimable, parameters, _whole, keyed=True)
        of_job = len(rows.JOB)
        jobs = self._known.note_jobs([rows.job_from(row[:of_job]) for row in found])
        by = found[0][of_job:] if found else ()
        return LockedAttempts((), jobs, [rows.session_from(by)] if by and by[0] is not None else ())

    def due(self, now: Micros, limit: int, /, *, kind: JobKind | None = None) -> Sequence[Job]:
        """See `Transaction.due`."""
        parameters = {"now": now, "limit": limit, "kind": kind.value if kind else ""}
        return self._known.note_jobs(self._search(self._reads.lock_due, parameters, rows.job_from))

    def stage_jobs(self, name: RunName, stage: str, item: int | None, /) -> Sequence[JobKey]:
        """See `Transaction.stage_jobs`."""
        # No item has a negative index; -1 selects all.
        if not all(map(is_askable, (*name, stage))) or not 0 <= (item or 0) <= NUMBER_MAX:
            return ()
        parameters = {
            "namespace": name.namespace,
            "id": name.id,
            "stage": stage,
            "item": -1 if item is None else item,
        }
        return self._plain(self._reads.stage_jobs, parameters, rows.job_key_from)

    def external_jobs(self, namespace: str, key: str, /) -> Sequence[JobKey]:
        """See `Transaction.external_jobs`."""
        if not is_askable(namespace) or not is_askable(key):
            return ()
        parameters = {"namespace": namespace, "key": key}
        return self._plain(self._reads.external_jobs, parameters, rows.job_key_from)

    def sessions(self, ids: Collection[str], /, *, lock: bool) -> Sequence[Session]:
        """See `Transaction.sessions`."""
        if lock:
            return self._by_text(self._reads.lock_sessions, "ids", ids, rows.session_from)
        return self._by_text(self._reads.sessions, "ids", ids, rows.session_from, lock=False)

    def expired_sessions(self, before: Micros, limit: int, /) -> Sequence[Session]:
        """See `Transaction.expired_sessions`."""
        parameters = {"before": before, "limit": limit}
        return self._search(self._reads.lock_expired_sessions, parameters, rows.session_from)

    def lost_jobs(self, limit: int, /) -> Sequence[JobKey]:
        """See `Transaction.lost_jobs`."""
        return self._plain(self._reads.lost_jobs, {"limit": limit}, rows.job_key_from)

    def heartbeat_overdue_jobs(self, before: Micros, limit: int, /) -> Sequence[JobKey]:
        """See `Transaction`."""
        return self._plain(
            self._reads.heartbeat_overdue_jobs, {"before": before, "limit": limit}, rows.job_key_from
        )

    def active_runs(self, after: str, limit: int, /) -> Sequence[str]:
        """See `Transaction.active_runs`."""
        return self._plain(self._reads.active_runs, {"after": after, "limit": limit}, _first)

    def runs_missing_jobs(self, keys: Collection[str], /) -> Sequence[str]:
        """See `Transaction`."""
        return self._by_text(self._reads.runs_missing_jobs, "keys", keys, _first, lock=False)

    def has_deliveries(self) -> bool:
        """See `Transaction.has_deliveries`."""
        return bool(self._plain(self._reads.has_deliveries, {}, _whole))

    def completed(
        self, runs: Collection[str], /, *, types: Collection[str] = (STAGE_COMPLETED,)
    ) -> Sequence[CompletedRow]:
        """See `Transaction.completed`."""
        wanted = askable(runs)
        if not wanted:
            return ()
        parameters = {"runs": self._dialect.texts(wanted), "types": self._dialect.texts(askable(types))}
        return self._plain(self._reads.completed, parameters, rows.completed_from)

    def node_rows(self, runs: Collection[str], /) -> Sequence[NodeRows]:
        """See `Transaction.node_rows`."""
        return self._by_text(self._reads.node_rows, "runs", runs, rows.node_rows_from, lock=False)

    def history(self, rows_: Collection[tuple[str, int]], /) -> Sequence[HistoryRow]:
        """See `Transaction.history`."""
        wanted = sorted(key for key in set(rows_) if is_askable(key[0]) and key[1] <= NUMBER_MAX)
        if not wanted:
            return ()
        parameters = {"keys": encode_rows(("run", "number"), wanted)}
        return self._plain(self._reads.history, parameters, rows.history_from, keyed=True)

    def plans(self, fingerprints: Collection[str], /) -> Sequence[PlanRow]:
        """See `Transaction.plans`."""
        return self._by_text(self._reads.plans, "fingerprints", fingerprints, rows.plan_from, lock=False)

    def replies(self, keys: Collection[tuple[str, str]], /) -> Sequence[IdempotencyReply]:
        """See `Transaction.replies`."""
        wanted = sorted(key for key in set(keys) if is_askable(key[0]) and is_askable(key[1]))
        if not wanted:
            return ()
        parameters = {"keys": encode_rows(("namespace", "key"), wanted)}
        return self._plain(self._reads.replies, parameters, rows.reply_from, keyed=True)

    def annotation_keys(self, keys: Collection[tuple[str, str]], /) -> Sequence[tuple[str, str, str]]:
        """See `Transaction`."""
        wanted = sorted(key for key in set(keys) if is_askable(key[0]) and is_askable(key[1]))
        if not wanted:
            return ()
        parameters = {"keys": encode_rows(("run", "key"), wanted)}
        return self._plain(self._reads.annotation_keys, parameters, _triple)

    def annotations(self, runs: Collection[str], /) -> Sequence[Annotation]:
        """See `Transaction.annotations`."""
        return self._by_text(self._reads.annotations, "runs", runs, rows.annotation_from)

    def leaders(self, names: Collection[str], /) -> Sequence[LeaderLease]:
        """See `Transaction`."""
        return self._by_text(self._reads.lock_leaders, "names", names, rows.leader_from)

    def all_sinks(self) -> Sequence[Sink]:
        """See `Transaction.all_sinks`."""
        return self._plain(self._reads.all_sinks, {}, rows.sink_from)

    def sinks(self, names: Collection[SinkName], /, *, lock: bool) -> Sequence[Sink]:
        """See `Transaction.sinks`."""
        wanted = sorted(name for name in set(names) if is_askable(name.namespace) and is_askable(name.name))
        if not wanted:
            return ()
        parameters = {"names": encode_rows(("namespace", "name"), wanted)}
        if lock:
            return self._locked(self._reads.lock_sinks, parameters, rows.sink_from)
        return self._plain(self._reads.sinks, parameters, rows.sink_from)

    def streams(self, keys: Collection[StreamKey], /) -> Sequence[Stream]:
        """See `Transaction.streams`."""
        wanted = sorted(key for key in set(keys) if is_askable(key.sink) and is_askable(key.run))
        if not wanted:
            return ()
        parameters = {"keys": encode_rows(("sink", "run"), wanted)}
        return self._locked(self._reads.lock_streams, parameters, rows.stream_from)

    def due_streams(self, sink: SinkName, now: Micros, limit: int, /) -> Sequence[Stream]:
        """See `Transaction.due_streams`."""
        if not is_askable(sink.namespace) or not is_askable(sink.name):
            return ()
        parameters = {"namespace": sink.namespace, "name": sink.name, "now": now, "limit": limit}
        return self._search(self._reads.lock_due_streams, parameters, rows.stream_from)

    def dead_lettered_streams(
        self, namespace: str, sink: str, run_id: str, limit: int, /
    ) -> Sequence[Stream]:
        """See `Transaction`."""
        if not all(map(is_askable, (namespace, sink, run_id))):
            return ()
        parameters = {"namespace": namespace, "sink": sink, "run_id": run_id, "limit": limit}
        return self._search(self._reads.lock_dead_lettered_streams, parameters, rows.stream_from)

    def outlines(self, keys: Collection[str], /, *, lock: bool) -> Sequence[RunOutline]:
        """See `Transaction.outlines`."""
        sql = self._reads.lock_outlines if lock else self._reads.outlines
        return self._by_text(sql, "keys", keys, rows.outline_from, lock=lock)

    def run_keys(self, after: str, limit: int, /) -> Sequence[str]:
        """See `Transaction.run_keys`."""
        return self._plain(self._reads.run_keys, {"after": after, "limit": limit}, _first)

    def undelivered_heads(
        self, namespace: str, sinks: Collection[str], runs: Collection[str], /
    ) -> Sequence[StreamHead]:
        """See `Transaction`."""
        names, keys = askable(sinks), askable(runs)
        if not names or not keys or not is_askable(namespace):
            return ()
        parameters: Parameters = {
            "namespace": namespace,
            "names": self._dialect.texts(names),
            "keys": self._dialect.texts(keys),
        }
        return self._plain(self._reads.undelivered_heads, parameters, rows.stream_head_from)

    def due_runs(self, now: Micros, limit: int, /) -> Sequence[str]:
        """See `Transaction.due_runs`."""
        return self._plain(self._reads.due_runs, {"now": now, "limit": limit}, _first)

    def overdue_runs(self, now: Micros, limit: int, /) -> Sequence[str]:
        """See `Transaction.overdue_runs`."""
        return self._plain(self._reads.overdue_runs, {"now": now, "limit": limit}, _first)

    def waited_for(self, waiting: Waiting, places: Collection[SlotPlace], /) -> Sequence[WaitedFor]:
        """See `Transaction.waited_for`."""
        wanted = _askable_places(places)
        if not wanted:
            return ()
        parameters = {"places": encode_rows(PLACE, wanted)}
        return self._plain(self._waiting[waiting].waited_for, parameters, rows.waited_for_from)

    def all_waited_for(self, waiting: Waiting, after: SlotPlace, limit: int, /) -> Sequence[WaitedFor]:
        """See `Transaction.all_waited_for`."""
        if limit < 1:
            return ()
        parameters: Parameters = {"namespace": after.namespace, "key": after.key, "limit": limit}
        return self._plain(self._waiting[waiting].all_waited_for, parameters, rows.waited_for_from)

    def first_pending(self, wanted: Sequence[tuple[SlotPlace, int]], /) -> Sequence[str]:
        """See `Transaction.first_pending`."""
        return self._first_waiting(Waiting.RUNS, wanted, _first)

    def first_limited(self, wanted: Sequence[tuple[SlotPlace, int]], /) -> Sequence[JobKey]:
        """See `Transaction.first_limited`."""
        return self._first_waiting(Waiting.JOBS, wanted, rows.job_key_from)

    def slots(self, names: Collection[SlotName], /) -> Sequence[SlotName]:
        """See `Transaction.slots`."""
        wanted = sorted(name for name in set(names) if is_askable(name.namespace) and is_askable(name.name))
        if not wanted:
            return ()
        return self._locked(self._reads.lock_slots, {"names": encode_rows(rows.SLOT, wanted)}, rows.slot_from)

    def used_slots(self, waiting: Waiting, places: Collection[SlotPlace], /) -> Mapping[SlotPlace, int]:
        """See `Transaction.used_slots`."""
        wanted = _askable_places(places)
        if not wanted:
            return {}
        parameters = {"places": encode_rows(PLACE, wanted)}
        found = self._plain(self._waiting[waiting].used, parameters, _whole)
        return {SlotPlace(namespace, key): used for namespace, key, used in found}

    def rates(self, names: Collection[RateName], /, *, lock: bool) -> Sequence[RateWindow]:
        """See `Transaction.rates`."""
        wanted = sorted(name for name in set(names) if is_askable(name.namespace) and is_askable(name.name))
        if not wanted:
            return ()
        parameters = {"names": encode_rows(rows.SLOT, wanted)}
        if lock:
            return self._locked(self._reads.lock_rates, parameters, rows.rate_from)
        return self._plain(self._reads.rates, parameters, rows.rate_from)

    def rated_jobs(self, places: Collection[SlotPlace], /) -> Mapping[SlotPlace, int]:
        """See `Transaction.rated_jobs`."""
        wanted = _askable_places(places)
        if not wanted:
            return {}
        parameters = {"places": encode_rows(PLACE, wanted)}
        found = self._plain(self._reads.rated_jobs, parameters, _whole)
        return {SlotPlace(namespace, key): queued for namespace, key, queued in found}

    def apply(self, changes: Sequence[Change], /) -> None:
        """See `Transaction.apply`."""
        if not changes:
            return
        net = self._do(lambda: net_changes(changes))
        plan = write_plan(net, self._writes, self._known)
        self._do(lambda: self._write(net, plan))
        self.wrote = True

    def _write(self, net: NetChanges, plan: WritePlan) -> None:
        sure = is_sure(net, self._known)
        receipt, self._receipt = self._receipt, None
        self._locking().write(plan, receipt, is_sure=sure)

    def _by_text(
        self,
        sql: str,
        parameter: str,
        texts: Collection[str],
        record: Callable[[Row], T],
        *,
        lock: bool = True,
    ) -> Sequence[T]:
        wanted = askable(texts)
        if not wanted:
            return ()
        parameters = {parameter: self._dialect.texts(wanted)}
        return (self._locked if lock else self._plain)(sql, parameters, record, keyed=True)

    def _first_waiting(
        self, waiting: Waiting, wanted: Sequence[tuple[SlotPlace, int]], record: Callable[[Row], T]
    ) -> Sequence[T]:
        most_by_place = {
            place: most
            for place, most in wanted
            if most > 0 and is_askable(place.namespace) and is_askable(place.key)
        }
        if not most_by_place:
            return ()
        parameters: Parameters = {
            "wanted": encode_rows(WANTED, ((*place, most) for place, most in most_by_place.items())),
            "most": max(most_by_place.values()),
        }
        return self._plain(self._waiting[waiting].first, parameters, record)

    def _locked(
        self, sql: str, parameters: Parameters, record: Callable[[Row], T], *, keyed: bool = True
    ) -> Sequence[T]:
        return [record(row) for row in self._do(lambda: self._locking().query(sql, parameters, keyed=keyed))]

    def _plain(
        self, sql: str, parameters: Parameters, record: Callable[[Row], T], *, keyed: bool = False
    ) -> Sequence[T]:
        return [record(row) for row in self._do(lambda: self._link.query(sql, parameters, keyed=keyed))]

    def _search(
        self, sql: str, parameters: Parameters, record: Callable[[Row], T], *, keyed: bool = False
    ) -> Sequence[T]:
        """Find and lock rows. If an open transaction blocks others, open one only if there are any."""
        if self._link.probes and not self._link.began and not self._plain(sql, parameters, _whole):
            return ()
        return self._locked(sql, parameters, record, keyed=keyed)

    def _locking(self) -> Link:
        self._link.begin()
        return self._link

    def _do(self, call: Callable[[], T]) -> T:
        if self._is_over:
            raise HoldfastError("a transaction can only be used inside the work that it was given to")
        try:
            return call()
        except HoldfastError as error:
            self.failure = self.failure or error
            raise


def askable_jobs(keys: Iterable[JobKey]) -> list[JobKey]:
    """Return those of these keys that a job can have, ascending."""
    return sorted(key for key in set(keys) if is_askable(key.run) and key.number <= NUMBER_MAX)


def _askable_places(places: Iterable[SlotPlace]) -> list[SlotPlace]:
    return sorted(place for place in set(places) if is_askable(place.namespace) and is_askable(place.key))


def _first(row: Row) -> str:
    first: str = row[0]
    return first


def _triple(row: Row) -> tuple[str, str, str]:
    first, second, third = row
    return first, second, third


def _whole(row: Row) -> Row:
    return row
