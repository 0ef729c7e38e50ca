"""A worker lost after each commit, one after the other, of a pipeline and of a function with every feature."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest
from docs.examples.orders.orders import (
    Decision,
    Order,
    Receipt,
    approval,
    charge,
    fulfil,
    mail,
    refund,
    remind,
)

import holdfast
from holdfast import Channel, Retry, start_child, step, step_context, workflow
from holdfast.hosts.client.sync_run_handle import SyncRunHandle
from holdfast.ports.records.run import TERMINAL, RunStatus
from holdfast.testing import Effects, Stubs
from holdfast.testing.trials import Meanwhile, SimulatedCluster, SimulationInput, Trial
from holdfast.testing.verdicts import is_excused, problems
from holdfast.workflows import Call, WorkflowDefinition
from tests.simulation.test_corpus import CrashAt, results
from tests.sizes import sized

LEASE, BOUND = 60.0, 400 * 86_400.0
EVERY = sized(4, 1)
effects = Effects()
words = Channel("words", str)


def happens(what: str) -> str:
    """Note an effect, as a service would that takes our key."""
    return effects.happen(what, lambda: what, key=step_context().idempotency_key)


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "holdfast")


def lost_after_each_commit(
    call: Call[Any],
    *,
    besides: Sequence[WorkflowDefinition[Any]] = (),
    meanwhile: Meanwhile | None = None,
    stubs: Callable[[Stubs], object] = lambda _: None,
) -> tuple[Trial, int]:
    """Return how it ends without a loss, and how many commits it has: with one after any of them it ends the same."""

    def played(at: int) -> tuple[Trial, CrashAt]:
        faults = CrashAt(at, after_commits=True)
        subject = SimulationInput(
            calls=[call], meanwhile=meanwhile or {}, stubs=stubs, effects=effects, besides=besides
        )
        return SimulatedCluster(1, subject, faults, lease=LEASE, bound=BOUND).run(), faults

    usual, none = played(0)
    assert usual.started[0].status in TERMINAL, usual.lines
    for at in range(1, none.met + 1, EVERY):
        trial, crash = played(at)
        assert [one.kind.value for one in crash.fired] == ["crash"], at
        assert problems(trial, usual, None) == [], (at, trial.lines)
        assert not is_excused(trial, usual), (at, trial.lines)
        assert results(trial) == results(usual), (at, trial.lines)
        assert trial.effects == usual.effects
    return usual, none.met


def services(stubs: Stubs) -> None:
    """Stand for a bank and a post that take our key, and count what they have done."""

    def charges(order: Order, *, currency: str = "EUR") -> Receipt:
        happens(f"charged {order.id}")
        return Receipt(f"{order.id}-{currency}")

    def refunds(receipt: Receipt | None, order: Order) -> None:
        happens(f"refunded {order.id} by {receipt}")

    def mails(order: Order, text: str) -> None:
        happens(f"mailed {order.id}: {text}")

    stubs.stub(charge).does(charges)
    stubs.stub(refund).does(refunds)
    stubs.stub(mail).does(mails)


LARGE = Order("8", 200_000, "Rome")
CHARGED = {"charged 8": 1}
REFUNDED = {**CHARGED, "mailed 8: We are sorry.": 1, "refunded 8 by Receipt(charge='8-EUR')": 1}
SHIPPED = {**CHARGED, "mailed 8: We are packing!": 1, "mailed 8: How do you like it?": 1}


def decides(*, approved: bool) -> Meanwhile:
    def signal(runs: Sequence[SyncRunHandle[Any]]) -> None:
        runs[0].signal(approval(Decision(approved=approved, by="ann")))

    return {timedelta(hours=1): signal}


def cancels(runs: Sequence[SyncRunHandle[Any]]) -> None:
    runs[0].cancel(reason="changed my mind")


@pytest.mark.slow
@pytest.mark.sized
@pytest.mark.parametrize(
    ("meanwhile", "status", "done"),
    [
        (decides(approved=True), RunStatus.COMPLETED, SHIPPED),
        (decides(approved=False), RunStatus.FAILED, REFUNDED),
        ({}, RunStatus.FAILED, REFUNDED),
        ({timedelta(hours=1): cancels}, RunStatus.CANCELLED, REFUNDED),
    ],
    ids=["approved", "refused", "nobody", "cancelled"],
)
def test_an_order_ends_the_same_and_does_the_same(
    meanwhile: Meanwhile, status: RunStatus, done: Mapping[str, int]
) -> None:
    usual, commits = lost_after_each_commit(
        fulfil(LARGE), besides=[remind], meanwhile=meanwhile, stubs=services
    )
    assert usual.started[0].status is status
    assert usual.effects == done
    assert commits >= 8


PATIENT = Retry(attempts=9, wait=timedelta(seconds=1))


@step(retry=PATIENT)
async def note(what: str) -> str:
    return happens(what)


@note.compensate
@step(retry=PATIENT)
async def strike_out(noted: str) -> None:
    happens(f"no {noted}")


@step(retry=PATIENT, queue="far")
def far(what: str) -> str:
    return happens(what)


@step(retry=PATIENT, queue="narrow", max_concurrency=1)
async def narrow(what: str) -> str:
    return happens(what)


@workflow
async def helps(what: str) -> str:
    await holdfast.sleep(timedelta(days=1))
    return await far(f"{what} of a child")


@workflow
async def mixed(*, fails: bool) -> list[str]:
    drawn = str(holdfast.uuid4())
    child = await start_child(helps("work"))
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one) for one in (note("a"), far("b"), narrow("c"), narrow("d"))]
    await holdfast.sleep(timedelta(hours=3))
    try:
        word = await words.receive(timeout=timedelta(minutes=1))
    except TimeoutError:
        word = "nobody"
    try:
        async with asyncio.timeout(3600):
            await child.result()
    except TimeoutError:
        await note("late")
    ended = await child.result()
    if fails:
        raise LookupError(word)
    return [drawn, word, ended, *(task.result() for task in tasks)]


def says(runs: Sequence[SyncRunHandle[Any]]) -> None:
    runs[0].signal(words("hello"))


@pytest.mark.slow
@pytest.mark.sized
@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("after", [timedelta(hours=1), timedelta(hours=3, seconds=30), None], ids=str)
def test_a_function_with_all_there_is_ends_the_same(after: timedelta | None, *, fails: bool) -> None:
    meanwhile: Meanwhile = {} if after is None else {after: says}
    usual, commits = lost_after_each_commit(mixed(fails=fails), besides=[helps], meanwhile=meanwhile)
    undone = ["no a", "no late"] if fails else []
    done = ["a", "b", "c", "d", "late", "work of a child", *undone]
    assert usual.effects == dict.fromkeys(done, 1)
    assert usual.started[0].status is (RunStatus.FAILED if fails else RunStatus.COMPLETED)
    assert commits >= 20
