"""Searches for the turns of jobs that wait for their first claim, each by one look at an index."""

# ruff: noqa: S608  # statements are put together from names that are constants of this program

from typing import Final

import attrs

from holdfast.adapters.sql.dialect import Dialect
from holdfast.adapters.sql.schema.tables import WAITS_FOR_TURN
from holdfast.ports.records.job import PRIORITY_STEP

TURN: Final = ("namespace", "queue", "definition", "turn")
_PART: Final = "j.namespace = w.namespace AND j.queue = w.queue AND j.definition = w.definition"


@attrs.frozen
class TurnSearches:
    """The statements about turns."""

    first: str
    neighbouring: str
    highest: str


def turn_searches(dialect: Dialect) -> TurnSearches:
    """Build the statements.

    A subquery gives one value, so the key of the job is found first, and its row is read by it. That needs no lateral
    join, which not every database has.
    """
    part = {"namespace": "text", "queue": "text", "definition": "text"}
    parts = dialect.table_of("parts", "w", part)
    turns = dialect.table_of("turns", "w", {**part, "turn": "bigint"})
    lines = dialect.table_of("lines", "w", {"namespace": "text", "line": "text", "key": "text"})
    of_part = "w.namespace, w.queue, w.definition"
    first = f"{_run('', 'ASC')} AS first"
    around = (
        f"{_run('AND j.turn < w.turn', 'DESC')} AS before, {_run('AND j.turn >= w.turn', 'ASC')} AS after"
    )
    return TurnSearches(
        first=f"SELECT w.namespace, w.queue, w.definition, {_turn('f')} "
        f"FROM (SELECT {of_part}, {first} FROM {parts}) AS w "
        "JOIN holdfast_jobs AS f ON f.run = w.first AND f.number = 1",
        neighbouring=f"SELECT w.namespace, w.queue, w.definition, w.turn, {_turn('b')}, {_turn('a')} "
        f"FROM (SELECT {of_part}, w.turn, {around} FROM {turns}) AS w "
        "LEFT JOIN holdfast_jobs AS b ON b.run = w.before AND b.number = 1 "
        "LEFT JOIN holdfast_jobs AS a ON a.run = w.after AND a.number = 1",
        highest="SELECT w.namespace, w.line, (SELECT max(k.next_turn) FROM holdfast_fair_keys AS k "
        f"WHERE k.namespace = w.namespace AND k.line = w.line) FROM {lines}",
    )


def _run(condition: str, direction: str) -> str:
    """Return the subquery for the run of the first job of a part in this direction. Only first jobs have turns."""
    return (
        f"(SELECT j.run FROM holdfast_jobs AS j WHERE {_PART} AND {WAITS_FOR_TURN} {condition} "
        f"ORDER BY j.turn {direction}, j.run {direction} LIMIT 1)"
    )


def _turn(job: str) -> str:
    return f"{job}.turn, {job}.queue_position + {job}.priority * {PRIORITY_STEP}"
