"""`RemoteWorker`: bodies, failures, the end of a worker, and what it refuses."""

import asyncio
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import attrs
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from holdfast import (
    Engine,
    GiveUp,
    Pipeline,
    Retry,
    RetryAfter,
    StageContext,
    Worker,
    stage,
    step,
    step_context,
    workflow,
)
from holdfast.errors import (
    AccessDeniedError,
    DefinitionError,
    InvalidArgumentError,
    RemoteStepError,
    RunFailedError,
    UnavailableError,
)
from holdfast.hosts.http import live_reads
from holdfast.hosts.remote import large_values
from holdfast.hosts.remote.connection import Answer, ServerConnection
from holdfast.http import asgi_app
from holdfast.ports.blobs import BlobStore, UploadAddress
from holdfast.remote import RemoteWorker
from tests.integration.http.api import NAMESPACE, authenticate
from tests.integration.http.live import served

QUICK = Retry(attempts=2, wait=timedelta(milliseconds=1))
entered = threading.Event()
released = threading.Event()
seen: list[tuple[int, str]] = []
noticed: list[bool] = []


@step(queue="tools", retry=Retry(attempts=4, wait=timedelta(milliseconds=1), give_up_on=(KeyError,)))
def fail(how: str) -> str:
    context = step_context()
    seen.append((context.attempt, context.idempotency_key))
    context.log("tried", how=how)
    match how:
        case "twice" if context.attempt < 3:
            raise ValueError(how)
        case "later" if context.attempt < 2:
            raise RetryAfter(timedelta(milliseconds=2))
        case "listed":
            raise KeyError(how)
        case "final":
            raise GiveUp(how)
        case "wrong":
            return cast("str", 5)
        case "surrogate":
            raise ValueError("\udcff.txt")  # a file's name that is no UTF-8
        case "exit":
            raise SystemExit(how)
        case "cancelled":
            raise asyncio.CancelledError(how)
        case "large":
            return "x" * 3_000_000
        case "headers":
            return context.headers["locale"]
        case "store":
            context.publish("a", 1)
        case _:
            pass
    return how


@step(queue="tools", retry=QUICK, timeout=timedelta(milliseconds=20))
async def slow() -> str:
    await asyncio.sleep(30)
    return "slow"


@step(queue="tools", retry=Retry(attempts=1), timeout=timedelta(milliseconds=20))
def blocking() -> str:
    """Wait until the attempt is told to end: its thread can't be cancelled."""
    until = time.monotonic() + 20
    while not step_context().cancelled and time.monotonic() < until:
        time.sleep(0.005)
    noticed.append(step_context().cancelled)
    return "blocking"


@attrs.frozen
class Times:
    number: int = 2


@stage(
    remote=True,
    queue="tools",
    retry=Retry(attempts=3, wait=0, by_error={LookupError: Retry(attempts=2, wait=0)}),
)
def repeat(context: StageContext[Times], text: str) -> str: ...  # type: ignore[empty-body]


@stage(name="repeat", queue="tools")
def repeat_here(context: StageContext[Times], text: str) -> str:
    seen.append((context.attempt, context.idempotency_key))
    if text == "absent":
        raise KeyError(text)  # the rule of the pipeline is for its base class
    if text == "headers":
        return context.headers["locale"]
    if text == "other":
        context.output_of(repeat)
    return text * context.config.number


repeated = Pipeline("repeated", input=str).pipe(repeat.configure(Times(3)))


@step(queue="tools", retry=QUICK)
async def endless() -> str:
    entered.set()
    await asyncio.sleep(30)
    return "endless"


@step(queue="tools", retry=QUICK)
async def lose_future() -> str:
    seen.append((step_context().attempt, step_context().idempotency_key))
    lost = asyncio.get_running_loop().create_future()
    lost.cancel()  # a library does so when its connection is lost
    return str(await lost)


@step(queue="tools", retry=QUICK)
def hold(release: str) -> str:
    entered.set()
    assert released.wait(60)
    return release


@workflow
async def wait_for(lost: bool) -> str:
    try:
        return await (lose_future() if lost else hold("held"))
    except RemoteStepError as error:
        return error.error_type


@workflow
async def call(how: str) -> str:
    try:
        return await fail(how)
    except RemoteStepError as error:
        return f"{error.error_code} {error.error_type} {error.message[:20]}"


@workflow
async def time_out() -> str:
    try:
        return await slow()
    except RemoteStepError as error:
        return error.error_type


@workflow
async def block() -> str:
    try:
        return await blocking()
    except RemoteStepError as error:
        return error.error_type


@workflow
async def forever() -> str:
    return await endless()


@pytest.fixture
def engine(tmp_path: Path, new_sqlite: Callable[[Path], str]) -> Iterator[Engine]:
    url = new_sqlite(tmp_path / "holdfast.db")
    opened = Engine.open(
        url, workflows=[call, wait_for, time_out, block, forever, repeated], namespace=NAMESPACE
    )
    seen.clear()
    entered.clear()
    released.clear()
    with opened.sync, Worker(opened, only_queues=["default"]):
        yield opened


@pytest.fixture
def server(engine: Engine) -> Iterator[str]:
    with served(asgi_app(engine, authenticate=authenticate)) as url:
        yield url


def remote(server: str, **options: Any) -> RemoteWorker:
    return RemoteWorker(
        server,
        options.pop("key", "work"),
        steps=[fail, lose_future, hold, slow, blocking, endless],
        stages=[repeat_here],
        namespace=NAMESPACE,
        **options,
    )


def test_bodies_get_the_headers_of_the_run(engine: Engine, server: str) -> None:
    with remote(server):
        run = engine.sync.start(call("headers"), headers={"locale": "de"})
        staged = engine.sync.start(repeated("headers"), headers={"locale": "fr"})
        assert (run.result(timeout=120), staged.result(timeout=120)) == ("de", "fr")


@pytest.mark.slow
def test_bodies_are_called_and_their_outcomes_stored(
    engine: Engine, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_reads, "CLAIM_SECONDS", 0.05)  # a retry is due without a hint
    wanted = {
        "fine": "fine",
        "twice": "twice",
        "later": "later",
        "listed": "body_error KeyError 'listed'",
        "final": "give_up GiveUp final",
        "wrong": "step_result StepResultError the step ran, but it",
        "surrogate": "body_error ValueError \ufffd.txt",
        "exit": "body_error SystemExit exit",
        "cancelled": "body_error CancelledError cancelled",
        "large": "x" * 3_000_000,
        "store": "body_error RuntimeError a remote worker has ",
    }
    with remote(server, concurrency=4):
        runs = {how: engine.sync.start(call(how), id=how) for how in wanted}
        late = engine.sync.start(time_out())
        found = {how: run.result(timeout=120) for how, run in runs.items()}
        assert late.result(timeout=120) == "TimeoutError"

    assert {how: text[: len(wanted[how])] for how, text in found.items()} == wanted
    assert len({key for _, key in seen}) == len(wanted)


@pytest.mark.parametrize(
    ("text", "result", "tries"),
    [
        ("ab", "ababab", 1),
        ("absent", "KeyError: 'absent'", 2),
        ("other", "has no outputs of other stages", 3),
    ],
)
def test_a_stage_is_called_with_its_config(
    engine: Engine, server: str, text: str, result: str, tries: int
) -> None:
    """Its policy is that of the pipeline, by the names of its classes."""
    with remote(server):
        run = engine.sync.start(repeated(text))
        try:
            found = run.result(timeout=120)
        except RunFailedError as error:
            found = str(error)
    assert result in found
    assert [attempt for attempt, _ in seen] == list(range(1, tries + 1))
    assert len({key for _, key in seen}) == 1


@pytest.mark.slow
@pytest.mark.parametrize("has_urls", [True, False], ids=["by URL", "through the server"])
def test_large_values_reach_a_worker_and_come_back(
    engine: Engine, server: str, monkeypatch: pytest.MonkeyPatch, *, has_urls: bool
) -> None:
    """By the URLs of the blob store; or through the server, if that has none or its blob store is out of reach."""
    blobs = engine.core.stores.blobs
    assert blobs is not None
    text = "é" * 100_000
    with blob_urls(blobs) as base, remote(server):
        place = base if has_urls else "http://127.0.0.1:9"
        monkeypatch.setattr(large_values, "_PAUSE", 0.0)

        def download_url(_: object, key: str, __: timedelta) -> str | None:
            return f"{place}/{key}" if has_urls else None

        def upload_address(_: object, key: str, __: int, ___: timedelta) -> UploadAddress:
            return UploadAddress(url=f"{place}/{key}", headers=(("x-test", "yes"),))

        for method in (download_url, upload_address):
            monkeypatch.setattr(type(blobs), method.__name__, method, raising=False)
        assert engine.sync.start(repeated(text)).result(timeout=120) == text * 3


@contextmanager
def blob_urls(blobs: BlobStore) -> Generator[str]:
    """Serve blobs by their keys."""

    async def answer(request: Request) -> Response:
        key = request.path_params["key"]
        if request.method == "GET":
            return Response(blobs.get(key))
        assert request.headers["x-test"] == "yes"
        assert "authorization" not in request.headers
        blobs.put(key, await request.body())
        return Response()

    with served(Starlette(routes=[Route("/{key:path}", answer, methods=["GET", "PUT"])])) as url:
        yield url


def test_a_sync_body_can_see_that_its_attempt_timed_out(engine: Engine, server: str) -> None:
    noticed.clear()
    with remote(server):
        assert engine.sync.start(block()).result(timeout=120) == "TimeoutError"
        until = time.monotonic() + 10
        while not noticed and time.monotonic() < until:
            time.sleep(0.005)
    assert noticed == [True]


@pytest.mark.parametrize("refused", [Answer(413, {}), UnavailableError("the server has a bug")], ids=str)
def test_outcomes_that_are_refused_together_are_sent_alone(
    engine: Engine, server: str, monkeypatch: pytest.MonkeyPatch, refused: Answer | UnavailableError
) -> None:
    paths = Counter[str]()

    def refuse(self: ServerConnection, method: str, path: str, body: object = None, **options: Any) -> Answer:
        paths[path.rpartition("/")[2]] += 1
        if not path.endswith("tasks:settle"):
            return send(self, method, path, body, **options)
        if isinstance(refused, UnavailableError):
            assert options["tries"] is not None, "it would be repeated for ever"
            raise refused
        return refused

    send = ServerConnection.call
    monkeypatch.setattr(ServerConnection, "call", refuse)
    with remote(server, concurrency=4):
        runs = [engine.sync.start(call(how)) for how in ("a", "final", "b", "listed")]
        results = [run.result(timeout=120) for run in runs]
    assert results == ["a", "give_up GiveUp final", "b", "body_error KeyError 'listed'"]
    assert (paths["complete"], paths["fail"]) == (2, 2)
    assert 1 <= paths["tasks:settle"] <= 4


def test_a_body_whose_own_future_was_cancelled_has_failed(engine: Engine, server: str) -> None:
    with remote(server):
        assert engine.sync.start(wait_for(lost=True)).result(timeout=120) == "CancelledError"
    assert [attempt for attempt, _ in seen] == [1, 2]


def test_a_failure_whose_report_is_refused_is_reported_without_its_text(
    engine: Engine, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server of another version may allow less."""
    send = ServerConnection.call

    def refuse(self: ServerConnection, method: str, path: str, body: object = None, **options: Any) -> Answer:
        if path.endswith("tasks:settle"):
            raise UnavailableError("each is sent alone")
        if path.endswith("/fail") and "KeyError" in str(body):
            return Answer(400, {"code": "invalid_value", "detail": "the type is not one"})
        return send(self, method, path, body, **options)

    monkeypatch.setattr(ServerConnection, "call", refuse)
    with remote(server):
        found = engine.sync.start(call("listed")).result(timeout=120)
    assert found == "body_error HoldfastError the server does not "


def test_a_worker_that_is_stopped_holds_no_task_that_it_does_not_run(engine: Engine, server: str) -> None:
    """Its claim may be answered after the stop, while a body still runs and the worker sends heartbeats."""
    with remote(server, concurrency=3, lease=600) as old:
        held = engine.sync.start(wait_for(lost=False))
        assert entered.wait(60)
        old.stop()
        runs = [engine.sync.start(call(f"fine {number}")) for number in range(5)]
        with remote(server, concurrency=3):
            assert [run.result(timeout=60) for run in runs] == [f"fine {number}" for number in range(5)]
        released.set()
        assert held.result(timeout=60) == "held"


@pytest.mark.slow
def test_a_cancelled_step_is_stopped(engine: Engine, server: str) -> None:
    with remote(server, lease=5) as worker:
        run = engine.sync.start(forever())
        assert entered.wait(20)
        run.terminate()
        began = time.monotonic()
        worker.stop()  # it waits for the body, which the next heartbeat stops
    assert time.monotonic() - began < 10
    assert [one.principal for one in engine.sync.workers()] == [None]


@pytest.mark.slow
def test_a_worker_whose_session_was_lost_registers_again(
    engine: Engine, server: str, caplog: pytest.LogCaptureFixture
) -> None:
    from holdfast.kernel.commands import SessionClose

    caplog.set_level(logging.INFO, "holdfast.remote")
    with remote(server):
        while not (sessions := [one.session for one in engine.sync.workers() if one.principal is not None]):
            time.sleep(0.01)
        engine.core.kernel.dispatch(SessionClose(namespace=NAMESPACE, session=sessions[0]))
        assert engine.sync.start(call("fine")).result(timeout=120) == "fine"
    assert sum("registered as" in one.message for one in caplog.records) == 2


@pytest.mark.parametrize("key", ["unknown", "read"])
def test_a_refused_key_ends_the_worker(server: str, key: str) -> None:
    with pytest.raises(AccessDeniedError, match=r"unauthenticated|forbidden"):
        remote(server, key=key).run()
    with pytest.raises(AccessDeniedError), remote(server, key=key):
        while any(one.name == "holdfast-remote-worker" for one in threading.enumerate()):
            time.sleep(0.01)


def test_a_worker_that_was_stopped_does_not_start(server: str) -> None:
    worker = remote(server)
    worker.stop()
    worker.run()


@step
def inline() -> None: ...


@step(name="fail", queue="other")
def other() -> None: ...


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"url": "postgresql://host"}, InvalidArgumentError, "the URL of a server"),
        ({"url": "http://"}, InvalidArgumentError, "the URL of a server"),
        ({"concurrency": 0}, InvalidArgumentError, "concurrency is 0"),
        ({"lease": 1}, InvalidArgumentError, "lease"),
        ({"steps": []}, InvalidArgumentError, "at least one step"),
        ({"stages": [repeat]}, DefinitionError, "remote=True"),
        ({"stages": [len]}, DefinitionError, "is not a stage"),
        ({"stages": [stage(repeated)]}, DefinitionError, "is a workflow"),
        ({"stages": [repeat_here, repeat_here]}, DefinitionError, "two stages"),
        ({"steps": "fail"}, InvalidArgumentError, "a list of queued steps"),
        ({"steps": [inline]}, DefinitionError, "has no queue"),
        ({"steps": [fail, other]}, DefinitionError, "two steps"),
        ({"steps": [len]}, DefinitionError, "is not a step"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_wrong_arguments_are_refused(options: dict[str, Any], error: type[Exception], text: str) -> None:
    url, steps = options.pop("url", "http://localhost"), options.pop("steps", [fail])
    with pytest.raises(error, match=text):
        RemoteWorker(url, "work", steps=steps, **options)
