"""Browser sessions: created at sign-in, ended by idleness, age and sign-out, bounded in number."""

from typing import Any

import pytest
from attrs import evolve

from holdfast.kernel import commands as c
from holdfast.kernel.commands.credentials import DAY
from holdfast.kernel.rules.browser_sessions import SESSIONS_MAX
from holdfast.ports.actors import Actor
from holdfast.ports.errors import InvalidCommandError
from holdfast.ports.records.browser_session import BrowserSession
from tests.unit.kernel.world import World

MINUTE = 60_000_000
ID, OTHER = "b" * 12, "c" * 12


@pytest.fixture
def world() -> World:
    return World()


def signing_in(world: World, **given: Any) -> c.BrowserSessionCreate:
    """Return the command of a sign-in with a key, idle for ten minutes at most, and an hour old at most."""
    fields: dict[str, Any] = {
        "id": ID,
        "hash": "0" * 64,
        "kind": "key",
        "principal": "ann",
        "scopes": ("start", "read", "read"),
        "namespaces": ("n", "m"),
        "idle": 10 * MINUTE,
        "expires_at": world.now + 60 * MINUTE,
        "credential": "k" * 12,
        "credential_hash": "1" * 64,
    }
    return c.BrowserSessionCreate(**{**fields, **given})


def stored(world: World) -> dict[str, BrowserSession]:
    return world.tables().browser_sessions


def test_a_session_is_stored_with_its_hash_and_its_rights(world: World) -> None:
    reply = world.do(signing_in(world))

    assert reply == c.BrowserSessionCreated(id=ID, ends_at=world.now + 10 * MINUTE, deleted=0)
    row = stored(world)[ID]
    assert (row.scopes, row.namespaces, row.principal) == ("read start", "m n", "ann")
    assert (row.hash, row.credential, row.credential_hash) == ("0" * 64, "k" * 12, "1" * 64)
    assert row.is_valid(reply.ends_at - 1)
    assert not row.is_valid(reply.ends_at)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"id": "B" * 12}, "is not the id"),
        ({"hash": "secret"}, "not the SHA-256"),
        ({"principal": ""}, "principal or kind is empty"),
        ({"kind": ""}, "principal or kind is empty"),
        ({"scopes": ()}, "without a scope"),
        ({"scopes": ("root",)}, "'root' is not a scope"),
        ({"namespaces": ()}, "from 1 to 100 namespaces"),
        ({"idle": MINUTE - 1}, "idle is 59999999"),
        ({"idle": 91 * DAY}, "idle is"),
        ({"expires_at": 1}, "within the next 90 days"),
        ({"expires_at": 2**60}, "within the next 90 days"),
        ({"credential": None}, "belong together"),
        ({"credential_hash": None}, "belong together"),
        ({"credential_hash": "secret"}, "not the SHA-256"),
    ],
)
def test_a_wrong_value_is_refused(world: World, other: dict[str, Any], words: str) -> None:
    with world.unchanged(), pytest.raises(InvalidCommandError, match=words):
        world.do(signing_in(world, **other))


def test_an_id_is_used_once(world: World) -> None:
    world.do(signing_in(world))
    with world.unchanged(), pytest.raises(InvalidCommandError, match="generate another"):
        world.do(signing_in(world, principal="bob", hash="2" * 64))


def test_a_sign_in_ends_the_session_that_the_browser_had(world: World) -> None:
    """Whoever knew its secret has nothing, also if it was of another principal."""
    world.do(signing_in(world))
    reply = world.do(signing_in(world, id=OTHER, principal="bob", replaces=ID))

    assert reply.deleted == 1
    assert set(stored(world)) == {OTHER}


def test_use_puts_off_the_end_but_not_beyond_the_last_one(world: World) -> None:
    created = world.do(signing_in(world))
    world.wait(59)
    assert world.do(c.BrowserSessionTouch(ids=(ID,))).touched == 0
    world.wait(1)
    assert world.do(c.BrowserSessionTouch(ids=(ID, ID, "unknown"))).touched == 1
    row = stored(world)[ID]
    assert (row.used_at, row.ends_at) == (world.now, created.ends_at + MINUTE)

    for _ in range(6):
        world.wait(9 * 60)
        world.do(c.BrowserSessionTouch(ids=(ID,)))
    assert stored(world)[ID].ends_at == stored(world)[ID].expires_at


def test_a_session_that_has_ended_does_not_revive(world: World) -> None:
    world.do(signing_in(world))
    world.wait(10 * 60)
    with world.unchanged():
        assert world.do(c.BrowserSessionTouch(ids=(ID,))).touched == 0


def test_at_most_500_sessions_are_touched_at_once(world: World) -> None:
    with world.unchanged(), pytest.raises(InvalidCommandError, match="at most 500"):
        world.do(c.BrowserSessionTouch(ids=(ID,) * 501))


def test_a_sign_out_ends_one_session_or_all_of_the_principal(world: World) -> None:
    others = {"d" * 12: {"principal": "bob"}, "e" * 12: {"kind": "user"}}
    for key in (ID, OTHER, "f" * 12):
        world.do(signing_in(world, id=key))
    for key, other in others.items():
        world.do(signing_in(world, id=key, **other))

    assert world.do(c.BrowserSessionDelete(principal="ann", kind="key", id=ID)).deleted == 1
    assert ID not in stored(world)
    with world.unchanged():
        assert world.do(c.BrowserSessionDelete(principal="ann", kind="key", id=ID)).deleted == 0
        assert world.do(c.BrowserSessionDelete(principal="ann", kind="key", id="d" * 12)).deleted == 0
    assert world.do(c.BrowserSessionDelete(principal="ann", kind="key")).deleted == 2
    assert stored(world).keys() == others.keys()


def test_a_principal_has_a_bounded_number_of_sessions(world: World) -> None:
    """Those that end first make way."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    keys = [f"{letters[at // 26]}{letters[at % 26]}{'a' * 10}" for at in range(SESSIONS_MAX + 1)]
    for at, key in enumerate(keys):
        world.do(signing_in(world, id=key, idle=10 * MINUTE + (at + 1) % 3))

    assert len(stored(world)) == SESSIONS_MAX
    assert keys[2] not in stored(world)


def test_sign_ins_and_sign_outs_are_in_the_audit_log_without_hashes(world: World) -> None:
    ann = Actor("key", "ann")
    world.do(evolve(signing_in(world), actor=ann, request_id="r-1"))
    world.do(c.BrowserSessionTouch(ids=(ID,)))
    world.do(c.BrowserSessionDelete(principal="ann", kind="key", actor=ann))

    entries = [row for _, row in sorted(world.tables().audit_entries.items())]
    assert [(one.action, one.target, one.actor_id) for one in entries] == [
        ("browser_session.create", "ann", "ann"),
        ("browser_session.delete", "ann", "ann"),
    ]
    assert "0" * 64 not in entries[0].details
    assert "1" * 64 not in entries[0].details
