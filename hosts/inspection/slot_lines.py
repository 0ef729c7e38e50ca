"""The place of a pending run in the lines for the slots that it needs, and who holds them."""

from collections.abc import Mapping, Sequence
from typing import Final

from holdfast.hosts.wiring.services import Core
from holdfast.kernel.history import events
from holdfast.ports.persistence import Transaction
from holdfast.ports.queries.limits import BEFORE_MAX, LevelState, LevelStates
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.run import Run, RunStatus
from holdfast.ports.records.values import Micros
from holdfast.ports.searches import SlotPlace
from holdfast.ports.structs import frozen
from holdfast.ports.tables import HISTORY, RUNS

_FIRST_ROWS: Final = 20
"""Among how many history rows of a holder its admission is looked for."""


@frozen(kw_only=True)
class SlotLine:
    """The line for the slots of one level of a concurrency key, as a run in it finds it."""

    key: str
    used: int
    """How many slots are in use."""
    holders: Sequence[tuple[str, Micros]] = ()
    """The ids of the oldest runs that have a slot and are not ending, each with the instant of its admission."""
    before: int | None = None
    """How many runs are before this one; None if more than `BEFORE_MAX`."""


def slot_lines(core: Core, run: Run) -> tuple[SlotLine, ...]:
    """Return the lines that a run waits in, that of the outermost limit first. Empty if it does not wait for a slot."""
    key = run.concurrency_key
    if key is None or run.status is not RunStatus.PENDING or run.start_at is not None or run.in_rate_line:
        return ()
    place = SlotPlace(run.namespace, key)
    levels = core.stores.persistence.read(LevelStates(place=place, position=run.queue_position, run=run.key))
    return core.stores.persistence.transact(lambda tx: tuple(_lines(tx, levels)))


def _lines(tx: Transaction, levels: Sequence[LevelState]) -> list[SlotLine]:
    named = sorted({key for level in levels for key in level.holders})
    holders = {one.key: one for one in tx.get(RUNS, named)} if named else {}
    rows = (
        tx.get(HISTORY, [(key, number) for key in named for number in range(1, _FIRST_ROWS)]) if named else ()
    )
    admitted = _admissions(rows)
    return [
        SlotLine(
            key=level.key,
            used=level.used,
            holders=[
                (holders[key].id, admitted.get(key, holders[key].created_at))
                for key in level.holders
                if key in holders
            ],
            before=level.before if level.before <= BEFORE_MAX else None,
        )
        for level in levels
    ]


def _admissions(rows: Sequence[HistoryRow]) -> Mapping[str, Micros]:
    return {row.run: row.at for row in rows if row.type == events.RunAdmitted.type}
