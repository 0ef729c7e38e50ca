"""Commands that are dispatched together, on every store: in one transaction, all or none."""

import pytest

from holdfast.kernel.commands import Command, RunCancel, RunCreate
from holdfast.ports.actors import Actor
from holdfast.ports.errors import (
    CommandError,
    IdempotencyConflictError,
    InvalidCommandError,
    RunExistsError,
    RunNotFoundError,
)
from holdfast.ports.records.values import Payload
from tests.integration.hosts.conftest import OpenEngine
from tests.integration.hosts.pipelines import SIMPLE


def start(namespace: str, id: str, value: int = 1, key: str | None = None) -> RunCreate:
    return RunCreate(
        namespace=namespace, workflow="simple", input=Payload(inline=str(value)), id=id, idempotency_key=key
    )


def test_all_are_carried_out_and_each_sees_those_before(open_engine: OpenEngine, namespace: str) -> None:
    engine = open_engine(SIMPLE).acting_as(Actor("user", "ann")).sync
    commands: list[Command[object]] = [
        start(namespace, "a"),
        start(namespace, "b", key="k"),
        RunCancel(namespace=namespace, run_id="a"),
    ]
    replies = engine.client.dispatch_together(commands)

    assert len(replies) == 3
    assert {one.id: one.status.value for one in engine.runs()} == {"a": "cancelled", "b": "running"}
    assert engine.handle(SIMPLE, "a").details().cancelled_by == Actor("user", "ann")
    assert engine.client.dispatch_together([start(namespace, "b", key="k")]) == [replies[1]]


def refused(namespace: str) -> list[tuple[Command[object], type[CommandError]]]:
    return [
        (start(namespace, "old"), RunExistsError),
        (RunCancel(namespace=namespace, run_id="none"), RunNotFoundError),
        (start(namespace, "x", value=2, key="used"), IdempotencyConflictError),
        (start(namespace, "x" * 300), InvalidCommandError),
    ]


def test_a_refusal_undoes_all(open_engine: OpenEngine, namespace: str) -> None:
    engine = open_engine(SIMPLE).sync
    engine.client.dispatch(start(namespace, "old", key="used"))

    for last, error in refused(namespace):
        commands: list[Command[object]] = [start(namespace, "new", key="new"), last]
        with pytest.raises(error):
            engine.client.dispatch_together(commands)
        assert [one.id for one in engine.runs()] == ["old"]

    engine.client.dispatch(start(namespace, "newer", key="new"))  # the key was not used
