"""The command line in this process, on an in-memory engine that outlives each command."""

import asyncio
import os
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import anyio
import attrs
import pytest
from anyio import to_thread
from starlette.requests import Request

from holdfast import (
    Channel,
    Engine,
    Pipeline,
    Retry,
    Schedule,
    Slots,
    StageContext,
    Topic,
    Trigger,
    Worker,
    continue_as_new,
    expose,
    query,
    stage,
    step,
    step_context,
    update,
    workflow,
)
from holdfast.adapters.memory.persistence import MemoryPersistence
from holdfast.adapters.memory.transport import MemoryTransport
from holdfast.adapters.system.clock import SystemClock
from holdfast.adapters.system.ids import UlidIds
from holdfast.hosts.cli import run_wait
from holdfast.hosts.cli.main import main
from holdfast.hosts.wiring.stores import Stores
from holdfast.http import Principal, asgi_app
from holdfast.kernel.authoring.calls import Call, WorkflowDefinition
from holdfast.ports.errors import RunCancelledError, RunFailedError
from holdfast.ports.json import parse
from tests.integration.http.api import PRINCIPALS
from tests.integration.http.live import served


@attrs.frozen
class Order:
    customer: str
    items: list[str]


@stage
def check(order: Order) -> list[str]:
    return order.items


@stage(retry=Retry(attempts=2, wait=timedelta()), queue="packing")
def pack(ctx: StageContext[None], item: str) -> str:
    ctx.log("packing", item=item)
    ctx.progress(1, 4, f"packing {item}")
    if item == "broken" or (item == "flaky" and ctx.attempt == 1):
        raise ValueError(f"{item}\x1b[31m is no good\nlook at it")
    return item.upper()


@stage
def ship(parcels: list[str]) -> str:
    return "+".join(parcels)


@stage
def hello() -> str:
    return "hello"


@stage
def negate(number: int) -> int:
    return -number


@stage(max_concurrency=Slots(1, name="bench", by="team"))
def polish(number: int) -> int:
    return number


@step(retry=Retry(attempts=2, wait=timedelta()))
def charge(order: str) -> str:
    if order == "broke" or step_context().attempt == 1:
        raise ValueError(f"{order} has no money\x1b[31m\nlook at it")
    return f"receipt of {order}"


@workflow
async def bill(order: str, *, naps: int = 0) -> list[str]:
    receipts = [await charge(order)]
    for _ in range(naps):
        await asyncio.sleep(3600)
    return receipts


@step
def file_away(number: int) -> int:
    return number


@workflow
async def bills(orders: int) -> int:
    return sum([await file_away(number) for number in range(orders)])


@workflow
async def rounds(left: int) -> str:
    await file_away(left)
    return await continue_as_new(rounds(left - 1)) if left else "round and round"


question = Channel("question", int)


@workflow
async def answer() -> str:
    return f"it is {2 * await question.receive()}"


@attrs.define
class Board:
    colour: str
    is_done: asyncio.Event = attrs.field(factory=asyncio.Event)

    @query
    def shown(self, *, loud: bool = False) -> str:
        return self.colour.upper() if loud else self.colour

    @update
    def paint(self, colour: str) -> str:
        if colour == "ugly":
            raise ValueError("no such paint")
        self.colour, old = colour, self.colour
        return old

    @paint.validator
    def may_paint(self, colour: str) -> None:
        if colour == self.colour:
            raise ValueError(f"it is {colour} already")


@workflow
async def board(colour: str) -> str:
    state = expose(Board(colour))
    await state.is_done.wait()
    return state.colour


@workflow
async def lost() -> None:
    await asyncio.Event().wait()


@workflow
async def share(country: str) -> str:
    parcels = Topic("parcels", dict[str, str], keys=("country",))
    return (await parcels.where(country=country).group("drivers").receive())["country"]


@workflow(retry=Retry(attempts=3, wait=3_600, wait_max=3_600), priority=4)
async def unlucky() -> None:
    raise ValueError("no luck")


@stage(retry=Retry(attempts=None, wait=3_600, wait_max=3_600))
def refuse() -> None:
    raise ValueError("no luck")


STUBBORN = Pipeline("stubborn").pipe(refuse)
ORDER = Pipeline("order", input=Order).pipe(check).map(pack).pipe(ship)
NOTHING = Pipeline("nothing", version="2").pipe(hello)
NEGATE = Pipeline("negate", input=int).pipe(negate)
POLISH = Pipeline("polish", input=int).pipe(polish).pipe(negate)


@attrs.frozen
class Answer:
    """The result of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return parse(self.out)

    @property
    def error(self) -> dict[str, Any]:
        return cast("dict[str, Any]", parse(self.err)["error"])


class CommandLine:
    """Runs commands. Each imports `shop` with a new engine on the same rows."""

    def __init__(self, module: ModuleType, captured: pytest.CaptureFixture[str]) -> None:
        self._module = module
        self._captured = captured
        self._persistence = MemoryPersistence()
        self._ids = UlidIds()
        self._server = ""
        self._patched = pytest.MonkeyPatch()
        self.schedules: list[Schedule[object]] | None = None
        """What the engine of the next commands declares."""
        self.triggers: list[Trigger[object]] | None = None
        """The same for triggers."""

    def __call__(self, *arguments: str) -> Answer:
        self._module.__dict__["engine"] = self.engine()
        with self._route(arguments) as given:
            code = main(given)
        out, err = self._captured.readouterr()
        return Answer(code, out, err)

    def send_over_http(self, server: str, patched: pytest.MonkeyPatch) -> None:
        """From now on, send the commands that can go over HTTP to a server."""
        self._server, self._patched = server, patched

    @contextmanager
    def _route(self, arguments: tuple[str, ...]) -> Generator[tuple[str, ...]]:
        """Provide the arguments for the store, or those for the server, in its environment."""
        words = [word for word in arguments if word != "shop:engine"]
        is_shop = len(words) == len(arguments) - 1
        if not self._server or not is_shop or not goes_over_http(words):
            yield arguments
            return
        with self._patched.context() as patched:
            patched.setenv("HOLDFAST_SERVER", self._server)
            patched.setenv("HOLDFAST_KEY", KEY)
            yield tuple(words)

    def engine(self) -> Engine:
        stores = Stores(
            persistence=self._persistence,
            transport=MemoryTransport(),
            blobs=None,
            clock=SystemClock(),
            ids=self._ids,
            url="memory://",
        )
        pipelines: list[WorkflowDefinition[object]] = [ORDER, NOTHING, NEGATE, POLISH, STUBBORN]
        functions: list[WorkflowDefinition[object]] = [
            bill,
            bills,
            answer,
            board,
            lost,
            rounds,
            unlucky,
            share,
        ]
        workflows = [*pipelines, *functions]
        return Engine.on(stores, workflows=workflows, schedules=self.schedules, triggers=self.triggers)

    def start(self, *items: str, id: str = "order-1") -> str:
        """Start an order."""
        self.engine().sync.start(ORDER(Order("Ann", list(items))), id=id)
        return id

    def finish(self, *ids: str) -> None:
        """Run a worker until these runs have ended."""
        engine = self.engine()

        async def work() -> None:
            async with Worker(engine):
                for run_id in ids:
                    with suppress(RunFailedError, RunCancelledError):
                        await engine.handle(ORDER, run_id).result()
            engine.core.close()

        anyio.run(work)

    def start_and_fail(self, call: Call[None], *, id: str) -> None:
        """Start a run, and run a worker until its first attempt has failed."""
        with self.working():
            handle = self.engine().sync.start(call, id=id)
            while not any(
                one.type in ("run.failed", "stage.retrying") for one in handle.history(generation=1)
            ):
                time.sleep(0.01)

    @contextmanager
    def working(self) -> Generator[None]:
        """Run a worker beside the block."""
        engine = self.engine()
        over = threading.Event()

        async def work() -> None:
            async with Worker(engine, poll_interval=0.02):
                await to_thread.run_sync(over.wait)

        thread = threading.Thread(target=anyio.run, args=(work,))
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            engine.core.close()


KEY = "hf_of_the_tests"
OVER_HTTP = frozenset(
    {
        *(
            "run start",
            "run wait",
            "run list",
            "run show",
            "run children",
            "run logs",
            "run annotate",
            "run rerun",
            "run remove",
            "run wake",
        ),
        *("history show", "run artifacts", "run ai", "run messages", "workflow list"),
        *("run pause", "run resume", "run cancel", "run terminate", "run signal", "run query", "run update"),
        *(
            "limit list",
            "limit show",
            "limit set",
            "limit clear",
            "queue list",
            "queue pause",
            "queue resume",
        ),
        *("key create", "key list", "key rotate", "key revoke", "audit", "why", "worker list"),
        *("namespace create", "namespace list", "namespace show", "namespace delete"),
        *("schedule list", "schedule show", "schedule why", "schedule pause", "schedule resume"),
        *("schedule trigger", "schedule backfill", "schedule remove"),
        *("topic list", "topic publish", "topic remove"),
        *("trigger list", "trigger show", "trigger pause", "trigger resume", "trigger remove"),
        *("sink add", "sink remove", "sink list", "dead-letter list", "dead-letter replay"),
    }
)
"""Commands that can go to a server."""
ON_THE_STORE = frozenset(
    {"--result-of", "--config", "--concurrency-within", "--rate", "--rate-by", "--units", "--url"}
)
"""Options with which they can't."""


def goes_over_http(words: list[str]) -> bool:
    is_there = words[0] in OVER_HTTP or " ".join(words[:2]) in OVER_HTTP
    return is_there and not ON_THE_STORE & set(words)


async def authenticate(request: Request) -> Principal | None:
    return PRINCIPALS["all"] if request.headers["authorization"] == f"Bearer {KEY}" else None


on_the_store = pytest.mark.parametrize("holdfast", ["store"], indirect=True)
"""For a test of what only a store has: arguments that name an engine, actors, errors of the store."""


@pytest.fixture(params=["store", pytest.param("server", marks=pytest.mark.other_store)])
def holdfast(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Generator[CommandLine]:
    """The command line on the store and, with the same tests and the same output, over HTTP."""
    for name in [name for name in os.environ if name.startswith("HOLDFAST_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", list(sys.path))
    monkeypatch.setattr(run_wait, "LOOK_SECONDS", 0.02)
    module = ModuleType("shop")
    monkeypatch.setitem(sys.modules, "shop", module)
    line = CommandLine(module, capsys)
    if request.param == "store":
        yield line
        return
    engine = line.engine()
    with engine.sync, served(asgi_app(engine, authenticate=authenticate)) as url:
        line.send_over_http(url, monkeypatch)
        yield line
