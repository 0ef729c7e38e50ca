"""Databases with runs at every stage of their lives, and a connection that writes past Holdfast."""

import secrets
import shutil
import sqlite3
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from holdfast.hosts.client.engine import Engine
from holdfast.hosts.client.sync_engine import SyncEngine
from holdfast.hosts.maintenance.doctor.findings import Diagnosis
from holdfast.kernel.authoring.decorators import stage
from holdfast.kernel.authoring.external import NotReady, Suspended, suspend
from holdfast.kernel.authoring.options import Retry
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.kernel.authoring.stage_context import StageContext
from holdfast.kernel.commands import (
    Attempt,
    ChildRunStarted,
    Completed,
    Failed,
    Failure,
    JobClaim,
    JobSettle,
    MapExpanded,
    Outcome,
    SessionOpen,
)
from holdfast.kernel.commands import StageSuspended as HandedOn
from holdfast.ports.json import canonical
from holdfast.ports.records.values import Payload
from holdfast.ports.searches import QueueClaim
from tests.poll_intervals import look_often
from tests.postgres import fresh_database

HOUR: Final = 3_600_000_000
LARGE: Final = "x" * 100_000


@stage
def double(x: int) -> int:
    return 2 * x


@stage
def up_to(x: int) -> list[int]:
    return list(range(x))


@stage
def total(xs: list[int]) -> int:
    return sum(xs)


@stage(retry=Retry(attempts=3, wait=timedelta(hours=1), jitter=0.0))
def patient(x: int) -> int:
    return x


@stage(retry=Retry(attempts=1))
def fail(x: int) -> int:
    raise ValueError(f"no {x}")


@stage
def size(text: str) -> int:
    return len(text)


@stage.external
def hand_on(ctx: StageContext[None], x: int) -> Suspended[int, int]:
    del ctx
    return suspend(x, check_after=timedelta(milliseconds=20), key=f"work-{x}")


@hand_on.check
def handed_on(ctx: StageContext[None], x: int) -> int | NotReady:
    del ctx
    return x


@handed_on.cancel
def cancel(ctx: StageContext[None], x: int) -> None:
    del ctx, x


SIMPLE = Pipeline("simple", input=int).pipe(double)
LATER = Pipeline("later", input=int).pipe(patient)
WIDE = Pipeline("wide", input=int).pipe(up_to).map(double, limit=2).pipe(total)
FAILING = Pipeline("failing", input=int).pipe(fail)
TEXT = Pipeline("text", input=str).pipe(size)
OUTSIDE = Pipeline("outside", input=int).pipe(handed_on)
PARENT = Pipeline("parent", input=int).pipe(stage(SIMPLE)).pipe(patient)
LEFT = Pipeline("left", input=int).pipe(cancel)
ALL: Final = (SIMPLE, LATER, WIDE, FAILING, TEXT, OUTSIDE, PARENT, LEFT)


def payload(value: object) -> Payload:
    return Payload(inline=canonical(value))


DONE: Final = Completed(output=payload(1))
OOPS: Final = Failed(failure=Failure(code="oops", message="no"))
FATAL: Final = Failed(failure=Failure(code="oops", message="no", retryable=False))


class Scene:
    """An engine on a database, and raw access to the same."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.blobs = folder / "blobs"
        self.opened = Engine.open(url, workflows=ALL, blobs=f"file://{self.blobs}")
        self.engine: SyncEngine = self.opened.sync
        self.kernel = self.engine.kernel
        self.session = self.open_session()

    # What a worker does, one thing at a time.

    def open_session(self) -> str:
        return self.kernel.dispatch(SessionOpen(host="h", lease=HOUR)).session

    def claim(self, limit: int = 1, *, queue: str = "default") -> tuple[Attempt, ...]:
        lane = QueueClaim(queue=queue, definitions=self.opened.core.registry.definitions, limit=limit)
        return self.kernel.dispatch(
            JobClaim(session=self.session, queue_claims=(lane,), limit=limit)
        ).attempts

    def settle(self, outcome: Outcome) -> None:
        (attempt,) = self.claim()
        self.kernel.dispatch(JobSettle(job=attempt.job, epoch=attempt.epoch, outcome=outcome))

    def set_up(self) -> None:
        """Create runs in all states; each is driven alone."""
        engine = self.engine
        engine.register_sink("audit")
        engine.start(SIMPLE(1), id="done", idempotency_key="k")
        self.settle(DONE)
        engine.handle(SIMPLE, "done").rerun_from()
        self.settle(DONE)
        engine.start(FAILING(1), id="failed")
        self.settle(FATAL)
        engine.start(LATER(1), id="retrying")
        self.settle(OOPS)
        engine.start(OUTSIDE(1), id="outside")
        self.settle(HandedOn(state=payload(1), check_after=HOUR, key="work-1"))
        engine.start(PARENT(1), id="parent")
        (attempt,) = self.claim()
        started = ChildRunStarted(run_id="child", workflow="simple", version="1", input=payload(1))
        self.kernel.dispatch(JobSettle(job=attempt.job, epoch=attempt.epoch, outcome=started))
        self.settle(DONE)
        engine.start(WIDE(4), id="half")
        self.settle(Completed(output=payload([0, 1, 2, 3])))
        self.settle(MapExpanded(items=tuple(map(payload, range(4)))))
        self.settle(Completed(output=payload(0)))
        engine.start(TEXT(LARGE), id="large")
        engine.start(SIMPLE(21), id="new")
        engine.start(SIMPLE(1), id="later", start_at=datetime.now(UTC) + timedelta(days=1))

    # What Holdfast does not know of.

    def sql(self, sql: str) -> list[tuple[Any, ...]]:
        """Run a statement in a transaction of its own. `{done}` and the like are keys of runs."""
        if "{" in sql:
            keys = self._ask("SELECT id, generation, key FROM holdfast_runs ORDER BY generation")
            names = {f"{name}_{generation}": key for name, generation, key in keys}
            names |= {str(name): str(key) for name, _, key in keys}
            sql = sql.format(**names)
        return self._ask(sql)

    def _ask(self, sql: str) -> list[tuple[Any, ...]]:
        if self.url.startswith("sqlite"):
            with closing(sqlite3.connect(self.url.removeprefix("sqlite:///"), timeout=10)) as connection:
                found = connection.execute(sql)
                rows = found.fetchall() if found.description else []
                connection.commit()
                return rows
        with psycopg.connect(self.url) as connection:
            cursor = connection.execute(sql.encode())
            return cursor.fetchall() if cursor.description else []

    # What the doctor says.

    def found(self, *, repair: bool = False, blobs: bool = False) -> set[tuple[str, str]]:
        """Return each finding as its code and the run or other subject."""
        return said(self.engine.doctor(repair=repair, blobs=blobs))


def said(diagnosis: Diagnosis) -> set[tuple[str, str]]:
    """Return each finding as its code and subject, with a mark if it was repaired."""
    return {
        (f"{one.code}{'*' if one.repaired else ''}", one.run_id or one.key or "")
        for one in diagnosis.findings
    }


@pytest.fixture(scope="session", params=["sqlite", pytest.param("postgres", marks=pytest.mark.service)])
def model(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Path]]:
    """A prepared database of each kind, with its blob folder. Tests work on copies."""
    folder = tmp_path_factory.mktemp("model")
    with ExitStack() as stack:
        if request.param == "postgres":
            url = stack.enter_context(fresh_database(request.getfixturevalue("postgres_url")))
        else:
            url = f"sqlite:///{folder}/holdfast.db"
        scene = Scene(url, folder)
        scene.set_up()
        scene.opened.core.close()
        yield url, folder


@pytest.fixture
def scene(model: tuple[str, Path], tmp_path: Path) -> Iterator[Scene]:
    """Runs in all states."""
    url, folder = model
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    with ExitStack() as stack:
        is_file = url.startswith("sqlite")
        copy = f"sqlite:///{tmp_path}/holdfast.db" if is_file else stack.enter_context(_copied(url))
        scene = Scene(copy, tmp_path)
        stack.callback(scene.opened.core.close)
        yield scene


@pytest.fixture
def empty(scene: Scene) -> Scene:
    """An engine on a database with empty tables."""
    kept = {"holdfast_version", "holdfast_sessions"}
    sql = "SELECT name FROM sqlite_master WHERE type = 'table'"
    if not scene.url.startswith("sqlite"):
        sql = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
    for (table,) in scene.sql(sql):
        if table.startswith("holdfast_") and table not in kept:
            scene.sql(f"DELETE FROM {table}")
    return scene


@contextmanager
def _copied(url: str) -> Generator[str]:
    """Copy a database without connections, and drop the copy at the end."""
    name = f"{urlsplit(url).path[1:]}_{secrets.token_hex(4)}"
    server = urlunsplit(urlsplit(url)._replace(path="/postgres"))
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{urlsplit(url).path[1:]}"'.encode())
    try:
        yield urlunsplit(urlsplit(url)._replace(path=f"/{name}"))
    finally:
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)'.encode())


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the intervals at which workers check bodies, sessions and the store."""
    look_often(monkeypatch)


Break = Callable[[Scene], object]
