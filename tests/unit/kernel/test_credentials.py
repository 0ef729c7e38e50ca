"""Credentials: created once under a label, rotated with a period of grace, revoked, and used."""

from typing import Any

import pytest
from attrs import evolve

from holdfast.kernel import commands as c
from holdfast.kernel.commands.credentials import DAY
from holdfast.kernel.rules.credentials import FIRST_ID
from holdfast.ports.errors import CredentialExistsError, CredentialNotFoundError, InvalidCommandError
from holdfast.ports.records.credential import Credential
from tests.unit.kernel.world import World

ID, OTHER = "b" * 12, "c" * 12
OLD, NEW, NEWEST = "0" * 64, "1" * 64, "2" * 64
CREATE = c.CredentialCreate(id=ID, label="ci", hash=OLD, scopes=("start", "read"), namespaces=("n", "m"))


@pytest.fixture
def world() -> World:
    return World()


def stored(world: World, id: str = ID) -> Credential:
    return world.tables().credentials[id]


def test_a_credential_is_stored_with_its_hash(world: World) -> None:
    assert world.do(CREATE) == c.CredentialCreated(id=ID, created=True)

    row = stored(world)
    assert (row.scopes, row.namespaces, row.principal, row.hash) == ("read start", "m n", "ci", OLD)
    assert row.hashes(world.now) == (OLD,)


def test_the_same_label_again_returns_the_same_id(world: World) -> None:
    world.do(CREATE)
    again = evolve(CREATE, id=OTHER, hash=NEW, scopes=("read", "start", "read"))
    with world.unchanged():
        assert world.do(again) == c.CredentialCreated(id=ID, created=False)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"scopes": ("read",)}, "other scopes"),
        ({"namespaces": ("*",)}, "other namespaces"),
        ({"principal": "bob"}, "another principal"),
        ({"expires_at": 2**52}, r"another end \(none, not 2112-"),
    ],
)
def test_the_same_label_with_other_rights_is_refused(world: World, other: dict[str, Any], words: str) -> None:
    world.do(CREATE)
    with world.unchanged(), pytest.raises(CredentialExistsError, match=words):
        world.do(evolve(CREATE, **other))


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"id": "B" * 12}, "not the id of a credential"),
        ({"id": "b" * 13}, "not the id of a credential"),
        ({"hash": "secret"}, "not the SHA-256"),
        ({"label": ""}, "not a label"),
        ({"label": "a b"}, "not a label"),
        ({"label": "ci\n"}, "not a label"),
        ({"scopes": ()}, "a key without a scope"),
        ({"scopes": ("root",)}, "'root' is not a scope: give some of read, payloads"),
        ({"namespaces": ()}, "from 1 to 100 namespaces"),
        ({"namespaces": ("a b",)}, "'a b' is not a namespace"),
        ({"namespaces": ("*", "n")}, "give it alone"),
        ({"expires_at": 1}, "in the past"),
    ],
)
def test_a_wrong_value_is_refused(world: World, other: dict[str, Any], words: str) -> None:
    with world.unchanged(), pytest.raises(InvalidCommandError, match=words):
        world.do(evolve(CREATE, **other))


def test_after_a_rotation_both_secrets_are_accepted_until_the_grace_is_over(world: World) -> None:
    world.do(CREATE)
    reply = world.do(c.CredentialRotate(name="ci", hash=NEW))

    assert reply == c.CredentialRotated(id=ID, previous_until=world.now + DAY)
    assert stored(world).hashes(reply.previous_until - 1) == (NEW, OLD)
    assert stored(world).hashes(reply.previous_until) == (NEW,)


def test_a_second_rotation_ends_the_first_secret(world: World) -> None:
    world.do(CREATE)
    world.do(c.CredentialRotate(name=ID, hash=NEW))
    world.do(c.CredentialRotate(name=ID, hash=NEWEST))

    assert stored(world).hashes(world.now) == (NEWEST, NEW)


def test_a_rotation_without_grace_ends_the_former_secret_at_once(world: World) -> None:
    world.do(CREATE)
    world.do(c.CredentialRotate(name="ci", hash=NEW, grace=0))

    assert stored(world).hashes(world.now) == (NEW,)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (c.CredentialRotate(name="ci", hash=OLD), "the secret that the key has"),
        (c.CredentialRotate(name="ci", hash="x"), "not the SHA-256"),
        (c.CredentialRotate(name="ci", hash=NEW, grace=-1), "grace is -1"),
        (c.CredentialRotate(name="ci", hash=NEW, grace=30 * DAY + 1), "0 to 30 days"),
        (c.CredentialTouch(ids=(ID,) * 501), "at most 500"),
    ],
)
def test_a_wrong_rotation_or_touch_is_refused(world: World, command: c.Command[Any], words: str) -> None:
    world.do(CREATE)
    with world.unchanged(), pytest.raises(InvalidCommandError, match=words):
        world.do(command)


def test_an_expired_credential_is_neither_accepted_nor_rotated_nor_created_again(world: World) -> None:
    until = world.now + 5_000_000
    create = evolve(CREATE, expires_at=until)
    world.do(create)
    assert stored(world).hashes(until - 1) == (OLD,)
    world.wait(5)

    assert stored(world).hashes(world.now) == ()
    with pytest.raises(InvalidCommandError, match="has expired: revoke it"):
        world.do(c.CredentialRotate(name="ci", hash=NEW))
    with pytest.raises(CredentialExistsError, match="has expired: revoke it first"):
        world.do(CREATE)


def test_a_revoked_credential_is_refused_for_good_and_its_label_is_free(world: World) -> None:
    world.do(CREATE)
    assert world.do(c.CredentialRevoke(name="ci")) == c.CredentialRevoked(id=ID, revoked=True)

    assert stored(world).hashes(world.now) == ()
    with world.unchanged():
        assert world.do(c.CredentialRevoke(name=ID)) == c.CredentialRevoked(id=ID, revoked=False)
        for command in (c.CredentialRotate(name=ID, hash=NEW), c.CredentialRevoke(name="ci")):
            with pytest.raises(CredentialNotFoundError):
                world.do(command)
    assert world.do(evolve(CREATE, id=OTHER, scopes=("admin",))).created
    assert world.do(c.CredentialRevoke(name="ci")).id == OTHER


def test_a_label_is_free_within_the_batch_that_revokes_its_credential(world: World) -> None:
    world.do(CREATE)
    commands: tuple[c.Command[Any], ...] = (c.CredentialRevoke(name="ci"), evolve(CREATE, id=OTHER))
    replies = world.kernel.dispatch_many(commands)

    assert replies == [
        c.CredentialRevoked(id=ID, revoked=True),
        c.CredentialCreated(id=OTHER, created=True),
    ]
    assert stored(world, OTHER).unique_label == "ci"
    assert stored(world).unique_label is None


def test_a_use_is_written_at_most_once_a_minute(world: World) -> None:
    world.do(CREATE)
    touch = c.CredentialTouch(ids=(ID, "?"))
    assert world.do(touch).touched == 1
    first = world.now
    world.wait(59)
    with world.unchanged():
        assert world.do(touch).touched == 0
    world.wait(1)
    assert world.do(touch).touched == 1
    assert stored(world).used_at == first + 60_000_000


def test_only_the_first_credential_is_created_if_it_must_be_the_first(world: World) -> None:
    first = evolve(CREATE, only_if_first=True)
    assert world.do(first) == c.CredentialCreated(id=FIRST_ID, created=True)
    with world.unchanged():
        for label in ("ci", "other"):
            with pytest.raises(CredentialExistsError, match="there has been one"):
                world.do(evolve(first, id=OTHER, label=label))
    world.do(c.CredentialRevoke(name="ci"))
    with pytest.raises(CredentialExistsError, match="there has been one"):
        world.do(first)


def test_of_two_first_credentials_in_one_batch_one_is_created(world: World) -> None:
    first = evolve(CREATE, only_if_first=True)
    created, refused = world.kernel.dispatch_many((first, evolve(first, label="other")))

    assert created == c.CredentialCreated(id=FIRST_ID, created=True)
    assert isinstance(refused, CredentialExistsError)
