"""Decisions are reproduced from their recordings: today's and all older ones."""

import json
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any, cast

import attrs
import pytest

from holdfast.kernel.commands import RunCancel
from holdfast.kernel.commands.codec import from_data, reply_from, to_data
from holdfast.kernel.dispatch.decision_records import (
    Recording,
    decided_again,
    recording_from,
    state_from,
    state_json,
)
from holdfast.kernel.rules.registry import RULES, command_from, reply_type
from holdfast.kernel.state import State
from holdfast.ports.changes import Change
from holdfast.ports.errors import InvalidCommandError, RunNotFoundError
from holdfast.ports.json import canonical, parse
from holdfast.ports.transport import Hint
from tests.golden.make import FOLDER
from tests.golden.scenario import play
from tests.unit.kernel.world import World, pipeline, stage

_CHANGE = cast("type[object]", Change)
_HINT = cast("type[object]", Hint)
GOLDEN = sorted(FOLDER.glob("*.json"))


@pytest.fixture(scope="module")
def recordings() -> list[Recording]:
    return play()


@pytest.mark.slow
def test_every_decision_is_made_again_from_its_json(recordings: list[Recording]) -> None:
    for recording in recordings:
        again = recording_from(recording.to_json())
        assert again == recording
        assert decided_again(again) == recording.decision


def test_every_command_is_among_them(recordings: list[Recording]) -> None:
    commands = {type(command_from(parse(recording.command))) for recording in recordings}

    assert commands == set(RULES)


@pytest.mark.slow
def test_a_scenario_is_the_same_each_time(recordings: list[Recording]) -> None:
    assert play() == recordings


def test_a_state_comes_back_from_its_json(recordings: list[Recording]) -> None:
    for recording in recordings:
        assert state_json(state_from(recording.state)) == recording.state


def test_a_recording_is_plain_json(recordings: list[Recording]) -> None:
    for recording in recordings:
        text = recording.to_json()
        assert text.isascii()
        assert canonical(json.loads(text)) == text


def test_the_recorded_state_is_that_before_the_decision_and_within_the_batch() -> None:
    recordings: list[Recording] = []
    world = World(pipeline(stage("a")), recorder=recordings.append)
    world.create()
    recordings.clear()
    world.send(RunCancel(run_id="x"), RunCancel(run_id="x"))
    statuses = [state_from(recording.state).tables.runs[world.run().key].status for recording in recordings]

    assert statuses == ["running", "cancelled"]
    assert [json.loads(recording.decision)["reply"]["changed"] for recording in recordings] == [True, False]


def test_a_refused_command_is_no_decision() -> None:
    recordings: list[Recording] = []
    world = World(pipeline(stage("a")), recorder=recordings.append)
    with pytest.raises(RunNotFoundError):
        world.do(RunCancel(run_id="x"))

    assert recordings == []


def test_recording_changes_nothing() -> None:
    def tables(*, recorded: bool) -> object:
        recordings: list[Recording] = []
        world = World(pipeline(stage("a"), stage("b")), recorder=recordings.append if recorded else None)
        world.create()
        session = world.open()
        while attempts := world.claim(session):
            world.complete(attempts[0])
        return world.tables()

    assert tables(recorded=True) == tables(recorded=False)


def test_another_decision_is_noticed(recordings: list[Recording]) -> None:
    recording = next(one for one in recordings if '"run.create"' in one.command)

    assert decided_again(attrs.evolve(recording, now=recording.now + 1)) != recording.decision
    with pytest.raises(StopIteration):
        decided_again(attrs.evolve(recording, ids=()))


def test_a_recording_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidCommandError):
        recording_from('{"state":"{}"}')


def test_an_empty_state_is_a_state() -> None:
    assert state_json(state_from(state_json(State()))) == state_json(State())


# Golden -----------------------------------------------------------------------------------------------------------


def _parts(text: str, reply: type[object]) -> Iterator[object]:
    """Return a decision read and written by today's classes, so that names and forms are today's."""
    data: dict[str, Any] = parse(text)
    yield to_data(reply_from(canonical(data["reply"]), reply))
    yield [to_data(from_data(change, _CHANGE), Change) for change in data["changes"]]
    yield [to_data(from_data(hint, _HINT), Hint) for hint in data["hints"]]


def _as_recorded(made: object, recorded: object) -> object:
    """Remove fields that the records did not have at the time of the recording."""
    if isinstance(recorded, dict):
        now, then = cast("dict[str, object]", made), cast("dict[str, object]", recorded)
        return {name: _as_recorded(value, then[name]) for name, value in now.items() if name in then}
    if isinstance(recorded, list):
        pairs = zip_longest(cast("list[object]", made), cast("list[object]", recorded))
        return [_as_recorded(*pair) for pair in pairs]
    return made


def test_there_are_golden_recordings_of_every_command() -> None:
    assert {path.name.partition("-")[0] for path in GOLDEN} >= {command.type for command in RULES}


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_a_golden_decision_is_made_again(path: Path) -> None:
    recording = recording_from(path.read_text(encoding="utf-8"))
    reply = reply_type(type(command_from(parse(recording.command))))
    made = _as_recorded(parse(decided_again(recording)), parse(recording.decision))

    assert list(_parts(canonical(made), reply)) == list(_parts(recording.decision, reply))
