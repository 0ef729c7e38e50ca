"""The AWS Lambda handler that runs maintenance on a timer."""

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
    """The handler that `cron_handler` returns. Call it with any event, and the Lambda context."""

    def __init__(self, host: ServerlessHost, *, limit: float) -> None:
        self._host = host
        self._limit = limit

    def __call__(
        self, event: Mapping[str, Any] | None = None, context: Context | None = None, /
    ) -> dict[str, Any]:
        """Run maintenance until nothing is left or the time is over.

        Returns:
            What was done: the fields of `Tick`.

        Raises:
            UnavailableError: The store can't be reached. The next call makes up for it.
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
    """Return a handler for a function that a timer invokes once a minute.

    It wakes sleeping jobs, recovers the jobs of killed functions, announces jobs again whose messages may be lost, and
    delivers events to sinks. Concurrent or repeated calls do no harm.

    Args:
        engine: The engine whose namespace to maintain.
        limit: The `Timeout` of this function, a timedelta or a number of seconds.
        job_limit: The `Timeout` of the functions that run jobs, if that is longer.
        sinks: The sinks to deliver events to, by their registered names.
        retention: How long ended runs are kept, at least an hour; None for ever.

    Raises:
        InvalidArgumentError: An argument has the wrong type or is out of bounds.
    """
    seconds = duration("cron_handler", "limit", limit).total_seconds()
    jobs = seconds if job_limit is None else duration("cron_handler", "job_limit", job_limit).total_seconds()
    host = ServerlessHost(engine, time_limit=max(seconds, jobs), sinks=sinks, retention=retention)
    return CronHandler(host, limit=seconds)
