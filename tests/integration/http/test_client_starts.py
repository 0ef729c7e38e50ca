"""Starts of many runs, and starts with an update, over HTTP: as the engine does them."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import httpx
import pytest

from holdfast import (
    Concurrency,
    Engine,
    Pipeline,
    Worker,
    expose,
    publish,
    query,
    stage,
    step,
    update,
    workflow,
)
from holdfast.errors import (
    AccessDeniedError,
    ConcurrencyFullError,
    IdempotencyConflictError,
    InvalidArgumentError,
    InvalidValueError,
    NotExposedError,
    RunExistsError,
    UnknownWorkflowError,
    UpdateRefusedError,
    UpdateRejectedError,
)
from holdfast.hosts.http_client import starts
from holdfast.http import asgi_app
from holdfast.kernel.commands import RunCreate, RunUpdate
from holdfast.kernel.invariants import check
from holdfast.remote import SyncClient
from holdfast.testing.snapshots import snapshot_of
from tests.integration.http.api import NAMESPACE, authenticate
from tests.integration.http.live import served
from tests.integration.http.lossy import LossyTransport

ITEMS_MAX = 2
SOON = 120


@stage
def doubled(number: int) -> int:
    return 2 * number


double = Pipeline("double", input=int).pipe(doubled)


@step
def pack(items: list[str]) -> str:
    return ", ".join(items)


@dataclass
class Cart:
    items: list[str] = field(default_factory=list[str])
    is_paid: asyncio.Event = field(default_factory=asyncio.Event)

    @update
    def add(self, item: str) -> int:
        self.items.append(item)
        return len(self.items)

    @update
    def note(self, item: str, times: int = 1) -> int:
        self.items.extend([item] * times)
        return len(self.items)

    @note.validator
    def is_item(self, item: str, times: int = 1) -> None:
        if not item:
            raise ValueError("an item has a name")

    @add.validator
    def has_room(self, item: str) -> None:
        if len(self.items) >= ITEMS_MAX:
            raise ValueError(f"no room for {item}")

    @update
    def pay(self) -> list[str]:
        self.is_paid.set()
        return self.items

    @query
    def content(self) -> list[str]:
        return self.items


@workflow
async def shop(owner: str) -> str:
    cart = expose(Cart())
    publish("owner", owner)
    await cart.is_paid.wait()
    return await pack(cart.items)


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    opened = Engine.open(url, workflows=[double, shop], namespace=NAMESPACE)
    with opened.sync:
        yield opened


@pytest.fixture
def bare(url: str, engine: Engine) -> Iterator[SyncClient]:
    """A client of a server without the code, beside a worker with it."""
    if url == "memory://":
        pytest.skip("a store in memory has one engine")
    opened = Engine.open(url, workflows=[], namespace=NAMESPACE)
    with (
        opened.sync,
        Worker(engine),
        served(asgi_app(opened, authenticate=authenticate)) as at,
        SyncClient(at, key="all", namespace=NAMESPACE) as client,
    ):
        yield client


@pytest.fixture
def server(engine: Engine) -> Iterator[str]:
    with served(asgi_app(engine, authenticate=authenticate)) as at:
        yield at


@pytest.fixture
def client(server: str) -> Iterator[SyncClient]:
    with SyncClient(server, key="all", namespace=NAMESPACE) as opened:
        yield opened


@pytest.fixture
def lossy(server: str) -> Iterator[Callable[[int], tuple[SyncClient, LossyTransport]]]:
    """Makes clients that lose answers."""
    opened: list[httpx.Client] = []

    def connect(lost: int) -> tuple[SyncClient, LossyTransport]:
        transport = LossyTransport(lost=lost)
        opened.append(httpx.Client(transport=transport))
        return SyncClient(server, key="all", namespace=NAMESPACE, http=opened[-1]), transport

    yield connect
    for http in opened:
        http.close()


def ids(engine: Engine) -> set[str]:
    return {run.id for run in engine.sync.runs()}


def test_many_runs_are_started_in_order_with_their_types(
    client: SyncClient, engine: Engine, worker: Worker
) -> None:
    handles = client.start_all([double(number) for number in range(3)], attributes={"batch": "spring"})
    results: list[int] = [one.result(timeout=SOON) for one in handles]
    named = client.start_all(iter([("double", 4), ("shop", {"owner": "ann"})]), queue="slow")

    assert results == [0, 2, 4]
    assert {one.info().attributes["batch"] for one in handles} == {"spring"}
    assert [one.info().workflow for one in named] == ["double", "shop"]
    assert [one.info().queue for one in named] == ["slow", "slow"]
    assert client.start_all([]) == []
    assert check(snapshot_of(engine.core.stores.persistence)) == []


def test_a_request_has_as_many_calls_as_a_server_takes(
    client: SyncClient, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starts, "STARTS_MAX", 3)
    batches: list[list[str | None]] = []
    engine.core.connect()
    dispatch = engine.core.kernel.dispatch_many

    def noted(commands: list[RunCreate | RunUpdate]) -> object:
        if commands and isinstance(commands[0], RunCreate):
            batches.append([command.idempotency_key for command in commands])
        return dispatch(commands)

    monkeypatch.setattr(engine.core.kernel, "dispatch_many", noted)
    handles = client.start_all((double(number) for number in range(7)), idempotency_key="k")
    again = client.start_all((double(number) for number in range(7)), idempotency_key="k")
    other = engine.sync.start_all([double(number) for number in range(7)], idempotency_key="k")

    keys = [[f"k/{number}" for number in one] for one in ((0, 1, 2), (3, 4, 5), (6,))]
    assert batches[:6] == [*keys, *keys]
    assert [one.id for one in handles] == [one.id for one in again] == [one.id for one in other]
    assert ids(engine) == {one.id for one in handles}

    batches.clear()
    monkeypatch.setattr(starts, "BODY_BYTES", 200)
    long = [("shop", {"owner": "x" * size}) for size in (150, 1, 1, 300, 1)]
    client.start_all(long)
    assert [len(one) for one in batches] == [1, 2, 1, 1]


def test_all_calls_are_checked_before_any_is_stored(client: SyncClient, engine: Engine) -> None:
    refused: list[tuple[list[tuple[str, object]], type[Exception]]] = [
        ([("double", 1), ("double", "many")], InvalidValueError),
        ([("double", 1), ("absent", 1)], UnknownWorkflowError),
    ]
    for calls, error in refused:
        with pytest.raises(error):
            client.start_all(calls)
    with pytest.raises(InvalidArgumentError, match="a server does not take 'overrides'"):
        client.start_all([double(1)], overrides=[])  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    with pytest.raises(InvalidArgumentError, match="start_all"):
        client.start_all([double(1)], id="one")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    for one in (double, ("double",), (1, 2), "double"):
        with pytest.raises(InvalidArgumentError, match="expects the call of a workflow"):
            client.start_all([double(1), one])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType, reportCallIssue]
    assert ids(engine) == set()


def test_a_refused_start_is_raised_and_the_others_are_stored(client: SyncClient, engine: Engine) -> None:
    bound = Concurrency("one", limit=1, full="refuse")
    with pytest.raises(ConcurrencyFullError):
        client.start_all([double(1), double(2)], concurrency=bound)
    assert len(ids(engine)) == 1

    client.start_all([double(1), double(2)], idempotency_key="k")
    with pytest.raises(IdempotencyConflictError):
        client.start_all([double(1), double(3)], idempotency_key="k")
    assert len(ids(engine)) == 3


def test_lost_answers_start_nothing_twice(
    lossy: Callable[[int], tuple[SyncClient, LossyTransport]], engine: Engine, worker: Worker
) -> None:
    client, transport = lossy(2)
    handles = client.start_all([double(number) for number in range(3)])

    assert (len(transport.keys), len(set(transport.keys))) == (3, 1)
    assert ids(engine) == {one.id for one in handles}
    transport.lost = 2
    assert client.update_with_start(shop("ann"), Cart.add("tea"), id="ann", timeout=SOON) == 1
    assert client.handle(shop, "ann").query(Cart.content()) == ["tea"]


def test_a_server_without_the_code_starts_many(bare: SyncClient) -> None:
    handles = bare.start_all([("double", number) for number in range(3)], idempotency_key="k")
    again = bare.start_all([("double", number) for number in range(3)], idempotency_key="k")

    assert [one.result(timeout=SOON) for one in handles] == [0, 2, 4]
    assert [one.id for one in again] == [one.id for one in handles]
    with pytest.raises(InvalidValueError):
        bare.start_all([("double", 1), ("double", "x")])


def test_the_first_update_creates_the_run_and_later_ones_find_it(
    client: SyncClient, engine: Engine, worker: Worker
) -> None:
    first: int = client.update_with_start(
        shop("ann"), Cart.add("tea"), id="ann", if_active="return", timeout=SOON
    )
    second = client.update_with_start(
        ("shop", {"owner": "ann"}),
        ("Cart.add", {"item": "milk"}),
        id="ann",
        if_active="return",
        timeout=SOON,
    )
    run = client.handle(shop, "ann")

    assert (first, second) == (1, 2)
    assert [row.type for row in run.history()][:2] == ["run.created", "update.received"]
    rows = len(run.history())
    with pytest.raises(UpdateRejectedError, match="no room for jam"):
        client.update_with_start(shop("ann"), Cart.add("jam"), id="ann", if_active="return", timeout=SOON)
    with pytest.raises(RunExistsError):
        client.update_with_start(shop("ann"), Cart.pay(), id="ann", timeout=SOON)
    with pytest.raises(NotExposedError):
        client.update_with_start(shop("ann"), ("Cart.drop", None), id="ann", if_active="return", timeout=SOON)
    assert len(run.history()) == rows
    assert run.update(Cart.pay(), timeout=SOON) == ["tea", "milk"]
    assert run.result(timeout=SOON) == "tea, milk"
    again = client.update_with_start(
        shop("ann"), Cart.add("jam"), id="ann", if_active="return", if_ended="rerun", timeout=SOON
    )
    assert again == 1
    assert check(snapshot_of(engine.core.stores.persistence)) == []


def test_a_repeat_without_the_defaults_that_were_added_is_the_same_update(
    client: SyncClient, engine: Engine, worker: Worker
) -> None:
    client.start(shop("ann"), id="ann")
    found = [
        client.update_with_start(
            ("shop", {"owner": "ann"}),
            ("Cart.note", {"item": "tea"}),
            id="ann",
            if_active="return",
            idempotency_key="a",
            timeout=SOON,
        )
        for _ in range(2)
    ]
    assert found == [1, 1]
    assert client.handle(shop, "ann").query(Cart.content()) == ["tea"]


def test_the_same_key_starts_once_and_updates_once_even_if_the_validator_rejects_by_now(
    client: SyncClient, engine: Engine, worker: Worker
) -> None:
    def add(item: str, key: str) -> int:
        return client.update_with_start(
            shop("ann"), Cart.add(item), id="ann", if_active="return", idempotency_key=key, timeout=SOON
        )

    assert [add("tea", "a"), add("milk", "b"), add("tea", "a"), add("milk", "b")] == [1, 2, 1, 2]
    with pytest.raises(IdempotencyConflictError):
        add("jam", "a")
    with pytest.raises(UpdateRejectedError, match="no room for jam"):
        add("jam", "c")
    run = engine.sync.handle(shop, "ann")
    assert run.query(Cart.content()) == ["tea", "milk"]
    received = [row.type for row in run.history()].count("update.received")
    assert received == 2, "a rejected update with a key of its own is not stored"

    # Another generation has not received the update: its key still has the first reply.
    run.terminate()
    engine.sync.start(shop("ann"), id="ann", if_ended="rerun")
    assert run.update(Cart.add("bread"), timeout=SOON) == 1
    assert run.update(Cart.add("rice"), timeout=SOON) == 2
    stored = len(run.history())
    assert [add("tea", "a"), add("milk", "b")] == [1, 2]
    with pytest.raises(IdempotencyConflictError):
        add("oil", "b")
    assert len(run.history()) == stored


def test_a_refused_update_starts_nothing(client: SyncClient, engine: Engine) -> None:
    with pytest.raises(UpdateRefusedError):
        client.update_with_start(double(1), Cart.add("tea"), id="one", timeout=1)
    with pytest.raises(InvalidArgumentError, match="an id is needed"):
        client.update_with_start(shop("ann"), Cart.add("tea"))
    with pytest.raises(InvalidArgumentError, match="timeout"):
        client.update_with_start(shop("ann"), Cart.add("tea"), id="one", timeout="soon")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    with pytest.raises(InvalidArgumentError, match="an update with its arguments"):
        client.update_with_start(shop("ann"), "Cart.add", id="one")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    with pytest.raises(InvalidArgumentError, match="expects the call of a workflow"):
        client.update_with_start("shop", Cart.add("tea"), id="one")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    with pytest.raises(InvalidValueError):
        client.update_with_start(("shop", {"owner": 1}), Cart.add("tea"), id="one")
    assert ids(engine) == set()
    with pytest.raises(TimeoutError, match=r"'one' has not answered update 'Cart\.add'"):
        client.update_with_start(shop("ann"), Cart.add("tea"), id="one", timeout=0)
    assert ids(engine) == {"one"}


def test_both_are_one_transaction(
    client: SyncClient, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.core.connect()
    batches: list[list[str]] = []
    dispatch = engine.core.kernel.dispatch_together

    def noted(commands: list[RunCreate | RunUpdate]) -> object:
        batches.append([command.type for command in commands])
        return dispatch(commands)

    monkeypatch.setattr(engine.core.kernel, "dispatch_together", noted)
    with pytest.raises(TimeoutError):
        client.update_with_start(shop("ann"), Cart.add("tea"), id="ann", timeout=0)
    assert batches == [["run.create", "run.update"]]


def test_a_server_without_the_code_updates_with_a_start(bare: SyncClient) -> None:
    reply = bare.update_with_start(
        ("shop", {"owner": "ann"}), ("Cart.add", {"item": "tea"}), id="ann", timeout=SOON
    )

    assert reply == 1
    with pytest.raises(InvalidValueError):
        bare.update_with_start(("shop", {"owner": 1}), ("Cart.add", {"item": "tea"}), id="bob", timeout=1)


def test_both_need_the_scope_start(server: str) -> None:
    with SyncClient(server, key="read", namespace=NAMESPACE) as client:
        with pytest.raises(AccessDeniedError, match="'start'"):
            client.start_all([double(1)])
        with pytest.raises(AccessDeniedError, match="'start'"):
            client.update_with_start(shop("ann"), Cart.add("tea"), id="ann")
