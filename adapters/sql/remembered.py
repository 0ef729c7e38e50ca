"""Runs as transactions have left them, and the statements that write a run only if it is so still."""

# ruff: noqa: S608  # statements are put together from names that are constants of this program

from collections.abc import Iterable
from typing import Final

import attrs

from holdfast.adapters.sql import rows, tables
from holdfast.adapters.sql.dialects import POSTGRES_CLOCK, Dialect, types_of
from holdfast.adapters.sql.updates import OF_RUNS
from holdfast.ports.records import Job, JobKey, Run

KNOWN_MAX: Final = 1_000
"""How many runs are remembered."""

STEP: Final = OF_RUNS[0]
"""What a step changes of its run."""
_OWN_VERSION: Final = "CAST(CAST(pg_current_xact_id() AS xid) AS text)"


@attrs.frozen
class Remembered:
    """A run and a job as a transaction has left them. `steps` is how many of those there were, one after the other."""

    run: Run
    job: Job
    run_version: str
    job_version: str
    steps: int


class Memory:
    """What is known of runs from the transactions of one connection.

    As long as that is there, the same server process answers, and what it has committed it has not lost. To whoever
    connects anew another server may answer, with another past.
    """

    def __init__(self) -> None:
        self._known: dict[str, Remembered] = {}

    def take(self, run: str, job: JobKey) -> Remembered | None:
        """Return what is known, and forget it."""
        known = self._known.pop(run, None)
        return known if known is not None and known.job.key == job else None

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
    """

    run: str
    job: str
    step: str


def versions_for(dialect: Dialect) -> Versions:
    """Put the statements together, for PostgreSQL."""
    runs = ", ".join(f"r.{name}" for name in rows.RUN)
    jobs = ", ".join(f"j.{name}" for name in rows.JOB)
    history = ", ".join(rows.HISTORY)
    new = dialect.table_of("rows", "new", types_of(tables.history, rows.HISTORY))
    sets = ", ".join(f"{name} = :{name}" for name in STEP)
    made = Versions(
        run=f"SELECT {runs}, {_OWN_VERSION} FROM holdfast_runs AS r WHERE r.key = :run FOR UPDATE OF r",
        job=f"SELECT {jobs}, CAST(j.xmin AS text) FROM holdfast_jobs AS j "
        "WHERE j.run = :run AND j.number = :number FOR UPDATE OF j",
        step="WITH r AS MATERIALIZED (SELECT key FROM holdfast_runs WHERE key = :key "
        "AND xmin = CAST(:run_version AS xid) FOR UPDATE), "
        "j AS MATERIALIZED (SELECT j.run FROM r CROSS JOIN holdfast_jobs AS j WHERE j.run = r.key "
        "AND j.number = :job AND j.xmin = CAST(:job_version AS xid) FOR UPDATE OF j), "
        f"u AS (UPDATE holdfast_runs AS old SET {sets} FROM j WHERE old.key = j.run RETURNING old.key), "
        f"kept AS (INSERT INTO holdfast_receipts (id, at) SELECT :receipt, {POSTGRES_CLOCK} FROM u) "
        f"INSERT INTO holdfast_history ({history}) SELECT {history} FROM (SELECT FROM u) AS u CROSS JOIN {new} "
        f"RETURNING {_OWN_VERSION}",
    )
    return Versions(**{name: dialect.bound(sql) for name, sql in attrs.asdict(made).items()})
