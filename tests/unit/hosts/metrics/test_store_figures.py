"""What the metrics show of a store: bounded, and of the namespaces that are wanted."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from holdfast import Engine, Pipeline, stage
from holdfast.errors import InvalidArgumentError, InvalidNamespaceError, UnavailableError
from holdfast.hosts.metrics.label_limit import LabelLimit
from holdfast.hosts.metrics.store_collector import StoreCollector
from holdfast.hosts.metrics.store_figures import NAMESPACES_MAX, StoreFigures, store_figures
from holdfast.hosts.wiring.worker_about import worker_about
from holdfast.kernel.commands import SessionOpen
from holdfast.metrics import Metrics
from holdfast.ports.records.run import RunStatus
from holdfast.testing import World

SECOND = 1_000_000


@stage(queue="mail")
def send(text: str) -> str:
    return text


mails = Pipeline("mails", input=str).pipe(send)


@pytest.fixture
def world() -> Iterator[World]:
    with World([mails]) as world:
        yield world


def register(engine: Engine) -> None:
    core = engine.core
    about = worker_about(core, "w", queues=("mail",), concurrency=7, limits={})
    core.kernel.dispatch(SessionOpen(namespace=core.namespace, host="h", lease=30 * SECOND, about=about))


def test_workers_queues_and_runs_are_counted(world: World) -> None:
    engine = world.engine
    engine.sync.start(mails("a"))
    world.clock.advance(timedelta(seconds=90))
    engine.sync.start(mails("b"))
    register(engine)

    (found,) = store_figures(engine.core).namespaces

    assert found.runs == {RunStatus.RUNNING: 2}
    assert (found.live_workers, found.expired_workers, found.slots) == (1, 0, 7)
    (queue,) = found.queues
    assert (queue.info.name, queue.info.queued, queue.unserved) == ("mail", 2, 0)
    assert 90 <= queue.oldest_seconds < 100
    world.clock.advance(timedelta(seconds=60))

    (found,) = store_figures(engine.core).namespaces

    assert (found.live_workers, found.expired_workers, found.slots) == (0, 1, 0)
    assert found.queues[0].unserved == 2


def test_what_is_late_is_measured_by_kind(world: World) -> None:
    world.engine.sync.start(mails("a"), start_at=world.clock.now() + timedelta(hours=1))
    world.engine.sync.start(mails("b"), deadline=timedelta(hours=3))

    assert store_figures(world.engine.core).overdue_seconds == {"start": 0.0, "deadline": 0.0}
    world.clock.advance(timedelta(hours=2))

    found = store_figures(world.engine.core).overdue_seconds
    assert 3_590 <= found["start"] <= 3_610
    assert found["deadline"] == 0


def test_of_many_namespaces_the_engine_s_and_the_first_are_read(world: World) -> None:
    for number in range(NAMESPACES_MAX):
        world.engine.sync.namespaces.create(f"a{number:02}")

    found = store_figures(world.engine.core)
    names = [one.name for one in found.namespaces]
    assert names == ["default", *(f"a{number:02}" for number in range(NAMESPACES_MAX - 1))]
    assert found.is_partial
    wanted = store_figures(world.engine.core, ("a07",))
    assert ([one.name for one in wanted.namespaces], wanted.is_partial) == (["a07"], False)


def test_beyond_the_limit_labels_are_other() -> None:
    limit = LabelLimit(2)

    assert limit("a", "x") == ("a", "x")
    assert limit("b", "x") == ("b", "x")
    assert limit("c", "x") == ("other", "other")
    assert limit("a", "x") == ("a", "x")


def test_queues_beyond_the_limit_are_added_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, queue in enumerate(("a", "b", "c", "c")):
        world.clock.advance(timedelta(seconds=number))
        world.engine.sync.start(mails(queue), queue=queue)
    world.engine.sync.limits.set("queue:mail", paused=True)
    collector = StoreCollector(lambda: store_figures(world.engine.core))
    monkeypatch.setattr(collector, "_queues", LabelLimit(0))

    found = {family.name: family.samples for family in collector.collect()}

    labels = {"namespace": "other", "queue": "other"}
    assert [(one.labels, one.value) for one in found["holdfast_queue_jobs"]] == [
        ({**labels, "state": "queued"}, 4),
        ({**labels, "state": "running"}, 0),
        ({**labels, "state": "sleeping"}, 0),
    ]
    assert [one.value for one in found["holdfast_queue_paused"]] == [1]


@pytest.mark.parametrize("error", [UnavailableError("away"), TimeoutError("late")])
def test_without_an_answer_nothing_but_that_is_shown(error: Exception) -> None:
    def read() -> StoreFigures:
        raise error

    (family,) = StoreCollector(read).collect()

    assert (family.name, [one.value for one in family.samples]) == ("holdfast_store_up", [0])


def test_wrong_arguments_are_refused(world: World) -> None:
    with pytest.raises(InvalidArgumentError, match="an Engine"):
        Metrics("shop")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(InvalidArgumentError, match="at most 20"):
        Metrics(world.engine, namespaces=[f"n{number}" for number in range(21)])
    with pytest.raises(InvalidNamespaceError):
        Metrics(world.engine, namespaces=["../a"])
