"""The command `holdfast worker`."""

import logging
import os
import re
import socket
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

import attrs
import click

from holdfast.hosts.cli.console import WEBHOOK_SECRETS, Screen, screen_options
from holdfast.hosts.cli.engine_options import default_engine, load_engine, load_sink
from holdfast.hosts.cli.exit_codes import CliError, Exit, exits
from holdfast.hosts.cli.filter_options import length
from holdfast.hosts.cli.metrics_options import MetricsAddress, metrics_options
from holdfast.hosts.cli.process_logs import log_all
from holdfast.hosts.cli.worker_processes import Place, health_of, processes_of, run_processes
from holdfast.hosts.client.engine import Engine
from holdfast.hosts.supervisor.reports import BLOCKED, ReportServer, WorkerReport
from holdfast.hosts.supervisor.supervisor import ProcessState
from holdfast.hosts.text import counted, format_duration
from holdfast.hosts.wiring.stores import built_in_sink
from holdfast.hosts.worker.machine import Phase
from holdfast.hosts.worker.worker import Worker, WorkerStats
from holdfast.kernel.authoring.options import check_name
from holdfast.kernel.commands import LeaseReapStale, SessionClose
from holdfast.kernel.pipelines.plan import DEFAULT_QUEUE
from holdfast.ports.errors import DefinitionError, HoldfastError, SessionLostError
from holdfast.ports.events import EventSink
from holdfast.ports.records.job import step_of

if TYPE_CHECKING:
    from holdfast.hosts.metrics.metrics import Metrics
    from holdfast.hosts.metrics.status_server import Health

LEAVE_SECONDS: Final = 2.0
"""How long the process may take after the drain grace, in seconds, to store results and release other jobs."""
LOOK_SECONDS: Final = 0.02
STATS_SECONDS: Final = 30.0

_log = logging.getLogger("holdfast.cli")


@click.command("worker", epilog=exits(Exit.OK, Exit.USAGE, Exit.UNAVAILABLE, Exit.SCHEMA))
@click.argument("spec", required=False, metavar="[MODULE:ENGINE]")
@click.option(
    "--concurrency",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="The maximum number of bodies that run at a time.",
)
@click.option(
    "--queue",
    "queues",
    multiple=True,
    metavar="NAME[=LIMIT]",
    help="Serve this queue, at most LIMIT of its jobs at a time. May be repeated.  [default: all queues]",
)
@click.option(
    "--lease",
    type=click.FloatRange(min=1),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="How long until a lost worker is detected.",
)
@click.option(
    "--drain-grace",
    type=click.FloatRange(min=0),
    default=20.0,
    show_default=True,
    metavar="SECONDS",
    help="How long running bodies may continue after the worker is stopped.",
)
@click.option(
    "--sink",
    "sinks",
    multiple=True,
    metavar="NAME=WHAT",
    help="Send events to the sink of this name: WHAT is `log`, a URL such as https://..., eventbridge://BUS, "
    "sns://TOPIC or nats://HOST, or MODULE:OBJECT. May be repeated.",
)
@click.option(
    "--allow-internal",
    is_flag=True,
    help="Allow webhooks to this machine and to addresses of private networks.",
)
@click.option(
    "--retention",
    type=length,
    default=None,
    metavar="LENGTH",
    help="Remove runs that ended longer ago than this, such as 30d.  [default: keep runs]",
)
@click.option(
    "--name",
    metavar="NAME",
    help="Its name in `holdfast worker list`, such as that of its deployment.  [default: the machine's]",
)
@click.option(
    "--processes",
    metavar="N",
    default="1",
    show_default=True,
    callback=processes_of,
    help="Run so many worker processes, each with the other options; `auto`: one for each processor.",
)
@click.option("--supervised", hidden=True, default=None, callback=Place.from_text)
@metrics_options
@click.option(
    "--verbose",
    "-v",
    is_flag=True,
    help="Log more: the activity of the worker, and its counts twice a minute.",
)
@screen_options
def worker_command(
    *,
    screen: Screen,
    spec: str | None,
    concurrency: int,
    queues: tuple[str, ...],
    lease: float,
    drain_grace: float,
    sinks: tuple[str, ...],
    allow_internal: bool,
    retention: timedelta | None,
    name: str | None,
    processes: int,
    supervised: Place | None,
    metrics_at: MetricsAddress,
    verbose: bool,
) -> None:
    """Run jobs of an engine's workflows until stopped.

    The first SIGTERM, SIGHUP or Ctrl-C drains: the worker claims no more jobs, and running bodies may end. The second
    stops at once. The process exits at the latest two seconds after the drain grace.
    """
    limits = _limits(queues)
    if processes > 1 and supervised is None:
        log_all(screen, verbose=verbose)
        run_processes(processes, lease=lease, drain_grace=drain_grace, metrics_at=metrics_at, screen=screen)
        return
    number = None if supervised is None else supervised.number
    engine = load_engine(spec or default_engine())
    log_all(screen, verbose=verbose, process=number)
    if number is not None and engine.core.stores.url == "memory://":
        raise CliError(
            Exit.USAGE, "usage", "--processes needs a database: a store in memory belongs to one process"
        )
    metrics = None if metrics_at.port is None else _metrics_of(engine)  # it must observe the engine first
    try:
        worker = Worker(
            engine,
            concurrency=concurrency,
            queues={name: limit for name, limit in limits.items() if limit is not None},
            only_queues=tuple(limits) or None,
            lease=lease,
            drain_grace=drain_grace,
            sinks=sinks_of(sinks, allow_internal=allow_internal),
            retention=retention,
            name=name,
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if metrics is not None:
        metrics.add_worker(worker)
    if supervised is not None:
        ReportServer(
            socket.socket(fileno=supervised.descriptor), partial(_report, worker, lease, metrics)
        ).start()
        metrics_at = attrs.evolve(metrics_at, port=None)
    ended = threading.Event()
    served = tuple(limits) or engine.core.registry.queues(DEFAULT_QUEUE)
    try:
        engine.core.connect()
        if supervised is not None and supervised.former is not None:
            _free_jobs(engine, supervised.former)
        bound = threading.Thread(target=_end_in_time, args=(worker, drain_grace, ended), daemon=True)
        bound.start()

        expose = None if metrics is None else metrics.expose
        with (
            metrics_at.served_with_health(expose, partial(_health, worker, lease), screen),
            Reporter(
                screen,
                engine,
                worker,
                served=served,
                concurrency=concurrency,
                verbose=verbose,
                process=number,
            ),
        ):
            worker.run()
    finally:
        engine.core.close()
        ended.set()


def _free_jobs(engine: Engine, session: str) -> None:
    """Close the session of a process that has ended, and free its jobs. If that fails, its lease expires instead."""
    namespace = engine.core.namespace
    try:
        engine.kernel.dispatch(SessionClose(namespace=namespace, session=session))
        freed = engine.kernel.dispatch(LeaseReapStale(namespace=namespace)).freed
    except SessionLostError:
        _log.info("the lease of the process before has expired, which has freed its jobs")
    except HoldfastError as error:
        _log.info("could not free the jobs of the process before, their lease expires instead: %s", error)
    else:
        _log.info("the process before held %s, which other attempts may run now", counted(freed, "job"))


def _report(worker: Worker, lease: float, metrics: "Metrics | None", with_metrics: bool) -> WorkerReport:
    stats = worker.stats()
    text = metrics.expose().content.decode() if with_metrics and metrics is not None else None
    # Renewal has a thread of its own, so the worker keeps its jobs, but none of them can go on.
    phase = BLOCKED if stats.blocked_seconds > lease else stats.phase
    return WorkerReport(phase=phase, session=stats.session, running=stats.running, metrics=text)


def _health(worker: Worker, lease: float) -> "Health":
    report = _report(worker, lease, None, with_metrics=False)
    phase = report.phase if report.session is not None else "starting"
    state = ProcessState(
        process=0, pid=os.getpid(), phase=phase, session=report.session, running=report.running
    )
    return health_of((state,))


def _metrics_of(engine: Engine) -> "Metrics":
    from holdfast.metrics import Metrics

    return Metrics(engine)


def _end_in_time(worker: Worker, grace: float, ended: threading.Event) -> None:
    """Exit the process two seconds after the drain grace of a stopping worker, even if the store does not answer.

    Other workers take over its jobs when its lease expires, as after a crash.
    """
    while worker.stats().phase is Phase.RUNNING:
        if ended.wait(0.2):
            return
    if ended.wait(grace + LEAVE_SECONDS):
        return
    _log.warning(
        "the worker did not stop within its drain grace and %g s more: the process exits; other workers take over its"
        " jobs when its lease expires",
        LEAVE_SECONDS,
    )
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(Exit.OK)


class Reporter:
    """Logs the life of a worker from a thread: its start, each new session, its end."""

    def __init__(
        self,
        screen: Screen,
        engine: Engine,
        worker: Worker,
        *,
        served: tuple[str, ...],
        concurrency: int,
        verbose: bool,
        process: int | None = None,
    ) -> None:
        """`process` is the number of this process under its supervisor."""
        self._place = {} if process is None else {"process": process}
        self._screen = screen
        self._engine = engine
        self._worker = worker
        self._served = served
        self._concurrency = concurrency
        self._verbose = verbose
        self._ended = threading.Event()
        self._clock = engine.core.stores.clock
        self._began_at = self._clock.monotonic()
        self._session: str | None = None
        self._thread = threading.Thread(target=self._watch, name="holdfast-reporter", daemon=True)

    def __enter__(self) -> None:
        """Start the thread."""
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        """Stop the thread, and log the end."""
        self._ended.set()
        self._thread.join()
        stats = self._worker.stats()
        length = self._clock.monotonic() - self._began_at
        _log.info("worker stopped after %s: %s", format_duration(round(length * 1_000_000)), _counts(stats))
        if self._screen.as_json:
            self._screen.line(
                {"event": "stopped", **self._place, "seconds": round(length, 3), **attrs.asdict(stats)}
            )

    def _watch(self) -> None:
        """Poll the session: often until the first one is open, then once a second."""
        logged_at = self._clock.monotonic()
        while not self._ended.wait(LOOK_SECONDS if self._session is None else 1.0):
            stats = self._worker.stats()
            if stats.session != self._session:
                self._log_session(stats.session)
            if self._verbose and self._clock.monotonic() - logged_at >= STATS_SECONDS:
                logged_at = self._clock.monotonic()
                now = counted(stats.running, "attempt")
                _log.info("worker %s, %s in progress; so far %s", stats.phase, now, _counts(stats))

    def _log_session(self, session: str | None) -> None:
        is_first, self._session = self._session is None, session
        if not is_first:
            _log.warning(
                "the worker's session was lost, and others may run its jobs again; the new session is %s",
                session,
            )
            return
        core = self._engine.core
        known = core.registry.definitions
        steps = [step for one in known if (step := step_of(one)) is not None]
        workflows = [one for one in known if step_of(one) is None]
        _log.info(
            "worker started on %s, namespace %s: workflows %s%s; queues %s; concurrency %s; session %s",
            core.stores.url or "custom adapters",
            core.namespace,
            ", ".join(workflows) or "none",
            f"; queued steps {', '.join(steps)}" if steps else "",
            ", ".join(self._served),
            self._concurrency,
            session,
        )
        if not known:
            _log.warning(
                "the engine has no workflows: pass them to Engine.open(..., workflows=[...], steps=[...])"
            )
        if self._screen.as_json:
            self._screen.line(
                {
                    "event": "started",
                    **self._place,
                    "url": core.stores.url,
                    "namespace": core.namespace,
                    "workflows": workflows,
                    "steps": steps,
                    "queues": list(self._served),
                    "concurrency": self._concurrency,
                    "session": session,
                    "host": core.host,
                }
            )


def sinks_of(given: Sequence[str], *, allow_internal: bool) -> dict[str, EventSink]:
    """Return the sinks of `--sink NAME=WHAT`, by name. Raises UsageError, CliError, and errors of built-in sinks."""
    sinks: dict[str, EventSink] = {}
    for text in given:
        name, equals, what = text.partition("=")
        if not equals or not name or name in sinks:
            why = f"{name!r} is repeated" if name in sinks else "expected NAME=WHAT, such as audit=log"
            raise click.UsageError(f"--sink {text}: {why}")
        if "://" in what or what == "log":
            secrets = os.environ.get(f"{WEBHOOK_SECRETS}{re.sub('[^A-Z0-9]', '_', name.upper())}", "").split()
            sinks[name] = built_in_sink(what, secrets, allow_internal=allow_internal)
        else:
            sinks[name] = load_sink(what)
    return sinks


def _limits(given: tuple[str, ...]) -> dict[str, int | None]:
    limits: dict[str, int | None] = {}
    for text in given:
        name, equals, limit = text.partition("=")
        try:
            check_name(name, "a queue")
            limits[name] = int(limit) if equals else None
        except (ValueError, DefinitionError) as error:
            why = (
                str(error)
                if isinstance(error, DefinitionError)
                else f"the limit must be a number, not {limit!r}"
            )
            raise click.UsageError(f"--queue {text}: {why}") from None
        if (number := limits[name]) is not None and number < 1:
            raise CliError(Exit.USAGE, "usage", f"--queue {text}: the limit must be at least 1")
    return limits


def _counts(stats: WorkerStats) -> str:
    """Return the counts of a worker as text. All but the first two are left out if they are zero."""
    more = (
        (stats.failed, f"{counted(stats.failed, 'attempt')} failed"),
        (stats.released, f"{counted(stats.released, 'job')} given back"),
        (stats.fenced, f"{counted(stats.fenced, 'late result')} discarded"),
        (stats.sessions_lost, f"{counted(stats.sessions_lost, 'session')} lost"),
        (stats.store_errors, counted(stats.store_errors, "store error")),
        (stats.events, f"{counted(stats.events, 'event')} sent"),
        (stats.dead_lettered, f"{counted(stats.dead_lettered, 'stream')} dead-lettered"),
    )
    first = (f"{counted(stats.started, 'attempt')} started", f"{counted(stats.settled, 'result')} stored")
    return ", ".join((*first, *(text for number, text in more if number)))
