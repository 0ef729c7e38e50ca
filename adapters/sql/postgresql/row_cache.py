"""Runs as transactions have left them, and the statements that write a run only if it is so still."""

# ruff: noqa: S608  # statements are put together from names that are constants of this program

import time
from collections.abc import Collection, Iterable, Sequence
from typing import Final

import attrs

from holdfast.adapters.sql import rows
from holdfast.adapters.sql.dialects import POSTGRES_CLOCK, Dialect, types_of
from holdfast.adapters.sql.narrow_updates import OF_RUNS
from holdfast.adapters.sql.schema import tables
from holdfast.ports.persistence import LoadedWork, LoadWork, StoredValue
from holdfast.ports.records import Job, JobKey, Payload, Run, Session
from holdfast.ports.references import located

KNOWN_MAX: Final = 1_000
"""How many runs are remembered."""

TRUSTED: Final = 2
"""How many transactions on one run have locked it and written a step, one after the other, before it is gone by what
is known: most runs are of few steps, and what is not a step is work done twice."""
LACKING_MAX: Final = 3
LACKING_RUNS: Final = 50
"""For so many runs that are claimed it is not gone by what is known, once that was too little that often in a row."""
LEASE_SECONDS: Final = 0.5
"""For how long what was read with a lease is as good as read anew."""

STEP: Final = OF_RUNS[0]
"""What a step changes of its run."""
END: Final = OF_RUNS[1]
"""What the end of a run changes of it."""
_OWN_VERSION: Final = "CAST(CAST(pg_current_xact_id() AS xid) AS text)"


@attrs.frozen
class Lease:
    """What was read when a job was leased: the session that has it, and the input, if it is a row of the run's own.

    `read_at` is when, by the monotonic clock.
    """

    session: Session
    session_version: str
    input: int | None
    payload: Payload | None
    read_at: float


@attrs.frozen
class Remembered:
    """A run and a job as a transaction has left them. `steps` is how many of those there were, one after the other.

    `lease` is what was read with them if this connection has leased the job.
    """

    run: Run
    job: Job
    run_version: str
    job_version: str
    steps: int
    lease: Lease | None = None

    def sessions(self, ids: Collection[str]) -> tuple[Session, ...] | None:
        """Return the sessions of these ids; None if that takes more than what is known."""
        if not ids:
            return ()
        if self.lease is None or set(ids) != {self.lease.session.id}:
            return None
        return (self.lease.session,)


class Memory:
    """What is known of runs from the transactions of one connection.

    As long as that is there, the same server process answers, and what it has committed it has not lost. To whoever
    connects anew another server may answer, with another past.
    """

    def __init__(self) -> None:
        self._known: dict[str, Remembered] = {}
        self._lacking = 0

    def take(self, run: str, job: JobKey) -> Remembered | None:
        """Return what is known, and forget it."""
        known = self._known.pop(run, None)
        return known if known is not None and known.job.key == job else None

    def trusted(self, run: Run) -> int:
        """Return as after how many steps a run begins that is remembered from a claim.

        The end of a child is more than is known; and where it was too little for several runs, one after the other, as
        where all that happens is told to a sink, it is tried again seldom: what it was too little for is done twice.
        """
        if self._lacking >= LACKING_MAX:
            self._lacking += 1
        if self._lacking > LACKING_MAX + LACKING_RUNS:
            self._lacking = LACKING_MAX - 1
        return 0 if run.parent is not None or self._lacking >= LACKING_MAX else TRUSTED

    def note(self, *, is_enough: bool) -> None:
        """Note whether what is known was enough for a transaction."""
        self._lacking = 0 if is_enough else min(self._lacking + 1, LACKING_MAX)

    def work(self, query: LoadWork) -> LoadedWork | None:
        """Return what the attempt at one job needs, if that was read when it was leased, just now."""
        if len(query.jobs) != 1:
            return None
        ((key, epoch),) = query.jobs
        known = self._known.get(key.run)
        if known is None or known.lease is None or (known.job.key, known.job.epoch) != (key, epoch):
            return None
        lease = known.lease
        if time.monotonic() > lease.read_at + LEASE_SECONDS:
            return None
        if any(located(*place) != (key.run, lease.input) for place in query.wanted):
            return None
        payloads = () if lease.payload is None else (lease.payload,)
        return LoadedWork((known.run,), tuple(StoredValue(*place, payloads) for place in query.wanted))

    def forget(self, runs: Iterable[str]) -> None:
        """Forget what is known of some runs: they look otherwise now."""
        if self._known:
            for run in runs:
                self._known.pop(run, None)

    def keep(self, known: Remembered) -> None:
        """Remember something, and forget what was remembered first if that is too much."""
        self._known[known.run.key] = known
        if len(self._known) > KNOWN_MAX:
            self._known.pop(next(iter(self._known)), None)


@attrs.frozen
class Versions:
    """The statements: `run` and `job` lock and return a row, and a version; `step` stores a step, and returns one.

    The version that `run` returns is that which the row has once its transaction has written it, as `step` does.
    `lease` returns a run and its version, the version of what this transaction writes, a session and its version, and
    the payload of a row. `end` stores the end of a run, and takes its job away.
    """

    run: str
    job: str
    lease: str
    step: str
    end: str


def versions_for(dialect: Dialect) -> Versions:
    """Put the statements together, for PostgreSQL."""
    runs = ", ".join(f"r.{name}" for name in rows.RUN)
    jobs = ", ".join(f"j.{name}" for name in rows.JOB)
    history = ", ".join(rows.HISTORY)
    new = dialect.table_of("rows", "new", types_of(tables.history, rows.HISTORY))
    sessions = ", ".join(f"s.{name}" for name in rows.SESSION)

    def stored(columns: Sequence[str], *, closed: str = "") -> str:
        """Return what changes columns of a run, and adds to its history, if nothing is otherwise than is known."""
        sets = ", ".join(f"{name} = :{name}" for name in columns)
        return (
            "WITH r AS MATERIALIZED (SELECT key FROM holdfast_runs WHERE key = :key "
            "AND xmin = CAST(:run_version AS xid) AND (CAST(:session AS text) = '' OR EXISTS (SELECT "
            "FROM holdfast_sessions AS s WHERE s.id = :session AND s.xmin = CAST(:session_version AS xid))) "
            "FOR UPDATE), "
            "j AS MATERIALIZED (SELECT j.run FROM r CROSS JOIN holdfast_jobs AS j WHERE j.run = r.key "
            "AND j.number = :job AND j.xmin = CAST(:job_version AS xid) FOR UPDATE OF j), "
            f"u AS (UPDATE holdfast_runs AS old SET {sets} FROM j WHERE old.key = j.run RETURNING old.key), {closed}"
            f"kept AS (INSERT INTO holdfast_commit_receipts (id, at) SELECT :receipt, {POSTGRES_CLOCK} FROM u) "
            f"INSERT INTO holdfast_history ({history}) SELECT {history} FROM (SELECT FROM u) AS u CROSS JOIN {new} "
            f"RETURNING {_OWN_VERSION}"
        )

    made = Versions(
        run=f"SELECT {runs}, {_OWN_VERSION} FROM holdfast_runs AS r WHERE r.key = :run FOR UPDATE OF r",
        job=f"SELECT {jobs}, CAST(j.xmin AS text) FROM holdfast_jobs AS j "
        "WHERE j.run = :run AND j.number = :number FOR UPDATE OF j",
        lease=f"SELECT {runs}, CAST(r.xmin AS text), {_OWN_VERSION}, {sessions}, CAST(s.xmin AS text), "
        "h.payload, h.blob FROM holdfast_runs AS r JOIN holdfast_sessions AS s ON s.id = :session "
        "LEFT JOIN holdfast_history AS h ON h.run = r.key AND h.number = :input WHERE r.key = :run",
        step=stored(STEP),
        end=stored(
            END,
            closed="closed AS (DELETE FROM holdfast_jobs AS old USING u WHERE old.run = u.key AND old.number = :job), ",
        ),
    )
    return Versions(**{name: dialect.bound(sql) for name, sql in attrs.asdict(made).items()})
