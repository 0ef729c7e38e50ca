"""The cache of rows for optimistic transactions, and the statements that write only if those rows are current."""

# ruff: noqa: S608  # statements are put together from names that are constants of this program

import time
from collections.abc import Collection, Iterable, Sequence
from typing import Final

import attrs

from holdfast.adapters.sql import rows
from holdfast.adapters.sql.dialect import Dialect, types_of
from holdfast.adapters.sql.narrow_updates import NARROW
from holdfast.adapters.sql.postgresql.dialect import POSTGRES_CLOCK, rows_with_long_texts
from holdfast.adapters.sql.schema import tables
from holdfast.ports.queries.values import LoadedWork, LoadWork, StoredValue
from holdfast.ports.records.job import Job, JobKey
from holdfast.ports.records.run import Run
from holdfast.ports.records.session import Session
from holdfast.ports.records.values import Payload
from holdfast.ports.references import located
from holdfast.ports.tables import RUNS

KNOWN_MAX: Final = 1_000
"""The most runs in a cache."""

TRUSTED: Final = 2
"""Consecutive steps of a run, with locks, before its cached rows are used.

Most runs have few steps, and work that turns out to be more than a step is done twice.
"""
LACKING_MAX: Final = 3
LACKING_RUNS: Final = 50
"""After `LACKING_MAX` consecutive failures, the cache is not used for this many claimed runs."""
LEASE_SECONDS: Final = 0.5
"""How long rows that were read with a claim count as current."""

STEP, END, _ = NARROW[RUNS]
"""The columns of a run that a step changes, and those that its end changes."""
_OWN_VERSION: Final = "CAST(CAST(pg_current_xact_id() AS xid) AS text)"


@attrs.frozen
class Lease:
    """The rows that were read with the claim of a job."""

    session: Session
    """The session that holds the job."""
    session_version: str
    input: int | None
    """The number of the history row with the job's input, if it is a row of this run."""
    payload: Payload | None
    """The input."""
    read_at: float
    """By the monotonic clock."""


@attrs.frozen
class CachedRun:
    """A run and a job as a transaction has left them."""

    run: Run
    job: Job
    run_version: str
    job_version: str
    steps: int
    """How many consecutive transactions on the run stored a step."""
    lease: Lease | None = None
    """Set if this connection has claimed the job."""

    def sessions(self, ids: Collection[str]) -> tuple[Session, ...] | None:
        """Return the sessions with these ids; None if one of them is not cached."""
        if not ids:
            return ()
        if self.lease is None or set(ids) != {self.lease.session.id}:
            return None
        return (self.lease.session,)


class RowCache:
    """The runs that the transactions of one connection have written.

    It belongs to the connection: as long as that lives, the same server process answers, and has lost no commit of its
    own. A new connection may reach another server, with another past.
    """

    def __init__(self) -> None:
        self._known: dict[str, CachedRun] = {}
        self._lacking = 0

    def take(self, run: str, job: JobKey) -> CachedRun | None:
        """Return the entry for a run and job, and remove it."""
        known = self._known.pop(run, None)
        return known if known is not None and known.job.key == job else None

    def trusted(self, run: Run) -> int:
        """Return the number of steps that a run cached by a claim starts with.

        It is 0 for a child run, whose end needs more rows than are cached. It is also 0 after consecutive runs for
        which the cache was not sufficient, as with sinks: then it is tried again only rarely, because their work is
        done twice.
        """
        if self._lacking >= LACKING_MAX:
            self._lacking += 1
        if self._lacking > LACKING_MAX + LACKING_RUNS:
            self._lacking = LACKING_MAX - 1
        return 0 if run.parent is not None or self._lacking >= LACKING_MAX else TRUSTED

    def note(self, *, is_enough: bool) -> None:
        """Record whether the cached rows were sufficient for a transaction."""
        self._lacking = 0 if is_enough else min(self._lacking + 1, LACKING_MAX)

    def work(self, query: LoadWork) -> LoadedWork | None:
        """Return the rows for the attempt at one job, if they were read when it was claimed, just now."""
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
        """Remove runs that have changed otherwise."""
        if self._known:
            for run in runs:
                self._known.pop(run, None)

    def keep(self, known: CachedRun) -> None:
        """Add an entry, and evict the oldest one from a full cache."""
        self._known[known.run.key] = known
        if len(self._known) > KNOWN_MAX:
            self._known.pop(next(iter(self._known)), None)


@attrs.frozen
class Versions:
    """The statements for optimistic transactions."""

    run: str
    """Locks and returns a run, and the version that it has once this transaction has written it."""
    job: str
    """Locks and returns a job and its version."""
    lease: str
    """Returns a run and its version, the version of rows that this transaction writes, a session, and an input.

    The session comes with its version, the input as a pair of columns.
    """
    step: str
    """Stores a step if the versions are unchanged, and returns the run's new version."""
    end: str
    """Stores the end of a run in the same way, and deletes its job."""
    long_step: str
    """`step` for rows with long texts, which are given as `encode_long_texts` does."""
    long_end: str
    """`end` in the same way."""


def versions_for(dialect: Dialect) -> Versions:
    """Build the statements, for PostgreSQL."""
    runs = ", ".join(f"r.{name}" for name in rows.RUN)
    jobs = ", ".join(f"j.{name}" for name in rows.JOB)
    history = ", ".join(rows.HISTORY)
    new = dialect.table_of("rows", "new", types_of(tables.history, rows.HISTORY))
    long = rows_with_long_texts(dialect, tables.history, rows.HISTORY, "payload")
    sessions = ", ".join(f"s.{name}" for name in rows.SESSION)

    def stored(columns: Sequence[str], new: str, *, closed: str = "") -> str:
        """Return the statement that updates columns of a run and appends history rows, if no version has changed."""
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

    closed = (
        "closed AS (DELETE FROM holdfast_jobs AS old USING u WHERE old.run = u.key AND old.number = :job), "
    )
    made = Versions(
        run=f"SELECT {runs}, {_OWN_VERSION} FROM holdfast_runs AS r WHERE r.key = :run FOR UPDATE OF r",
        job=f"SELECT {jobs}, CAST(j.xmin AS text) FROM holdfast_jobs AS j "
        "WHERE j.run = :run AND j.number = :number FOR UPDATE OF j",
        lease=f"SELECT {runs}, CAST(r.xmin AS text), {_OWN_VERSION}, {sessions}, CAST(s.xmin AS text), "
        "h.payload, h.blob FROM holdfast_runs AS r JOIN holdfast_sessions AS s ON s.id = :session "
        "LEFT JOIN holdfast_history AS h ON h.run = r.key AND h.number = :input WHERE r.key = :run",
        step=stored(STEP, new),
        end=stored(END, new, closed=closed),
        long_step=stored(STEP, long),
        long_end=stored(END, long, closed=closed),
    )
    return Versions(**{name: dialect.bound(sql) for name, sql in attrs.asdict(made).items()})
