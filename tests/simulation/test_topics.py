"""Random runs publish and subscribe under random faults: each subscription gets what it selects, once, in order."""

from collections import Counter

import pytest

from holdfast.testing.simulation import Exit, simulate_seed
from holdfast.testing.simulation.batches import simulate_seeds
from holdfast.testing.simulation.store_kinds import stores
from holdfast.testing.simulation.topic_ledger import Since, TopicLedger
from holdfast.testing.simulation.topic_workload import draw_topics
from tests.sizes import sized

FIRST = 10  # the 24 seeds from here on show everything that is rare
SEEDS = sized(24, 300)
RARE = (
    "partial",
    "caught up",
    "caught up in part",
    "deleted",
    "subscribed again",
    "delivered again",
    "kept longer",
)


@pytest.mark.slow
@pytest.mark.sized
def test_each_subscription_gets_its_messages_whatever_goes_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what is rare happens: deliveries in parts, subscriptions behind, messages for later generations."""
    ledgers: list[TopicLedger] = []
    create = TopicLedger.__init__

    def noting(ledger: TopicLedger, since: Since) -> None:
        create(ledger, since)
        ledgers.append(ledger)

    monkeypatch.setattr(TopicLedger, "__init__", noting)
    for outcome in simulate_seeds(range(FIRST, FIRST + SEEDS), "memory", workload="topics"):
        assert outcome.exit is Exit.FINE, (outcome.seed, outcome.found)
    seen = sum((ledger.seen for ledger in ledgers), Counter[str]())
    assert seen["delivered"] > 200
    assert seen["delivered to a later generation"] > 20
    assert seen["published by a run"] > 20
    assert min(seen[what] for what in RARE) >= 5, seen
    groups = sum((ledger.groups.seen for ledger in ledgers), Counter[str]())
    assert groups["handed out"] > 200
    assert groups["handed out after it went back"] > 10
    assert groups["had again"] > 2


@pytest.mark.slow
def test_a_seed_gives_the_same_trace_on_both_stores() -> None:
    with stores("memory") as memory, stores("sqlite") as sqlite:
        one, again, other = (simulate_seed(3, draw_topics, store=store) for store in (memory, memory, sqlite))
    assert one.exit is Exit.FINE
    assert one.trace == again.trace == other.trace
