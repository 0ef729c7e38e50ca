"""Transactions that lock nothing before they write: they go by what this process knows of a run, if that is still so.

A step that comes alone is a transaction on one run and one job of it, and the one before it was too. So both rows are
known: as that transaction has left them, with the versions that the server has given them. Work is then done with what
is known, and one statement stores what comes of it if the two rows have these versions still. If they have not, nothing
is stored, and the work is done again with rows that are locked and read.
"""

from collections.abc import Collection
from typing import Final

import attrs
from typing_extensions import override

from holdfast.adapters.sql import rows
from holdfast.adapters.sql.database import Link, Parameters, Remembers
from holdfast.adapters.sql.dialects import encode_rows
from holdfast.adapters.sql.remembered import STEP, Remembered
from holdfast.adapters.sql.rows import askable
from holdfast.adapters.sql.transaction import SqlTransaction, Statements, askable_jobs
from holdfast.adapters.sql.writes import WritePlan
from holdfast.ports.changes import NetChanges
from holdfast.ports.errors import HoldfastError
from holdfast.ports.persistence import Held
from holdfast.ports.records import JobKey

LOCKED_FIRST: Final = 2
"""How many transactions on one run have locked it and written a step, one after the other, before it is gone by what
is known: most runs are of few steps, and the end of each is work done twice."""


class ChangedError(HoldfastError):
    """What is known of a run is no more so, or is not enough: the work is to be done with locks."""


class RememberingTransaction(SqlTransaction):
    """See `Transaction`. It may turn out, in the work or when it is committed, that it goes by what has changed."""

    def __init__(self, link: Link, statements: Statements, receipt: str, remembers: Remembers) -> None:
        """See `SqlTransaction`. `remembers` is the same connection as `link`."""
        super().__init__(link, statements, receipt)
        self._remembers = remembers
        self._one: Remembered | None = None
        """The run and the job that it is about."""
        self.is_locked = True
        """Whether all is locked that it goes by; or else it goes by what is known."""
        self._after: Remembered | None = None
        """What is known once it is committed."""
        self._step: Parameters | None = None
        """What is to be stored, if it goes by what is known."""

    @override
    def held(self, runs: Collection[str], jobs: Collection[JobKey], sessions: Collection[str], /) -> Held:
        """See `Transaction.held`."""
        keys, pairs = askable(runs), askable_jobs(jobs)
        if self._link.began or self._one is not None or sessions or len(keys) != 1 or len(pairs) != 1:
            return super().held(runs, jobs, sessions)
        (run,), (job,) = keys, pairs
        known = self._remembers.memory.take(run, job)
        if known is not None and known.steps >= LOCKED_FIRST:
            self.is_locked = False
        else:
            known = self._read(run, job, 0 if known is None else known.steps)
        if known is None:
            return super().held(runs, jobs, sessions)  # one of them is not there
        self._one = known
        return Held(self._known.note_runs([known.run]), self._known.note_jobs([known.job]), ())

    def _read(self, run: str, job: JobKey, steps: int) -> Remembered | None:
        asked: list[tuple[str, Parameters]] = [
            (self._remembers.versions.run, {"run": run}),
            (self._remembers.versions.job, {"run": job.run, "number": job.number}),
        ]
        of_run, of_job = self._do(lambda: self._locking().queries(asked))
        if not of_run or not of_job:
            return None
        (*run_row, run_version), (*job_row, job_version) = of_run[0], of_job[0]
        return Remembered(
            rows.run_from(tuple(run_row)), rows.job_from(tuple(job_row)), run_version, job_version, steps
        )

    @override
    def _locking(self) -> Link:
        if not self.is_locked:
            raise ChangedError("this needs more than what is known")
        return super()._locking()

    @override
    def _write(self, net: NetChanges, plan: WritePlan) -> None:
        one, is_step = self._one, [write for write, _ in plan] == [self._writes.runs[0], self._writes.history]
        if one is None or not is_step or net.runs.keys() != {one.run.key}:
            super()._write(net, plan)
            self._remembers.memory.forget(net.runs)
            return
        self._after = attrs.evolve(one, run=net.runs[one.run.key], steps=one.steps + 1)
        if self.is_locked:
            super()._write(net, plan)
            return
        (run,), history = (written for _, written in plan)
        self._step = {
            **dict(zip((*STEP, "key"), run, strict=True)),
            "job": one.job.key.number,
            "run_version": one.run_version,
            "job_version": one.job_version,
            "rows": encode_rows(rows.HISTORY, history),
            "receipt": self._receipt,
        }

    @override
    def commit(self) -> None:
        """See `SqlTransaction.commit`. ChangedError if it goes by what has changed: then nothing is stored."""
        after = self._after
        if self.is_locked:
            super().commit()
        else:
            if after is None or self._step is None:
                raise ChangedError(
                    "this writes nothing, and so nothing says whether it has gone by what is so"
                )
            stored = self._remembers.query_and_commit(self._remembers.versions.step, self._step)
            if not stored:
                raise ChangedError("a run has changed meanwhile")
            after = attrs.evolve(after, run_version=stored[0][0])
        if after is not None:
            self._remembers.memory.keep(after)
