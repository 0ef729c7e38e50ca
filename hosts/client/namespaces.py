# Generated from hosts/client/sync_namespaces.py by `python -m tools.async_facade`. Do not edit.
"""Namespaces, for async code. Each method calls `SyncNamespaces` in a thread."""

from collections.abc import AsyncIterator

from holdfast.hosts.client.sync_namespaces import SyncNamespaces
from holdfast.hosts.execution.threads import in_thread, iterate_in_thread
from holdfast.hosts.inspection.namespaces import NamespaceDetails, NamespaceInfo
from holdfast.ports.actors import Actor


class Namespaces:
    """The namespaces of a store, for async code. `engine.namespaces` returns it.

    A namespace need not be created: any may be used. One that was created has a note, and may have quotas.
    """

    def __init__(self, sync: SyncNamespaces) -> None:
        self._sync = sync

    async def create(
        self,
        name: str,
        /,
        *,
        note: str = "",
        max_active_runs: int | None = None,
        max_starts_per_minute: int | None = None,
        actor: Actor | None = None,
    ) -> NamespaceInfo:
        """Create a namespace, or replace the note and the quotas of one.

        A quota holds in all processes within 15 seconds. It refuses starts of clients; schedules and the runs of the
        namespace itself start runs regardless, which count.

        Args:
            name: As `namespace` of `Engine.open`.
            note: What it is for, for people.
            max_active_runs: How many of its runs may be active for another to be started; any number if omitted.
            max_starts_per_minute: How many of its runs may have been created in the last minute, child runs and reruns
                included, for another to be started; any number if omitted.
            actor: Who issues the command; the engine's actor if omitted (see `Engine.acting_as`).

        Raises:
            InvalidNamespaceError: The name is too long or has other characters.
            InvalidArgumentError: An argument has the wrong type, or a quota is out of range.
            InvalidCommandError: The note is too long.
        """
        return await in_thread(
            lambda: self._sync.create(
                name,
                note=note,
                max_active_runs=max_active_runs,
                max_starts_per_minute=max_starts_per_minute,
                actor=actor,
            )
        )

    def list(self, *, after: str | None = None, limit: int | None = None) -> AsyncIterator[NamespaceInfo]:
        """Return the namespaces by name, page by page.

        They are those that were created, and those that have runs, schedules, triggers, sinks, topics or workers.

        Args:
            after: Only those after this name.
            limit: How many at most; all if omitted.

        Raises:
            InvalidFilterError: `limit` is not a number from 1.
            InvalidArgumentError: `after` is not a string.
        """
        return iterate_in_thread(self._sync.list(after=after, limit=limit))

    async def describe(self, name: str, /) -> NamespaceDetails:
        """Return a namespace with counts of what it has, whether it was created or not.

        Args:
            name: Its name.

        Raises:
            InvalidNamespaceError: The name is too long or has other characters.
        """
        return await in_thread(lambda: self._sync.describe(name))

    async def delete(self, name: str, /, *, purge: bool = False, actor: Actor | None = None) -> bool:
        """Delete a namespace. Return whether it had been created or, with `purge`, had anything.

        Args:
            name: Its name.
            purge: First remove its schedules, triggers and sinks, terminate its active runs without cleanup, and remove
                all of its runs and topics, in batches. It is safe to repeat the call.
            actor: Who issues the command; the engine's actor if omitted (see `Engine.acting_as`).

        Raises:
            NamespaceInUseError: It has runs, schedules, triggers, sinks or topics. With `purge`, runs that can't be
                removed yet, or that were started meanwhile: repeat the call later.
            InvalidNamespaceError: The name is too long or has other characters.
        """
        return await in_thread(lambda: self._sync.delete(name, purge=purge, actor=actor))
