"""Sessions in the worker registry: who they are, until they end."""

import attrs
import pytest

from holdfast.kernel.commands import (
    ServedQueue,
    SessionClose,
    SessionOpen,
    SessionReap,
    SessionRenew,
    WorkerAbout,
)
from holdfast.kernel.commands.worker_about import ABOUT_MAX, CONCURRENCY_MAX, about_from
from holdfast.kernel.invariants import check
from holdfast.ports.changes import Delete, Insert
from holdfast.ports.errors import InvalidCommandError, SessionLostError
from holdfast.ports.records.session import Registration
from holdfast.ports.structs import evolve
from holdfast.ports.tables import REGISTRATIONS
from tests.unit.kernel.world import LEASE, SECOND, World, pipeline, stage

ABOUT = WorkerAbout(
    name="mail",
    versions=("holdfast 0.1.0", "python 3.13.1"),
    queues=(ServedQueue(name="default"), ServedQueue(name="llm", limit=2)),
    definitions=("orders@1", "step:send"),
    concurrency=20,
)


@pytest.fixture
def world() -> World:
    return World(pipeline(stage("a")))


def opened(world: World, about: WorkerAbout | None = ABOUT) -> str:
    return world.do(SessionOpen(host="h", lease=LEASE, about=about)).session


def test_a_worker_registers_when_it_opens_a_session(world: World) -> None:
    command = SessionOpen(namespace="shop", host="h", lease=LEASE, about=ABOUT, principal="key:a3k9")
    session = world.do(command).session
    row = world.tables().sessions[session]
    assert (row.namespace, row.principal, row.is_registered) == ("shop", "key:a3k9", 1)
    assert world.tables().registrations == {
        session: Registration(session=session, namespace="shop", about=ABOUT.to_json(), lease=LEASE)
    }
    assert about_from(ABOUT.to_json()) == ABOUT


def test_a_session_without_a_description_is_not_registered(world: World) -> None:
    session = opened(world, None)
    row = world.tables().sessions[session]
    assert (row.namespace, row.principal, row.is_registered) == ("default", None, 0)
    assert world.tables().registrations == {}


@pytest.mark.parametrize("before", [None, ABOUT])
def test_a_renewal_may_replace_the_description(world: World, before: WorkerAbout | None) -> None:
    session = opened(world, before)
    changed = attrs.evolve(ABOUT, definitions=("orders@2",))
    world.do(SessionRenew(session=session, lease=2 * LEASE, about=changed))
    row = world.tables().registrations[session]
    assert (about_from(row.about), row.lease) == (changed, 2 * LEASE)


def test_a_renewal_without_one_leaves_it(world: World) -> None:
    session = opened(world)
    before = world.tables().registrations
    world.wait(1)
    world.do(SessionRenew(session=session, lease=LEASE))
    assert world.tables().registrations == before
    assert world.tables().sessions[session].is_registered == 1


def test_who_closes_its_session_leaves_the_registry(world: World) -> None:
    session, other = opened(world), opened(world)
    world.do(SessionClose(session=session))
    assert world.tables().registrations.keys() == {other}
    with pytest.raises(SessionLostError), world.unchanged():
        world.do(SessionRenew(session=session, lease=LEASE, about=ABOUT))


def test_the_dead_leave_the_registry_when_they_are_reaped(world: World) -> None:
    session = opened(world)
    world.wait(LEASE / SECOND + 1)
    assert world.tables().registrations.keys() == {session}
    world.do(SessionReap(grace=0))
    assert world.tables().registrations == {}


def test_a_description_that_is_too_long_is_refused(world: World) -> None:
    room = ABOUT_MAX - len(attrs.evolve(ABOUT, definitions=("",)).to_json())
    fits = attrs.evolve(ABOUT, definitions=("x" * room,))
    assert len(fits.to_json()) == ABOUT_MAX
    with pytest.raises(InvalidCommandError, match="shorten its lists"):
        SessionOpen(host="h", lease=LEASE, about=attrs.evolve(ABOUT, definitions=("x" * (room + 1),)))
    with pytest.raises(InvalidCommandError, match="shorten its lists"):
        SessionRenew(session="s", lease=LEASE, about=attrs.evolve(ABOUT, name="ä" * ABOUT_MAX))


@pytest.mark.parametrize(
    "about",
    [
        attrs.evolve(ABOUT, concurrency=-1),
        attrs.evolve(ABOUT, concurrency=CONCURRENCY_MAX + 1),
        attrs.evolve(ABOUT, queues=(ServedQueue(name="q", limit=10**18),)),
    ],
)
def test_absurd_numbers_are_refused(about: WorkerAbout) -> None:
    with pytest.raises(InvalidCommandError, match="bodies at once"):
        SessionOpen(host="h", lease=LEASE, about=about)


def test_a_name_that_is_too_long_is_refused(world: World) -> None:
    with pytest.raises(InvalidCommandError, match=r"about\.name has 201 characters"), world.unchanged():
        opened(world, attrs.evolve(ABOUT, name="x" * 201))


@pytest.mark.parametrize(
    "text",
    [
        *("", "[", "[]", "null", "7", '"x"', "[" * 100_000),
        '{"name":7,"language":[],"versions":{},"queues":"q","definitions":[1],"concurrency":true,"has_more":1}',
        '{"queues":[1]}',
    ],
)
def test_a_damaged_row_is_shown_without_what_cannot_be_read(text: str) -> None:
    assert about_from(text) == WorkerAbout(name="", language="", concurrency=0)


def test_a_registry_that_does_not_fit_its_sessions_is_found(world: World) -> None:
    session = opened(world)
    (row,) = world.tables().registrations.values()
    for changes in (
        (Delete(REGISTRATIONS, session),),
        (Insert(evolve(row, namespace="other")),),
        (Insert(row), Insert(evolve(row, session="none"))),
        (Delete(REGISTRATIONS, "none"), Insert(evolve(world.tables().sessions[session], is_registered=0))),
    ):
        world.put(*changes)
        (found,) = check(world.tables())
        assert found.invariant == "R1"
