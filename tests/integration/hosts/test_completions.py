"""Completions: one value from outside, by a token."""

import asyncio
import base64
from collections.abc import Awaitable
from datetime import timedelta

import anyio
import attrs
import pytest

from holdfast import continue_as_new, sleep, workflow
from holdfast.hosts.client.engine import Engine
from holdfast.hosts.worker.worker import Worker
from holdfast.kernel.authoring.steps import step
from holdfast.kernel.invariants import check
from holdfast.ports.errors import (
    AlreadyCompletedError,
    CompletionFailedError,
    CompletionNotFoundError,
    DefinitionError,
    InvalidArgumentError,
    RunFailedError,
    SignalRefusedError,
    UnstorableValueError,
)
from holdfast.testing.snapshots import snapshot_of
from holdfast.workflows import Completion, new_completion
from tests.integration.hosts.conftest import OpenEngine
from tests.integration.hosts.polling import until

SOON = 120

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("quick")]

SENT: list[str] = []


@pytest.fixture
def anyio_backend() -> str:
    """One backend is enough: workers are tested on both elsewhere."""
    return "asyncio"


@pytest.fixture(autouse=True)
def _nothing_sent() -> None:
    SENT.clear()


@attrs.frozen
class Decision:
    approved: bool
    by: str = "nobody"


@step
def ask(token: str) -> None:
    SENT.append(token)


async def outcome_of(completion: Completion[Decision]) -> str:
    try:
        decision = await completion.result()
    except CompletionFailedError as error:
        return f"failed: {error}"
    return f"{decision.approved} by {decision.by}"


@workflow
async def approve() -> str:
    completion = await new_completion(Decision)
    await ask(completion.token)
    found = await outcome_of(completion)
    assert await outcome_of(completion) == found  # a second wait gets the same
    return found


@workflow
async def approve_and_go_on() -> str:
    completion = await new_completion(Decision)
    await ask(completion.token)
    found = await outcome_of(completion)
    await ask("received")
    await sleep(timedelta(days=1))
    return found


@workflow
async def look_late() -> list[str]:
    completions = [await new_completion(Decision) for _ in range(2)]
    for completion in completions:
        await ask(completion.token)
    go = await new_completion(bool)
    await ask(go.token)
    assert await go.result()
    results: list[Awaitable[str]] = [outcome_of(completion) for completion in completions for _ in range(2)]
    return await asyncio.gather(*results)


@workflow
async def impatient() -> str:
    completion = await new_completion(Decision)
    await ask(completion.token)
    try:
        await completion.result(timeout=0.05)
    except TimeoutError:
        await ask("timed out")
    return await outcome_of(completion)


@workflow
async def again(number: int) -> str:
    completion = await new_completion(Decision)
    await ask(completion.token)
    found = await outcome_of(completion)
    return found if number else await continue_as_new(again(number + 1))


async def sent(number: int) -> str:
    """Wait until this many tokens were sent, and return the last one."""
    await until(lambda: len(SENT) >= number)
    return SENT[number - 1]


@pytest.mark.slow
async def test_a_value_is_given_once_and_may_be_given_again(open_engine: OpenEngine) -> None:
    engine: Engine = open_engine(approve)
    async with Worker(engine):
        run = await engine.start(approve(), id="r")
        token = await sent(1)
        assert (await run.info()).id == "r"
        first = await engine.complete(token, Decision(approved=True, by="ann"))
        assert await engine.complete(token, Decision(approved=True, by="ann")) == first
        assert await run.result(timeout=SOON) == "True by ann"
        assert await engine.complete(token, Decision(approved=True, by="ann")) == first
        with pytest.raises(SignalRefusedError, match="has already completed"):
            await engine.complete(token, Decision(approved=False))
    (message,) = await run.messages()
    assert message.state == "received"
    assert token not in repr(message)
    assert token.partition(".")[2] not in repr(message)
    assert check(snapshot_of(engine.core.stores.persistence)) == []


@pytest.mark.slow
async def test_a_completion_can_be_failed(open_engine: OpenEngine) -> None:
    engine: Engine = open_engine(approve)
    async with Worker(engine):
        run = await engine.start(approve())
        await engine.fail_completion(await sent(1), "ann has left")
        assert await run.result(timeout=SOON) == "failed: ann has left"


async def test_another_outcome_is_refused_once_one_was_received(open_engine: OpenEngine) -> None:
    engine: Engine = open_engine(approve_and_go_on)
    async with Worker(engine):
        run = await engine.start(approve_and_go_on())
        token = await sent(1)
        await engine.complete(token, Decision(approved=True))
        await until(lambda: "received" in SENT)
        with pytest.raises(AlreadyCompletedError, match="has received the outcome"):
            await engine.complete(token, Decision(approved=False))
        with pytest.raises(AlreadyCompletedError):
            await engine.fail_completion(token, "too late")
        assert [message.state for message in await run.messages()] == ["received"]


@pytest.mark.slow
async def test_the_first_of_several_outcomes_counts(open_engine: OpenEngine) -> None:
    engine: Engine = open_engine(look_late)
    async with Worker(engine):
        run = await engine.start(look_late())
        go = await sent(3)
        for token, approved in zip(SENT[:2], (True, False), strict=True):
            await engine.complete(token, Decision(approved=approved))
            await engine.complete(token, Decision(approved=not approved))
            await engine.fail_completion(token, "too late")
        await engine.complete(go, True)
        assert await run.result(timeout=SOON) == ["True by nobody"] * 2 + ["False by nobody"] * 2
    assert {message.state for message in await run.messages()} == {"received"}


@workflow
async def look_later() -> list[str]:
    completion = await new_completion(Decision)
    await ask(completion.token)
    go = await new_completion(bool)
    await ask(go.token)
    await go.result()
    return list(await asyncio.gather(outcome_of(completion), outcome_of(completion)))


@pytest.mark.slow
async def test_a_value_of_another_type_after_the_first_holds_up_nothing(open_engine: OpenEngine) -> None:
    engine: Engine = open_engine(look_later)
    async with Worker(engine):
        run = await engine.start(look_later())
        go = await sent(2)
        for value in (Decision(approved=True), "wrong", Decision(approved=False), {"wrong": 1}):
            await engine.complete(SENT[0], value)
        await engine.complete(go, True)
        assert await run.result(timeout=SOON) == ["True by nobody"] * 2


@step
def order_number() -> str:
    return "order-17-of-the-shop-in-rome"


@workflow
async def complete_with_step() -> str:
    completion = await new_completion(Decision)
    await ask(completion.token)
    await ask(await order_number())
    return await outcome_of(completion)


async def test_the_result_of_a_step_is_no_secret(open_engine: OpenEngine) -> None:
    engine: Engine = open_engine(complete_with_step)
    async with Worker(engine):
        run = await engine.start(complete_with_step(), id="r")
        number = await sent(2)
        with pytest.raises(CompletionNotFoundError):
            await engine.complete(f"{SENT[0].partition('.')[0]}.{number}", Decision(approved=True))
        assert await run.messages() == []
        await engine.complete(SENT[0], Decision(approved=True))
        assert await run.result(timeout=SOON) == "True by nobody"


@pytest.mark.slow
async def test_a_value_of_another_type_is_skipped_and_shown(open_engine: OpenEngine) -> None:
    engine: Engine = open_engine(approve)
    async with Worker(engine):
        run = await engine.start(approve())
        token = await sent(1)
        for wrong in ("yes", {"approved": "maybe"}, None):
            await engine.complete(token, wrong)
        await engine.complete(token, {"approved": True})  # plain JSON of the type, with a default
        assert await run.result(timeout=SOON) == "True by nobody"
    messages = await run.messages()
    assert [message.state for message in messages] == ["refused"] * 3 + ["received"]
    assert "Decision" in (messages[0].why or "")


async def test_a_wait_that_timed_out_can_be_repeated(open_engine: OpenEngine) -> None:
    engine: Engine = open_engine(impatient)
    async with Worker(engine):
        run = await engine.start(impatient())
        token = await sent(1)
        await until(lambda: "timed out" in SENT)
        await engine.complete(token, Decision(approved=True))
        assert await run.result(timeout=SOON) == "True by nobody"


@pytest.mark.slow
async def test_a_token_of_an_earlier_generation_is_unknown(open_engine: OpenEngine) -> None:
    engine: Engine = open_engine(again)
    async with Worker(engine):
        run = await engine.start(again(0), id="r")
        old = await sent(1)
        await engine.complete(old, Decision(approved=True, by="first"))
        new = await sent(2)
        with pytest.raises(CompletionNotFoundError):
            await engine.complete(old, Decision(approved=False))
        await engine.complete(new, Decision(approved=True, by="second"))
        assert await run.result(timeout=SOON) == "True by second"


@pytest.mark.slow
async def test_a_value_outlives_the_worker_that_made_its_token(open_engine: OpenEngine) -> None:
    engine: Engine = open_engine(approve)
    run = await engine.start(approve())
    async with Worker(engine, function_cache=0):
        token = await sent(1)
    await engine.complete(token, Decision(approved=True, by="ann"))
    async with Worker(engine, function_cache=0):
        assert await run.result(timeout=SOON) == "True by ann"
    assert [token] == SENT


@pytest.mark.slow
async def test_a_token_that_is_made_up_stores_nothing(open_engine: OpenEngine) -> None:
    engine: Engine = open_engine(approve)
    async with Worker(engine):
        run = await engine.start(approve(), id="r")
        token = await sent(1)
        name, _, secret = token.partition(".")
        other = base64.urlsafe_b64encode(b"other").decode().rstrip("=")
        for unknown in (f"{name}.{secret[::-1]}", f"{name}.{secret}x", f"{other}.{secret}"):
            with pytest.raises(CompletionNotFoundError):
                await engine.complete(unknown, Decision(approved=True))
        invalid: list[object] = [
            "",
            "r",
            name,
            f"{name}.",
            f"{name}.short",
            f"a.{secret}",
            token + " ",
            None,
            7,
        ]
        for text in invalid:
            with pytest.raises(InvalidArgumentError, match="not the token of a completion"):
                await engine.complete(text, Decision(approved=True))  # type: ignore[call-overload] # pyright: ignore[reportArgumentType]
        with pytest.raises(UnstorableValueError):
            await engine.complete(token, object())
        with pytest.raises(InvalidArgumentError):
            await engine.fail_completion(token, 7)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        other_engine = engine.in_namespace("another")
        with pytest.raises(CompletionNotFoundError):
            await other_engine.complete(token, Decision(approved=True))
        assert await run.messages() == []
        await run.terminate()


async def test_values_that_cannot_be_stored_are_refused_where_they_are_declared(
    open_engine: OpenEngine,
) -> None:
    @workflow
    async def wrong() -> None:
        await new_completion(asyncio.Event)

    engine: Engine = open_engine(wrong)
    with pytest.raises(RuntimeError, match="outside of a workflow"):
        await new_completion(int)
    async with Worker(engine):
        run = await engine.start(wrong())
        with pytest.raises(RunFailedError) as failed, anyio.fail_after(SOON):
            await run.result()
    assert isinstance(failed.value.__cause__, DefinitionError)


@pytest.mark.slow
def test_synchronous_code_completes_too(open_engine: OpenEngine) -> None:
    engine = open_engine(approve).sync
    with engine, Worker(engine):
        run = engine.start(approve())
        while not SENT:
            engine.core.stores.clock.sleep(0.01)
        engine.complete(SENT[0], Decision(approved=False, by="bob"))
        assert run.result(timeout=SOON) == "False by bob"
