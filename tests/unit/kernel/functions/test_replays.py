"""D2: a replayed function behaves as the live one did, at every point of its history."""

import asyncio
from typing import Any

import attrs
import pytest

from holdfast.kernel.authoring.calls import Call
from holdfast.kernel.authoring.functions import patched, workflow
from holdfast.kernel.authoring.publications import publish
from holdfast.kernel.authoring.steps import step
from holdfast.kernel.functions.protocol import (
    Cancelling,
    FunctionEvent,
    Row,
    StepCompleted,
    StepRequest,
    Turn,
)
from holdfast.kernel.history import events
from holdfast.kernel.history.events.parsed_rows import ParsedRow
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.values import Payload
from tests.unit.kernel.functions.corpus import CORPUS, WHEN_CANCELLED, WHEN_SENT, greet
from tests.unit.kernel.functions.player import Played, new_machine, play, replay, same_end

SEEDS = range(4)


@pytest.mark.parametrize("call", CORPUS, ids=lambda call: call.definition.name)
def test_a_replay_waits_for_the_same_at_every_prefix(call: Call[Any]) -> None:
    for seed in SEEDS:
        is_replayed_alike(call, play(call, seed=seed))


@pytest.mark.parametrize("call", WHEN_CANCELLED, ids=lambda call: call.definition.name)
def test_so_does_one_that_is_cancelled(call: Call[Any]) -> None:
    is_replayed_alike(call, play(call, then=[(5, Cancelling(reason="enough"))]))


@pytest.mark.parametrize(("call", "then"), WHEN_SENT)
def test_so_does_one_that_is_sent_messages(call: Call[Any], then: list[tuple[float, FunctionEvent]]) -> None:
    for seed in SEEDS:
        is_replayed_alike(call, play(call, seed=seed, then=then))


def is_replayed_alike(call: Call[Any], played: Played) -> None:
    for upto in range(len(played.rows) + 1):
        machine, again = replay(call, played.rows[:upto], played.patches[: upto + 1])
        assert again.waited == played.waited[: upto + 1]
        assert again.dropped == played.dropped[: upto + 1]
        assert upto < len(played.rows) or same_end(again.ended, played.ended)
        machine.evict()


@step(queue="elsewhere")
def done_elsewhere() -> None: ...


@workflow
async def says() -> bool:
    """Record other things between the steps: a patch and a published value."""
    await greet("a")
    has = patched("new")
    await greet("b")
    publish("said", "b")
    await greet("c")
    return has


@workflow
async def shows() -> None:
    await greet("a")
    publish("said", "a")
    await greet("b")


@workflow
async def asks_elsewhere() -> None:
    await greet("a")
    await asyncio.gather(greet("b"), done_elsewhere(), greet("c"))


CANCELLED: list[tuple[float, FunctionEvent]] = [(5, Cancelling(reason="enough"))]
TOGETHER: list[tuple[Call[Any], list[tuple[float, FunctionEvent]]]] = [
    *((call, []) for call in (*CORPUS, says(), shows(), asks_elsewhere())),
    *WHEN_SENT,
    *((call, CANCELLED) for call in WHEN_CANCELLED),
]


@pytest.mark.slow
def test_results_of_steps_that_are_told_in_one_go_come_to_the_same() -> None:
    together, turns = 0, 0
    for call, then in TOGETHER:
        for seed in SEEDS:
            played = play(call, seed=seed, then=then)
            for past in {0, 1, 2, len(played.rows) // 2, len(played.rows)}:
                told, stopped = is_told_alike(call, played, past)
                together, turns = together + told, turns + stopped
    assert together > 100
    assert turns > 100  # it also stops, and says why


def is_told_alike(call: Call[Any], played: Played, past: int) -> tuple[int, int]:
    """Feed one machine row by row and another step results in batches, up to a row, and compare."""
    known = [known_row(row) for row in played.rows]
    recorded = [name for of_turn in played.patches[:past] for name in of_turn]
    one, other = new_machine(call), new_machine(call)
    for machine in (one, other):
        machine.begin(more=past > 0, patches=recorded)
    place, together, stopped = 0, 0, 0
    last = Turn()
    while place < len(known):
        after, turn = other.feed_steps(known, place, past=past, apart={3})
        if after == place:
            assert turn is None
            row = played.rows[place]
            after, turn = place + 1, other.feed(row, more=row.number < past)
        else:
            together += after - place
            stopped += turn is not None
        for row in played.rows[place:after]:
            last = one.feed(row, more=row.number < past)
            if row is not played.rows[after - 1] or turn is None:
                assert last.ended is None
                assert not any((last.dropped, last.patches, last.answers, last.published))
                assert all(isinstance(asked, StepRequest) and asked.queue is None for asked in last.requests)
        if turn is not None:
            assert attrs.evolve(turn, ended=None) == attrs.evolve(last, ended=None)
            assert same_end(turn.ended, last.ended)
        assert (other.pending_requests, other.rows, other.turn) == (one.pending_requests, one.rows, one.turn)
        assert (other.kept, other.waits_at, other.late) == (one.kept, one.waits_at, one.late)
        place = after
    one.evict()
    other.evict()
    return together, stopped


def known_row(row: Row) -> ParsedRow:
    """Return a row in the form in which stores have it; complete only for results of steps."""
    told = row.event
    if not isinstance(told, StepCompleted):
        return ParsedRow(HistoryRow(run="r", number=row.number, type="other", at=row.at), {})
    payload = Payload(inline=told.output)
    history = HistoryRow(
        run="r", number=row.number, type=events.StepCompleted.type, at=row.at, payload=payload
    )
    return ParsedRow(history, {"call": told.call, "step": told.step})


def test_what_is_no_result_that_is_waited_for_is_not_told_with_others() -> None:
    call = next(call for call in CORPUS if call.definition.name == "keywords")
    row, facts = next(map(known_row, play(call).rows))
    elsewhere = attrs.evolve(row, payload=Payload(blob="default/r/keywords/1/0"))
    other_step, other_call = {**facts, "step": "other"}, {**facts, "call": "9"}
    others = [
        ParsedRow(elsewhere, facts),
        ParsedRow(row, other_step),
        ParsedRow(row, other_call),
        ParsedRow(row, {}),
    ]
    for known in others:
        machine = new_machine(call)
        machine.begin(more=True)
        before = machine.pending_requests, machine.turn
        assert machine.feed_steps([known], 0, past=1, apart=()) == (0, None)
        assert machine.feed_steps([ParsedRow(row, facts)], 0, past=0, apart=()) == (0, None)
        assert machine.feed_steps([ParsedRow(row, facts)], 0, past=1, apart={1}) == (0, None)
        assert (machine.pending_requests, machine.turn, machine.rows) == (*before, 0)
        machine.evict()
