# Generated from hosts/client/sync_limits.py by `python -m tools.async_facade`. Do not edit.
"""Limits and queues, for async code. Each method calls `SyncLimits` in a thread."""

from holdfast.hosts.client.sync_limits import SyncLimits
from holdfast.hosts.execution.threads import in_thread
from holdfast.hosts.inspection.limits import LimitInfo
from holdfast.kernel.authoring.options import Rate
from holdfast.ports.actors import Actor


class Limits:
    """The limits and queues of a namespace, for async code. `engine.limits` returns it.

    A change holds at once, on all hosts and without a deploy, also for what waits already. It interrupts nothing.
    """

    def __init__(self, sync: SyncLimits) -> None:
        self._sync = sync

    async def set(
        self,
        name: str,
        /,
        *,
        slots: int | None = None,
        rate: Rate | None = None,
        paused: bool | None = None,
        reason: str = "",
        actor: Actor | None = None,
    ) -> LimitInfo:
        """Set a limit in place of that of the code, or pause or unpause a queue, and return it as it is now.

        What is not given stays as it was set before.

        Args:
            name: `run:<concurrency key>`, `run-rate:<name>`, `stage:<workflow>/<stage>`, `step:<step>`, `slots:<name>`,
                `rate:<name>` or `queue:<queue>`. If a limit is counted by an attribute (`by`), `/<text>` after its name
                sets it for one text only.
            slots: How many may be under way; 0 admits nothing more. Of `run:`, `stage:`, `step:` and `slots:`.
            rate: How many may start in a period: `Rate(300, per=timedelta(minutes=1))`, without `name` and `by`. Of
                `run-rate:`, `stage:`, `step:` and `rate:`.
            paused: Whether nothing is claimed from the queue. What runs goes on. Of queues only.
            reason: Why, for people.
            actor: Who issues the command; the engine's actor if omitted (see `Engine.acting_as`).

        Raises:
            InvalidArgumentError: An argument has the wrong type, or this engine's code has no such limit.
            InvalidCommandError: The name is of no known kind, or its kind does not have the value.
        """
        return await in_thread(
            lambda: self._sync.set(name, slots=slots, rate=rate, paused=paused, reason=reason, actor=actor)
        )

    async def clear(self, name: str, /, *, reason: str = "", actor: Actor | None = None) -> LimitInfo:
        """Clear what was set, so that the code decides again and a queue is unpaused. Return it as it is now.

        Args:
            name: As for `set`.
            reason: Why, for people.
            actor: Who issues the command; the engine's actor if omitted (see `Engine.acting_as`).

        Raises:
            InvalidCommandError: The name is of no known kind.
        """
        return await in_thread(lambda: self._sync.clear(name, reason=reason, actor=actor))

    async def get(self, name: str, /) -> LimitInfo:
        """Return one limit or queue as it is now, whether or not it was ever set.

        Args:
            name: As for `set`.

        Raises:
            InvalidCommandError: The name is of no known kind.
        """
        return await in_thread(lambda: self._sync.get(name))

    async def list(self) -> tuple[LimitInfo, ...]:
        """Return the limits and queues that are set, and the limits for which something waits, by name.

        Of the latter, the first 1,000 keys of runs, and of stages and steps, are listed.
        """
        return await in_thread(self._sync.list)
