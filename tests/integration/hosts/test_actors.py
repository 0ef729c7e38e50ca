"""Who gave a command: the keyword `actor`, and engines that act as somebody."""

import logging
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from holdfast.client import Actor
from holdfast.hosts.client.sync_run_handle import SyncRunHandle
from holdfast.kernel.authoring.channels import Channel
from holdfast.kernel.authoring.functions import workflow
from holdfast.ports.errors import InvalidArgumentError, NothingToWakeError
from tests.integration.hosts.conftest import OpenEngine
from tests.integration.hosts.pipelines import SIMPLE

ANN = Actor("user", "ann")
BOB = Actor("service", "billing", "2")
HELLO = Channel("hello", str)


@workflow
async def waiting() -> str:
    return await HELLO.receive()


def actors(run: SyncRunHandle[Any]) -> list[tuple[str, object]]:
    """Return the newest generation's events with the actor of each."""
    return [(event.type, event.data.get("actor")) for event in run.history()]


def test_each_command_takes_its_actor(open_engine: OpenEngine) -> None:
    engine = open_engine(SIMPLE, waiting).sync
    run = engine.start(SIMPLE(1), id="x", actor=ANN, annotations={"a": "b"})
    run.pause(actor=ANN)
    run.resume(reason="go on", actor=BOB)
    run.cancel()

    ann = {"kind": "user", "id": "ann"}
    bob = {"kind": "service", "id": "billing", "version": "2"}
    assert actors(run) == [
        ("run.created", ann),
        ("run.paused", ann),
        ("run.resumed", bob),
        ("run.cancelled", None),
    ]
    assert [note.actor for note in run.annotations()] == [ANN]
    run.rerun_from(actor=BOB)
    run.terminate(actor=ANN)
    assert actors(run) == [("run.created", bob), ("run.terminated", ann)]
    (why,) = run.why()
    assert why.text.startswith("It was cancelled by user ann ")
    function = engine.start(waiting())
    function.signal(HELLO("hi"), actor=ANN)
    assert actors(function)[1:] == [("signal.received", ann)]


def test_an_engine_that_acts_as_somebody_does_all_as_them(open_engine: OpenEngine) -> None:
    plain = open_engine(SIMPLE)
    engine = plain.acting_as(ANN)
    run = engine.sync.start(SIMPLE(1), id="x")
    run.annotate({"seen": "yes"})
    assert [note.actor for note in run.annotations()] == [ANN]
    run.pause()
    assert run.why()[0].text.startswith("It was paused by user ann ")
    engine.sync.resume_all(actor=BOB)
    engine.sync.cancel_all(reason="all of them")
    plain.sync.rerun_all(status="cancelled")
    again = plain.sync.handle(SIMPLE, "x")

    assert actors(again) == [("run.created", None)]
    history = again.history(generation=1)
    assert [cast("dict[str, str]", event.data["actor"])["id"] for event in history] == [
        "ann",
        "ann",
        "billing",
        "ann",
    ]


def test_a_sink_keeps_who_registered_it(open_engine: OpenEngine) -> None:
    engine = open_engine(SIMPLE).sync
    since = datetime.now(UTC) + timedelta(days=1)

    assert engine.register_sink("a", types=["run.failed"], actor=ANN).registered_by == ANN
    assert engine.acting_as(BOB).register_sink("b", since=since).registered_by == BOB
    assert [sink.registered_by for sink in engine.sinks()] == [ANN, BOB]


def test_what_leaves_no_row_is_logged(open_engine: OpenEngine, caplog: pytest.LogCaptureFixture) -> None:
    engine = open_engine(SIMPLE).sync
    run = engine.start(SIMPLE(1), id="x")
    run.cancel()
    with caplog.at_level(logging.INFO, "holdfast.engine"):
        with pytest.raises(NothingToWakeError):
            engine.wake("k", actor=ANN)
        run.remove(actor=ANN)
        engine.remove_sink("none", actor=BOB)

    logged = [record.message.split(":")[0] for record in caplog.records]
    assert logged == ["stage.wake by user ann", "run.remove by user ann", "sink.remove by service billing 2"]


def test_something_else_than_an_actor_is_refused(open_engine: OpenEngine) -> None:
    engine = open_engine(SIMPLE)
    run = engine.sync.start(SIMPLE(1))
    wrong: Any = "ann"

    for call in (
        lambda: run.cancel(actor=wrong),
        lambda: engine.acting_as(wrong),
        lambda: engine.sync.acting_as(cast("Any", None)),
        lambda: engine.sync.start(SIMPLE(1), actor=wrong),
        lambda: engine.sync.pause_all(actor=wrong),
    ):
        with pytest.raises(InvalidArgumentError, match="an Actor"):
            call()
    assert actors(run) == [("run.created", None)]
