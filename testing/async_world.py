"""The async methods of `World`, for async tests."""

from collections.abc import Callable
from datetime import timedelta
from typing import Protocol, Unpack

from typing_extensions import TypeVar

from holdfast.hosts.client.sync_run_handle import SyncRunHandle
from holdfast.kernel.authoring.calls import Call
from holdfast.kernel.authoring.options import StartOptions
from holdfast.ports.durations import Duration
from holdfast.testing.body_runner import run_in_loop
from holdfast.testing.time_travel import TimeAdvancer, time_to_pass

R = TypeVar("R")


class Start(Protocol):
    """A function that starts a run."""

    def __call__(self, call: Call[R], /, **options: Unpack[StartOptions]) -> SyncRunHandle[R]:
        """Start a run. No job of it runs yet."""
        ...


class AsyncWorld:
    """`World.aio`: runs async bodies on the event loop of the test, so that they can use its objects.

    Time between jobs is skipped, as in `World`. Within a body it is real, because the loop belongs to the test. Sync
    bodies run in threads, as in a worker.
    """

    def __init__(self, start: Start, passing: Callable[[], TimeAdvancer]) -> None:
        self._start = start
        self._passing = passing

    async def run(self, call: Call[R], /, **options: Unpack[StartOptions]) -> R:
        """Start a run, advance time until it ends, and return its result. See `World.run`."""
        return await self.result(self._start(call, **options))

    async def result(self, run: SyncRunHandle[R], /) -> R:
        """Advance time until a run ends, and return its result. Raises the same errors as `World.run`."""
        row = await run_in_loop(self._passing().until_ended(run.row().key, None))
        return run.output(row)

    async def work(self) -> None:
        """Run every job that is due now. See `World.work`."""
        await run_in_loop(self._passing().by(timedelta()))

    async def advance(
        self,
        by: Duration | None = None,
        /,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
    ) -> None:
        """Advance time, and run jobs as they become due. See `World.advance`."""
        await run_in_loop(self._passing().by(time_to_pass(by, days, hours, minutes, seconds)))

    async def run_until_quiet(self, *, within: Duration | None = None) -> None:
        """Advance time until no job or timer is left. See `World.run_until_quiet`."""
        await run_in_loop(self._passing().until_quiet(within))
