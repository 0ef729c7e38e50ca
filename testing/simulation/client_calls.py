"""Updates and queries that simulated clients send to an exposed counter, and the checks on the stored updates."""

from collections import Counter
from collections.abc import Iterator
from typing import Final, cast

from holdfast.hosts.client.sync_engine import SyncEngine
from holdfast.kernel.authoring.functions import Workflow
from holdfast.kernel.authoring.options import Retry
from holdfast.kernel.authoring.publications import publish
from holdfast.kernel.authoring.queries import expose, query, update
from holdfast.kernel.authoring.steps import step
from holdfast.kernel.history import events
from holdfast.ports.json import parse
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.working_set import Tables
from holdfast.testing.simulation.processes import ClientAction

_SECOND: Final = 1_000_000
_AT: Final = (-_SECOND, _SECOND // 2, 2 * _SECOND, 5 * _SECOND, 5 * _SECOND + 1)


@step(retry=Retry(attempts=60))
async def _weigh(number: int) -> int:
    return number


class ExposedCounter:
    """A counter of the updates that a function has carried out."""

    def __init__(self) -> None:
        self.count = 0

    @query
    def so_far(self) -> int:
        """Return the current count."""
        return self.count

    @update
    def add(self, by: int) -> int:
        """Count the update without a step."""
        self.count += 1
        publish("count", self.count)
        return self.count

    @add.validator
    def may_add(self, by: int) -> None:
        """Refuse every fifth number."""
        if by % 5 == 4:
            raise ValueError(f"not {by}")

    @update
    async def add_later(self, by: int) -> int:
        """Count the update after a step."""
        await _weigh(by)
        self.count += 1
        return self.count


def expose_tally() -> None:
    """Expose a counter to clients. Call it in a durable function."""
    expose(ExposedCounter())


def update_deeds(workflow: Workflow[[int], int], run: str, begins: int) -> list[ClientAction]:
    """Return updates of a run that starts at `begins` (microseconds), some before its start, some after its end."""

    def send_update(engine: SyncEngine, number: int) -> object:
        call = ExposedCounter.add_later(number) if number % 2 else ExposedCounter.add(number)
        handle = engine.handle(workflow, run)
        stored = handle.submit_update(call, idempotency_key=f"{run}/update/{number}").last_read_row
        assert handle.query(ExposedCounter.so_far()) >= 0
        return stored

    return [
        ClientAction(
            at=max(0, begins + at),
            what=f"update {run} {number}",
            do=lambda engine, number=number: send_update(engine, number),  # type: ignore[misc]
        )
        for number, at in enumerate(_AT)
    ]


def update_violations(tables: Tables) -> Iterator[str]:
    """Check that each update is stored once, answered at most once, and counted in order. Yield the violations."""
    for key, run in tables.runs.items():
        rows = tables.whole_history(run)
        received = {
            row.number: events.UpdateReceived.from_row(row)
            for row in rows
            if row.type == events.UpdateReceived.type
        }
        keys = Counter(update.key for update in received.values())
        yield from (
            f"run {key}: update {name} is stored {count} times" for name, count in keys.items() if count > 1
        )
        answers = [row for row in rows if row.type in events.UPDATE_ANSWERS]
        calls = [_call(row) for row in answers]
        if len(set(calls)) < len(calls) or not {f"update{number}" for number in received}.issuperset(calls):
            yield f"run {key}: replies are for {calls}, but updates {sorted(received)} were received"
        replies = [_value(row) for row in answers if row.type == events.UpdateCompleted.type]
        if replies != list(range(1, len(replies) + 1)):
            yield f"run {key}: the updates must count from 1, but their replies are {replies}"


def _call(row: HistoryRow) -> str:
    answer = events.event_of(row)
    assert isinstance(answer, events.UpdateCompleted | events.UpdateFailed | events.UpdateRejected)
    return answer.call


def _value(row: HistoryRow) -> object:
    return None if row.payload is None else cast("object", parse(row.payload.inline or "null"))
