"""Checks before a deploy that no stage may take longer than the Lambda function."""

from collections.abc import Iterable, Iterator
from datetime import timedelta

from holdfast.hosts.client.engine import Engine
from holdfast.hosts.serverless.aws.invocations import margin_of
from holdfast.kernel.pipelines.plan import DEFAULT_QUEUE, StagePlan, stage_of
from holdfast.ports.durations import Duration
from holdfast.ports.errors import DefinitionError
from holdfast.ports.validation import duration


def check_limit(engine: Engine, *, limit: Duration, queues: Iterable[str] | None = None) -> None:
    """Raise DefinitionError if a stage may take longer than a function lasts. `queue_handler` calls this too.

    Stages without a timeout pass: they get the time that is left. Durable functions pass too: they are parked and
    continue in the next invocation.

    Args:
        engine: The engine with the workflows to check.
        limit: The `Timeout` of the function, a timedelta or a number of seconds.
        queues: The queues of jobs that it serves; None for all.

    Raises:
        DefinitionError: Names all stages that may take longer.
    """
    seconds = duration("check_limit", "limit", limit).total_seconds()
    served = None if queues is None else frozenset(queues)
    most = seconds - margin_of(seconds)
    found = [
        f"{where} may take {timedelta(microseconds=most_us)}"
        for where, queue, most_us in _timeouts(engine)
        if most_us > most * 1_000_000 and (served is None or queue in served)
    ]
    if found:
        raise DefinitionError(
            f"functions with a timeout of {timedelta(seconds=seconds)} leave {timedelta(seconds=most)} for a body, and "
            f"{'; '.join(found)}: shorten the timeout, raise the function's timeout, or let a worker run it, from a "
            "queue that is not among the handler's `queues`"
        )


def _timeouts(engine: Engine) -> Iterator[tuple[str, str, int]]:
    """Yield each body with a timeout: its name, its queue, and the timeout in microseconds."""
    for plan in engine.core.registry.plans:
        for stage in (stage_of(node) for group in plan.groups for node in group.nodes):
            for what, most in _bodies(stage):
                if most is not None:
                    yield f"{what} {stage.name!r} of {plan.definition}", stage.queue or DEFAULT_QUEUE, most


def _bodies(stage: StagePlan) -> Iterator[tuple[str, int | None]]:
    if stage.remote is None:
        yield "the stage", stage.timeout_us
    if stage.check is not None:
        yield "the check of", stage.check.timeout_us
    if stage.cancel is not None:
        yield "what cancels", stage.cancel.timeout_us
