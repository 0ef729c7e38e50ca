"""Sending an update replays the function only for a validator, and then only new rows."""

import asyncio
from collections import Counter

import pytest

from holdfast.hosts.client.engine import Engine
from holdfast.hosts.worker.worker import Worker
from holdfast.kernel.authoring.functions import workflow
from holdfast.kernel.authoring.queries import expose, update
from holdfast.ports.errors import NotExposedError, UpdateRejectedError
from tests.integration.hosts.conftest import OpenEngine

SOON = 120
BEGUN: Counter[str] = Counter()

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("quick")]


@pytest.fixture
def anyio_backend() -> str:
    """One backend is enough: workers are tested on both elsewhere."""
    return "asyncio"


@pytest.fixture(autouse=True)
def _from_zero() -> None:
    BEGUN.clear()


class Account:
    def __init__(self) -> None:
        self.balance = 0
        self.noted: list[list[int]] = [[]]
        self.done = asyncio.Event()

    @update
    def deposit(self, cents: int) -> int:
        self.balance += cents
        return self.balance

    @update
    def withdraw(self, cents: int) -> int:
        self.balance -= cents
        return self.balance

    @withdraw.validator
    def has_enough(self, cents: int) -> None:
        if cents > self.balance:
            raise ValueError(f"it has {self.balance}")

    @update
    def note(self, number: int) -> int:
        return number

    @note.validator
    def notes_it_already(self, number: int) -> None:
        """A validator with a side effect on the object, which must be discarded."""
        self.noted[0].append(number)
        raise ValueError(f"it was asked {len(self.noted[0])} times")


class Other:
    @update
    def move(self) -> None: ...


@workflow
async def account(name: str) -> None:
    BEGUN[name] += 1
    await expose(Account()).done.wait()


async def begun(engine: Engine, name: str, ask: int) -> int:
    """Return how often the function was started for so many updates, besides by its worker."""
    run = engine.handle(account, name)
    before = BEGUN[name]
    for _ in range(ask):
        await run.update(Account.withdraw(1), timeout=SOON)
    return BEGUN[name] - before


@pytest.mark.slow
async def test_an_update_without_a_validator_replays_nothing_in_its_caller(open_engine: OpenEngine) -> None:
    engine = open_engine(account)
    async with Worker(engine):
        run = await engine.start(account("plain"), id="plain")
        for number in range(10):
            assert await run.update(Account.deposit(1), timeout=SOON) == number + 1
        with pytest.raises(NotExposedError, match="exposed nothing with that name"):
            await run.update(Other.move(), timeout=SOON)
        assert BEGUN["plain"] == 1


@pytest.mark.slow
async def test_one_with_a_validator_is_replayed_once_and_told_what_comes_since(
    open_engine: OpenEngine,
) -> None:
    engine = open_engine(account)
    async with Worker(engine):
        run = await engine.start(account("checked"), id="checked")
        await run.update(Account.deposit(100), timeout=SOON)
        assert await begun(engine, "checked", 1) == 1
        assert await begun(engine, "checked", 10) == 0
        with pytest.raises(UpdateRejectedError, match="it has 89"):
            await run.update(Account.withdraw(90), timeout=SOON)
        await run.update(Account.deposit(1), timeout=SOON)
        assert await run.update(Account.withdraw(90), timeout=SOON) == 0
        assert BEGUN["checked"] == 2


async def test_what_a_validator_changes_is_not_kept(open_engine: OpenEngine) -> None:
    engine = open_engine(account)
    run = await engine.start(account("noted"), id="noted")
    for _ in range(2):
        with pytest.raises(UpdateRejectedError, match="it was asked 1 times"):
            await run.update(Account.note(1))
