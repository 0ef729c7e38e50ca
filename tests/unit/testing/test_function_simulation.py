"""A simulation finds crash bugs of durable functions, and reports none where there is none."""

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, cast

import pytest

from holdfast.hosts.client.sync_run_handle import SyncRunHandle
from holdfast.kernel.authoring.functions import now, sleep, uuid4, workflow
from holdfast.kernel.authoring.options import Retry
from holdfast.kernel.authoring.queries import expose, query, update
from holdfast.kernel.authoring.step_context import step_context
from holdfast.kernel.authoring.steps import step
from holdfast.kernel.functions.machine import evict_all, in_memory
from holdfast.ports.errors import InvalidArgumentError, RunCancelledError, RunFailedError
from holdfast.testing import Effects, SimulationFailedError, Stubs, simulate
from tests.sizes import sized

effects = Effects()
counted: list[int] = []

OFTEN = Retry(attempts=5, wait=timedelta(minutes=1), jitter=0.0)


class DeclinedError(Exception):
    """The bank declined."""


@step
async def charge(cents: int) -> int:
    effects.happen(f"charge {cents}")
    return cents


@step
async def charge_by_key(cents: int) -> int:
    effects.happen(f"charge {cents}", key=step_context().idempotency_key)
    return cents


@step
def mail(text: str) -> str:
    effects.happen(f"mail {text}", key=step_context().idempotency_key)
    return text


@step(retry=OFTEN)
def stumble(number: int) -> int:
    if step_context().attempt < 3:
        raise ConnectionError("away")
    return number


@step(retry=Retry(attempts=1))
def decline() -> None:
    raise DeclinedError("no funds")


@workflow
async def monthly(months: int) -> list[str]:
    paid: list[str] = []
    for month in range(months):
        await charge_by_key(month)
        paid.append(f"{now():%B} {await stumble(month)}")
        await sleep(timedelta(days=30))
    one, other = await asyncio.gather(mail("good"), mail("bye"))
    return [*paid, one, other, str(uuid4())]


@workflow
async def careless(cents: int) -> int:
    await sleep(timedelta(hours=1))
    return await charge(cents)


@workflow
async def impure() -> int:
    effects.happen("an effect of the function itself")
    await sleep(timedelta(days=1))
    return 1


@workflow
async def forgetful() -> int:
    counted.append(1)
    if len(counted) > 1:
        await mail("hello again")
    await sleep(timedelta(days=1))
    return len(counted)


@workflow
async def tidy() -> str:
    try:
        await sleep(timedelta(days=1))
        return await mail("done")
    finally:
        await mail("tidied up")


@workflow
async def careful() -> str:
    try:
        await decline()
    except DeclinedError as error:
        return await mail(f"declined: {error}")
    return "?"


@workflow
async def failing() -> None:
    await decline()


@workflow
async def impatient() -> str:
    try:
        async with asyncio.timeout(5):
            return await mail("in time")
    except TimeoutError:
        return await mail("sorry")


@pytest.fixture(autouse=True)
def _none_is_left_in_memory() -> None:
    """Evict the functions that engines of other tests keep: those that a simulation leaves are to be seen."""
    counted.clear()
    evict_all()
    assert not in_memory()


@pytest.mark.slow
@pytest.mark.sized
def test_nothing_is_found_in_a_function_that_bears_every_crash() -> None:
    simulation = simulate(monthly(3), effects=effects, seeds=sized(10, 40))
    assert simulation.result[:5] == ["January 0", "January 1", "March 2", "good", "bye"]
    assert simulation.seconds == pytest.approx(90 * 86_400, rel=0.01)
    assert simulation.fired["crash"] > 10
    assert simulation.effects == {"charge 0": 1, "charge 1": 1, "charge 2": 1, "mail good": 1, "mail bye": 1}
    assert simulation.excused == 0
    assert not in_memory()


@pytest.mark.slow
def test_an_effect_that_happens_twice_is_found() -> None:
    with pytest.raises(SimulationFailedError, match=r"'charge 5' happened twice; expected once"):
        simulate(careless(5), effects=effects)


def test_an_effect_of_the_function_itself_is_found_without_any_fault() -> None:
    with pytest.raises(SimulationFailedError, match=r"function itself' happened"):
        simulate(impure(), effects=effects, seeds=200)


@pytest.mark.slow
def test_a_function_that_hangs_on_what_is_in_memory_is_found() -> None:
    with pytest.raises(
        SimulationFailedError, match=r"the run did not end: it is blocked: .*'mail'|the run returned"
    ):
        simulate(forgetful(), effects=effects, before=counted.clear)


@pytest.mark.slow
def test_code_that_tidies_up_has_no_effect_where_a_process_crashes() -> None:
    simulation = simulate(tidy(), effects=effects, seeds=40)
    assert simulation.effects == {"mail done": 1, "mail tidied up": 1}


@pytest.mark.slow
def test_an_error_of_a_step_is_raised_each_time() -> None:
    assert simulate(careful(), effects=effects, seeds=8).result == "declined: no funds"
    with pytest.raises(RunFailedError, match="no funds"):
        _ = simulate(failing(), effects=effects, seeds=8).result


@pytest.mark.slow
def test_a_function_that_is_late_by_faults_is_excused() -> None:
    simulation = simulate(impatient(), effects=effects, seeds=40)
    assert simulation.result == "in time"
    assert simulation.excused > 1


@pytest.mark.slow
def test_stubs_stand_in_for_steps() -> None:
    def bank(stubs: Stubs) -> None:
        stubs.stub(charge).fails(DeclinedError("no funds"), times=1).returns(7)

    assert simulate(careless(5), effects=effects, seeds=10, stubs=bank).result == 7


@pytest.mark.slow
def test_what_is_done_from_outside_is_done_meanwhile() -> None:
    simulation = simulate(
        monthly(3), effects=effects, seeds=8, meanwhile={timedelta(days=40): lambda run: run.terminate()}
    )
    assert simulation.effects == {"charge 0": 1, "charge 1": 1}
    with pytest.raises(RunCancelledError):
        _ = simulation.result


@pytest.mark.slow
def test_a_paused_function_goes_on_when_it_is_resumed() -> None:
    simulation = simulate(
        monthly(2),
        effects=effects,
        seeds=8,
        meanwhile={
            timedelta(days=10): lambda run: run.pause(),
            timedelta(days=70): lambda run: run.resume(),
        },
    )
    assert simulation.result[:2] == ["January 0", "March 1"]


@pytest.mark.slow
def test_a_seed_gives_the_same_each_time() -> None:
    def said() -> str:
        with pytest.raises(SimulationFailedError) as caught:
            simulate(careless(5), effects=effects)
        return str(caught.value)

    assert said() == said()


@workflow
async def household(cents: int) -> int:
    return sum(await asyncio.gather(purchase(cents), purchase(cents + 1)))


@workflow
async def purchase(cents: int) -> int:
    await mail(str(cents))
    return cents


@pytest.mark.slow
def test_what_a_function_starts_is_simulated_too() -> None:
    simulation = simulate(household(1), effects=effects, seeds=15, workflows=[purchase])
    assert simulation.result == 3
    assert simulation.effects == {"mail 1": 1, "mail 2": 1}


def test_workflows_are_workflows() -> None:
    given = cast("Any", [mail])
    with pytest.raises(InvalidArgumentError, match="a list of pipelines and durable functions"):
        simulate(household(1), effects=effects, seeds=1, workflows=given)


@dataclass
class Account:
    balance: int = 0
    closed: asyncio.Event = field(default_factory=asyncio.Event)

    @query
    def worth(self) -> int:
        return self.balance

    @update
    async def deposit(self, cents: int) -> int:
        self.balance += await pay_in(cents)
        return self.balance

    @update
    def close(self) -> None:
        self.closed.set()


@step(retry=Retry(attempts=20, wait=timedelta(seconds=1)))
async def pay_in(cents: int) -> int:
    effects.happen(f"charge {cents}", key=step_context().idempotency_key)
    return cents


@workflow
async def account() -> int:
    state = expose(Account())
    await state.closed.wait()
    return state.balance


@pytest.mark.slow
def test_who_is_outside_waits_for_replies_and_results() -> None:
    """In virtual time: workers run meanwhile, and are lost."""
    replies: list[tuple[int, int]] = []
    results: list[int] = []

    def deposits(run: SyncRunHandle[int]) -> None:
        reply = run.update(Account.deposit(5), idempotency_key="first")
        replies.append((reply, run.query(Account.worth())))

    def closes(run: SyncRunHandle[int]) -> None:
        run.update(Account.close())
        results.append(run.result())

    meanwhile = {timedelta(minutes=1): deposits, timedelta(minutes=2): closes}
    simulation = simulate(account(), seeds=8, effects=effects, meanwhile=meanwhile)
    assert simulation.result == 5
    assert simulation.effects == {"charge 5": 1}
    assert set(replies) == {(5, 5)}
    assert set(results) == {5}
    assert len(replies) == len(results) == 10


def test_waiting_from_outside_has_an_end() -> None:
    waited: list[str] = []

    def waits(run: SyncRunHandle[int]) -> None:
        with pytest.raises(TimeoutError):
            run.result(timeout=timedelta(days=3))
        waited.append(run.info().status.value)
        run.update(Account.close())

    simulation = simulate(account(), seeds=3, meanwhile={timedelta(minutes=1): waits})
    assert simulation.seconds >= 3 * 86_400
    assert set(waited) == {"running"}


@pytest.mark.slow
def test_what_was_not_done_from_outside_is_told_if_a_run_does_not_end() -> None:
    calls: list[str] = []

    def stumbles(run: SyncRunHandle[int]) -> None:
        calls.append(run.id)
        if len(calls) > 2:  # it is played twice without faults
            raise LookupError("nothing there")
        run.update(Account.close())

    with pytest.raises(
        SimulationFailedError, match="raised LookupError: nothing there; the later actions were skipped"
    ):
        simulate(account(), seeds=1, meanwhile={timedelta(minutes=1): stumbles})
