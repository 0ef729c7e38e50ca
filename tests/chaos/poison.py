"""Durable functions with poison steps, which kill their process, and others that run beside them."""

import asyncio
import os
import signal
from datetime import timedelta
from typing import Final

import anyio

from holdfast import Retry, step, workflow
from holdfast.ports.errors import StepLostError
from tests.chaos.execution_log import book, work_seconds
from tests.chaos.functions import written_down

STEP_TRIES: Final = 6


@step(retry=Retry(attempts=STEP_TRIES, wait=timedelta(0)))
async def swallow_all() -> None:
    """Kill the process with a signal, so that Python cannot clean up."""
    with written_down():
        book().write_fault("poison")
        os.kill(os.getpid(), signal.SIGKILL)


@step(retry=Retry(attempts=2, wait=timedelta(0)))
async def live(number: int) -> int:
    with written_down():
        await anyio.sleep(work_seconds())
        return number


@workflow
async def live_on(number: int) -> int:
    return await live(number)


@workflow
async def swallow_beside(width: int) -> list[str]:
    """Run a poison step and harmless steps concurrently."""

    async def deadly() -> str:
        try:
            await swallow_all()
        except StepLostError:
            return "lost"
        return "done"

    async def harmless(number: int) -> str:
        return str(await live(number))

    return list(await asyncio.gather(deadly(), *(harmless(number) for number in range(width))))
