"""Golden function histories, recorded on one Python, replay on every release and Python."""

import json
from pathlib import Path

import pytest

from tests.golden.functions import FOLDER, asked_data, ended_text, plays, rows_from
from tests.unit.kernel.functions.player import replay


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.json")), ids=lambda path: path.stem)
def test_a_golden_history_is_replayed_as_it_was_recorded(path: Path) -> None:
    data = json.loads(path.read_text(encoding="utf-8"))
    call, _ = plays()[path.stem]
    _, played = replay(call, rows_from(data), [tuple(names) for names in data.get("patches", ())])
    assert [[asked_data(one) for one in waited] for waited in played.waited] == data["waited"]
    assert ended_text(played.ended) == data["ended"]


def test_there_is_one_of_each() -> None:
    assert {path.stem for path in FOLDER.glob("*.json")} == plays().keys()
