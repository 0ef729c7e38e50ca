"""The metrics of this process: what it dispatches, the bodies that it runs, the requests that it answers."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from holdfast.hosts.metrics.label_limit import LabelLimit
from holdfast.hosts.wiring.interceptors import BodyCall, CommandBatch
from holdfast.kernel.commands import (
    Command,
    CompletedAfterStep,
    Failed,
    FunctionWaiting,
    JobRelease,
    JobReleased,
    JobSettle,
    JobSettled,
    LeasesReaped,
    PollNotReady,
    QueuedStepFailed,
    StageSuspended,
)
from holdfast.ports.errors import CommandError

_SHORT: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""Bounds of histograms of requests and commits, in seconds."""
_LONG: Final = (0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 1_800.0, 7_200.0)
"""Bounds of histograms of bodies, in seconds."""
_COUNTS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500)


class ProcessMetrics:
    """Counters and histograms. It is an interceptor of dispatches and bodies.

    Args:
        registry: Where they are registered.
        monotonic: Returns the time in seconds.
    """

    def __init__(self, registry: CollectorRegistry, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._commit_seconds = Histogram(
            "holdfast_commit_seconds",
            "This process: time to store a batch of commands.",
            registry=registry,
            buckets=_SHORT,
        )
        self._commit_commands = Histogram(
            "holdfast_commit_commands",
            "This process: commands in a batch.",
            registry=registry,
            buckets=_COUNTS,
        )
        self._commands = Counter(
            "holdfast_commands",
            "This process: commands by what became of them. failed: the store did not answer.",
            ("command", "outcome"),
            registry=registry,
        )
        self._attempts = Counter(
            "holdfast_attempts",
            "This process: attempts by their end. waiting: it continues later. retried: another one follows. fenced: "
            "its result came too late. lost: it was freed from a lost worker.",
            ("outcome",),
            registry=registry,
        )
        self._body_seconds = Histogram(
            "holdfast_body_seconds",
            "This process: duration of the bodies of stages and steps.",
            ("workflow", "node", "outcome"),
            registry=registry,
            buckets=_LONG,
        )
        self._bodies = Gauge(
            "holdfast_bodies_running", "This process: bodies of stages and steps that run.", registry=registry
        )
        self._request_seconds = Histogram(
            "holdfast_http_request_seconds",
            "This process: duration of requests, without streams and those that waited.",
            ("operation", "status"),
            registry=registry,
            buckets=_SHORT,
        )
        self._reads = {
            kind: Gauge(f"holdfast_{kind}_open", text, ("operation",), registry=registry)
            for kind, text in (
                ("streams", "This process: open streams of events."),
                ("waits", "This process: requests that wait."),
            )
        }
        self._auth_failures = Counter(
            "holdfast_auth_failures",
            "This process: requests without valid credentials, or without the right.",
            ("kind",),
            registry=registry,
        )
        self._rate_limited = Counter(
            "holdfast_rate_limited",
            "This process: requests that were refused because their principal sent too many.",
            registry=registry,
        )
        self._nodes = LabelLimit()

    @contextmanager
    def dispatch(self, batch: CommandBatch, /) -> Generator[None]:
        """Measure a dispatch."""
        began = self._monotonic()
        try:
            yield
        except Exception:
            for command in batch.commands:
                self._commands.labels(command.type, "failed").inc()
            raise
        self._commit_seconds.observe(self._monotonic() - began)
        self._commit_commands.observe(len(batch.commands))
        for command, answer in zip(batch.commands, batch.answers, strict=True):
            self._commands.labels(command.type, _outcome_of(answer)).inc()
            if (end := _end_of_attempt(command, answer)) is not None:
                self._attempts.labels(end).inc()
            if isinstance(answer, LeasesReaped):
                self._attempts.labels("lost").inc(answer.freed + answer.dead)

    @contextmanager
    def body(self, call: BodyCall, /) -> Generator[None]:
        """Measure a body."""
        began = self._monotonic()
        self._bodies.inc()
        outcome = "cancelled"
        try:
            yield
            outcome = "completed"
        except Exception:
            outcome = "failed"
            raise
        finally:
            self._bodies.dec()
            names = self._nodes(call.workflow, call.step or call.stage)
            self._body_seconds.labels(*names, outcome).observe(self._monotonic() - began)

    def request_answered(self, operation: str, status: int, seconds: float) -> None:
        """Count a request that was neither a stream nor waited. `operation` is one of the table's names."""
        self._request_seconds.labels(operation, f"{status // 100}xx").observe(seconds)

    def refused(self, kind: str) -> None:
        """Count a request without valid credentials or without the right. `kind` is the code of its problem."""
        self._auth_failures.labels(kind).inc()

    def rate_limited(self) -> None:
        """Count a request that was refused because its principal sent too many."""
        self._rate_limited.inc()

    @contextmanager
    def open_read(self, kind: str, operation: str) -> Generator[None]:
        """Count one of the `streams` or `waits` for as long as the block lasts."""
        with self._reads[kind].labels(operation).track_inprogress():
            yield


def _outcome_of(answer: object) -> str:
    return "refused" if isinstance(answer, CommandError) else "done"


def _end_of_attempt(command: Command[object], answer: object) -> str | None:
    """Return how an attempt ended by a command; None if none did."""
    match command, answer:
        case JobSettle(outcome=outcome), JobSettled(status="settled", retry_at=retry_at):
            if isinstance(outcome, FunctionWaiting | PollNotReady | StageSuspended):
                return "waiting"
            if isinstance(outcome, CompletedAfterStep) and retry_at is not None:
                return "waiting"  # its end was not stored
            if not isinstance(outcome, Failed | QueuedStepFailed):
                return "completed"
            return "failed" if retry_at is None else "retried"
        case ((JobSettle() | JobRelease()), (JobSettled() | JobReleased())):
            return answer.status if answer.status == "released" else "fenced"
        case _:
            return None
