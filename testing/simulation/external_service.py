"""The external service to which simulated stages submit work. It survives the crashes of all processes."""

from collections.abc import Iterator, Mapping, Sequence

from holdfast.kernel.history import events
from holdfast.kernel.pipelines.plan import Plan, plan_from_json
from holdfast.kernel.runs.external_work import LOST_WORKER
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.job import losses_max
from holdfast.ports.records.run import TERMINAL, Run
from holdfast.ports.working_set import Tables

WORK_FAILED = "give_up"
"""The error code of a stage whose check finds that the external work failed."""


class ExternalService:
    """Records submitted and cancelled work by idempotency key."""

    def __init__(self) -> None:
        self._states: dict[str, list[Sequence[int]]] = {}
        self._cancelled: dict[str, int] = {}
        self._wrong: list[str] = []

    def submit(self, key: str, state: Sequence[int]) -> None:
        """Submit work. Submitting it again with the same key is allowed."""
        self._states.setdefault(key, []).append(list(state))

    def cancel(self, key: str, state: Sequence[int]) -> None:
        """Cancel work, which may have ended or been cancelled before."""
        if list(state) not in self._states.get(key, []):
            self._wrong.append(
                f"{key} is cancelled with state {state}, but was submitted with {self._states.get(key)}"
            )
        self._cancelled[key] = self._cancelled.get(key, 0) + 1

    def wrong(self, tables: Tables) -> list[str]:
        """Return the violations once all runs have ended: orphaned work, needless cancels, wrong counts of attempts."""
        found = list(self._wrong)
        left: set[str] = set()
        for run in tables.runs.values():
            if run.status not in TERMINAL:  # reported as stuck elsewhere
                continue
            plan = plan_from_json(tables.plans[run.plan].body)
            for key, rows in _works(run, plan, tables.history.get(run.key, ())):
                left.add(key)
                found += self._wrong_of(key, plan, rows)
        found += [
            f"{key} was cancelled, but its work was not abandoned"
            for key in sorted(self._cancelled.keys() - left)
        ]
        return found

    def _wrong_of(self, key: str, plan: Plan, rows: Mapping[str, HistoryRow]) -> Iterator[str]:
        if events.StageCancelFailed.type in rows:
            row = rows[events.StageCancelFailed.type]
            failed = events.StageCancelFailed.from_row(row)
            most, losses = plan.cancels[row.node or ""], failed.lost_attempts
            tried = failed.attempt - losses
            if losses != losses_max(most) if failed.code == LOST_WORKER else tried != most:
                yield (
                    f"the cancellation of {key} failed after {tried} attempts and {losses} lost attempts,"
                    " too early or too late"
                )
        elif events.StageCancelled.type not in rows:
            yield f"the work of {key} was abandoned, but no row records its cancellation"
        elif key not in self._cancelled:
            yield f"{key} is recorded as cancelled, but the service was never called"


def _works(
    run: Run, plan: Plan, history: Sequence[HistoryRow]
) -> Iterator[tuple[str, Mapping[str, HistoryRow]]]:
    """Yield the work that an ended run left unfinished: its key, and its history rows by type."""
    works: dict[tuple[str | None, int | None], dict[str, HistoryRow]] = {}
    for row in history:
        if row.node in plan.cancels:
            works.setdefault((row.node, row.item), {})[row.type] = row
    for (node, item), rows in works.items():
        failed = rows.get(events.StageFailed.type)
        is_over = events.StageCompleted.type in rows or (
            failed is not None and events.StageFailed.from_row(failed).code == WORK_FAILED
        )
        if events.StageSuspended.type in rows and not is_over:
            yield f"{run.key}/{node}" if item is None else f"{run.key}/{node}/{item}", rows
