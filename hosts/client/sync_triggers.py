"""Triggers, by which messages of topics start runs, for synchronous code."""

from collections.abc import Iterator

from holdfast.hosts.client.client import Client
from holdfast.hosts.client.trigger_commands import TRIGGER, trigger_command
from holdfast.hosts.inspection.filters import checked_limit
from holdfast.hosts.inspection.triggers import TriggerInfo, read_trigger, trigger_entries, trigger_info
from holdfast.kernel.authoring.triggers import Trigger
from holdfast.kernel.commands import TriggerPause, TriggerRemove, TriggerResume
from holdfast.ports.actors import Actor
from holdfast.ports.structs import evolve
from holdfast.ports.validation import TEXT, TRUTH, check


class SyncTriggers:
    """The triggers of a namespace, for synchronous code. `engine.sync.triggers` returns it."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._core = client.core

    def put(self, trigger: Trigger[object], /, *, actor: Actor | None = None) -> TriggerInfo:
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
        check("triggers.put", TRIGGER, trigger=trigger)
        self._client.dispatch(evolve(trigger_command(self._core, trigger), actor=actor))
        self._client.fire_triggers()
        return read_trigger(self._core, trigger.name)

    def list(self, *, after: str | None = None, limit: int | None = None) -> Iterator[TriggerInfo]:
        """Return the triggers of this namespace, sorted by name. They are read page by page.

        Args:
            after: Only the triggers whose names sort after this one.
            limit: The maximum number of triggers; None for all.

        Raises:
            InvalidFilterError: `limit` is not a number of at least 1.
            InvalidArgumentError: `after` is not a string.
        """
        check("triggers.list", TEXT.or_none, after=after)
        most = checked_limit(limit)
        return (trigger_info(entry) for entry in trigger_entries(self._core, after, most))

    def get(self, name: str, /) -> TriggerInfo:
        """Return a trigger.

        Args:
            name: Its name.

        Raises:
            TriggerNotFoundError: There is no such trigger.
        """
        check("triggers.get", TEXT, name=name)
        return read_trigger(self._core, name)

    def pause(self, name: str, /, *, reason: str = "", actor: Actor | None = None) -> TriggerInfo:
        """Pause a trigger, so that it starts no run until it is resumed, and return it.

        The topic keeps the messages that are published meanwhile.

        Args:
            name: Its name.
            reason: Why, for people.
            actor: Who issues the command; the engine's actor if omitted (see `Engine.acting_as`).

        Raises:
            TriggerNotFoundError: There is no such trigger.
        """
        check("triggers.pause", TEXT, name=name, reason=reason)
        self._client.dispatch(
            TriggerPause(namespace=self._core.namespace, trigger=name, reason=reason, actor=actor)
        )
        return read_trigger(self._core, name)

    def resume(self, name: str, /, *, skip: bool = False, actor: Actor | None = None) -> TriggerInfo:
        """Resume a trigger that is paused, and return it.

        Args:
            name: Its name.
            skip: Pass over the messages that were published during the pause. Otherwise each starts its run.
            actor: Who issues the command; the engine's actor if omitted (see `Engine.acting_as`).

        Raises:
            TriggerNotFoundError: There is no such trigger.
        """
        check("triggers.resume", TEXT, name=name)
        check("triggers.resume", TRUTH, skip=skip)
        self._client.dispatch(
            TriggerResume(namespace=self._core.namespace, trigger=name, skip=skip, actor=actor)
        )
        self._client.fire_triggers()
        return read_trigger(self._core, name)

    def remove(self, name: str, /, *, actor: Actor | None = None) -> bool:
        """Remove a trigger. Its runs stay. Return whether it existed.

        Args:
            name: Its name.
            actor: Who issues the command; the engine's actor if omitted (see `Engine.acting_as`).
        """
        check("triggers.remove", TEXT, name=name)
        remove = TriggerRemove(namespace=self._core.namespace, trigger=name, actor=actor)
        return self._client.dispatch(remove).removed
