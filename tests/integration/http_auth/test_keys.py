"""Keys on every kind of store: the first one, one label for many, and a key that is revoked by another process."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import anyio
import pytest

from holdfast import Engine
from holdfast.client import NewKey, Scope
from holdfast.errors import CredentialExistsError
from holdfast.hosts.http.authentication.authenticator import Authenticator
from holdfast.hosts.http.authentication.cached_rows import CACHED_SECONDS
from tests.unit.hosts.http.requests import bearer

AT_ONCE = 10
OpenOne = Callable[[], Engine]


@pytest.fixture(params=["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.service)])
def open_one(
    request: pytest.FixtureRequest, tmp_path: Path, new_sqlite: Callable[[Path], str]
) -> Iterator[OpenOne]:
    """Opens engines on one store without keys, each with its own connections where the store has such."""
    opened: list[Engine] = []
    if request.param == "memory":
        url = "memory://"
    elif request.param == "sqlite":
        url = new_sqlite(tmp_path / "holdfast.db")
    else:
        url = request.getfixturevalue("postgres_with_tables")

    def open_one() -> Engine:
        if url != "memory://" or not opened:
            opened.append(Engine.open(url, migrate=False))
        return opened[-1]

    yield open_one
    for engine in opened:
        engine.core.close()


def at_once(
    open_one: OpenOne, create: Callable[[Engine, int], NewKey]
) -> list[NewKey | CredentialExistsError]:
    """Call a function ten times at once, each with an engine of its own, and return the results and refusals."""
    engines = [open_one() for _ in range(AT_ONCE)]
    barrier = Barrier(AT_ONCE)

    def one(number: int) -> NewKey | CredentialExistsError:
        engines[number].core.connect()
        barrier.wait(30)
        try:
            return create(engines[number], number)
        except CredentialExistsError as error:
            return error

    with ThreadPoolExecutor(AT_ONCE) as threads:
        return list(threads.map(one, range(AT_ONCE)))


@pytest.mark.slow
def test_of_ten_first_keys_at_once_one_is_created(open_one: OpenOne) -> None:
    def create(engine: Engine, number: int) -> NewKey:
        return engine.sync.keys.create(
            f"me-{number}", scopes=list(Scope), namespaces=["*"], only_if_first=True
        )

    answers = at_once(open_one, create)
    created = [answer for answer in answers if isinstance(answer, NewKey)]
    assert len(created) == 1
    assert created[0].created
    assert open_one().sync.keys.list() == (created[0].info,)


def test_of_ten_keys_with_one_label_at_once_one_is_created(open_one: OpenOne) -> None:
    answers = at_once(open_one, lambda engine, _: engine.sync.keys.create("ci", scopes=["read"]))
    texts = [answer.text for answer in answers if isinstance(answer, NewKey) and answer.created]
    assert len(texts) == 1
    assert len({answer.info.id for answer in answers if isinstance(answer, NewKey)}) == 1
    assert len(open_one().sync.keys.list()) == 1


def test_a_key_that_another_process_revokes_is_refused_within_five_seconds(open_one: OpenOne) -> None:
    seconds = [0.0]
    server, other = open_one(), open_one()
    touches: list[Callable[[], None]] = []
    authenticator = Authenticator(server.core, monotonic=lambda: seconds[0], start=touches.append)
    text = other.sync.keys.create("ci", scopes=["read"]).text
    assert text is not None
    assert anyio.run(authenticator, bearer(text)) is not None
    (touch,) = touches
    touch()
    assert other.sync.keys.list()[0].used_at is not None

    other.sync.keys.revoke("ci")
    seconds[0] = CACHED_SECONDS
    assert CACHED_SECONDS < 5
    assert anyio.run(authenticator, bearer(text)) is None
    assert [entry.action for entry in other.sync.audit()] == ["credential.revoke", "credential.create"]
