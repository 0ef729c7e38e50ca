"""The stores for simulations: in memory, or a SQLite file for each."""

import shutil
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from holdfast.adapters.memory.persistence import MemoryPersistence
from holdfast.ports.persistence import Persistence
from holdfast.testing.ids import SeededIds

STORES = ("memory", "sqlite")


@contextmanager
def stores(name: str) -> Generator[Callable[[], Persistence]]:
    """Yield a factory of empty stores; each call closes the store before. Raises ValueError for an unknown name."""
    if name == "memory":
        yield MemoryPersistence
    elif name == "sqlite":
        with TemporaryDirectory(prefix="holdfast-simulation-") as folder:
            yield from _sqlite(Path(folder))
    else:
        raise ValueError(f"unknown store {name!r}; expected one of {', '.join(STORES)}")


def _sqlite(folder: Path) -> Generator[Callable[[], Persistence]]:
    from holdfast.adapters.sql.persistence import SqlPersistence

    empty = folder / "empty.db"
    persistence = SqlPersistence(f"sqlite:///{empty}", new_id=SeededIds().new)
    persistence.setup()
    persistence.close()
    opened: list[Persistence] = []

    def make() -> Persistence:
        for former in opened:
            former.close()
        path = folder / f"store-{len(opened)}.db"
        (folder / f"store-{len(opened) - 1}.db").unlink(missing_ok=True)
        shutil.copyfile(empty, path)
        made = SqlPersistence(f"sqlite:///{path}", new_id=SeededIds().new)
        opened.append(made)
        return made

    try:
        yield make
    finally:
        for made in opened:
            made.close()
