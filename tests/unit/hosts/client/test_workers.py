"""`engine.workers()` and `engine.queues()`: who is live, what they hold, and what nobody of them serves."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, cast

import pytest

from holdfast import Engine, Pipeline, stage, step, workflow
from holdfast.client import QueueInfo, WorkerInfo
from holdfast.errors import InvalidArgumentError, InvalidFilterError
from holdfast.hosts.inspection import workers as inspected
from holdfast.hosts.wiring.worker_about import worker_about
from holdfast.kernel.commands import (
    Attempt,
    JobClaim,
    ServedQueue,
    SessionOpen,
    SessionReap,
    WorkerAbout,
)
from holdfast.kernel.commands.worker_about import ABOUT_MAX
from holdfast.ports.searches import QueueClaim
from holdfast.testing import World

LEASE = 30_000_000


@stage(queue="mail")
def send(text: str) -> str:
    return text


@step(queue="llm")
def ask(text: str) -> str:
    return text


@workflow
async def letter(text: str) -> str:
    return await ask(text)


mails = Pipeline("mails", input=str).pipe(send)
ABOUT = WorkerAbout(
    name="mail",
    versions=("holdfast 1",),
    queues=(ServedQueue(name="default"), ServedQueue(name="mail", limit=2)),
    definitions=("mails@1",),
    concurrency=20,
)


@pytest.fixture
def world() -> Iterator[World]:
    with World([mails, letter]) as world:
        yield world


def opened(
    engine: Engine, about: WorkerAbout = ABOUT, *, host: str = "vm:1", namespace: str = "default"
) -> str:
    command = SessionOpen(namespace=namespace, host=host, lease=LEASE, about=about)
    return engine.kernel.dispatch(command).session


def claimed(engine: Engine, session: str, queue: str, definition: str) -> tuple[Attempt, ...]:
    claims = (QueueClaim(queue=queue, definitions=(definition,), limit=10),)
    return engine.kernel.dispatch(JobClaim(session=session, queue_claims=claims, limit=10)).attempts


def names(found: tuple[QueueInfo, ...]) -> list[str]:
    return [one.name for one in found]


def test_a_worker_is_shown_with_what_it_has_and_holds(world: World) -> None:
    engine, at = world.engine, world.now
    session = opened(engine)
    engine.sync.start(mails("hello"), id="m-1")
    claimed(engine, session, "mail", "mails@1")
    (info,) = engine.sync.workers()
    (held,) = info.holds
    assert info == WorkerInfo(
        session=session,
        name="mail",
        host="vm:1",
        language="python",
        versions=("holdfast 1",),
        queues=("default", "mail"),
        definitions=("mails@1",),
        has_more=False,
        slots=20,
        principal=None,
        started_at=at,
        renewed_at=at,
        is_live=True,
        holds=(held,),
    )
    assert (held.run_id, held.generation, held.node, held.item, held.attempt) == ("m-1", 1, "send", None, 1)
    assert (held.definition, held.queue, held.kind, held.since) == ("mails@1", "mail", "stage", at)


def test_one_whose_lease_has_expired_is_listed_until_it_is_reaped(world: World) -> None:
    engine, at = world.engine, world.now
    opened(engine)
    world.clock.advance(timedelta(seconds=31))
    (info,) = engine.sync.workers()
    assert (info.is_live, info.renewed_at) == (False, at)
    engine.kernel.dispatch(SessionReap(grace=0))
    assert list(engine.sync.workers()) == []


def test_workers_come_by_pages(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspected, "_PAGE", 2)
    sessions = [opened(world.engine) for _ in range(5)]
    opened(world.engine, namespace="elsewhere")
    workers = world.engine.sync.workers
    assert [one.session for one in workers()] == sessions
    assert [one.session for one in workers(limit=3)] == sessions[:3]
    assert [one.session for one in workers(after=sessions[2])] == sessions[3:]
    assert [one.session for one in workers(after=sessions[0], limit=2)] == sessions[1:3]
    with pytest.raises(InvalidFilterError, match="limit"):
        workers(limit=0)
    with pytest.raises(InvalidArgumentError, match="after"):
        workers(after=cast("Any", 7))


def test_a_queue_is_shown_with_what_waits_and_who_serves_it(world: World) -> None:
    engine = world.engine
    session = opened(engine)
    opened(engine)
    at = world.now
    for number in range(3):
        engine.sync.start(mails(f"{number}"))
    claims = (QueueClaim(queue="mail", definitions=("mails@1",), limit=1),)
    engine.kernel.dispatch(JobClaim(session=session, queue_claims=claims, limit=1))
    engine.sync.limits.set("queue:mail", paused=True)
    default, mail = engine.sync.queues()
    assert (default.name, default.workers, default.slots, default.code) == ("default", 2, 40, ())
    assert (mail.name, mail.is_paused, mail.queued, mail.running, mail.sleeping) == ("mail", True, 2, 1, 0)
    assert (mail.waiting_since, mail.workers, mail.slots, mail.is_partial) == (at, 2, 4, False)
    (code,) = mail.code
    assert (code.definition, code.queued, code.workers, code.is_unserved) == ("mails@1", 2, 2, False)
    assert mail.unserved == ()


def test_a_paused_queue_is_listed_though_it_is_empty(world: World) -> None:
    limits = world.engine.sync.limits
    limits.set("queue:old", paused=True)
    limits.set("queue:older", paused=True)
    limits.set("run:key", slots=1)
    limits.set("slots:a", slots=1)
    limits.clear("queue:older")
    (info,) = world.engine.sync.queues()
    assert (info.name, info.is_paused, info.workers, info.code) == ("old", True, 0, ())


def test_code_that_no_live_worker_has_is_shown(world: World) -> None:
    """The queue, the code and the lease of the worker count."""
    engine = world.engine
    engine.sync.start(mails("a"))
    engine.sync.start(letter("b"))
    assert names(engine.sync.queues()) == ["default", "mail"]

    def unserved() -> list[str]:
        return [code.definition for queue in engine.sync.queues() for code in queue.unserved]

    assert unserved() == ["letter@1", "mails@1"]
    opened(engine, WorkerAbout(name="a", queues=ABOUT.queues, definitions=("letter@1",)))
    assert unserved() == ["mails@1"]
    opened(engine, WorkerAbout(name="b", queues=(ServedQueue(name="other"),), definitions=("mails@1",)))
    assert unserved() == ["mails@1"]
    opened(engine)
    assert unserved() == []
    world.clock.advance(timedelta(seconds=31))
    assert unserved() == ["letter@1", "mails@1"]


def test_nothing_is_called_unserved_if_a_worker_has_more_code_than_it_lists(world: World) -> None:
    engine = world.engine
    engine.sync.start(mails("a"))
    opened(engine, WorkerAbout(name="a", queues=ABOUT.queues, has_more=True))
    (queue,) = [one for one in engine.sync.queues() if one.name == "mail"]
    assert queue.unserved == ()
    assert queue.code[0].workers == 0


def test_nothing_is_called_unserved_beyond_the_workers_that_are_looked_at(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspected, "FLEET_MAX", 2)
    engine = world.engine
    engine.sync.start(mails("a"))
    other = WorkerAbout(name="a", queues=ABOUT.queues, definitions=("other@1",))
    for _ in range(2):
        opened(engine, other)
    assert [code.definition for one in engine.sync.queues() for code in one.unserved] == ["mails@1"]
    opened(engine, other)
    assert [code.definition for one in engine.sync.queues() for code in one.unserved] == []


@pytest.mark.parametrize(
    ("live", "text"),
    [
        ((), " No worker is live."),
        (((), ABOUT.queues), " No live worker does: the only one does not have it."),
        ((("mails@0", "mails@2", "other@1"), ABOUT.queues), "it; live are mails@0, mails@2."),
        ((("mails@1",), ()), " No live worker does: those that have it do not serve this queue."),
        ((("mails@1",), ABOUT.queues), "serves the queue 'mail'."),
    ],
)
def test_why_says_what_the_live_workers_have(
    world: World, live: tuple[tuple[str, ...], tuple[ServedQueue, ...]] | tuple[()], text: str
) -> None:
    run = world.engine.sync.start(mails("a"))
    if live:
        opened(world.engine, WorkerAbout(name="a", definitions=live[0], queues=live[1]))
    (reason,) = run.why()
    assert reason.code == "queued"
    assert reason.text.endswith(text)


def test_a_description_is_shortened_to_what_fits(world: World) -> None:
    core = world.engine.core
    few = worker_about(core, None, queues=("default", "llm"), concurrency=7, limits={"llm": 2})
    assert few.name == core.host.rpartition(":")[0]
    assert few.queues == (ServedQueue(name="default"), ServedQueue(name="llm", limit=2))
    assert (few.definitions, few.has_more) == (core.registry.definitions, False)
    assert {text.partition(" ")[0] for text in few.versions} == {"holdfast", "python"}

    queues = tuple(f"queue-{number:04}" for number in range(1_000))
    many = worker_about(core, "big", queues=queues, concurrency=7, limits={})
    assert many.has_more
    assert many.name == "big"
    assert 50 < len(many.queues) < 1_000
    assert many.definitions == core.registry.definitions
    assert len(many.to_json()) <= ABOUT_MAX


@pytest.mark.anyio
async def test_the_async_engine_has_the_same(world: World) -> None:
    session = opened(world.engine)
    assert [one.session async for one in world.engine.workers()] == [session]
    assert names(await world.engine.queues()) == ["default", "mail"]
