"""The example workers as processes: killed, stalled, cut off from the server, and with one of two servers killed."""

import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import httpx
import pytest

from holdfast import Engine, Worker
from holdfast.errors import RunFailedError
from tests.integration.http.remote_programs import (
    CUT_STEP,
    KEY_FILE,
    KINDS,
    LOUDER,
    SHOP,
    Cuts,
    Order,
    effects,
    loud,
    opened,
    proxy,
    send,
    working,
)
from tests.integration.http.test_serve import command, free_port
from tests.sizes import only_full

pytestmark = pytest.mark.slow
SECONDS_MAX = 200


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'shop.db'}"


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    """An engine whose worker drives the functions, and maintains the store."""
    found = opened(url)
    with found.sync, Worker(found, only_queues=["default"]):
        yield found


@contextmanager
def serving(folder: Path, url: str, port: int) -> Generator[subprocess.Popen[bytes]]:
    (folder / "remote_shop.py").write_text(SHOP)
    if not (folder / KEY_FILE).exists():
        with Engine.open(url).sync as store:
            text = store.keys.create("workers", scopes=["work"]).text
            assert text is not None
            (folder / KEY_FILE).write_text(text)
    path = os.pathsep.join((str(folder), str(Path(__file__).resolve().parents[3])))
    process = subprocess.Popen(
        command("remote_shop:engine", "--port", str(port)),
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "SHOP_URL": url},
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: _is_up(port))
        yield process
    finally:
        process.kill()
        process.wait()


def _is_up(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/livez").status_code == 200
    except httpx.TransportError:
        return False


def wait_until(is_true: Callable[[], object]) -> None:
    until = time.monotonic() + SECONDS_MAX
    while not is_true():
        assert time.monotonic() < until
        time.sleep(0.05)


def start(engine: Engine, kind: str, number: int, *, first: int = 0) -> list[str]:
    """Start runs, half of them of a function with a step, and half of a pipeline with a remote stage."""
    ids = [f"ok-{kind}-{one:04}" for one in range(first, first + number)]
    for one, run_id in enumerate(ids):
        call = LOUDER[kind](Order(run_id)) if one % 2 else loud(kind, run_id)
        engine.sync.start(call, id=run_id)
    return ids


def start_failing(engine: Engine, kind: str, number: int, *, first: int = 0) -> list[str]:
    """Start runs, as `start` does, whose bodies fail."""
    ids = [f"no-{kind}-{one:04}" for one in range(first, first + number)]
    for one, run_id in enumerate(ids):
        engine.sync.start(LOUDER[kind](Order(run_id)) if one % 2 else loud(kind, run_id), id=run_id)
    return ids


def check(engine: Engine, ids: list[str], *, some_are_lost: bool = False) -> None:
    """Every run has ended as it must, and exactly one outcome of its body was stored: the first, if none is lost."""
    for run_id in ids:
        handle = engine.sync.handle(loud, run_id)
        if run_id.startswith("no"):
            with pytest.raises(RunFailedError):
                handle.result(timeout=SECONDS_MAX)
        else:
            assert handle.result(timeout=SECONDS_MAX) == run_id.upper()
        types = Counter(row.type for row in handle.history())
        what = "step" if types["step.queued"] else "stage"
        assert types[f"{what}.completed"] + types[f"{what}.failed"] == 1, types
        assert some_are_lost or not types[f"{what}.retrying"], types


@pytest.mark.parametrize(
    ("how", "first"),
    [
        pytest.param("killed", 0, id="killed-step"),
        pytest.param("killed", 1, id="killed-stage", marks=only_full),
        pytest.param("stalled", 0, id="stalled-step", marks=only_full),
        pytest.param("stalled", 1, id="stalled-stage"),
    ],
)
def test_what_a_lost_worker_held_is_done_by_another(
    engine: Engine, url: str, tmp_path: Path, how: str, first: int
) -> None:
    """A stalled worker wakes up once another one has its task, and its outcome is refused."""
    port = free_port()
    server = f"http://127.0.0.1:{port}"
    with ExitStack() as stack:
        stack.enter_context(serving(tmp_path, url, port))
        ids = [one for kind in KINDS for one in start(engine, kind, 1, first=first)]
        lost: list[subprocess.Popen[bytes]] = []
        for kind in KINDS:  # one after the other: while one starts, the body of another would end
            lost.append(stack.enter_context(working(tmp_path, server, kind, pause=5)))
            wait_until(partial(effects, tmp_path, kind))
            send(lost[-1], signal.SIGKILL if how == "killed" else signal.SIGSTOP)
        earlier = {kind: effects(tmp_path, kind) for kind in KINDS}
        others = [stack.enter_context(working(tmp_path, server, kind, pause=3)) for kind in KINDS]
        wait_until(lambda: all(len(effects(tmp_path, kind)) > len(earlier[kind]) for kind in KINDS))
        if how == "stalled":
            for one in lost:
                send(one, signal.SIGCONT)
        check(engine, ids, some_are_lost=True)
        assert all(one.poll() is None for one in others)
        for kind in KINDS:
            keys, attempts = zip(*effects(tmp_path, kind), strict=True)
            assert len(set(keys)) == 1
            assert list(attempts) == sorted(set(attempts))
        if how == "stalled":  # they live on, with a session of their own
            more = [f"{kind}-again" for kind in KINDS]
            for other in others:
                send(other, signal.SIGKILL)
            for run_id in more:
                engine.sync.start(loud(run_id.partition("-")[0], run_id), id=run_id)
            # The server may give a task to a claim of a killed worker before it sees that the worker is gone.
            check(engine, more, some_are_lost=True)


OFTEN = ("claim", "heartbeat", "workers")
OUTCOMES = {"sh": ("complete", "fail"), "mjs": ("complete", "fail"), "py": ("tasks:settle", "tasks:settle")}
"""The requests with which each kind of worker settles tasks that were done, and that failed."""


@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_that_is_cut_off_is_healed_by_the_same_request(
    engine: Engine, url: str, tmp_path: Path, kind: str
) -> None:
    """Every answer, at its start, at its end and between: nothing is lost, and no body is started twice."""
    port = free_port()
    leaves = kind != "mjs"  # it has no end of its own
    done, failed = OUTCOMES[kind]
    often = (*OFTEN, done)
    cuts = Cuts(*often, failed, *(("leave",) if leaves else ()))
    ids: list[str] = []
    with serving(tmp_path, url, port), proxy((port,), cuts.offset) as server:
        with ExitStack() as stack:
            workers = [
                stack.enter_context(working(tmp_path, server, kind, slots=1))
                for _ in range(3 if kind == "sh" else 1)
            ]
            ids += start_failing(engine, kind, 8)
            check(engine, ids)
            ids += (more := start_failing(engine, kind, cuts.missing(failed) + 1, first=8))
            check(engine, more)
            # Heartbeats come by the clock: a fast machine does more runs between two of them.
            until = time.monotonic() + SECONDS_MAX
            while (missing := cuts.missing(*often)) > 0 and time.monotonic() < until:
                ids += (more := start(engine, kind, max(8, min(200, missing)), first=len(ids)))
                check(engine, more)
            # Here, since the answers to workers that leave may be longer than those before.
            assert missing <= 0, (cuts.fired, [(what, cuts.length(what)) for what in often])
            for worker in workers if leaves else ():
                worker.terminate()
                worker.wait(SECONDS_MAX)
        noted = effects(tmp_path, kind)
        assert set(Counter(key for key, _ in noted).values()) == {1}
        assert (len(noted), {attempt for _, attempt in noted}) == (len(ids), {1})
    for what, fired in cuts.fired.items():
        assert fired == [CUT_STEP * number for number in range(len(fired))], what
        assert cuts.length(what) > 0, what
        assert what in often or CUT_STEP * len(fired) >= cuts.length(what), what


def not_at_all(_path: str, _key: str, _length: int) -> None:
    """Cut no answer off."""


@pytest.mark.service
def test_one_of_two_servers_is_killed(postgres_database: str, tmp_path: Path) -> None:
    ports = free_port(), free_port()
    engine = opened(postgres_database)
    with ExitStack() as stack:
        stack.enter_context(engine.sync)
        stack.enter_context(Worker(engine, only_queues=["default"]))
        first, _ = (stack.enter_context(serving(tmp_path, postgres_database, port)) for port in ports)
        server = stack.enter_context(proxy(ports, not_at_all))
        ids = [one for kind in KINDS for one in start(engine, kind, 20)]
        for kind in KINDS:
            stack.enter_context(working(tmp_path, server, kind, pause=0.05))
        wait_until(lambda: all(effects(tmp_path, kind) for kind in KINDS))
        first.kill()
        check(engine, ids)
        for kind in KINDS:
            assert set(Counter(effects(tmp_path, kind)).values()) == {1}
            assert {attempt for _, attempt in effects(tmp_path, kind)} == {1}
