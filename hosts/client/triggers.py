# Generated from hosts/client/sync_triggers.py by `python -m tools.async_facade`. Do not edit.
"""Triggers, by which messages of topics start runs, for async code. Each method calls `SyncTriggers` in a thread."""

from collections.abc import AsyncIterator

from holdfast.hosts.client.sync_triggers import SyncTriggers
from holdfast.hosts.execution.threads import in_thread, iterate_in_thread
from holdfast.hosts.inspection.triggers import TriggerInfo
from holdfast.kernel.authoring.triggers import Trigger
from holdfast.ports.actors import Actor


class Triggers:
    """The triggers of a namespace, for async code. `engine.triggers` returns it."""

    def __init__(self, sync: SyncTriggers) -> None:
        self._sync = sync

    async def put(self, trigger: Trigger[object], /, *, actor: Actor | None = None) -> TriggerInfo:
        """Create a trigger, or update the one with its name, and return it.

        A trigger that is updated goes on where it is. With other messages, or another `since`, it begins anew. A
        paused trigger stays paused. Triggers that belong to the code are declared instead:
        `Engine.open(triggers=[...])`.

        Args:
            trigger: The trigger.
            actor: Who issues the command; the engine's actor if omitted (see `Engine.acting_as`).

        Raises:
            InvalidArgumentError: It is not a `Trigger`.
            UnknownWorkflowError: The engine lacks the code of its workflow.
            InvalidCommandError: Its `since` is in the future.
        """
        return await in_thread(lambda: self._sync.put(trigger, actor=actor))

    async def list(self, *, after: str | None = None, limit: int | None = None) -> AsyncIterator[TriggerInfo]:
        """Return the triggers of this namespace, sorted by name. They are read page by page.

        Args:
            after: Only the triggers whose names sort after this one.
            limit: The maximum number of triggers; None for all.

        Raises:
            InvalidFilterError: `limit` is not a number of at least 1.
            InvalidArgumentError: `after` is not a string.
        """
        found = await in_thread(lambda: self._sync.list(after=after, limit=limit))
        async for one in iterate_in_thread(found):
            yield one

    async def get(self, name: str, /) -> TriggerInfo:
        """Return a trigger.

        Args:
            name: Its name.

        Raises:
            TriggerNotFoundError: There is no such trigger.
        """
        return await in_thread(lambda: self._sync.get(name))

    async def pause(self, name: str, /, *, reason: str = "", actor: Actor | None = None) -> TriggerInfo:
        """Pause a trigger, so that it starts no run until it is resumed, and return it.

        The topic keeps the messages that are published meanwhile.

        Args:
            name: Its name.
            reason: Why, for people.
            actor: Who issues the command; the engine's actor if omitted (see `Engine.acting_as`).

        Raises:
            TriggerNotFoundError: There is no such trigger.
        """
        return await in_thread(lambda: self._sync.pause(name, reason=reason, actor=actor))

    async def resume(self, name: str, /, *, skip: bool = False, actor: Actor | None = None) -> TriggerInfo:
        """Resume a trigger that is paused, and return it.

        Args:
            name: Its name.
            skip: Pass over the messages that were published during the pause. Otherwise each starts its run.
            actor: Who issues the command; the engine's actor if omitted (see `Engine.acting_as`).

        Raises:
            TriggerNotFoundError: There is no such trigger.
        """
        return await in_thread(lambda: self._sync.resume(name, skip=skip, actor=actor))

    async def remove(self, name: str, /, *, actor: Actor | None = None) -> bool:
        """Remove a trigger. Its runs stay. Return whether it existed.

        Args:
            name: Its name.
            actor: Who issues the command; the engine's actor if omitted (see `Engine.acting_as`).
        """
        return await in_thread(lambda: self._sync.remove(name, actor=actor))
