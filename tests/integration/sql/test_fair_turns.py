"""Turns on databases: the same order as in memory, and a cost that does not depend on how many wait."""

import json
import secrets
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

import psycopg
import pytest

from holdfast.adapters.sql.persistence import SqlPersistence
from holdfast.adapters.sql.postgresql.settings import connection_settings
from holdfast.ports.changes import Insert
from holdfast.ports.persistence import Persistence
from holdfast.ports.records.limits import FairKey, FairKeyName
from holdfast.ports.searches import FirstTurns, HighestTurns, NeighbouringTurns, PartTurn, QueuePart
from holdfast.testing.conformance.builders import DEFINITION, NAMESPACE, NOW, QUEUE, a_job
from tests.fair_lines import Line, places
from tests.integration.sql.test_hot_plans import scans
from tests.integration.sql.test_schedule_plans import OpenStore, instructions, measured, rows_read
from tests.sizes import sized

pytestmark = pytest.mark.sized

JOBS: Final = sized(3_000, 100_000)
PART: Final = QueuePart(NAMESPACE, QUEUE, DEFINITION)
TURNS: Final = "holdfast_jobs_turns"
SEARCHES: Final = (
    FirstTurns([PART]),
    NeighbouringTurns([PartTurn(PART, turn) for turn in (100, 300, 10**9)]),
    HighestTurns([FairKeyName(NAMESPACE, "w/q", "")]),
)


def fill(store: Persistence, jobs: int) -> None:
    """Store jobs that wait for their turns, others that wait for none, and accounts."""
    for first in range(0, jobs, 5_000):
        numbers = range(first, min(jobs, first + 5_000))
        made = [
            *(a_job(2 * number + 1, turn=number, queue_position=NOW + number) for number in numbers),
            *(a_job(2 * number + 2, queue_position=NOW + number) for number in numbers),
            *(
                FairKey(namespace=NAMESPACE, line="w/q", key=str(number), next_turn=number, updated_at=NOW)
                for number in numbers
            ),
        ]
        store.transact(lambda tx, made=made: tx.apply([*map(Insert, made)]))  # type: ignore[misc]


@pytest.mark.slow
def test_keys_get_their_shares(store: SqlPersistence) -> None:
    """As in memory; in a namespace of its own, since tests share a database."""
    line = Line(persistence=store, namespace=f"fair-{secrets.token_hex(4)}")
    line.start("A", 200)
    line.passes(60)
    line.serve(20, at_once=10)
    line.start("B", 10)
    assert places(line.serve(22), "B") == [2, 4, 6, 8, 10, 12, 14, 16, 18, 20]

    line.start("C", 40, weight=4)
    served = Counter(line.serve(50, at_once=5))
    assert 39 <= served["C"] <= 41


@pytest.mark.slow
def test_with_one_key_runs_come_in_order(store: SqlPersistence) -> None:
    line = Line(persistence=store, namespace=f"fair-{secrets.token_hex(4)}")
    for _ in range(3):
        line.start("A", 10)

    served = line.serve(30, runs=True)

    assert served == sorted(served)


@pytest.mark.slow
@pytest.mark.service
def test_postgresql_reads_a_few_rows_of_an_index(postgres_with_tables: str, open_store: OpenStore) -> None:
    store = open_store(postgres_with_tables)
    fill(store, JOBS)
    with psycopg.connect(**connection_settings(postgres_with_tables), autocommit=True) as connection:
        for analyzed in (False, True):
            if analyzed:
                connection.execute("VACUUM ANALYZE holdfast_jobs, holdfast_fair_keys")
            for mode in ("force_custom_plan", "force_generic_plan"):
                connection.execute(f"SET plan_cache_mode = {mode}".encode())
                for search in SEARCHES:
                    plan = measured(connection, search)
                    shown = f"{mode}, analyzed: {analyzed}: {json.dumps(plan, indent=1)}"
                    assert not {way for way, _ in scans(plan)} & {"Seq Scan"}, shown
                    # Three turns; for each both neighbours, an entry of the index and the row.
                    assert rows_read(plan) <= 15, shown


def test_sqlite_reads_as_much_whatever_waits(
    new_sqlite: Callable[[Path], str], tmp_path: Path, open_store: OpenStore
) -> None:
    found: dict[int, list[tuple[int, int]]] = {}
    for jobs in (500, JOBS):
        path = tmp_path / f"{jobs}.db"
        fill(open_store(new_sqlite(path)), jobs)
        found[jobs] = [instructions(str(path), search) for search in SEARCHES]

    assert found[500] == found[JOBS]
