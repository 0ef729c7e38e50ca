"""The format of the log sink."""

import json
from io import StringIO

import pytest

from holdfast.adapters.sinks.log import LogSink
from holdfast.testing.conformance.builders import a_key
from holdfast.testing.conformance.events import an_event


def test_each_event_is_a_line_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    LogSink().emit([an_event(1, 1), an_event(1, 2, '{"a":\n1}')])
    first, second = map(json.loads, capsys.readouterr().out.splitlines())

    assert first == {
        "at": "2026-01-01T00:00:00.000001+00:00",
        "data": {"attempt": 1},
        "generation": 1,
        "id": f"{a_key(1)}/1",
        "item": None,
        "namespace": "default",
        "run_id": "run-1",
        "stage": "bill",
        "type": "stage.completed",
        "workflow": "orders",
    }
    assert second["data"] == {"a": 1}


def test_a_stream_that_fails_fails_the_sink() -> None:
    stream = StringIO()
    stream.close()
    with pytest.raises(ValueError, match="closed"):
        LogSink(stream).emit([an_event()])
