"""The handlers that the tests of Lambda's runtime client deploy."""

import asyncio
import os
import time
from collections import Counter
from typing import Any, Final

import anyio

from holdfast import Engine, Pipeline, Retry, stage, step, workflow
from holdfast.adapters.aws.sqs import SqsJobTransport
from holdfast.hosts.serverless.aws import cron_handler, queue_handler
from holdfast.kernel.authoring.stage_context import StageContext
from holdfast.kernel.authoring.step_context import step_context

PAUSE: Final = 0.1
served: Final[Counter[int]] = Counter()
"""Bodies by the event loop that ran them, in this process."""


@stage
async def where(number: int) -> list[int]:
    """Return the pid, and the number of bodies that its loop has run."""
    served[id(asyncio.get_running_loop())] += 1
    return [os.getpid(), served[id(asyncio.get_running_loop())], number]


@stage(retry=Retry(attempts=2))
async def blocks_once(ctx: StageContext, number: int) -> int:
    if ctx.attempt == 1:
        time.sleep(60)  # noqa: ASYNC251  # it lets nobody stop it
    return number


@step
async def wait(number: int) -> int:
    assert step_context().deadline is not None
    await anyio.sleep(PAUSE)
    return number


@workflow
async def counts(steps: int) -> int:
    return sum([await wait(number) for number in range(steps)])


WHERE: Final = Pipeline("where", input=int).pipe(where)
BLOCKS: Final = Pipeline("blocks", input=int).pipe(blocks_once)
WORKFLOWS: Final[list[Any]] = [WHERE, BLOCKS, counts]


def open_engine() -> Engine:
    return Engine.open(
        os.environ["DATABASE_URL"],
        workflows=WORKFLOWS,
        namespace=os.environ["NAMESPACE"],
        transport=SqsJobTransport(os.environ["QUEUE_URL"]),
    )


if "AWS_LAMBDA_RUNTIME_API" in os.environ:
    engine: Final = open_engine()
    on_jobs: Final = queue_handler(engine, limit=float(os.environ["LIMIT"]))
    on_timer: Final = cron_handler(engine, limit=float(os.environ["LIMIT"]))
