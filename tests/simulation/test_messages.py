"""Random runs that signal each other under random faults: each message arrives once, from its sender."""

from collections import Counter
from collections.abc import Iterator

import pytest

from holdfast.kernel.history import events
from holdfast.ports.working_set import Tables
from holdfast.testing.simulation import Exit, message_workload, simulate_seed
from holdfast.testing.simulation.batches import simulate_seeds
from holdfast.testing.simulation.message_workload import draw_messages
from holdfast.testing.simulation.store_kinds import stores
from tests.sizes import sized

SEEDS = sized(20, 300)
FIRST = 31


@pytest.mark.slow
@pytest.mark.sized
def test_each_message_arrives_once_whatever_goes_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """And messages meet all fates: accepted, refused by ended runs and by closed channels, and to unknown runs."""
    seen = Counter[str]()
    check = message_workload.message_violations

    def counting(tables: Tables) -> Iterator[str]:
        rows = [row for rows in tables.history.values() for row in rows]
        for event in map(events.SignalSent.from_row, (row for row in rows if row.type == "signal.sent")):
            fate = "closed" if event.closed else "refused" if event.message else "accepted"
            seen[fate if event.channel is not None else "unknown"] += 1
        return check(tables)

    monkeypatch.setattr(message_workload, "message_violations", counting)
    for outcome in simulate_seeds(range(FIRST, FIRST + SEEDS), "memory", workload="messages"):
        assert outcome.exit is Exit.FINE, (outcome.seed, outcome.found)
    assert seen["accepted"] > 50
    assert min(seen[fate] for fate in ("refused", "closed", "unknown")) >= 1, seen


@pytest.mark.slow
def test_a_seed_gives_the_same_trace_on_both_stores() -> None:
    with stores("memory") as memory, stores("sqlite") as sqlite:
        one, again, other = (
            simulate_seed(3, draw_messages, store=store) for store in (memory, memory, sqlite)
        )
    assert one.exit is Exit.FINE
    assert one.trace == again.trace == other.trace
