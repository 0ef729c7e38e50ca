"""Tests that pass, whether the workflow is right or not, and simulations that can tell."""

import pytest
from docs.examples.invoices.orders import Order, effects, ledger, orders, orders_mended, thank

from holdfast import Pipeline
from holdfast.testing import Simulate, SimulationFailedError, World

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
    with pytest.raises(SimulationFailedError, match="'invoice for ann' happened twice; without faults once"):
        simulate(orders(ORDER), effects=effects, before=ledger.invoices.clear)


@pytest.mark.holdfast_seeds(200)
def test_mended_it_bears_every_crash(simulate: Simulate) -> None:
    simulation = simulate(orders_mended(ORDER), effects=effects, before=ledger.invoices.clear)
    assert simulation.result == "Thank you. Please pay invoice 1."
    assert simulation.fired["crash"] > 50
