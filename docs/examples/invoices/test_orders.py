"""Tests that pass, whether the workflow is right or not, and simulations that can tell."""

from datetime import timedelta

import pytest
from docs.examples.invoices.orders import Order, effects, ledger, orders, orders_mended, thank

from holdfast import Pipeline
from holdfast.testing import Simulate, SimulationFailedError, Stubs, World

ORDER = Order("7", "ann")
BOTH = pytest.mark.parametrize("pipeline", [orders, orders_mended], ids=["with the bug", "mended"])


@pytest.fixture(autouse=True)
def forget() -> None:
    effects.forget()
    ledger.invoices.clear()


@BOTH
def test_one_invoice_for_an_order(pipeline: Pipeline[Order, str], world: World) -> None:
    assert world.run(pipeline(ORDER)) == "Thank you. Please pay invoice 1."
    assert ledger.invoices == ["ann"]


@BOTH
def test_one_invoice_though_a_later_stage_fails(pipeline: Pipeline[Order, str], world: World) -> None:
    world.stub(thank).fails(ConnectionError("no paper"), times=2)
    assert world.run(pipeline(ORDER)) == "Thank you. Please pay invoice 1."
    assert ledger.invoices == ["ann"]


@pytest.mark.holdfast_seeds(200)
def test_the_simulation_finds_the_bug(simulate: Simulate) -> None:
    with pytest.raises(SimulationFailedError, match="'invoice for ann' happened twice; expected once"):
        simulate(orders(ORDER), effects=effects, before=ledger.invoices.clear)


@pytest.mark.holdfast_seeds(200)
def test_mended_it_bears_every_crash(simulate: Simulate) -> None:
    simulation = simulate(orders_mended(ORDER), effects=effects, before=ledger.invoices.clear)
    assert simulation.result == "Thank you. Please pay invoice 1."
    assert simulation.fired["crash"] > 50


def a_printer(stubs: Stubs) -> None:
    stubs.stub(thank).fails(ConnectionError("no paper"), times=1).returns("Thank you.")


def test_a_parcel_that_is_there_early(simulate: Simulate) -> None:
    simulation = simulate(
        orders_mended(ORDER),
        effects=effects,
        before=ledger.invoices.clear,
        stubs=a_printer,
        meanwhile={timedelta(days=3): lambda run: run.wake("send")},
    )
    assert simulation.result == "Thank you."
    assert timedelta(seconds=simulation.seconds) < timedelta(days=4)


def test_two_orders_of_which_one_is_called_off(simulate: Simulate) -> None:
    simulation = simulate(
        [orders_mended(ORDER), orders_mended(Order("8", "bob"))],
        effects=effects,
        before=ledger.invoices.clear,
        stubs=a_printer,
        meanwhile={timedelta(days=2): lambda runs: runs[1].cancel(reason="bob wants it no more")},
    )
    assert simulation.effects == {"invoice for ann": 1, "invoice for bob": 1}
