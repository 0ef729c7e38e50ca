"""What lets time pass in a world, for async tests."""

from collections.abc import Callable
from datetime import timedelta
from typing import Protocol, Unpack

from typing_extensions import TypeVar

from holdfast.hosts.client.sync_run_handle import SyncRunHandle
from holdfast.kernel.authoring.calls import Call
from holdfast.kernel.authoring.options import StartOptions
from holdfast.ports.durations import Duration
from holdfast.testing.body_runner import run_in_loop
from holdfast.testing.time_travel import Passing, time_to_pass

R = TypeVar("R")


class Start(Protocol):
    """What starts a run."""

    def __call__(self, call: Call[R], /, **options: Unpack[StartOptions]) -> SyncRunHandle[R]:
        """Start a run, of which nothing is done yet."""
        ...


class AsyncWorld:
    """`World.aio`: async bodies run on the event loop of the test, so they can use what belongs to it.

    Between jobs time passes at once, as ever. Within a body it is real, for the loop is the test's; and sync bodies run
    in threads, as workers run them.
    """

    def __init__(self, start: Start, passing: Callable[[], Passing]) -> None:
        self._start = start
        self._passing = passing

    async def run(self, call: Call[R], /, **options: Unpack[StartOptions]) -> R:
        """Start a run, let time pass until it ends, and return what it gives. See `World.run`."""
        return await self.result(self._start(call, **options))

    async def result(self, run: SyncRunHandle[R], /) -> R:
        """Let time pass until a run ends, and return what it gives. Raises what `World.run` does."""
        row = await run_in_loop(self._passing().until_ended(run.row().key, None))
        return run.output(row)

    async def work(self) -> None:
        """Do everything that is due now. See `World.work`."""
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
        """Let so much time pass, and do on the way what becomes due. See `World.advance`."""
        await run_in_loop(self._passing().by(time_to_pass(by, days, hours, minutes, seconds)))

    async def run_until_quiet(self, *, within: Duration | None = None) -> None:
        """Let time pass until nothing is left that time alone would bring. See `World.run_until_quiet`."""
        await run_in_loop(self._passing().until_quiet(within))
