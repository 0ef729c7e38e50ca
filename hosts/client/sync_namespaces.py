"""Namespaces of a store, created, described and deleted, for synchronous code."""

from collections.abc import Iterator

from holdfast.hosts.client.client import Client
from holdfast.hosts.client.purges import purge_page
from holdfast.hosts.inspection.filters import checked_limit
from holdfast.hosts.inspection.namespaces import (
    NamespaceDetails,
    NamespaceInfo,
    namespace_details,
    namespace_info,
    namespace_infos,
)
from holdfast.kernel.commands import NamespaceCreate, NamespaceDelete
from holdfast.kernel.commands.namespaces import QUOTA_MAX
from holdfast.ports.actors import Actor
from holdfast.ports.blobs import is_blob_key_part
from holdfast.ports.errors import InvalidNamespaceError
from holdfast.ports.validation import TEXT, TRUTH, check, integer


class SyncNamespaces:
    """The namespaces of a store, for synchronous code. `engine.sync.namespaces` returns it.

    A namespace need not be created: any may be used. One that was created has a note, and may have quotas.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._core = client.core

    def create(
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
        check("namespaces.create", TEXT, note=note)
        quota = integer(0, QUOTA_MAX).or_none
        check("namespaces.create", quota, max_active_runs=max_active_runs)
        check("namespaces.create", quota, max_starts_per_minute=max_starts_per_minute)
        _check_name("create", name)
        self._client.acting_as(actor).dispatch(
            NamespaceCreate(
                namespace=name,
                note=note,
                max_active_runs=max_active_runs,
                max_starts_per_minute=max_starts_per_minute,
            )
        )
        return namespace_info(self._core, name)

    def list(self, *, after: str | None = None, limit: int | None = None) -> Iterator[NamespaceInfo]:
        """Return the namespaces by name, page by page.

        They are those that were created, and those that have runs, schedules, triggers, sinks, topics or workers.

        Args:
            after: Only those after this name.
            limit: How many at most; all if omitted.

        Raises:
            InvalidFilterError: `limit` is not a number from 1.
            InvalidArgumentError: `after` is not a string.
        """
        check("namespaces.list", TEXT.or_none, after=after)
        return namespace_infos(self._core, after, checked_limit(limit))

    def describe(self, name: str, /) -> NamespaceDetails:
        """Return a namespace with counts of what it has, whether it was created or not.

        Args:
            name: Its name.

        Raises:
            InvalidNamespaceError: The name is too long or has other characters.
        """
        _check_name("describe", name)
        return namespace_details(self._core, name)

    def delete(self, name: str, /, *, purge: bool = False, actor: Actor | None = None) -> bool:
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
        check("namespaces.delete", TRUTH, purge=purge)
        _check_name("delete", name)
        client = self._client.acting_as(actor)
        return _purge(client, name) if purge else client.dispatch(NamespaceDelete(namespace=name)).deleted


def _check_name(method: str, name: str) -> None:
    check(f"namespaces.{method}", TEXT, name=name)
    if not is_blob_key_part(name):
        raise InvalidNamespaceError(name)


def _purge(client: Client, name: str) -> bool:
    """Remove everything in a namespace, and delete it. Return whether there was anything."""
    had_any, place = False, None
    while True:
        page = purge_page(client, name, place)
        had_any |= page.seen > 0
        place = page.next
        if place is None:
            return page.deleted or had_any
