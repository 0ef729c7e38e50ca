"""How an order is tested: months pass in milliseconds, and crashes are tried, without a server and without waiting."""

from collections.abc import Iterator
from datetime import timedelta

import pytest
from docs.examples.orders.orders import (
    CardDeclinedError,
    Decision,
    Order,
    Parcel,
    Receipt,
    approval,
    charge,
    fulfil,
    mail,
    refund,
    remind,
    withdrawal,
)

from holdfast import step_context
from holdfast.client import RunStatus
from holdfast.errors import RunCancelledError, RunFailedError
from holdfast.testing import Effects, Simulate, Stubs, World
from holdfast.workflows import Signal

SMALL = Order("7", 1_999, "Rome")
LARGE = Order("8", 200_000, "Rome")
YES = approval(Decision(approved=True, by="ann"))


@pytest.fixture
def world() -> Iterator[World]:
    """A world that knows what an order starts, too."""
    with World([fulfil, remind]) as world:
        yield world


def test_a_small_order_is_shipped_at_once(world: World) -> None:
    assert world.run(fulfil(SMALL)) == Parcel("7 to Rome")


def test_a_bank_that_does_not_answer_is_asked_again(world: World) -> None:
    charged = world.stub(charge).fails(ConnectionError("busy"), times=2).returns(Receipt("r-1"))
    assert world.run(fulfil(SMALL)) == Parcel("7 to Rome")
    assert len(charged.calls) == 3


def test_a_card_that_is_declined_is_not_tried_again_and_nothing_is_taken_back(world: World) -> None:
    charged = world.stub(charge).fails(CardDeclinedError("no funds"))
    refunded = world.stub(refund).returns(None)
    with pytest.raises(RunFailedError, match="no funds"):
        world.run(fulfil(SMALL))
    assert len(charged.calls) == 1
    refunded.assert_not_called()


def test_a_large_order_waits_for_somebody_to_approve_it(world: World) -> None:
    run = world.start(fulfil(LARGE))
    world.advance(timedelta(days=2))
    assert run.info().status is RunStatus.RUNNING
    run.signal(YES)
    assert run.result() == Parcel("8 to Rome")


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (approval(Decision(approved=False, by="bob")), "bob refused order 8"),
        (withdrawal("too dear"), "withdrawn: too dear"),
        (None, "nobody has approved order 8"),
    ],
    ids=["refused", "withdrawn", "nobody"],
)
def test_an_order_that_is_refused_is_paid_back(world: World, said: Signal | None, why: str) -> None:
    mailed, refunded = world.stub(mail).returns(None), world.stub(refund).returns(None)
    run = world.start(fulfil(LARGE), signals=[said] if said is not None else [])
    world.advance(timedelta(days=4))
    with pytest.raises(RunFailedError, match=why):
        run.result()
    refunded.assert_called_once_with(Receipt("8-EUR"), LARGE)
    mailed.assert_called_once_with(LARGE, "We are sorry.")


def test_whoever_cancels_gets_the_money_back(world: World) -> None:
    refunded = world.stub(refund).returns(None)
    run = world.start(fulfil(LARGE))
    world.advance(timedelta(hours=1))
    run.cancel(reason="changed my mind")
    with pytest.raises(RunCancelledError, match="changed my mind"):
        run.result()
    refunded.assert_called_once_with(Receipt("8-EUR"), LARGE)


def test_asks_after_thirty_days_though_the_order_is_done(world: World) -> None:
    mailed = world.stub(mail).returns(None)
    world.run(fulfil(SMALL))
    world.advance(timedelta(days=29, hours=23))
    assert [call.arguments["text"] for call in mailed.calls] == ["We are packing!"]
    world.advance(timedelta(hours=2))
    assert [call.arguments["text"] for call in mailed.calls] == ["We are packing!", "How do you like it?"]


def test_a_reminder_alone(world: World) -> None:
    mailed = world.stub(mail).returns(None)
    run = world.start(remind(SMALL, timedelta(days=30)))
    world.advance(timedelta(days=30))
    run.result()
    mailed.assert_called_once_with(SMALL, "How do you like it?")


effects = Effects()


def bank(stubs: Stubs) -> None:
    """Stand for a bank that takes our key, as the real one does, and counts what it has done."""

    def charges(order: Order, *, currency: str = "EUR") -> Receipt:
        receipt = Receipt(f"{order.id}-{currency}")
        return effects.happen(f"charged {order.id}", lambda: receipt, key=step_context().idempotency_key)

    stubs.stub(charge).does(charges)


@pytest.mark.slow
@pytest.mark.holdfast_seeds(40)
def test_an_order_bears_every_crash(simulate: Simulate) -> None:
    """The second run is there so that the workflow is known which the first one starts."""
    simulation = simulate(
        [fulfil(LARGE), remind(SMALL, timedelta(days=1))],
        effects=effects,
        stubs=bank,
        meanwhile={timedelta(hours=1): lambda runs: runs[0].signal(YES)},
    )
    assert list(simulation.result) == [Parcel("8 to Rome"), None]
