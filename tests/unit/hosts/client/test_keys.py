"""`engine.keys`: API keys are created, listed, rotated and revoked; `engine.audit`."""

import logging
from collections.abc import Iterator
from datetime import timedelta
from itertools import islice
from typing import Any

import anyio
import pytest

from holdfast.client import Actor, NewKey, Scope
from holdfast.errors import (
    CredentialExistsError,
    CredentialNotFoundError,
    InvalidArgumentError,
    InvalidCommandError,
    InvalidFilterError,
)
from holdfast.hosts.client.api_keys import ApiKey, key_from, new_key
from holdfast.ports.queries.credentials import FindCredential
from holdfast.testing import World

ANN = Actor("user", "ann")


@pytest.fixture
def world() -> Iterator[World]:
    with World([]) as world:
        yield world


def secret_of(key: NewKey) -> str:
    parsed = key_from(key.text or "")
    assert parsed is not None
    return parsed.secret


def test_a_key_is_created_with_a_text_of_which_the_store_has_the_hash(world: World) -> None:
    keys = world.engine.acting_as(ANN).sync.keys
    until = world.now + timedelta(days=1)
    key = keys.create("ci", scopes=[Scope.READ, "start"], principal="build", expires_at=until)

    info = key.info
    assert (info.scopes, info.namespaces) == ((Scope.READ, Scope.START), ("default",))
    assert (info.label, info.principal, info.expires_at) == ("ci", "build", until)
    parsed = key_from(key.text or "")
    assert parsed is not None
    row = world.engine.core.stores.persistence.read(FindCredential(info.id))
    assert row is not None
    assert (row.hash, parsed.id) == (parsed.hash, info.id)
    assert keys.list() == (info,)


def test_the_secret_is_in_no_repr_log_or_row(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    keys = world.engine.sync.keys
    key = keys.create("ci", scopes=["read"], actor=ANN)
    again = keys.rotate("ci")

    for secret in (secret_of(key), secret_of(again)):
        written = (
            repr(key),
            repr(again),
            repr(key_from(key.text or "")),
            repr(keys.list()),
            repr(list(world.engine.sync.audit())),
            repr(world.store.dump().rows),
            caplog.text,
        )
        assert not [text for text in written if secret in text]


def test_the_same_label_again_is_answered_without_a_text(world: World) -> None:
    keys = world.engine.sync.keys
    first = keys.create("ci", scopes=["read"], namespaces=["*"])
    again = keys.create("ci", scopes={"read"}, namespaces=("*",))

    assert again == NewKey(text=None, created=False, info=first.info)
    with pytest.raises(CredentialExistsError):
        keys.create("ci", scopes=["admin"], namespaces=["*"])


def test_a_rotated_key_has_another_text_and_the_same_id(world: World) -> None:
    keys = world.engine.sync.keys
    first = keys.create("ci", scopes=["read"])
    second = keys.rotate("ci", grace=timedelta(hours=1))

    assert second.text not in (None, first.text)
    assert (second.info.id, second.info.previous_until) == (first.info.id, world.now + timedelta(hours=1))
    assert not second.created


def test_a_revoked_key_is_listed_and_its_label_is_free(world: World) -> None:
    keys = world.engine.sync.keys
    first = keys.create("ci", scopes=["read"])
    assert keys.revoke("ci", reason="leaked").revoked_at == world.now

    with pytest.raises(CredentialNotFoundError):
        keys.rotate("ci")
    second = keys.create("ci", scopes=["admin"])
    assert {info.id for info in keys.list()} == {first.info.id, second.info.id}


def test_the_first_key_is_created_only_once(world: World) -> None:
    keys = world.engine.sync.keys
    first = keys.create("me", scopes=list(Scope), namespaces=["*"], only_if_first=True)

    parsed = key_from(first.text or "")
    assert parsed is not None
    assert parsed.id == first.info.id
    with pytest.raises(CredentialExistsError, match="there has been one"):
        keys.create("you", scopes=list(Scope), only_if_first=True)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"scopes": "read"}, InvalidArgumentError),
        ({"scopes": [1]}, InvalidArgumentError),
        ({"scopes": ["read"], "namespaces": "default"}, InvalidArgumentError),
        ({"scopes": ["read"], "expires_at": 5}, InvalidArgumentError),
        ({"scopes": ["read"], "principal": 5}, InvalidArgumentError),
        ({"scopes": ["root"]}, InvalidCommandError),
        ({"scopes": []}, InvalidCommandError),
    ],
)
def test_a_wrong_argument_is_refused(world: World, given: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        world.engine.sync.keys.create("ci", **given)
    assert world.engine.sync.keys.list() == ()


def test_a_rotation_takes_a_period(world: World) -> None:
    with pytest.raises(InvalidArgumentError):
        world.engine.sync.keys.rotate("ci", grace=timedelta(seconds=-1))


def test_the_keys_of_async_code_are_the_same(world: World) -> None:
    async def use() -> None:
        key = await world.engine.keys.create("ci", scopes=["read"])
        assert await world.engine.keys.list() == (key.info,)
        entries = [entry async for entry in world.engine.audit()]
        assert [entry.action for entry in entries] == ["credential.create"]

    anyio.run(use)


def test_the_audit_log_is_read_by_pages(world: World) -> None:
    engine = world.engine.acting_as(ANN).sync
    for number in range(105):
        engine.limits.set("slots:gpu", slots=number)
    entries = list(engine.audit())

    assert [entry.details["slots"] for entry in entries] == [*range(104, -1, -1)]
    assert {(entry.actor, entry.action, entry.target) for entry in entries} == {
        (ANN, "limit.set", "slots:gpu")
    }
    assert list(engine.audit(after=entries[1].cursor, limit=2)) == entries[2:4]
    assert list(islice(engine.audit(), 1)) == entries[:1]
    with pytest.raises(InvalidFilterError):
        engine.audit(after="x")
    with pytest.raises(InvalidFilterError):
        engine.audit(limit=0)


def test_the_text_of_a_key_is_parsed_exactly() -> None:
    key = new_key()
    text = key.text
    assert key_from(text) == key
    assert len({new_key().id for _ in range(50)}) == 50
    start, _, checksum = text.rpartition("_")
    wrong = [
        "",
        text + "\n",
        f" {text}",
        text.upper(),
        text[:-1],
        f"{start}_{int(checksum, 16) ^ 1:08x}",
        ApiKey("a" * 11, key.secret).text,
        ApiKey("a" * 12, f"{key.secret[:-1]}=").text,
    ]
    assert [one for one in wrong if key_from(one) is not None] == []
