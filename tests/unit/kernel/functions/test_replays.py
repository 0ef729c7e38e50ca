"""D2: a function that is replayed comes to the same as the one that lived, at every point of its history."""

from typing import Any

import pytest

from holdfast.kernel.authoring.calls import Call
from holdfast.kernel.functions.asked import Cancelling, Told
from tests.unit.kernel.functions.corpus import CORPUS, WHEN_CANCELLED, WHEN_SENT
from tests.unit.kernel.functions.player import Played, play, replay, same_end

SEEDS = range(4)


@pytest.mark.parametrize("call", CORPUS, ids=lambda call: call.definition.name)
def test_a_replay_waits_for_the_same_at_every_prefix(call: Call[Any]) -> None:
    for seed in SEEDS:
        is_replayed_alike(call, play(call, seed=seed))


@pytest.mark.parametrize("call", WHEN_CANCELLED, ids=lambda call: call.definition.name)
def test_so_does_one_that_is_cancelled(call: Call[Any]) -> None:
    is_replayed_alike(call, play(call, then=[(5, Cancelling(reason="enough"))]))


@pytest.mark.parametrize(("call", "then"), WHEN_SENT)
def test_so_does_one_that_is_sent_messages(call: Call[Any], then: list[tuple[float, Told]]) -> None:
    for seed in SEEDS:
        is_replayed_alike(call, play(call, seed=seed, then=then))


def is_replayed_alike(call: Call[Any], played: Played) -> None:
    for upto in range(len(played.rows) + 1):
        machine, again = replay(call, played.rows[:upto], played.patches[: upto + 1])
        assert again.waited == played.waited[: upto + 1]
        assert again.dropped == played.dropped[: upto + 1]
        assert upto < len(played.rows) or same_end(again.ended, played.ended)
        machine.evict()
