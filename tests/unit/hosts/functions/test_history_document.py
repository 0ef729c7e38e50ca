"""History documents: they round-trip, and invalid ones are refused with a reason."""

import json
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from holdfast.hosts.client.engine import Engine
from holdfast.hosts.functions.history_document import RunHistory
from holdfast.kernel.authoring.decorators import stage
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.ports.errors import BlobMissingError, InvalidHistoryError, RunNotFoundError
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.run import RunStatus
from holdfast.ports.records.values import Payload

AT = 1_767_225_600_123_456


def row(number: int, type: str = "step.completed", **fields: Any) -> HistoryRow:
    return HistoryRow(run="key", number=number, type=type, at=AT + number, **fields)


HISTORY = RunHistory(
    id="order-7",
    generation=2,
    key="key",
    workflow="fulfil",
    version="3",
    status=RunStatus.FAILED,
    created_at=datetime(2026, 1, 1, 0, 0, 0, 123456, tzinfo=UTC),
    rows=(
        row(1, "run.created", payload=Payload(inline='{"order":"Ä\\u00e9","price":1.10}'), data="{}"),
        row(2, node="fulfil", epoch=4, payload=Payload(inline="null"), data='{"call":"1"}'),
        row(3, node="map", item=0, payload=Payload(inline="[1e+16,-0.0,12345678901234567890]")),
        row(4, "run.failed"),
    ),
    error='{"code":"body_error","message":"no"}',
)


def test_what_is_written_is_read_again_as_it_was() -> None:
    text = HISTORY.to_json()
    again = RunHistory.from_json(text)
    assert again.to_json() == text
    assert again.rows[1:] == HISTORY.rows[1:]
    assert again.created_at == HISTORY.created_at
    assert (again.id, again.generation, again.status, again.error) == (
        "order-7",
        2,
        RunStatus.FAILED,
        HISTORY.error,
    )
    assert json.loads(again.input) == {"order": "Äé", "price": 1.1}


def test_each_row_has_a_line_of_its_own() -> None:
    lines = HISTORY.to_json().splitlines()
    assert lines[1] == '  "holdfast_history": 1,'
    assert [json.loads(line.rstrip(","))["number"] for line in lines if '"number"' in line] == [1, 2, 3, 4]


def changed(**fields: object) -> str:
    return json.dumps({**json.loads(HISTORY.to_json()), **fields})


def without(name: str) -> str:
    data = json.loads(HISTORY.to_json())
    del data[name]
    return json.dumps(data)


ROWS: list[dict[str, Any]] = json.loads(HISTORY.to_json())["rows"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "not what `holdfast history export` writes"),
        ("{}", "not what `holdfast history export` writes"),
        (changed(holdfast_history=2), "its format is 2, and this release reads 1"),
        (without("key"), "it has no 'key'"),
        (changed(status="lost"), "'lost' is not a valid RunStatus"),
        (changed(generation="2"), "$.generation: expected integer, got string"),
        (
            changed(created_at="2026-01-01T00:00:00"),
            "$.created_at: expected a time with a time zone, got '2026-01-01T00:00:00'",
        ),
        (changed(created_at="yesterday"), "Invalid isoformat"),
        (changed(rows=[]), "its first row is not a run.created"),
        (changed(rows=ROWS[1:]), "its first row is not a run.created"),
        (changed(rows=[ROWS[0], ROWS[2]]), "row 2 is missing: row 3 follows instead"),
        (changed(rows=[{**ROWS[0], "number": True}]), "$.rows[0].number: expected integer, got boolean"),
        (changed(rows=[1]), "$.rows[0]: expected object, got integer"),
    ],
)
def test_what_is_no_history_is_refused_with_a_reason(text: str, problem: str) -> None:
    with pytest.raises(InvalidHistoryError) as refused:
        RunHistory.from_json(text)
    assert problem in str(refused.value)


@stage
def measure(text: str) -> int:
    return len(text)


LARGE = Pipeline("large", input=str).pipe(measure)


@pytest.fixture
def engine(tmp_path: Path, new_sqlite: Callable[[Path], str]) -> Iterator[Engine]:
    url = new_sqlite(tmp_path / "a.db")
    engine = Engine.open(url, workflows=[LARGE], blobs=f"file://{tmp_path}/blobs")
    yield engine
    engine.core.close()


def test_values_in_blobs_are_in_the_document(engine: Engine, tmp_path: Path) -> None:
    text = "y" * 70_000
    run = engine.sync.start(LARGE(text))
    history = run.export_history()
    assert history.rows[0].payload == Payload(inline=f'"{text}"')
    assert history == RunHistory.from_json(history.to_json())

    shutil.rmtree(tmp_path / "blobs")
    with pytest.raises(BlobMissingError):
        run.export_history()


def test_a_run_that_is_not_there_has_no_history(engine: Engine) -> None:
    engine.sync.start(LARGE("x"), id="x")
    with pytest.raises(RunNotFoundError):
        engine.sync.handle(LARGE, "y").export_history()
    with pytest.raises(RunNotFoundError):
        engine.sync.handle(LARGE, "x").export_history(generation=2)
