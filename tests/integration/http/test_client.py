"""The client of a server: runs, results, lists and streams, and what happens if the connection is lost."""

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from holdfast import Concurrency, Engine
from holdfast.client import OneOf, Prefix, Range, RunEvent, ValueFilter
from holdfast.errors import (
    AccessDeniedError,
    CommandError,
    IdempotencyConflictError,
    InvalidArgumentError,
    InvalidCommandError,
    InvalidFilterError,
    InvalidValueError,
    RunCancelledError,
    RunExistsError,
    RunFailedError,
    RunNotFoundError,
    ServerAnswerError,
    SignalRefusedError,
    UnavailableError,
    UnknownWorkflowError,
    UpdateFailedError,
)
from holdfast.hosts.http_client import sync_server
from holdfast.http import asgi_app
from holdfast.ports.records.run import RunStatus
from holdfast.remote import Client, RunEnded, SyncClient
from tests.integration.http.api import NAMESPACE, authenticate
from tests.integration.http.live import served
from tests.integration.http.lossy import LossyTransport
from tests.integration.http.programs import Board, Order, approval, approved, game, order, report
from tests.integration.http.test_serve import SHOP, free_port, serving


@pytest.fixture
def server(engine: Engine) -> Iterator[str]:
    """The URL of a server, under a path of another application."""
    app = Starlette(routes=[Mount("/apps/holdfast", app=asgi_app(engine, authenticate=authenticate))])
    with served(app) as url:
        yield f"{url}/apps/holdfast"


@pytest.fixture
def client(server: str) -> Iterator[SyncClient]:
    with SyncClient(server, key="all", namespace=NAMESPACE) as opened:
        yield opened


@pytest.fixture
def lossy(server: str) -> Iterator[Callable[..., tuple[SyncClient, LossyTransport]]]:
    """Makes clients whose connections lose answers."""
    opened: list[httpx.Client] = []

    def connect(**losses: int) -> tuple[SyncClient, LossyTransport]:
        transport = LossyTransport(**losses)
        opened.append(httpx.Client(transport=transport))
        return SyncClient(server, key="all", namespace=NAMESPACE, http=opened[-1]), transport

    yield connect
    for http in opened:
        http.close()


@pytest.mark.slow
@pytest.mark.usefixtures("worker")
def test_a_call_gives_a_result_of_its_type(client: SyncClient) -> None:
    text: str = client.run(order(Order(17)), timeout=20)
    number: int = client.start(report(5)).result(timeout=120)

    assert (text[-3:], number) == (" 17", 5)


@pytest.mark.slow
@pytest.mark.usefixtures("worker")
def test_a_name_takes_plain_json(client: SyncClient) -> None:
    run = client.start(
        "order", {"order": {"number": 17}}, id="a/1", attributes={"tier": "gold"}, headers={"of": "me"}
    )

    assert str(run.result(timeout=120)).endswith(" 17")
    assert client.handle(order, "a/1").result() == run.result()
    assert run.input() == {"order": {"number": 17, "note": ""}}
    assert run.info().attributes == {"tier": "gold"}
    assert run.details().headers == {"of": "me"}
    assert [reason.code for reason in run.why()] == ["ended"]


@pytest.mark.slow
def test_a_run_that_has_not_ended_in_time_continues(client: SyncClient) -> None:
    run = client.start(approved(Order(1)), id="one")

    with pytest.raises(TimeoutError, match="'one' has not ended"):
        run.result(timeout=0)

    assert run.terminate(reason="out of stock").changed
    with pytest.raises(RunCancelledError, match="out of stock"):
        run.result(timeout=120)
    assert not run.cancel().changed


@pytest.mark.slow
@pytest.mark.usefixtures("worker")
def test_a_failed_run_raises_why(client: SyncClient) -> None:
    with pytest.raises(RunFailedError, match="ValueError: user-value") as caught:
        client.run("broken", {"text": "x"}, timeout=20)

    assert caught.value.run_id


@pytest.mark.usefixtures("worker")
def test_an_ended_run_that_a_start_returns_has_its_result(client: SyncClient) -> None:
    assert [client.run(report(3), id="one", if_exists="return") for _ in range(2)] == [3, 3]


@pytest.mark.slow
@pytest.mark.usefixtures("worker")
def test_messages_queries_and_updates_have_their_types(client: SyncClient) -> None:
    run = client.start(game())
    moves: int = run.update(Board.move("e4"), timeout=20)

    assert moves == 1
    assert run.update("Board.move", {"to": "e5"}, timeout=20) == 2
    assert run.query(Board.all()) == run.query("Board.all") == ["e4", "e5"]
    with pytest.raises(UpdateFailedError):
        run.update(Board.move("nowhere"), timeout=20)
    assert run.signal(approval(True)).channel == "approval"
    assert run.result(timeout=120) == ["e4", "e5"]
    with pytest.raises(SignalRefusedError):
        run.signal("approval", True)


def test_refusals_are_the_errors_of_the_engine(client: SyncClient) -> None:
    client.start(report(1), id="one", idempotency_key="k")

    with pytest.raises(RunExistsError) as caught:
        client.start(report(1), id="one")
    assert caught.value.run_id == "one"
    with pytest.raises(IdempotencyConflictError):
        client.start(report(2), idempotency_key="k")
    with pytest.raises(UnknownWorkflowError):
        client.start("absent")
    with pytest.raises(InvalidValueError, match=r"\$"):
        client.start("report", "many")
    with pytest.raises(RunNotFoundError):
        client.handle("absent").info()


def test_what_can_not_be_sent_is_refused_before(client: SyncClient) -> None:
    with pytest.raises(InvalidFilterError):
        client.runs(status="melted")
    with pytest.raises(InvalidArgumentError, match="overrides"):
        client.start(report(1), overrides=[])  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    with pytest.raises(InvalidArgumentError, match="within another"):
        client.start(report(1), concurrency=Concurrency("a", within=Concurrency("b")))
    with pytest.raises(InvalidArgumentError, match="write handle"):
        client.handle(report)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]


WHEN = datetime(2026, 12, 1, 8, tzinfo=UTC)


@pytest.mark.slow
def test_a_list_is_read_page_by_page(client: SyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sync_server, "PAGE", 2)
    for number in range(5):
        client.start(report(number), id=str(number))

    assert [run.id for run in client.runs(oldest_first=True)] == ["0", "1", "2", "3", "4"]
    assert [run.id for run in client.runs(limit=3, workflow=report)] == ["4", "3", "2"]
    assert list(client.runs(status="failed")) == []
    assert [run.id for run in client.runs(id_prefix="3")] == ["3"]
    assert [run.id for run in client.runs(ids=iter("143"))] == ["4", "3", "1"]
    assert list(client.runs(status=iter(["failed"]))) == []
    assert client.preview_all("cancel", ids=iter("14")).total == 2
    assert client.count(id_prefix="3")[RunStatus.RUNNING] == 1
    assert [run.id for run in client.runs(queue="default", limit=1)] == ["4"]
    assert list(client.runs(queue="slow")) == []
    assert list(client.runs(children_of="3")) == []
    assert client.count(error_code="late", error_type="ValueError")[RunStatus.FAILED] == 0
    assert client.preview_all("cancel", queue="default").total == 5
    with pytest.raises(InvalidFilterError, match="id_prefix"):
        client.runs(id_prefix="")
    client.handle(report, "3").annotate(
        {"cents": 7, "word": "before", "due": WHEN, "tags": ["a", "b"], "ok": True}
    )
    client.handle(report, "4").annotate({"cents": 7.5, "word": "after"})
    cases: list[tuple[list[str], dict[str, ValueFilter]]] = [
        (["4", "3"], {"cents": Range(at_least=7, below=8)}),
        (["3"], {"cents": 7}),
        (["3"], {"cents": Range(at_least=0), "word": "before", "ok": True}),
        (["3"], {"word": Prefix("bef"), "tags": "b"}),
        (["4", "3"], {"word": OneOf("before", "after", "later")}),
        (["3"], {"due": WHEN}),
        (["3"], {"due": Range(at_least=WHEN, below=WHEN + timedelta(seconds=1))}),
        ([], {"due": Range(below=WHEN)}),
    ]
    for found, annotations in cases:
        assert [run.id for run in client.runs(annotations=annotations)] == found, annotations
        assert client.count(annotations=annotations)[RunStatus.RUNNING] == len(found)
        assert client.preview_all("cancel", annotations=annotations).total == len(found)
    with pytest.raises(InvalidFilterError, match="annotations for 'cents' is nan"):
        client.runs(annotations={"cents": float("nan")})
    assert client.count(status=["running", "failed"]) == {"running": 5, "failed": 0}
    assert list(client.in_namespace("elsewhere").runs()) == []


def test_commands_are_answered_one_by_one_or_all_or_none(client: SyncClient) -> None:
    client.start(report(1), id="one")
    commands = [{"type": "run.pause", "run_id": "one"}, {"type": "run.pause", "run_id": "absent"}]

    with pytest.raises(CommandError):
        client.dispatch(commands, atomic=True)
    paused, refused = client.dispatch(commands)

    assert isinstance(paused, dict)
    assert paused["changed"] is True
    assert isinstance(refused, RunNotFoundError)
    assert refused.run_id == "absent"


def test_a_key_may_come_from_a_function_and_needs_its_scope(server: str) -> None:
    keys = iter(["wrong", "read", "all"])
    with SyncClient(server, key=lambda: next(keys), namespace=NAMESPACE) as client:
        with pytest.raises(AccessDeniedError, match="wrong, revoked or expired"):
            client.server()
        with pytest.raises(AccessDeniedError, match="'start'"):
            client.start(report(1))
        assert client.start(report(1)).id


def test_a_key_that_is_none_is_refused_before_anything_is_sent() -> None:
    client = SyncClient("http://127.0.0.1:1", key="two\nlines")

    with client, pytest.raises(InvalidArgumentError, match="key"):
        client.server()


def test_a_url_of_another_server_is_refused(server: str) -> None:
    elsewhere = server.removesuffix("/apps/holdfast")

    with (
        SyncClient(elsewhere, key="all", patience=0) as client,
        pytest.raises(ServerAnswerError, match="URL"),
    ):
        client.server()


def test_a_server_that_can_not_be_reached_is_given_up_after_patience() -> None:
    with (
        SyncClient("http://127.0.0.1:1", patience=0) as client,
        pytest.raises(UnavailableError, match="GET /v1"),
    ):
        client.server()


@pytest.mark.slow
def test_a_start_whose_answers_are_lost_starts_one_run(
    client: SyncClient, lossy: Callable[..., tuple[SyncClient, LossyTransport]]
) -> None:
    lossy_client, transport = lossy(lost=2)

    run = lossy_client.start(report(1))

    assert [one.id for one in client.runs()] == [run.id]
    assert len(transport.keys) == 3
    assert len(set(transport.keys)) == 1


@pytest.mark.slow
def test_commands_whose_answers_are_lost_are_carried_out_once(
    client: SyncClient, lossy: Callable[..., tuple[SyncClient, LossyTransport]]
) -> None:
    run = client.start(approved(Order(1)))
    message = {"channel": "approval", "payload": {"inline": "true"}}
    lossy_client, _ = lossy(lost=1)

    lossy_client.dispatch([{"type": "run.signal", "run_id": run.id, "signal": message}])

    assert len(run.info().unread) == 1


@pytest.mark.slow
def test_a_key_whose_answer_is_lost_is_not_created_again(
    client: SyncClient, lossy: Callable[..., tuple[SyncClient, LossyTransport]]
) -> None:
    lossy_client, transport = lossy(lost=1)

    with pytest.raises(UnavailableError, match="may have been carried out"):
        lossy_client.keys.create("ci", scopes=["read"])

    assert len(transport.keys) == 1
    assert [key.label for key in client.keys.list()] == ["ci"]


@pytest.mark.slow
@pytest.mark.usefixtures("worker")
def test_a_stream_that_is_cut_again_and_again_loses_and_repeats_nothing(
    client: SyncClient, lossy: Callable[..., tuple[SyncClient, LossyTransport]]
) -> None:
    run = client.start(order(Order(1)))
    run.result(timeout=120)
    whole = run.history()
    lossy_client, transport = lossy(cut_after=2)

    found = list(lossy_client.handle(run.id).events())

    assert [one.number for one in found if isinstance(one, RunEvent)] == [one.number for one in whole]
    assert isinstance(found[-1], RunEnded)
    assert transport.places[:2] == [None, "1/2"]


@pytest.mark.slow
@pytest.mark.usefixtures("worker")
def test_events_are_followed_until_the_end_of_the_run(client: SyncClient) -> None:
    run = client.start(approved(Order(1)))
    seen: list[str] = []

    for event in run.events():
        if isinstance(event, RunEvent):
            seen.append(event.type)
            if event.type == "run.created":
                run.signal(approval(True))

    assert (seen[0], seen[-1]) == ("run.created", "run.completed")
    assert list(run.events(after=len(seen))) == []


@pytest.mark.slow
@pytest.mark.usefixtures("worker")
def test_log_lines_are_followed_until_the_end_of_the_run(client: SyncClient) -> None:
    run = client.start(report(1))

    assert [line.message for line in run.logs(follow=True)] == ["user-value-7f3a"]
    assert [one.name for one in run.annotations(name="verdict")] == ["verdict"]


@pytest.mark.slow
@pytest.mark.anyio
@pytest.mark.usefixtures("worker")
async def test_the_async_client_does_the_same(server: str) -> None:
    async with Client(server, key="all", namespace=NAMESPACE, patience=timedelta(seconds=20)) as client:
        assert await client.run(report(5), timeout=20, id="one") == 5
        assert [run.id async for run in client.runs()] == ["one"]
        events = [event async for event in client.handle("one").events()]
        assert isinstance(events[-1], RunEnded)
        with pytest.raises(RunNotFoundError):
            await client.handle("absent").result()


@pytest.mark.slow
def test_a_server_that_is_killed_and_started_again_is_waited_for(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    port = free_port()
    with (
        SyncClient(f"http://127.0.0.1:{port}", patience=60) as client,
        ThreadPoolExecutor() as pool,
    ):
        with serving(tmp_path, port) as (process, _):
            run = client.start("approved", {"cents": 5})
            events = run.events()
            seen: list[object] = [next(events)]
            process.kill()
            process.wait()
        started = pool.submit(client.start, "checkout", {"cents": 7}, id="meanwhile")
        rest = pool.submit(list, events)
        with serving(tmp_path, port, "--worker"):
            assert started.result(60).result(timeout=60) == "charged 7"
            run.signal("approval", True)
            seen += rest.result(60)

    numbers = [one.number for one in seen if isinstance(one, RunEvent)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert isinstance(seen[-1], RunEnded)


@pytest.mark.slow
def test_the_client_needs_no_starlette_and_says_that_it_needs_httpx(tmp_path: Path) -> None:
    program = """
import sys
sys.modules |= dict.fromkeys(("starlette", "uvicorn", "click", "prometheus_client"))
from holdfast.remote import SyncClient
assert "httpx" not in sys.modules
SyncClient("http://localhost").close()
sys.modules["httpx"] = None
try:
    SyncClient("http://localhost")
except ModuleNotFoundError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert done.stdout == 'the client of a server needs httpx: pip install "holdfast[client]"\n', done.stderr


@pytest.mark.usefixtures("worker")
def test_a_client_can_be_used_in_one_event_loop_after_another(server: str) -> None:
    client = Client(server, key="all", namespace=NAMESPACE)

    async def run(number: int) -> int:
        found = await client.run(report(number), timeout=60)
        await client.close()
        return found

    assert [asyncio.run(run(number)) for number in (1, 2)] == [1, 2]


def test_forked_children_read_the_answers_to_their_own_requests(client: SyncClient) -> None:
    """With the connections of their parent, each would read answers to the other's requests."""
    for number in range(2):
        client.start(report(number), id=f"of {number}")
    children: list[int] = []
    for number in range(2):
        children.append(os.fork())
        if children[-1] == 0:
            with contextlib.suppress(BaseException):
                found = [client.handle(f"of {number}").info().id for _ in range(50)]
                os._exit(0 if found == [f"of {number}"] * 50 else 1)
            os._exit(2)
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]


def test_an_idempotency_key_is_that_of_the_engine(client: SyncClient, engine: Engine) -> None:
    key = "Müller/注文 17"
    run = client.start(report(1), idempotency_key=key)

    assert client.start(report(1), idempotency_key=key).id == run.id
    assert engine.sync.start(report(1), idempotency_key=key).id == run.id


@pytest.mark.parametrize("key", [" k", "k ", "k" * 256, "a\nb"])
def test_an_idempotency_key_that_no_header_can_have_is_refused_before(client: SyncClient, key: str) -> None:
    with pytest.raises((InvalidArgumentError, InvalidCommandError), match=r"idempotency.key"):
        client.start(report(1), idempotency_key=key)
