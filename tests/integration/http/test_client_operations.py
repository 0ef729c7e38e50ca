"""The client reaches every operation of the table, with requests that the server reads, and reads its answers."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, TypeAlias, get_args, get_origin

import attrs
import httpx
import pytest
from typing_extensions import override

from holdfast import Cron, Engine, Rate, Schedule, Topic, Trigger, Worker
from holdfast.errors import HoldfastError, InvalidCommandError, ServerAnswerError
from holdfast.hosts.http.json_input import document_converter
from holdfast.hosts.http.operations import Text
from holdfast.hosts.http.table import OPERATIONS
from holdfast.http import asgi_app
from holdfast.metrics import Metrics
from holdfast.remote import Client, RemoteRunHandle, RemoteScheduleHandle
from holdfast.workflows import TopicMessage
from tests.integration.http.api import NAMESPACE, authenticate
from tests.integration.http.programs import report
from tests.integration.http.responses import check_response, operation_at

pytestmark = pytest.mark.anyio

TOKEN: Final = "bm9uZQ.0123456789abcdef0123456789abcdef"
THEN: Final = datetime(2026, 1, 1, tzinfo=UTC)
Sent: TypeAlias = Callable[
    [Client, RemoteRunHandle[object], RemoteScheduleHandle], AsyncIterator[object] | Awaitable[object]
]

OF_WORKERS: Final = frozenset(
    {
        *("worker.register", "worker.claim", "worker.heartbeat", "worker.remove"),
        *("task.complete", "task.fail", "task.settle", "task.get_input", "task.release", "task.upload"),
    }
)
"""Operations of remote workers, which `RemoteWorker` sends."""

OF_BROWSERS: Final = frozenset({"browser_session.create", "browser_session.get", "browser_session.delete"})
"""Operations of browsers, which have a cookie in place of a key."""

OF_FUNCTIONS: Final = frozenset({"run.signal", "run.update", "run.query", "run.update_with_start"})
"""Operations that a pipeline refuses."""

CALLS: Final[Mapping[str, Sent]] = {
    "server.live": lambda client, _, __: client.live(),
    "server.ready": lambda client, _, __: client.ready(),
    "server.metrics": lambda client, _, __: client.metrics(),
    "server.get": lambda client, _, __: client.server(),
    "server.openapi": lambda client, _, __: client.openapi(),
    "error.get": lambda client, _, __: client.error("forbidden"),
    "command.dispatch": lambda client, _, __: client.dispatch([{"type": "run.cancel", "run_id": "a/1"}]),
    "key.list": lambda client, _, __: client.keys.list(),
    "key.create": lambda client, _, __: client.keys.create("one", scopes=["read"], expires_at=None),
    "key.rotate": lambda client, _, __: client.keys.rotate("one", grace=60),
    "key.revoke": lambda client, _, __: client.keys.revoke("one", reason="lost"),
    "audit.list": lambda client, _, __: client.audit(limit=3),
    "namespace.list": lambda client, _, __: client.namespaces.list(after="a"),
    "namespace.create": lambda client, _, __: client.namespaces.create("other", max_active_runs=3),
    "namespace.get": lambda client, _, __: client.namespaces.describe("other"),
    "namespace.delete": lambda client, _, __: client.namespaces.delete("other", purge=True),
    "run.start": lambda client, _, __: client.start("report", 1, deadline=60, start_at=THEN),
    "run.start_all": lambda client, _, __: client.start_all([("report", 1), ("report", 2)], queue="fast"),
    "run.update_with_start": lambda client, _, __: client.update_with_start(
        ("report", 1), ("Board.move", {"to": "e4"}), id="a/3", timeout=5
    ),
    "run.list": lambda client, _, __: client.runs(
        status=["failed", "running"], attributes={"tier": "gold & silver"}, since=THEN, oldest_first=True
    ),
    "run.count": lambda client, _, __: client.count(workflow="report", waiting=True),
    "run.get": lambda _, run, __: run.details(generation=1),
    "run.result": lambda _, run, __: run.outcome(),
    "run.input": lambda _, run, __: run.input(int),
    "run.why": lambda _, run, __: run.why(),
    "run.history": lambda _, run, __: run.history(limit=2),
    "run.children": lambda _, run, __: run.children(limit=2),
    "run.logs": lambda _, run, __: run.logs(level="warning"),
    "run.annotations": lambda _, run, __: run.annotations(prefix="v"),
    "run.published": lambda _, run, __: run.published("state/1"),
    "run.published_values": lambda _, run, __: run.published_values("state/1"),
    "run.part_result": lambda _, run, __: run.result_of("reported"),
    "run.row_value": lambda _, run, __: run.row_value(1),
    "run.progress": lambda _, run, __: run.progress(),
    "run.messages": lambda _, run, __: run.messages(),
    "run.artifacts": lambda _, run, __: run.artifacts(),
    "run.artifact": lambda _, run, __: run.artifact("none", stage="reported"),
    "run.ai_calls": lambda _, run, __: run.ai_calls(topic="a", texts=True),
    "run.ai_totals": lambda _, run, __: run.ai_totals(by="topic"),
    "run.cancel": lambda _, run, __: run.cancel(reason="why not"),
    "run.terminate": lambda _, run, __: run.terminate(),
    "run.pause": lambda _, run, __: run.pause(),
    "run.resume": lambda _, run, __: run.resume(),
    "run.rerun": lambda client, _, __: client.handle("a/2").rerun_from("reported", reason="again"),
    "run.preview_rerun": lambda _, run, __: run.preview_rerun("reported"),
    "run.signal": lambda _, run, __: run.signal("approval", True),
    "run.update": lambda _, run, __: run.update("Board.move", {"to": "e4"}, timeout=5),
    "run.query": lambda _, run, __: run.query("Board.all"),
    "run.annotate": lambda _, run, __: run.annotate({"verdict": {"good": True}}, key="k", stage="reported"),
    "run.remove": lambda _, run, __: run.remove(),
    "run.wake": lambda _, run, __: run.wake("reported"),
    "wake.send": lambda client, _, __: client.wake("key 1"),
    "completion.complete": lambda client, _, __: client.complete(TOKEN, {"approved": True}),
    "completion.fail": lambda client, _, __: client.fail_completion(TOKEN, "no longer needed"),
    "schedule.list": lambda client, _, __: client.schedules(),
    "schedule.get": lambda _, __, schedule: schedule.info(),
    "schedule.why": lambda _, __, schedule: schedule.why(),
    "schedule.next": lambda _, __, schedule: schedule.next(3),
    "schedule.pause": lambda _, __, schedule: schedule.pause(reason="later"),
    "schedule.resume": lambda _, __, schedule: schedule.resume(make_up=True),
    "schedule.trigger": lambda _, __, schedule: schedule.trigger(overlap="allow"),
    "schedule.backfill": lambda _, __, schedule: schedule.backfill(
        THEN,
        datetime.now(UTC) - timedelta(minutes=1),
        dry_run=True,  # not in the future of the store
    ),
    "schedule.remove": lambda _, __, schedule: schedule.remove(),
    "limit.list": lambda client, _, __: client.limits.list(),
    "limit.get": lambda client, _, __: client.limits.get("run:a/b"),
    "limit.set": lambda client, _, __: client.limits.set("rate:model", rate=Rate(3, per=60), reason="x"),
    "limit.clear": lambda client, _, __: client.limits.clear("rate:model", reason="x"),
    "sink.list": lambda client, _, __: client.sinks(),
    "sink.register": lambda client, _, __: client.register_sink("log", since=THEN, types=["run.*"]),
    "sink.read": lambda client, _, __: client.read_sink("log", limit=5),
    "sink.acknowledge": lambda client, _, __: client.acknowledge_sink("log", "a.1"),
    "sink.remove": lambda client, _, __: client.remove_sink("log"),
    "dead_letter.list": lambda client, _, __: client.dead_letters(sink="log"),
    "dead_letter.replay": lambda client, _, __: client.replay_dead_letters(reason="fixed"),
    "topic.publish": lambda client, _, __: client.publish(
        TopicMessage("a/b", '{"number":7}', attributes={"country": "nz"}), id="order 7"
    ),
    "topic.remove": lambda client, _, __: client.remove_topic("refunds"),
    "topic.list": lambda client, _, __: client.topics(limit=2),
    "trigger.list": lambda client, _, __: client.triggers.list(limit=2),
    "trigger.get": lambda client, _, __: client.triggers.get("ship"),
    "trigger.pause": lambda client, _, __: client.triggers.pause("ship", reason="for a while"),
    "trigger.resume": lambda client, _, __: client.triggers.resume("ship", skip=True),
    "trigger.remove": lambda client, _, __: client.triggers.remove("ship"),
    "workflow.list": lambda client, _, __: client.workflows(),
    "run.preview_bulk": lambda client, _, __: client.preview_all("pause", workflow="report"),
    "run.cancel_all": lambda client, _, __: client.cancel_all(workflow="report", reason="stop"),
    "run.terminate_all": lambda client, _, __: client.terminate_all(status="running"),
    "run.pause_all": lambda client, _, __: client.pause_all(attributes={"tier": "gold"}),
    "run.resume_all": lambda client, _, __: client.resume_all(workflow="report"),
    "run.rerun_all": lambda client, _, __: client.rerun_all("reported", workflow="report", version="1"),
    "run.remove_all": lambda client, _, __: client.remove_all(workflow="none"),
    "worker.list": lambda client, _, __: client.workers(limit=2),
    "queue.list": lambda client, _, __: client.queues(),
    "queue.pause": lambda client, _, __: client.pause_queue("fast", reason="full"),
    "queue.resume": lambda client, _, __: client.resume_queue("fast"),
}
"""A call of the client for each operation."""


class Recorder(httpx.AsyncBaseTransport):
    """Passes requests on to the server in this process, and notes the operation of each."""

    def __init__(self, engine: Engine) -> None:
        app = asgi_app(engine, authenticate=authenticate, metrics=Metrics(engine))
        self._transport = httpx.ASGITransport(app=app, client=("127.0.0.1", 1))
        self.names: set[str] = set()

    @override
    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        path = request.url.raw_path.decode().partition("?")[0]
        found = operation_at(request.method, path)
        assert found is not None, f"there is no operation {request.method} {path}"
        assert found[1] is not None, f"there is no operation {request.method} {path}"
        self.names.add(str(found[1]["operationId"]))
        response = await self._transport.handle_async_request(request)
        await response.aread()
        response.request = request
        check_response(response)
        return response


async def completed(found: AsyncIterator[object] | Awaitable[object]) -> None:
    """Await a result, or read a list."""
    if isinstance(found, AsyncIterator):
        async for _ in found:
            pass
    else:
        await found


def test_every_operation_has_a_call_of_the_client() -> None:
    names = {one.name for one in OPERATIONS} - OF_WORKERS - OF_BROWSERS

    assert names == set(CALLS), "a new operation needs a method of the client, and a call of it here"


@pytest.mark.slow
async def test_each_call_is_the_operation_that_it_is_for_and_its_request_is_understood(
    engine: Engine, worker: Worker
) -> None:
    transport = Recorder(engine)
    http = httpx.AsyncClient(transport=transport)
    client = Client("http://localhost", key="all", namespace=NAMESPACE, patience=0, http=http)
    for run_id in ("a/1", "a/2"):
        await client.run("report", 7, id=run_id, attributes={"tier": "gold"})
    engine.sync.triggers.put(Trigger("ship", Topic("orders", int), report))
    engine.sync.create_schedule(Schedule("nightly", report(1), when=Cron("30 2 * * *")))
    run, schedule = client.handle("a/1"), client.schedule("nightly")
    refused: set[str] = set()

    for name, call in CALLS.items():
        transport.names.clear()
        try:
            await completed(call(client, run, schedule))
        except (InvalidCommandError, ServerAnswerError) as error:
            pytest.fail(f"{name}: {error}")
        except HoldfastError:
            refused.add(name)

        assert name in transport.names, name

    assert refused == OF_FUNCTIONS | {
        *("run.wake", "wake.send", "dead_letter.list", "run.artifact", "sink.acknowledge"),
        *("completion.complete", "completion.fail"),
    }


def test_every_answer_has_a_form_that_the_client_reads() -> None:
    converter = document_converter(forbid_extra_keys=False)

    for kind in inner_types({one.reply for one in OPERATIONS} - {Text, dict}):
        converter.get_structure_hook(kind)  # raises for a type that it has no hook for


def inner_types(kinds: Iterable[Any]) -> set[Any]:
    """Return types with those of their fields and elements, at every depth."""
    found: set[Any] = set()
    left = list(kinds)
    while left:
        kind = left.pop()
        if kind in found or kind in {..., None, type(None)} or isinstance(kind, str):
            continue
        found.add(kind)
        left += [one.type for one in attrs.fields(attrs.resolve_types(kind))] if attrs.has(kind) else []
        left += get_args(kind) if get_origin(kind) is not Literal else []
    return found
