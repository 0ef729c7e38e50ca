"""Random functions that receive the result of a step before it is stored, under random faults."""

from collections import Counter
from collections.abc import Callable

import pytest

from holdfast.hosts.functions.replay import FedAhead, FunctionReplay, OvertakenError
from holdfast.kernel.commands import CompletedAfterStep, EventAppend, JobRecorded, JobSettled
from holdfast.kernel.commands.outcomes import WaitingAfterStep
from holdfast.kernel.rules import outcomes
from holdfast.kernel.rules.settlement import Settlement
from holdfast.kernel.state import Decision
from holdfast.ports.records.job import JobKind
from holdfast.ports.records.values import Micros
from holdfast.testing.simulation import Exit, simulate_seed
from holdfast.testing.simulation.batches import simulate_seeds
from holdfast.testing.simulation.last_step_workload import draw_last_steps
from holdfast.testing.simulation.store_kinds import stores
from tests.sizes import sized

SEEDS = sized(60, 1_000)
FIRST = 1


@pytest.mark.slow
@pytest.mark.sized
def test_a_function_ends_as_its_replay_whatever_goes_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """And all happens: right and wrong guesses, and messages that arrive between a step and its row."""
    seen = Counter[str]()
    rules = outcomes.OUTCOMES[JobKind.WORKFLOW]
    complete, suspend, feed, confirm = (
        rules[CompletedAfterStep],
        rules[WaitingAfterStep],
        FunctionReplay.feed_ahead,
        FunctionReplay.confirm,
    )

    def completing(settlement: Settlement) -> Decision[JobSettled]:
        seen["together"] += 1
        return complete(settlement)

    def suspending(settlement: Settlement) -> Decision[JobSettled]:
        outcome = settlement.command.outcome
        assert isinstance(outcome, WaitingAfterStep)
        seen["overtaken at the end"] += (
            settlement.run.last_row != outcome.seen
        )  # or the store refuses a value
        return suspend(settlement)

    def feeding(
        drive: FunctionReplay, step: EventAppend, now: Micros, stays_inline: Callable[[str], bool]
    ) -> bool:
        has_returned = feed(drive, step, now, stays_inline)
        seen["right guess" if has_returned else "wrong guess"] += 1
        return has_returned

    def confirming(drive: FunctionReplay, ahead: FedAhead, answer: JobRecorded) -> None:
        try:
            confirm(drive, ahead, answer)
        except OvertakenError:
            seen["overtaken"] += 1
            raise

    monkeypatch.setitem(rules, CompletedAfterStep, completing)
    monkeypatch.setitem(rules, WaitingAfterStep, suspending)
    monkeypatch.setattr(FunctionReplay, "feed_ahead", feeding)
    monkeypatch.setattr(FunctionReplay, "confirm", confirming)
    for outcome in simulate_seeds(range(FIRST, FIRST + SEEDS), "memory", workload="last_steps"):
        assert outcome.exit is Exit.FINE, (outcome.seed, outcome.found)
    assert min(seen[what] for what in ("together", "right guess", "wrong guess")) >= SEEDS, seen
    assert min(seen["overtaken"], seen["overtaken at the end"]) >= 3, seen


@pytest.mark.slow
def test_a_seed_gives_the_same_trace_on_both_stores() -> None:
    with stores("memory") as memory, stores("sqlite") as sqlite:
        one, again, other = (
            simulate_seed(3, draw_last_steps, store=store) for store in (memory, memory, sqlite)
        )
    assert one.exit is Exit.FINE
    assert one.trace == again.trace == other.trace
