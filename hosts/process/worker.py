"""The long-running worker, and the ways to run it: as a process, in somebody's loop, beside a `with` block."""

import logging
import math
import signal
import threading
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from types import TracebackType
from typing import Final, Self

import anyio
import attrs
from anyio import to_thread
from anyio.abc import TaskGroup

from holdfast.hosts.engine import Engine
from holdfast.hosts.process import protocol as p
from holdfast.hosts.process.driver import Driver
from holdfast.hosts.process.settings import MAINTENANCE_INTERVAL, Settings
from holdfast.hosts.sync_engine import SyncEngine
from holdfast.kernel.plan import DEFAULT_QUEUE
from holdfast.ports.events import EventSink

_ENDED: Final = "an error has ended the worker; what it held is given to others when its lease has run out"

_log = logging.getLogger("holdfast.worker")


@attrs.frozen(kw_only=True)
class WorkerStats:
    """What a worker has done since it began, and what it does now.

    `fenced` counts the results that came too late and were not taken: its run had ended, or its attempt was lost.
    `events` counts those that sinks have taken, `parked` the runs whose events a sink refuses again and again.
    """

    session: str | None
    phase: str
    running: int
    unsettled: int
    claimed: int
    started: int
    settled: int
    failed: int
    fenced: int
    released: int
    sessions_lost: int
    store_errors: int
    commits: int
    events: int = 0
    parked: int = 0


class Worker:
    """Claims jobs of an engine's workflows, runs their bodies, settles their results.

    Args:
        engine: Whose workflows to run.
        concurrency: How many bodies may run at once.
        queues: How many of these at most from single queues. Stages name their queues; all that the engine's
            workflows name are served, and the default one.
        only_queues: Serve just these queues.
        lease: Seconds that its session lasts without renewal, at least 1. A worker that is lost is noticed after
            that; one that can't renew for so long loses what it runs.
        poll_interval: Seconds in which an idle worker calls the store about once. Every second time it asks for work,
            though nothing told it of any; between them come renewal and maintenance.
        drain_grace: Seconds that running bodies are given to end when the worker is told to stop.
        sinks: What takes events, by the names under which sinks are registered. Each is called in a thread of its own.
        retention: How long runs of the engine's namespace are kept that have ended, at least an hour; then they are
            removed, as `remove` of their handles does it. None: until somebody removes them.
    """

    def __init__(
        self,
        engine: Engine | SyncEngine,
        /,
        *,
        concurrency: int = 100,
        queues: Mapping[str, int] | None = None,
        only_queues: tuple[str, ...] | None = None,
        lease: float = 30.0,
        poll_interval: float = 1.0,
        drain_grace: float = 20.0,
        sinks: Mapping[str, EventSink] | None = None,
        retention: timedelta | None = None,
    ) -> None:
        if isinstance(only_queues, str):
            raise TypeError(f"only_queues is a tuple of names, as ({only_queues!r},)")
        for name, seconds in (
            ("lease", lease),
            ("poll_interval", poll_interval),
            ("drain_grace", drain_grace),
        ):
            if not isinstance(seconds, int | float):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise TypeError(f"{name} is {seconds!r}; it is a number of seconds")
        if concurrency < 1 or any(limit < 1 for limit in (queues or {}).values()):
            raise ValueError("concurrency and the limits of queues are at least 1")
        if not (math.isfinite(lease) and lease >= 1 and poll_interval > 0 and drain_grace >= 0):
            raise ValueError("lease is at least 1 s, poll_interval more than 0, drain_grace not negative")
        core = engine.core
        named = core.registry.queues(DEFAULT_QUEUE)
        served = only_queues or tuple(dict.fromkeys((*named, *(queues or {}))))
        for queue in sorted({*served, *(queues or {})} - set(named)):
            _log.warning(
                "no stage names the queue %r; only runs that are started with it have work there", queue
            )
        settings = Settings(
            definitions=core.registry.definitions,
            queues=served,
            concurrency=concurrency,
            limits=dict(queues or {}),
            poll_interval=poll_interval,
            drain_grace=drain_grace,
            maintenance_interval=min(MAINTENANCE_INTERVAL, lease / 3),
            retention=retention,
        )
        self._core = core
        self._driver = Driver(core, settings, lease=lease, sinks=sinks)
        self._background: TaskGroup | None = None
        self._thread: threading.Thread | None = None
        self._serving = threading.Event()
        self._failure: BaseException | None = None

    def run(self) -> None:
        """Own the process: event loop, SIGTERM and SIGINT, drain. Returns when drained.

        The first signal drains; the second stops at once, without giving anything back.
        """
        anyio.run(self._run_with_signals)

    async def serve(self) -> None:
        """Work in a loop that is someone else's, until `drain` has been called and all is done.

        Cancelling it cancels what runs, and gives it back.
        """
        await self._driver.serve(self._serving.set)

    def drain(self) -> None:
        """Stop gently: take no new work, let what runs end, give back what does not end in time."""
        self._driver.post(p.Drain())

    def stop(self) -> None:
        """Stop at once: cancel what runs; the reaper will give it to others."""
        self._driver.stop()

    def __enter__(self) -> Self:
        """Work in a thread, with an event loop of its own, beside the code in the `with` block.

        Raises what keeps it from connecting.
        """
        self._thread = threading.Thread(target=self._serve_in_thread, name="holdfast-worker")
        self._thread.start()
        self._serving.wait()
        if self._failure is not None:
            self._thread.join()
            raise self._failure
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        """Drain. If an error has ended the worker, and there was none in the block, raise it in a group."""
        assert self._thread is not None
        self._driver.post_from_thread(p.Drain())
        self._thread.join()
        if self._failure is not None and error is None:
            raise self._failure

    async def __aenter__(self) -> Self:
        """Work beside the code in the `async with` block. Raises what keeps it from connecting."""
        # `serve` does it too, but in the group, which would cancel the block and raise a group of errors after it.
        await to_thread.run_sync(self._core.connect)
        self._background = anyio.create_task_group()
        await self._background.__aenter__()
        self._background.start_soon(self._serve_beside)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> bool | None:
        """Drain. An error that has ended the worker cancels the block, and is raised in a group."""
        assert self._background is not None
        self.drain()
        if isinstance(error, Exception):
            # It is none of the worker's, and goes on as it is: the task group would wrap it. The worker's is logged.
            with suppress(Exception):
                await self._background.__aexit__(None, None, None)
            return None
        return await self._background.__aexit__(kind, error, at)

    def stats(self) -> WorkerStats:
        """Return counts of what this worker has done. Safe from any thread."""
        machine, calls = self._driver.machine, self._driver.calls
        counts = calls.counts
        return WorkerStats(
            session=calls.session,
            phase=machine.phase,
            running=machine.running,
            unsettled=machine.unsettled,
            claimed=counts.claimed,
            started=counts.started,
            settled=counts.settled,
            failed=counts.failed,
            fenced=counts.fenced + machine.late,
            released=counts.released,
            sessions_lost=counts.sessions_lost,
            store_errors=counts.store_errors,
            commits=counts.commits,
            events=counts.events,
            parked=counts.parked,
        )

    def _serve_in_thread(self) -> None:
        try:
            anyio.run(self.serve)
        except BaseException as error:  # noqa: BLE001  # it is raised again in the thread of whoever began it
            self._failure = error
            if self._serving.is_set():
                _log.critical(_ENDED, exc_info=error)
        finally:
            self._serving.set()

    async def _serve_beside(self) -> None:
        try:
            await self.serve()
        except Exception as error:
            _log.critical(_ENDED, exc_info=error)
            raise

    async def _run_with_signals(self) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(self._obey_signals)
            await self.serve()
            group.cancel_scope.cancel()

    async def _obey_signals(self) -> None:
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            first = True
            async for number in signals:
                _log.warning(
                    "%s: %s", signal.Signals(number).name, "draining" if first else "stopping at once"
                )
                if first:
                    self.drain()
                else:
                    self.stop()
                first = False
