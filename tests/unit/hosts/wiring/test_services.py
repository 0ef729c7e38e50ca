"""The start command made from a call and its options."""

from datetime import timedelta
from typing import Any, TypeVar

import pytest
from typing_extensions import override

from holdfast.hosts.client.engine import Engine
from holdfast.hosts.wiring.payloads import INLINE_MAX, BlobOwner
from holdfast.hosts.wiring.services import CLOCK_AGE_MAX, CLOCK_READS_MAX
from holdfast.kernel.authoring.decorators import stage
from holdfast.kernel.authoring.options import StartAllOptions, StartOptions
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.kernel.commands import RunCreate
from holdfast.kernel.commands.codec import command_json
from holdfast.ports.blobs import check_blob_key
from holdfast.ports.errors import (
    InvalidArgumentError,
    InvalidNamespaceError,
    InvalidValueError,
    UnknownWorkflowError,
    UnstorableValueError,
)
from holdfast.ports.persistence import Query
from holdfast.ports.queries.store import StoreTime
from holdfast.testing.blobs import MemoryBlobStore
from holdfast.testing.clock import ManualClock
from tests.unit.hosts.attempt_harness import Bench, StoreWithClock

R = TypeVar("R")


@stage
def size(text: str) -> int:
    return len(text)


PIPELINE = Pipeline("w", input=str).pipe(size)
LARGE = "x" * (INLINE_MAX + 1)


def test_a_call_becomes_a_command_with_its_options() -> None:
    options: StartOptions = {
        "id": "order-1",
        "idempotency_key": "k",
        "queue": "slow",
        "priority": 7,
        "if_exists": "return",
        "attributes": {"b": "2", "a": "1"},
    }
    command = Bench(PIPELINE, namespace="team").client.create(PIPELINE("a"), options)

    assert (command.namespace, command.workflow, command.version) == ("team", "w", "1")
    assert (command.id, command.idempotency_key, command.queue) == ("order-1", "k", "slow")
    assert (command.priority, command.if_exists) == (7, "return")
    assert (command.input.inline, command.attributes) == ('"a"', '{"a":"1","b":"2"}')


def test_many_calls_become_the_commands_that_each_would() -> None:
    other = Pipeline("v", input=str).pipe(size)
    client = Bench(PIPELINE, other).client
    options: StartAllOptions = {
        "idempotency_key": "k",
        "priority": 7,
        "attributes": {"a": "1"},
        "annotations": {"who": "me"},
        "deadline": 5,
        "overrides": (size.options(priority=3),),
    }
    calls = [PIPELINE("a"), other("b"), other("c"), PIPELINE("a")]
    each: list[RunCreate] = []
    for number, call in enumerate(calls):
        said: Any = {**options, "idempotency_key": f"k/{number}"}
        each.append(client.create(call, said))

    assert client.create_all(calls, options) == each
    assert each[1].overrides
    assert client.create_all([], options) == []


def test_one_of_many_that_is_no_call_is_refused() -> None:
    calls: Any = [PIPELINE("a"), PIPELINE]
    with pytest.raises(InvalidArgumentError):
        Bench(PIPELINE).client.create_all(calls, {})


def test_a_large_input_goes_to_the_blob_store_once_for_each_run() -> None:
    blobs = MemoryBlobStore()
    client = Bench(PIPELINE, blobs=blobs).client
    keys = {client.create(PIPELINE(LARGE), {}).input.blob for _ in range(2)}

    assert sorted(blobs.list("default/")) == sorted(key for key in keys if key)
    assert len(keys) == 2


def test_starting_again_with_the_same_key_is_the_same_command_though_its_input_is_large() -> None:
    client = Bench(PIPELINE, blobs=MemoryBlobStore()).client
    again = [command_json(client.create(PIPELINE(LARGE), {"idempotency_key": "k"})) for _ in range(2)]
    other = command_json(client.create(PIPELINE(LARGE), {"idempotency_key": "\ud800"}))

    assert again[0] == again[1] != other


def test_a_workflow_that_the_engine_was_not_given_is_refused() -> None:
    client = Bench(PIPELINE).client
    same_name = Pipeline("w", input=str).pipe(size)

    for pipeline in (Pipeline("other", input=str).pipe(size), same_name):
        with pytest.raises(UnknownWorkflowError):
            client.create(pipeline("a"), {})


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"id": ""}, InvalidArgumentError),
        ({"id": "x" * 257}, InvalidArgumentError),
        ({"id": 7}, InvalidArgumentError),
        ({"priority": 1.5}, InvalidArgumentError),
        ({"priority": 100_000}, InvalidArgumentError),
        ({"queue": "no spaces"}, InvalidArgumentError),
        ({"attributes": {"a": 1}}, InvalidArgumentError),
        ({"if_exists": "replace"}, InvalidArgumentError),
        ({"idempotency_key": ""}, InvalidArgumentError),
        ({"idempotencykey": "k"}, InvalidArgumentError),
    ],
)
def test_options_that_can_not_be_are_refused(options: StartOptions, error: type[Exception]) -> None:
    with pytest.raises(error):
        Bench(PIPELINE).client.create(PIPELINE("a"), options)


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (7, InvalidValueError),
        (None, InvalidValueError),
        ("half \ud800", UnstorableValueError),
        ("nul \0", UnstorableValueError),
    ],
)
def test_an_input_of_another_type_or_that_can_not_be_stored_is_refused(
    value: str, error: type[Exception]
) -> None:
    blobs = MemoryBlobStore()
    with pytest.raises(error):
        Bench(PIPELINE, blobs=blobs).client.create(PIPELINE(value), {})

    assert list(blobs.list("")) == []


@pytest.mark.parametrize(
    "namespace", ["", ".", "..", "a/b", "/", ".hidden", "-x", "a b", "tenant:1", "é", "a\n", "\0", "x" * 201]
)
def test_a_namespace_that_can_not_be_part_of_a_blob_s_key_is_refused_at_once(namespace: str) -> None:
    with pytest.raises(InvalidNamespaceError, match="A-Z a-z 0-9"):
        Engine.open("memory://", namespace=namespace)


@pytest.mark.parametrize("namespace", ["a", "_", "Tenant-7", "team@example.com", "a.b=c+d", "x" * 200])
def test_any_other_namespace_can_have_blobs(namespace: str) -> None:
    """Even of the longest name."""
    Engine.open("memory://", namespace=namespace)

    check_blob_key(BlobOwner(namespace=namespace, run="f" * 64, stage="s" * 128, epoch=2**63).key("f" * 64))


def test_a_client_whose_machine_slept_asks_the_store_for_its_time_before_it_starts_something() -> None:
    """Otherwise a run with a deadline of a minute would have ended an hour ago."""
    machine, there = ManualClock(), ManualClock()
    bench = Bench(PIPELINE, persistence=StoreWithClock(there), clock=machine)
    bench.engine.sync.start(PIPELINE("a"), id="before")
    machine.jump(timedelta(hours=1))  # its monotonic clock stood still
    there.advance(timedelta(hours=1))

    info = bench.engine.sync.start(PIPELINE("a"), id="after", deadline=timedelta(minutes=1)).info()

    assert info.created_at == there.now()


def test_a_client_asks_the_store_for_its_time_every_few_seconds_and_not_each_time() -> None:
    machine = ManualClock()
    store = StoreWithClock(machine)
    bench = Bench(PIPELINE, persistence=store, clock=machine)
    for _ in range(10):
        bench.engine.sync.start(PIPELINE("a"))
    asked_at_first = store.asked.count(StoreTime())
    machine.advance(timedelta(seconds=CLOCK_AGE_MAX + 1))
    bench.engine.sync.start(PIPELINE("a"))

    assert (asked_at_first, store.asked.count(StoreTime())) == (1, 2)


class SlowStore(StoreWithClock):
    """A store that reads its clock at once, and whose first responses take five seconds each.

    The same holds for a machine that stands still for as long, with its monotonic clock.
    """

    def __init__(self, clock: ManualClock, *, slow: int, stands_still: bool = False) -> None:
        super().__init__(clock)
        self._slow = slow
        self._pass = clock.jump if stands_still else clock.advance

    @override
    def read(self, query: Query[R], /) -> R:
        answer = super().read(query)
        if isinstance(query, StoreTime) and len(self.asked) <= self._slow:
            self._pass(timedelta(seconds=5))
        return answer


@pytest.mark.parametrize("stands_still", [False, True])
@pytest.mark.parametrize(("slow", "asked", "behind"), [(0, 1, 0), (1, 2, 0), (9, CLOCK_READS_MAX, 5)])
def test_a_store_whose_answer_took_long_is_asked_again_but_not_for_ever(
    slow: int, asked: int, behind: int, *, stands_still: bool
) -> None:
    """Otherwise a function's sleep would have started five seconds ago."""
    clock = ManualClock()
    store = SlowStore(clock, slow=slow, stands_still=stands_still)
    core = Bench(PIPELINE, persistence=store, clock=clock).core
    core.connect()

    assert len(store.asked) == asked
    assert round((clock.now() - core.clock.now()).total_seconds(), 1) == behind
