"""Audit entries: of administrative actions, in the transaction of the command."""

from typing import Any

import pytest
from attrs import evolve

from holdfast.kernel import commands as c
from holdfast.kernel.dispatch.audit_entries import TARGETS, audit_entries
from holdfast.ports.actors import Actor
from holdfast.ports.changes import Delete, Insert
from holdfast.ports.errors import CredentialExistsError, IdempotencyConflictError
from holdfast.ports.records.audit_entry import AuditEntry
from holdfast.ports.records.limits import LimitName
from holdfast.ports.tables import LIMITS
from holdfast.testing.ids import SeededIds
from tests.unit.kernel.world import World, payload, pipeline, stage

ANN = Actor("user", "ann", "2")
CHANGE = Delete(LIMITS, LimitName("n", "l"))
SECRET = "5ec3e7" * 10 + "0000"
CREATE = c.CredentialCreate(id="b" * 12, label="ci", hash=SECRET, scopes=("read",), namespaces=("*",))


@pytest.fixture
def world() -> World:
    return World(pipeline(stage("a")))


def entries(world: World) -> list[AuditEntry]:
    return [row for _, row in sorted(world.tables().audit_entries.items())]


def test_an_entry_has_who_did_what_and_when(world: World) -> None:
    world.do(
        c.LimitSet(
            namespace="n", name="slots:gpu", slots=0, reason="maintenance", actor=ANN, request_id="r-1"
        )
    )

    (entry,) = entries(world)
    assert entry == AuditEntry(
        namespace="n",
        at=world.now,
        id=entry.id,
        actor_kind="user",
        actor_id="ann",
        actor_version="2",
        action="limit.set",
        target="slots:gpu",
        request_id="r-1",
        details='{"reason":"maintenance","slots":0}',
    )
    assert entry.actor == ANN


def test_the_hash_of_a_secret_is_in_no_entry(world: World) -> None:
    world.do(CREATE)
    world.do(c.CredentialRotate(name="ci", hash=SECRET[::-1]))
    world.do(c.CredentialRevoke(name="ci"))

    found = entries(world)
    assert [(one.action, one.target) for one in found] == [
        ("credential.create", "ci"),
        ("credential.rotate", "ci"),
        ("credential.revoke", "ci"),
    ]
    assert not [one for one in found if SECRET in str(one) or SECRET[::-1] in str(one)]
    assert found[0].details == '{"id":"bbbbbbbbbbbb","namespaces":["*"],"scopes":["read"]}'
    assert found[0].actor is None


def test_the_entry_of_a_first_key_names_the_key_that_was_created(world: World) -> None:
    created = world.do(evolve(CREATE, only_if_first=True))

    (entry,) = entries(world)
    assert created.id != CREATE.id
    assert f'"id":"{created.id}"' in entry.details


def test_a_command_that_changes_nothing_or_is_refused_has_no_entry(world: World) -> None:
    world.do(CREATE)
    with world.unchanged():
        world.do(CREATE)
        world.do(c.LimitClear(name="slots:gpu"))
        with pytest.raises(CredentialExistsError):
            world.do(evolve(CREATE, scopes=("admin",)))

    assert len(entries(world)) == 1


def test_a_repeated_command_has_one_entry(world: World) -> None:
    remove = c.SinkRegister(sink="s", idempotency_key="k", request_id="r-1")
    world.do(remove)
    with world.unchanged():
        world.do(evolve(remove, request_id="r-2"))
        with pytest.raises(IdempotencyConflictError):
            world.do(evolve(remove, types=("run.failed",)))

    assert [one.request_id for one in entries(world)] == ["r-1"]


@pytest.mark.parametrize(
    ("who", "count"), [({}, 0), ({"actor": ANN}, 1), ({"request_id": "r-1"}, 1)], ids=str
)
def test_the_removal_of_a_run_has_an_entry_unless_it_is_that_of_retention(
    world: World, who: dict[str, Any], count: int
) -> None:
    world.do(c.RunCreate(workflow="w", id="x", input=payload(0)))
    world.do(c.RunTerminate(run_id="x"))
    world.do(c.RunRemove(run_id="x", **who))

    assert [(one.action, one.target) for one in entries(world)] == [("run.remove", "x")] * count


def test_a_command_that_continues_another_has_no_entry(world: World) -> None:
    command = c.LimitSet(name="rate:model", slots=3, after="more")

    assert audit_entries(command, (CHANGE,), world.now, SeededIds()) == ()
    assert len(audit_entries(evolve(command, after=""), (CHANGE,), world.now, SeededIds())) == 1


def test_a_replay_of_all_dead_letters_is_about_all_sinks(world: World) -> None:
    command = c.DeadLetterReplay(run_id="x")
    (change,) = audit_entries(command, (CHANGE,), world.now, SeededIds())

    assert isinstance(change, Insert)
    assert isinstance(change.record, AuditEntry)
    assert (change.record.target, change.record.details) == ("*", '{"run_id":"x"}')


def test_each_audited_command_is_one_of_an_operator() -> None:
    assert all(issubclass(kind, c.OperatorCommand) for kind in TARGETS)
    assert {kind for kind in TARGETS if not hasattr(kind, TARGETS[kind])} == set()
