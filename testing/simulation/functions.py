"""Random durable functions that use asyncio and all of Holdfast, with pure steps, and the expected result of each."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from datetime import timedelta
from functools import partial
from random import Random
from typing import Any, Final, TypeAlias, cast

import attrs

from holdfast.kernel.authoring.channels import Channel
from holdfast.kernel.authoring.child_runs import start_child
from holdfast.kernel.authoring.continue_as_new import continue_as_new
from holdfast.kernel.authoring.functions import (
    Workflow,
    compensate_with,
    now,
    patched,
    random,
    side_effect,
    sleep,
    uuid4,
    workflow,
)
from holdfast.kernel.authoring.options import ONCE, Retry
from holdfast.kernel.authoring.step_context import step_context
from holdfast.kernel.authoring.steps import Step, StepDecorator, step
from holdfast.ports.clock import micros
from holdfast.ports.errors import RetryAfter, StepLostError
from holdfast.testing.simulation.client_calls import expose_tally
from holdfast.testing.simulation.fibers import spend_time
from holdfast.testing.simulation.programs import Model, Program, mixed
from holdfast.testing.simulation.side_effects import SideEffects, SleepRecorder
from holdfast.testing.simulation.step_behaviour import PATIENT, StepBehaviour, draw_calling, run_key
from holdfast.testing.simulation.step_records import HOPELESS, HOPELESS_TRIES
from holdfast.testing.simulation.store import CHARGES, CHARGES_WITH_RECEIPT
from holdfast.testing.simulation.user_transactions import SimulatedConnection

_BIG: Final = 70_000
_MODULUS: Final = 1_000_003

_HASTY: Final = Retry(attempts=HOPELESS_TRIES, wait=timedelta(seconds=0.5))

Go: TypeAlias = Callable[[int], Awaitable[int]]
"""A part of a function, from number to number."""

Undo: TypeAlias = Callable[[int | None, str], Coroutine[Any, Any, None]]
"""A compensation: it takes the result of its step, None if unknown, and the key of the charge."""

GO: Final = Channel("go", int)
"""The channel from which functions receive. They ignore the values, since the order of messages is not known."""


class NoFundsError(Exception):
    """The error of a step that fails for good, with a code that the function reads."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


_OF_RUNS: Final = Retry(attempts=4, wait=timedelta(seconds=0.5), give_up_on=(NoFundsError,))
"""The policy of whole runs, of some functions."""


def draw_function(draw: Random, name: str, tally: SideEffects, child: Program | None = None) -> Program:
    """Draw a durable function of one or more random parts; some start child runs of `child`."""
    ahead = Random()  # a copy of the stream: draws that were added later do not change those of old seeds
    ahead.setstate(draw.getstate())
    rounds = ahead.choice((1, 1, 1, 2, 3))
    draft = _Draft(draw, tally, name)
    kinds = draw.choices(draft.kinds, k=draw.choice((1, 2, 3, 4)))
    for kind in kinds:
        kind()
    if ahead.random() < 0.4:
        draft.add_booking(ahead)
    if child is not None and ahead.random() < 0.35:
        draft.add_child(ahead, cast("Workflow[[int], int]", child.workflow), child.model)
    if ahead.random() < 0.2:
        draft.add_fragile(ahead)
    if ahead.random() < 0.2:
        draft.add_kept(ahead)
    retry = ONCE
    if ahead.random() < 0.25:
        retry = _OF_RUNS
        draft.add_flaky(ahead)
    parts, tidy = tuple(draft.parts), draft.step()
    is_tidy = draw.random() < 0.3
    takes_updates = name == "first"

    @workflow(name=name, retry=retry)
    async def function(number: int, left: int = rounds) -> int:
        if takes_updates:
            expose_tally()
        try:
            for part in parts:
                number = await part(number)
        finally:
            if is_tidy:
                await tidy(0)
        if left > 1:
            return await continue_as_new(function(number, left - 1), forget_compensations=True)
        return number

    as_program = cast("Workflow[[int], int]", function)
    return Program(
        workflow=as_program, model=draft.model, nodes=(), receives=draft.receives, takes_updates=takes_updates
    )


class _Draft:
    """Builds a function part by part, each from number to number."""

    def __init__(self, draw: Random, tally: SideEffects, whose: str) -> None:
        self.parts: list[Go] = []
        self.receives = 0
        self._draw = draw
        self._tally = tally
        self._whose = whose
        self._steps = 0
        beside = Random()  # draws about queues come from a second stream, for the same reason
        beside.setstate(draw.getstate())
        self._queues = Random(beside.getrandbits(64))
        self._queued = self._queues.choice((0.0, 0.0, 0.3, 0.8))
        """The share of its steps that run in queues."""
        self._models: list[Model] = []
        self.kinds: tuple[Callable[[], None], ...] = (
            self.add_chain,
            self.add_chain,
            self.add_gather,
            self.add_group,
            self.add_race,
            self.add_first,
            self.add_sleep,
            self.add_error,
            self.add_big,
            self.add_drawn,
            self.add_message,
            self.add_message,
            self.add_saga,
            self.add_failure,
            self.add_burst,
            self.add_long,
        )

    def model(self, number: int) -> int | None:
        """Return the function's result for a number; None if it fails or the result is not known."""
        value: int | None = number
        for model in self._models:
            value = None if value is None else model(value)
        return value

    # Parts ----------------------------------------------------------------------------------------------------------

    def add_chain(self) -> None:
        """Add steps one after the other."""
        steps, salts = self._several(self._draw.choice((1, 1, 2, 4)))

        async def chain(number: int) -> int:
            for one in steps:
                number = await one(number)
            return number

        self._add(chain, lambda number: _folded(salts, number))

    def add_gather(self) -> None:
        """Add concurrent steps."""
        steps, salts = self._several(self._draw.randrange(2, 5))

        async def gather(number: int) -> int:
            return sum(await asyncio.gather(*(one(number) for one in steps))) % _MODULUS

        self._add(gather, lambda number: sum(mixed(salt, number) for salt in salts) % _MODULUS)

    def add_group(self) -> None:
        """Add concurrent tasks of two steps each; a semaphore lets two run at a time."""
        steps, salts = self._several(self._draw.randrange(2, 4))
        wait = self._draw.choice((0.0, 0.4, 2.0))

        async def group(number: int) -> int:
            limit = asyncio.Semaphore(2)

            async def twice(one: Step[[int], int]) -> int:
                async with limit:
                    result = await one(number)
                await asyncio.sleep(wait)
                return await one(result)

            async with asyncio.TaskGroup() as tasks:
                made = [tasks.create_task(twice(one)) for one in steps]
            return sum(task.result() for task in made) % _MODULUS

        self._add(group, lambda number: sum(_folded((salt, salt), number) for salt in salts) % _MODULUS)

    def add_race(self) -> None:
        """Add a step with a timeout; the result is the same whether or not it is in time."""
        (one,), (salt,) = self._several(1)
        seconds = self._draw.choice((0.2, 0.9, 3.0, 10.0))

        async def race(number: int) -> int:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    assert await one(number) == mixed(salt, number)
            return mixed(salt, number)

        self._add(race, lambda number: mixed(salt, number))

    def add_first(self) -> None:
        """Add a race of a step and a sleep; the first to end cancels the other."""
        (one,), _ = self._several(1)
        seconds = self._draw.choice((0.1, 1.0, 5.0))

        async def first(number: int) -> int:
            tasks = [asyncio.ensure_future(one(number)), asyncio.ensure_future(asyncio.sleep(seconds, 0))]
            _, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in pending:
                task.cancel()
            await asyncio.gather(*pending, return_exceptions=True)
            return number

        self._add(first, lambda number: number)

    def add_sleep(self) -> None:
        """Add a sleep, and record how long it took."""
        wait = timedelta(seconds=self._draw.choice((0.01, 0.8, 1.5, 4.0, 25.0)))
        naps = SleepRecorder(wait)
        self._tally.naps.append(naps)

        async def nap(number: int) -> int:
            before = now()
            naps.begins(number, shown=micros(before))
            await sleep(wait)
            naps.ends(number, shown=now() - before)
            return number

        self._add(nap, lambda number: number)

    def add_error(self) -> None:
        """Add a step that fails for good; the function catches its error."""
        salt, name = self._draw.randrange(1_000), self._name("refuse")
        more = Random(f"{name}/{salt}")  # a second stream: later additions do not change old seeds
        if more.random() < 0.4:
            self._add_hopeless(name, salt, hangs=more.random() < 0.5)
            return

        @self._decorator(name, Retry(attempts=20, give_up_on=(NoFundsError,)))
        def refuse(number: int) -> int:
            raise NoFundsError(number + salt)

        async def careful(number: int) -> int:
            try:
                return await refuse(number)
            except NoFundsError as error:
                return mixed(salt, error.code)

        self._add(careful, lambda number: mixed(salt, number + salt))

    def _add_hopeless(self, name: str, salt: int, *, hangs: bool) -> None:
        """Add a step that uses up its attempts and never succeeds; some attempts may be lost with their workers."""

        @self._decorator(name, _HASTY)(timeout=timedelta(seconds=2))
        async def refuse(number: int) -> int:
            await asyncio.sleep(3_600.0 if hangs else 0.0)
            raise ValueError(HOPELESS)

        async def careful(number: int) -> int:
            try:
                return await refuse(number)
            except (TimeoutError, ValueError, StepLostError):
                return mixed(salt, number)

        self._add(careful, lambda number: mixed(salt, number))

    def add_big(self) -> None:
        """Add a result that is too large for a row, and a step that takes it."""

        @self._decorator(self._name("blow_up"))
        async def blow_up(number: int) -> str:
            return str(number % 10) * _BIG

        @self._decorator(self._name("shrink"))
        def shrink(text: str) -> int:
            assert len(text) == _BIG
            return int(text[0])

        async def big(number: int) -> int:
            return await shrink(await blow_up(number))

        self._add(big, lambda number: number % 10)

    def add_drawn(self) -> None:
        """Add a step whose argument holds random values, which must be the same in every replay."""

        @self._decorator(self._name("echo"))
        async def echo(text: str) -> str:
            return text

        async def drawn(number: int) -> int:
            text = f"{uuid4()} {random().random()} {await side_effect(lambda: number)} {patched('new')}"
            assert await echo(text) == text, "the random values differ from the recorded ones"
            return number

        self._add(drawn, lambda number: number)

    def add_message(self) -> None:
        """Add a receive, with or without a timeout."""
        seconds = self._draw.choice((None, None, 0.5, 6.0))
        self.receives += 1  # a receive with a timeout may get a message, too
        salt = self._draw.randrange(1_000)

        async def message(number: int) -> int:
            with suppress(TimeoutError):
                await GO.receive(timeout=seconds)
            return mixed(salt, number)

        # If it times out, the message that comes too late goes to the next receive.
        self._add(message, lambda number: mixed(salt, number))

    def add_burst(self) -> None:
        """Add several receives in a row; the function may go to sleep before each."""
        count, salt = self._draw.choice((2, 3, 4)), self._draw.randrange(1_000)
        self.receives += count

        async def burst(number: int) -> int:
            for _ in range(count):
                await GO.receive()
            return mixed(salt, number)

        self._add(burst, lambda number: mixed(salt, number))

    def add_long(self) -> None:
        """Add steps that together take longer than one invocation of a serverless host."""
        callings = [attrs.evolve(draw_calling(self._draw), seconds=4.0, fails=0) for _ in range(8)]
        steps = [self._step(one) for one in callings]

        async def long(number: int) -> int:
            for one in steps:
                number = await one(number)
            return number

        self._add(long, lambda number: _folded([one.salt for one in callings], number))

    def add_saga(self) -> None:
        """Add a charge with a compensation, which runs if the run fails or is cancelled."""
        tally, draw = self._tally, self._draw
        calling = draw_calling(self._draw)
        undo_fails = draw.choice((0, 0, 1, 2))
        # A compensation that needs the receipt makes the run wait for the step, however the run ends.
        needs_receipt = Random(f"{self._whose}/{calling.salt}/{undo_fails}").random() < 0.4

        @self._decorator(self._name(CHARGES_WITH_RECEIPT if needs_receipt else CHARGES))
        async def charge(key: str, number: int) -> int:
            tally.charge(run_key(), key)
            await asyncio.sleep(calling.seconds)
            calling.fail()
            return mixed(calling.salt, number)

        takes_back = self._decorator(self._name("refund"))

        async def undo(receipt: int | None, key: str) -> None:
            if step_context().attempt <= undo_fails:
                raise ConnectionError("the bank is unavailable")
            tally.refund(run_key(), key)

        async def undo_known(receipt: int, key: str) -> None:
            await undo(receipt, key)

        is_manual = draw.random() < 0.3
        refund = takes_back(cast("Undo", undo_known) if needs_receipt and not is_manual else undo)
        if not is_manual:
            charge.compensate(refund)

        async def saga(number: int) -> int:
            key = str(uuid4())
            if is_manual:
                compensate_with(refund, None, key)
            return await charge(key, number)

        self._add(saga, lambda number: mixed(calling.salt, number))

    def add_booking(self, draw: Random) -> None:
        """Add a transactional step: its booking is committed together with its history row, or not at all."""
        tally, salt, seconds = self._tally, draw.randrange(1_000), draw.choice((0.0, 0.1, 4.0))
        slow, fails = draw.choice((0, 0, 1)), draw.choice((0, 0, 1))

        @step(name=self._name("book"), retry=PATIENT, timeout=timedelta(seconds=8)).in_transaction
        def book(rows: SimulatedConnection, number: int) -> int:
            attempt = step_context().attempt
            rows.write(partial(tally.book, run_key(), step_context().idempotency_key))
            spend_time(20.0 if attempt <= slow else seconds)
            if attempt <= slow + fails:
                raise ValueError("not yet")
            return mixed(salt, number)

        async def booking(number: int) -> int:
            return await book(number)

        self._add(booking, lambda number: mixed(salt, number))

    def add_child(self, draw: Random, child: Workflow[[int], int], model: Model) -> None:
        """Add a child run: awaited at once, awaited after another step, or two of them gathered."""
        how = draw.choice(("awaited", "awaited", "started", "gathered"))
        policy: Final = draw.choice(("cancel", "cancel", "terminate", "abandon"))
        (between,), (salt,) = self._several_of(draw, 1)

        async def of_child(number: int) -> int:
            if how == "awaited":
                return await child(number)
            if how == "gathered":
                return sum(await asyncio.gather(child(number), child(number + 1))) % _MODULUS
            run = await start_child(child(number), parent_end=policy)
            return mixed(await between(number), await run.result())

        def expected(number: int) -> int | None:
            one, other = model(number), model(number + 1)
            if one is None or other is None:
                return None
            if how == "gathered":
                return (one + other) % _MODULUS
            return one if how == "awaited" else mixed(mixed(salt, number), one)

        self._add(of_child, expected)

    def add_fragile(self, draw: Random) -> None:
        """Add a queued step of one or two attempts; it fails if its worker is lost in the last one."""
        salt, seconds = draw.randrange(1_000), draw.choice((2.0, 4.0, 8.0))
        retry = Retry(attempts=draw.choice((1, 1, 2)), wait=timedelta(seconds=0.5))

        @step(name=f"{self._whose}.{self._name('fragile')}", retry=retry, queue="default")
        async def fragile(number: int) -> int:
            await asyncio.sleep(seconds)
            return mixed(salt, number)

        async def careful(number: int) -> int:
            try:
                return await fragile(number)
            except StepLostError:
                return mixed(salt, number)

        self._add(careful, lambda number: mixed(salt, number))

    def add_kept(self, draw: Random) -> None:
        """Add a queued step with several attempts that is shielded: the run waits for it even when cancelled."""
        salt, fails = draw.randrange(1_000), draw.choice((2, 3, 5))

        @step(name=f"{self._whose}.{self._name('kept')}", retry=PATIENT, queue="default")
        async def kept(number: int) -> int:
            if step_context().attempt <= fails:
                raise RetryAfter(timedelta(seconds=3), "not yet")
            return mixed(salt, number)

        async def shielded(number: int) -> int:
            task = asyncio.ensure_future(kept(number))
            try:
                return await asyncio.shield(task)
            except asyncio.CancelledError:
                await task
                raise

        self._add(shielded, lambda number: mixed(salt, number))

    def add_flaky(self, draw: Random) -> None:
        """Add an error that some attempts of a whole run raise: each generation draws anew."""
        share = draw.choice((0.3, 0.7, 1.0))

        async def flaky(number: int) -> int:
            if random().random() < share:
                raise ConnectionError("this attempt was unlucky")
            return number

        self._add(flaky, lambda number: number)

    def add_failure(self) -> None:
        """Add an uncaught error in four of ten draws."""
        if self._draw.random() < 0.6:
            return

        async def fail(number: int) -> int:
            raise NoFundsError(number)

        self._add(fail, lambda _: None)

    # What they are made of ------------------------------------------------------------------------------------------

    def step(self) -> Step[[int], int]:
        """Draw a step."""
        (one,), _ = self._several(1)
        return one

    def _several_of(self, draw: Random, count: int) -> tuple[list[Step[[int], int]], list[int]]:
        before, self._draw = self._draw, draw
        try:
            return self._several(count)
        finally:
            self._draw = before

    def _several(self, count: int) -> tuple[list[Step[[int], int]], list[int]]:
        callings = [draw_calling(self._draw) for _ in range(count)]
        return [self._step(one) for one in callings], [one.salt for one in callings]

    def _step(self, calling: StepBehaviour) -> Step[[int], int]:
        is_async = self._draw.random() < 0.5
        decorate = self._decorator(self._name("step"))
        if calling.how == "hang":
            # Attempts that do not hang must be in time: a step that never is would be retried sixty times.
            decorate = decorate(timeout=timedelta(seconds=3 + calling.seconds))
        return decorate(calling.async_body() if is_async else calling.sync_body())

    def _decorator(self, name: str, retry: Retry = PATIENT) -> StepDecorator:
        """Return a step decorator, for some steps one with a queue that workers serve."""
        if self._queues.random() >= self._queued:
            return step(name=name, retry=retry)
        return step(name=f"{self._whose}.{name}", retry=retry, queue=self._queues.choice(("default", "slow")))

    def _name(self, kind: str) -> str:
        self._steps += 1
        return f"{kind}{self._steps}"

    def _add(self, part: Go, model: Model) -> None:
        self.parts.append(part)
        self._models.append(model)


def _folded(salts: "list[int] | tuple[int, ...]", number: int) -> int:
    for salt in salts:
        number = mixed(salt, number)
    return number
