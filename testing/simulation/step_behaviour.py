"""The behaviour of steps of simulated functions: how long they take and how often they fail."""

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from datetime import timedelta
from random import Random
from typing import Any, Final, Literal

import attrs

from holdfast.kernel.authoring.options import Retry
from holdfast.kernel.authoring.step_context import step_context
from holdfast.ports.errors import RetryAfter
from holdfast.testing.simulation.fibers import spend_time
from holdfast.testing.simulation.programs import mixed

PATIENT: Final = Retry(attempts=60, wait=timedelta(seconds=0.3), backoff=1.5, wait_max=timedelta(seconds=4))
"""A retry policy with so many attempts that lost workers never use them up; so the result of a function is known."""
driven_run: Final[ContextVar[str]] = ContextVar("driven", default="")
"""The key of the run whose step is called in this context."""


@attrs.frozen(kw_only=True)
class StepBehaviour:
    """The behaviour of a step: the first `fails` attempts fail in the way `how`; an attempt takes `seconds`."""

    salt: int
    seconds: float
    fails: int
    how: Literal["error", "retry_after", "hang"]

    def async_body(self) -> Callable[[int], Any]:
        """Return an async body with this behaviour."""

        async def body(number: int) -> int:
            await asyncio.sleep(3_600.0 if self._hangs else self.seconds)
            self.fail()
            return mixed(self.salt, number)

        return body

    def sync_body(self) -> Callable[[int], Any]:
        """Return a sync body with this behaviour."""

        def body(number: int) -> int:
            if self.seconds:
                spend_time(self.seconds)
            self.fail()
            return mixed(self.salt, number)

        return body

    def fail(self) -> None:
        """Raise in one of the first `fails` attempts."""
        if step_context().attempt > self.fails:
            return
        if self.how == "retry_after":
            raise RetryAfter(timedelta(seconds=2), "not yet")
        raise (KeyError if self.salt % 2 else ValueError)("not yet")

    @property
    def _hangs(self) -> bool:
        return self.how == "hang" and step_context().attempt <= self.fails


def draw_calling(random: Random) -> StepBehaviour:
    """Draw the behaviour of a step."""
    return StepBehaviour(
        salt=random.randrange(1_000),
        seconds=random.choice((0.0, 0.0, 0.1, 1.0, 4.0)),
        fails=random.choice((0, 0, 0, 0, 1, 2)),
        how=random.choice(("error", "error", "retry_after", "hang")),
    )


def run_key() -> str:
    """Return the key of the run whose step calls this. Attempts of earlier generations may have had another."""
    return driven_run.get() or step_context().idempotency_key.partition("/")[0]
