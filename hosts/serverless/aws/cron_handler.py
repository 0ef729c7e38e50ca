"""The maintenance that a timer has done, in a function of AWS Lambda."""

from collections.abc import Mapping
from typing import Any

from attrs import asdict

from holdfast.hosts.client.engine import Engine
from holdfast.hosts.serverless.aws.invocations import Context, Deadline, margin_of
from holdfast.hosts.serverless.host import ServerlessHost
from holdfast.ports.durations import Duration
from holdfast.ports.events import EventSink
from holdfast.ports.validation import duration


class CronHandler:
    """What `cron_handler` returns. Call it with any event, and its context."""

    def __init__(self, host: ServerlessHost, *, limit: float) -> None:
        self._host = host
        self._limit = limit

    def __call__(
        self, event: Mapping[str, Any] | None = None, context: Context | None = None, /
    ) -> dict[str, Any]:
        """Do a round of maintenance, and further ones until nothing is left, or the time is over.

        Return what was done, as `Tick` has it.

        Raises:
            UnavailableError: The store did not answer in time. Nothing is lost: the next round does it all.
        """
        deadline = Deadline(context, limit=self._limit, margin=margin_of(self._limit))
        tick = self._host.run_maintenance_tick(keep_on=lambda: deadline.seconds_left > 0)
        done: dict[str, Any] = asdict(tick)
        return done


def cron_handler(
    engine: Engine,
    /,
    *,
    limit: Duration,
    job_limit: Duration | None = None,
    sinks: Mapping[str, EventSink] | None = None,
    retention: Duration | None = None,
) -> CronHandler:
    """Return a handler for a function that a timer invokes, once a minute.

    It wakes what sleeps, brings back the jobs of functions that were killed, announces again those whose messages may
    have been lost, and brings events to sinks. Twice at once, or again, does no harm.

    Args:
        engine: Whose jobs to look after.
        limit: How long this function lasts, a timedelta or seconds: its `Timeout`.
        job_limit: How long the functions last that carry out jobs, if that is longer.
        sinks: What takes events, by the names under which sinks are registered.
        retention: How long runs are kept that have ended; None for ever.

    Raises:
        InvalidArgumentError: One of these is of another kind.
    """
    seconds = duration("cron_handler", "limit", limit).total_seconds()
    jobs = seconds if job_limit is None else duration("cron_handler", "job_limit", job_limit).total_seconds()
    host = ServerlessHost(engine, time_limit=max(seconds, jobs), sinks=sinks, retention=retention)
    return CronHandler(host, limit=seconds)
