"""Which stages may take longer than a function lasts: asked before anything is deployed."""

from collections.abc import Iterable, Iterator
from datetime import timedelta

from holdfast.hosts.client.engine import Engine
from holdfast.hosts.serverless.aws.invocations import margin_of
from holdfast.kernel.pipelines.plan import DEFAULT_QUEUE, StagePlan, stage_of
from holdfast.ports.durations import Duration
from holdfast.ports.errors import DefinitionError
from holdfast.ports.validation import duration


def check_limit(engine: Engine, *, limit: Duration, queues: Iterable[str] | None = None) -> None:
    """Find the stages that a function can't serve because it ends before they have to.

    Making a `queue_handler` does the same. Stages without a timeout have as long as there is, and durable functions
    rest and go on in the next invocation, however long they take.

    Args:
        engine: Whose workflows to look at.
        limit: How long the function lasts, a timedelta or seconds: its `Timeout`.
        queues: The queues that it serves; None for all.

    Raises:
        DefinitionError: A stage may take longer, and so may be stopped before its time: all of them are named.
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
            f"functions that end after {timedelta(seconds=seconds)} have {timedelta(seconds=most)} for a body, and "
            f"{'; '.join(found)}: shorten the timeout, let the function last longer, or have a worker do it, with a "
            "queue of its own that is none of the handler's `queues`"
        )


def _timeouts(engine: Engine) -> Iterator[tuple[str, str, int]]:
    """Yield what may take how long, in microseconds, and in which queue it is."""
    for plan in engine.core.registry.plans:
        for stage in (stage_of(node) for group in plan.groups for node in group.nodes):
            for what, most in _bodies(stage):
                if most is not None:
                    yield f"{what} {stage.name!r} of {plan.definition}", stage.queue or DEFAULT_QUEUE, most


def _bodies(stage: StagePlan) -> Iterator[tuple[str, int | None]]:
    yield "the stage", stage.timeout_us
    if stage.check is not None:
        yield "the check of", stage.check.timeout_us
    if stage.cancel is not None:
        yield "what cancels", stage.cancel.timeout_us
