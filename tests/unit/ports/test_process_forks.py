"""State that is renewed in forked children and paused while the parent forks."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.adapters.memory.transport import MemoryTransport
from holdfast.adapters.sql.persistence import SqlPersistence
from holdfast.adapters.sql.postgresql.listen_notify import PostgresTransport
from holdfast.adapters.sql.sqlite.file_watch import SqliteTransport
from holdfast.ports.process_forks import Pausable, Renewable, renew_in_forks
from holdfast.ports.queries.store import SchemaVersion
from holdfast.ports.searches import AllSinks


class Noting:
    """Records the order of its calls; pausing is optional."""

    def __init__(self, *, can_pause: bool) -> None:
        self.seen: list[str] = []
        self._can_pause = can_pause
        renew_in_forks(self)

    def renew(self) -> None:
        self.seen.append("renew")

    def pause(self, seconds: float, /) -> bool:
        self.seen.append("pause")
        return self._can_pause and seconds > 0

    def resume(self) -> None:
        self.seen.append("resume")

    def spoil(self) -> None:
        self.seen.append("spoil")


def _in_child(look: Callable[[], bool]) -> bool:
    child = os.fork()
    if child == 0:
        os._exit(0 if look() else 1)
    return os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize(
    ("can_pause", "of_child", "of_parent"),
    [
        (True, ["pause", "renew"], ["pause", "resume"]),
        (False, ["pause", "renew", "spoil"], ["pause"]),
    ],
)
def test_a_child_renews_what_its_parent_pauses(
    *, can_pause: bool, of_child: list[str], of_parent: list[str]
) -> None:
    one = Noting(can_pause=can_pause)
    assert isinstance(one, Pausable)
    assert _in_child(lambda: one.seen == of_child)
    assert one.seen == of_parent


@pytest.mark.parametrize("close", [True, False])
def test_a_transport_of_a_child_is_open_and_empty(close: bool) -> None:
    transports: list[MemoryTransport | SqliteTransport | PostgresTransport] = [
        MemoryTransport(),
        SqliteTransport("nothing.db"),
        PostgresTransport("postgresql://nobody@127.0.0.1:1/x"),
    ]
    for transport in transports:
        assert isinstance(transport, Renewable)
        if close:
            transport.close()
    assert _in_child(lambda: all(not one.receive(1, 0.0) for one in transports))
    for transport in transports:
        transport.close()


@pytest.mark.slow
def test_sqlite_lets_go_of_its_connections_while_a_process_forks(tmp_path: Path) -> None:
    store = SqlPersistence(f"sqlite:///{tmp_path}/runs.db")
    store.setup()
    store.read(SchemaVersion())
    store.transact(lambda tx: tx.find(AllSinks()))

    def is_open() -> bool:
        files = [link.readlink() for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
        return any(file.name == "runs.db" for file in files)

    assert is_open()
    assert _in_child(lambda: not is_open())
    store.close()
