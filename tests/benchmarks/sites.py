"""Databases for measurements, each used for one sample, and their counters."""

import contextlib
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, Final, Protocol, cast

import attrs
import psycopg
from psycopg import sql

from tests.benchmarks.processes import children_of, cpu_seconds
from tests.postgres import PrivatePostgres, find_binaries, fresh_database

SETTINGS: Final = {
    "shared_buffers": "512MB",
    "max_wal_size": "4GB",
    "checkpoint_timeout": "30min",
    "autovacuum_naptime": "10s",
}
_STATEMENTS: Final = "pg_stat_statements"
_QUIET_SECONDS_MAX: Final = 10.0


@attrs.frozen(kw_only=True)
class Spent:
    """Resources that the server has used so far. None: not available here.

    `writes` is how many transactions have written something, of all of the server's databases; `statements` is that of
    this database.
    """

    server_cpu: float | None = None
    wal_bytes: int | None = None
    writes: int | None = None
    statements: int | None = None


@attrs.frozen(kw_only=True)
class Counts:
    """Counters of the server for this database. None: not available here."""

    commits: int | None = None
    statements: int | None = None


class Site(Protocol):
    """A database for one sample."""

    @property
    def url(self) -> str:
        """The URL for `Engine.open`."""
        ...

    def spent(self) -> Spent:
        """Return the used resources so far."""
        ...

    def counts(self) -> Counts:
        """Return the counters so far. Waits for all connections to end, since servers count then."""
        ...

    def size(self) -> int:
        """Return the size of tables and indexes in bytes."""
        ...


@attrs.frozen
class Before:
    """The content of a database before a sample: created once per store, then copied."""

    name: str
    make: Callable[[Site], None]


class Store(Protocol):
    """A kind of database, on one server."""

    @property
    def name(self) -> str:
        """`sqlite` or `postgres`."""
        ...

    @property
    def about(self) -> str:
        """A description in one line."""
        ...

    def site(self, *, counted: bool, before: Before | None = None) -> contextlib.AbstractContextManager[Site]:
        """Create a temporary database, empty or with the content of `before`.

        Counting statements takes a little time.
        """
        ...


@attrs.frozen
class SqliteSite:
    """See `Site`. SQLite runs in this process, so there are no server counters."""

    path: Path

    @property
    def url(self) -> str:
        return f"sqlite:///{self.path}"

    def spent(self) -> Spent:
        return Spent()

    def counts(self) -> Counts:
        return Counts()

    def size(self) -> int:
        with contextlib.closing(sqlite3.connect(self.path)) as connection:
            pages, free, page_size = (
                cast("int", connection.execute(f"PRAGMA {name}").fetchone()[0])
                for name in ("page_count", "freelist_count", "page_size")
            )
        return (pages - free) * page_size


@attrs.frozen
class SqliteStore:
    """See `Store`."""

    folder: Path
    name: str = "sqlite"
    made: dict[str, Path] = attrs.field(factory=dict[str, Path])

    @property
    def about(self) -> str:
        return f"SQLite {sqlite3.sqlite_version}, WAL, synchronous=FULL, on {_file_system(self.folder)}"

    @contextlib.contextmanager
    def site(self, *, counted: bool, before: Before | None = None) -> Generator[Site]:
        del counted
        with tempfile.TemporaryDirectory(dir=self.folder, prefix="site-") as folder:
            path = Path(folder, "bench.db")
            if before is not None:
                shutil.copy(self._made(before), path)
            yield SqliteSite(path)

    def _made(self, before: Before) -> Path:
        if before.name not in self.made:
            path = self.folder / f"{before.name}.db"
            before.make(SqliteSite(path))
            self.made[before.name] = path
        return self.made[before.name]


@attrs.frozen
class PostgresSite:
    """See `Site`. `monitor` is a connection to another database of the server."""

    url: str
    monitor: psycopg.Connection[Any]
    postmaster: int | None
    counted: bool

    def spent(self) -> Spent:
        wal = self._ask("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint")
        writes = self._ask("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint")
        statements = self._statements() if self.counted else None
        if self.postmaster is None:
            return Spent(wal_bytes=wal, writes=writes, statements=statements)
        # A process that has ended has left its time with its parent.
        own = cpu_seconds(self.postmaster, with_ended_children=True)
        cpu = own + sum(cpu_seconds(child) for child in children_of(self.postmaster))
        return Spent(server_cpu=cpu, wal_bytes=wal, writes=writes, statements=statements)

    def counts(self) -> Counts:
        self._wait_until_quiet()
        commits = self._ask(
            "SELECT xact_commit FROM pg_stat_database WHERE datname = %(name)s", name=self._name
        )
        if not self.counted:
            return Counts(commits=commits)
        return Counts(commits=commits, statements=self._statements())

    def size(self) -> int:
        with psycopg.connect(self.url) as connection:
            row = connection.execute(
                "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class AS c "
                "JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE c.relkind = 'r' "
                "AND n.nspname NOT IN ('pg_catalog', 'information_schema')"
            ).fetchone()
        assert row is not None
        return cast("int", row[0])

    @property
    def _name(self) -> str:
        return self.url.rpartition("/")[2]

    def _statements(self) -> int:
        return self._ask(
            "SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_statements AS s "
            "JOIN pg_database AS d ON d.oid = s.dbid WHERE d.datname = %(name)s",
            name=self._name,
        )

    def _wait_until_quiet(self) -> None:
        until = time.monotonic() + _QUIET_SECONDS_MAX
        while self._ask(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = %(name)s AND backend_type = 'client backend'",
            name=self._name,
        ):
            if time.monotonic() > until:
                raise RuntimeError(f"somebody is still connected to {self._name}")
            time.sleep(0.005)

    def _ask(self, query: str, **parameters: object) -> int:
        row = self.monitor.execute(query.encode(), parameters or None).fetchone()
        assert row is not None
        return cast("int", row[0])


@attrs.frozen
class PostgresStore:
    """See `Store`."""

    server_url: str
    monitor: psycopg.Connection[Any]
    postmaster: int | None
    counts_statements: bool
    stack: contextlib.ExitStack
    name: str = "postgres"
    made: dict[str, str] = attrs.field(factory=dict[str, str])

    @property
    def about(self) -> str:
        names = ("server_version", "fsync", "synchronous_commit", "full_page_writes", "shared_buffers")
        said = {name: self.monitor.execute(f"SHOW {name}".encode()).fetchone() for name in names}
        version, *rest = (f"{name}={row[0]}" for name, row in said.items() if row is not None)
        folder = _data_folder(self.monitor)
        disk = f", on {_file_system(folder)}" if folder is not None and self.postmaster is not None else ""
        return f"PostgreSQL {version.partition('=')[2]}, {', '.join(rest)}{disk}"

    @contextlib.contextmanager
    def site(self, *, counted: bool, before: Before | None = None) -> Generator[Site]:
        counted = counted and self.counts_statements
        like = None if before is None else self._made(before)
        with fresh_database(self.server_url, like=like) as url:
            if counted:
                name = sql.Identifier(url.rpartition("/")[2])
                self.monitor.execute(
                    sql.SQL("ALTER DATABASE {} SET pg_stat_statements.track = 'top'").format(name)
                )
            yield self._site(url, counted=counted)

    def _site(self, url: str, *, counted: bool) -> PostgresSite:
        return PostgresSite(url, self.monitor, self.postmaster, counted)

    def _made(self, before: Before) -> str:
        if before.name not in self.made:
            url = self.stack.enter_context(fresh_database(self.server_url))
            site = self._site(url, counted=False)
            before.make(site)
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute("VACUUM ANALYZE")  # it has been there for a while
            site.counts()  # nobody may be connected to what is copied
            self.made[before.name] = url
        return self.made[before.name]


@contextlib.contextmanager
def sqlite_store() -> Generator[Store]:
    """Yield SQLite, in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        yield SqliteStore(Path(folder))


@contextlib.contextmanager
def postgres_store(url: str | None) -> Generator[Store]:
    """Yield PostgreSQL: the server of a URL whose user may create databases, or a new durable one."""
    if url is not None:
        with _connected(url) as store:
            yield store
        return
    settings = dict(SETTINGS)
    binaries = find_binaries()
    if any((binaries.parent / "lib").rglob(f"{_STATEMENTS}.so")):
        settings |= {"shared_preload_libraries": _STATEMENTS, f"{_STATEMENTS}.track": "none"}
    with PrivatePostgres(durable=True, settings=settings) as server, _connected(server.url) as store:
        yield store


@contextlib.contextmanager
def _connected(url: str) -> Generator[Store]:
    with psycopg.connect(url, autocommit=True) as monitor, contextlib.ExitStack() as stack:
        yield PostgresStore(url, monitor, _postmaster(monitor), _loads_statements(monitor), stack)


def _loads_statements(monitor: psycopg.Connection[Any]) -> bool:
    """Create the view of statement counts, if the server has it. It covers all databases."""
    row = monitor.execute("SELECT current_setting('shared_preload_libraries')").fetchone()
    if row is None or _STATEMENTS not in row[0]:
        return False
    try:
        monitor.execute(f"CREATE EXTENSION IF NOT EXISTS {_STATEMENTS}")
    except psycopg.Error:
        return False
    return True


def _data_folder(monitor: psycopg.Connection[Any]) -> Path | None:
    try:
        row = monitor.execute("SELECT current_setting('data_directory')").fetchone()
    except psycopg.Error:  # not for every user
        return None
    return None if row is None else Path(row[0])


def _postmaster(monitor: psycopg.Connection[Any]) -> int | None:
    """Return the process id of the server, if it runs on this machine."""
    folder = _data_folder(monitor)
    try:
        pid = int((folder or Path()).joinpath("postmaster.pid").read_text().splitlines()[0])
        ours = any(child == monitor.info.backend_pid for child in children_of(pid))
    except (OSError, ValueError, IndexError):
        return None
    return pid if ours else None


def _file_system(path: Path) -> str:
    """Return the file system type of a path. Figures from a `tmpfs` are figures without a disk."""
    device = path.stat().st_dev
    best = ("", "an unknown file system")
    with contextlib.suppress(OSError):
        for line in Path("/proc/mounts").read_text().splitlines():
            _, mount, kind, *_ = line.split()
            with contextlib.suppress(OSError):
                if Path(mount).stat().st_dev == device and len(mount) >= len(best[0]):
                    best = (mount, kind)
    return best[1]
