"""Connections of an application, of every kind that a transaction can be open on."""

import asyncio
import contextlib
import importlib
import inspect
import itertools
import sqlite3
from collections.abc import Callable, Generator
from typing import Any, Final

import psycopg
from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from holdfast.hosts.client.engine import Engine
from holdfast.hosts.client.transactional_engine import TransactionalEngine

KINDS: Final = (
    *("Session", "scoped_session", "Connection", "AsyncSession", "AsyncConnection"),
    *("psycopg AsyncSession", "psycopg2 Session", "driver", "psycopg AsyncConnection", "Django"),
)
ONLY_POSTGRES: Final = frozenset({"psycopg AsyncSession", "psycopg2 Session", "psycopg AsyncConnection"})
ASYNC: Final = frozenset(
    {"AsyncSession", "AsyncConnection", "psycopg AsyncSession", "psycopg AsyncConnection"}
)
_aliases = itertools.count()


class Given:
    """A transaction that an application has open, and what it does in it. Async ones run in a loop of their own."""

    def __init__(
        self,
        connection: Any,  # or a function that begins and returns it
        execute: Callable[[str], Any],
        commit: Callable[[], Any],
        rollback: Callable[[], Any],
        loop: asyncio.Runner | None = None,
    ) -> None:
        self._connection = connection
        self._execute, self._commit, self._rollback, self._loop = execute, commit, rollback, loop

    @property
    def connection(self) -> Any:
        return self._connection() if inspect.isfunction(self._connection) else self._connection

    def execute(self, sql: str) -> list[tuple[Any, ...]]:
        """Run a statement of the application and return its rows."""
        found = self._run(self._execute, sql)
        has_rows = getattr(found, "returns_rows", None)  # of SQLAlchemy; drivers have a description
        if has_rows or (has_rows is None and found.description):
            return list(map(tuple, self._run(found.fetchall)))
        return []

    def commit(self) -> None:
        self._run(self._commit)

    def rollback(self) -> None:
        self._run(self._rollback)

    def within(self, engine: Engine) -> Any:
        """Return the engine within the transaction. Its methods block, whatever the connection."""
        if self._loop is None:
            return engine.sync.within(self.connection)
        return _Blocking(self._run(lambda: engine.within(self.connection)), self._run)

    def run(self, call: Callable[[], Any]) -> Any:
        """Run a coroutine function in the loop of the connection."""
        return self._run(call)

    def _run(self, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        if self._loop is None:
            return call(*arguments, **options)

        async def run() -> Any:
            found = call(*arguments, **options)
            return await found if inspect.isawaitable(found) else found

        return self._loop.run(run())


class _Blocking:
    """An async engine whose methods block."""

    def __init__(self, engine: TransactionalEngine, run: Callable[..., Any]) -> None:
        self._engine, self._run = engine, run

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *arguments, **options: self._run(getattr(self._engine, name), *arguments, **options)


@contextlib.contextmanager
def opened(kind: str, url: str) -> Generator[Given]:
    """Open a connection of a kind to the database of a store, with a transaction for it."""
    with (
        _async(kind, url)
        if kind in ASYNC
        else _django(url)
        if kind == "Django"
        else _sync(kind, url) as given
    ):
        try:
            yield given
        finally:
            with contextlib.suppress(Exception):  # the connection may be lost
                given.rollback()


def _engine_url(url: str, driver: str) -> str:
    return url.replace("postgresql:", f"postgresql+{driver}:")


@contextlib.contextmanager
def _sync(kind: str, url: str) -> Generator[Given]:
    if kind == "driver":
        with contextlib.closing(_driver(url)) as plain:
            yield Given(plain, plain.execute, plain.commit, plain.rollback)
        return
    engine = create_engine(_engine_url(url, "psycopg2" if "psycopg2" in kind else "psycopg"))
    given: Any
    if kind == "Connection":
        given = engine.connect()
    else:
        given = scoped_session(sessionmaker(engine)) if kind == "scoped_session" else Session(engine)
    try:
        yield Given(given, lambda sql: given.execute(text(sql)), given.commit, given.rollback)
    finally:
        given.close()
        engine.dispose()


def _driver(url: str) -> Any:
    return (
        psycopg.connect(url)
        if url.startswith("postgresql")
        else sqlite3.connect(make_url(url).database or "")
    )


@contextlib.contextmanager
def _async(kind: str, url: str) -> Generator[Given]:
    with asyncio.Runner() as loop:
        if kind == "psycopg AsyncConnection":
            plain: Any = loop.run(psycopg.AsyncConnection.connect(url))
            try:
                yield Given(plain, plain.execute, plain.commit, plain.rollback, loop)
            finally:
                loop.run(plain.close())
            return
        there = url.replace("sqlite:", "sqlite+aiosqlite:")
        engine = create_async_engine(_engine_url(there, "psycopg" if "psycopg" in kind else "asyncpg"))
        given: Any = AsyncSession(engine) if "Session" in kind else loop.run(_connected(engine))
        try:
            yield Given(given, lambda sql: given.execute(text(sql)), given.commit, given.rollback, loop)
        finally:
            loop.run(given.close())
            loop.run(engine.dispose())


async def _connected(engine: AsyncEngine) -> AsyncConnection:
    return await engine.connect()


@contextlib.contextmanager
def _django(url: str) -> Generator[Given]:
    settings: Any = importlib.import_module("django.conf").settings  # Django has no types
    if not settings.configured:
        settings.configure(DATABASES={}, USE_TZ=True)
        importlib.import_module("django").setup()
    django_connections: Any = importlib.import_module("django.db").connections
    django_transaction: Any = importlib.import_module("django.db.transaction")
    parts = make_url(url)
    alias = f"app_{next(_aliases)}"
    backend = "sqlite3" if url.startswith("sqlite") else "postgresql"
    made = {
        "ENGINE": f"django.db.backends.{backend}",
        "NAME": parts.database,
        "USER": parts.username or "",
        "PASSWORD": parts.password or "",
        "HOST": parts.query.get("host") or parts.host or "",
        "PORT": parts.port or parts.query.get("port") or "",
        "OPTIONS": {"transaction_mode": "IMMEDIATE"} if backend == "sqlite3" else {},
    }
    django_connections.databases[alias] = made
    django_connections.configure_settings(django_connections.databases)
    connection = django_connections[alias]
    atomic = django_transaction.atomic(using=alias)
    state = {"begun": False, "ended": False}

    def begin() -> Any:
        if not state["begun"]:
            state["begun"] = True
            atomic.__enter__()
        return connection

    def end() -> None:
        if state["begun"] and not state["ended"]:
            state["ended"] = True
            atomic.__exit__(None, None, None)

    def execute(sql: str) -> object:
        cursor = begin().cursor()
        cursor.execute(sql)
        return cursor

    def rollback() -> None:
        if state["begun"] and not state["ended"]:
            django_transaction.set_rollback(True, using=alias)
        end()

    try:
        yield Given(begin, execute, end, rollback)
    finally:
        rollback()
        connection.close()
        del django_connections.databases[alias]
