# Generated from hosts/http_client/administration.py by `python -m tools.sync_client`. Do not edit.
"""Limits, API keys and namespaces of a server, for synchronous code."""

from collections.abc import Collection, Iterator
from datetime import datetime, timedelta

import attrs

from holdfast.hosts.client.api_keys import GRACE
from holdfast.hosts.http.key_operations import KeyPage, KeyRequest, KeyRevocation, KeyRotation
from holdfast.hosts.http.limit_operations import LimitChange, LimitClearing, LimitList, RateBound
from holdfast.hosts.http.namespace_operations import (
    NamespaceDeleted,
    NamespaceDeletion,
    NamespacePage,
    NamespaceRequest,
)
from holdfast.hosts.http.operations import PageQuery, Reason
from holdfast.hosts.http.run_actions import Removed
from holdfast.hosts.http.trigger_operations import TriggerPage, TriggerResumption
from holdfast.hosts.http_client.sync_server import SyncServer
from holdfast.hosts.inspection.filters import checked_limit
from holdfast.hosts.inspection.keys import KeyInfo, NewKey
from holdfast.hosts.inspection.limits import LimitInfo
from holdfast.hosts.inspection.namespaces import NamespaceDetails, NamespaceInfo
from holdfast.hosts.inspection.triggers import TriggerInfo
from holdfast.kernel.authoring.options import Rate
from holdfast.ports.durations import Duration
from holdfast.ports.errors import InvalidArgumentError
from holdfast.ports.scopes import Scope
from holdfast.ports.validation import AWARE, TEXT, TRUTH, an, check, duration, several


class SyncRemoteLimits:
    """The limits and queues of a namespace, for synchronous code. `client.limits` returns it."""

    def __init__(self, server: SyncServer) -> None:
        self._server = server

    def set(
        self,
        name: str,
        /,
        *,
        slots: int | None = None,
        rate: Rate | None = None,
        paused: bool | None = None,
        reason: str = "",
    ) -> LimitInfo:
        """Set a limit in place of that of the code, or pause or unpause a queue, and return it as it is now.

        What is not given stays as it was set before.

        Args:
            name: `run:<concurrency key>`, `run-rate:<name>`, `stage:<workflow>/<stage>`, `step:<step>`, `slots:<name>`,
                `rate:<name>` or `queue:<queue>`.
            slots: How many may be under way; 0 admits nothing more. Of `run:`, `stage:`, `step:` and `slots:`.
            rate: How many may start in a period: `Rate(300, per=timedelta(minutes=1))`, without `name` and `by`. Of
                `run-rate:`, `stage:`, `step:` and `rate:`.
            paused: Whether nothing is claimed from the queue. What runs goes on. Of queues only.
            reason: Why, for people.

        Raises:
            InvalidArgumentError: An argument has the wrong type, or the server's code has no such limit.
            InvalidCommandError: The name is of no known kind, or its kind does not have the value.
        """
        check("limits.set", TEXT, name=name, reason=reason)
        check("limits.set", an("a Rate(...)", Rate).or_none, rate=rate)
        check("limits.set", TRUTH.or_none, paused=paused)
        if rate is not None and (rate.name is not None or rate.by is not None):
            raise InvalidArgumentError(
                "rate", "the rate has a name or `by`: which rate is set is said by the name of the limit"
            )
        bound = None if rate is None else RateBound(limit=rate.limit, period=rate.per)
        body = LimitChange(slots=slots, rate=bound, paused=paused, reason=reason)
        return self._server.call("limit.set", LimitInfo, {"name": name}, body=body)

    def clear(self, name: str, /, *, reason: str = "") -> LimitInfo:
        """Clear what was set, so that the code decides again and a queue is unpaused. Return it as it is now.

        Args:
            name: As for `set`.
            reason: Why, for people.

        Raises:
            InvalidCommandError: The name is of no known kind.
        """
        check("limits.clear", TEXT, name=name, reason=reason)
        query = LimitClearing(reason=reason)
        return self._server.call("limit.clear", LimitInfo, {"name": name}, query=query)

    def get(self, name: str, /) -> LimitInfo:
        """Return one limit or queue as it is now, whether or not it was ever set.

        Args:
            name: As for `set`.

        Raises:
            InvalidCommandError: The name is of no known kind.
        """
        check("limits.get", TEXT, name=name)
        return self._server.call("limit.get", LimitInfo, {"name": name})

    def list(self) -> tuple[LimitInfo, ...]:
        """Return the limits and queues that are set, and the limits for which something waits, by name."""
        return (self._server.call("limit.list", LimitList)).items


class RemoteTriggers:
    """The triggers of a namespace, for synchronous code. `client.triggers` returns it.

    A trigger is created by the code that declares it, or by the command `trigger.put`.
    """

    def __init__(self, server: SyncServer) -> None:
        self._server = server

    def list(self, *, after: str | None = None, limit: int | None = None) -> Iterator[TriggerInfo]:
        """Return the triggers of the namespace, sorted by name. They are read page by page.

        Args:
            after: Only the triggers whose names sort after this one.
            limit: The maximum number of triggers; None for all.

        Raises:
            InvalidFilterError: `limit` is not a number of at least 1.
            InvalidArgumentError: `after` is not a string.
        """
        check("triggers.list", TEXT.or_none, after=after)
        query = PageQuery(after=after)
        return self._server.pages("trigger.list", TriggerPage, None, query, checked_limit(limit))

    def get(self, name: str, /) -> TriggerInfo:
        """Return a trigger.

        Args:
            name: Its name.

        Raises:
            TriggerNotFoundError: There is no such trigger.
        """
        check("triggers.get", TEXT, name=name)
        return self._server.call("trigger.get", TriggerInfo, {"name": name})

    def pause(self, name: str, /, *, reason: str = "") -> TriggerInfo:
        """Pause a trigger, so that it starts no run until it is resumed, and return it.

        The topic keeps the messages that are published meanwhile.

        Args:
            name: Its name.
            reason: Why, for people.

        Raises:
            TriggerNotFoundError: There is no such trigger.
        """
        check("triggers.pause", TEXT, name=name, reason=reason)
        body = Reason(reason=reason)
        return self._server.call("trigger.pause", TriggerInfo, {"name": name}, body=body)

    def resume(self, name: str, /, *, skip: bool = False) -> TriggerInfo:
        """Resume a trigger that is paused, and return it.

        Args:
            name: Its name.
            skip: Pass over the messages that were published during the pause. Otherwise each starts its run.

        Raises:
            TriggerNotFoundError: There is no such trigger.
        """
        check("triggers.resume", TEXT, name=name)
        check("triggers.resume", TRUTH, skip=skip)
        body = TriggerResumption(skip=skip)
        return self._server.call("trigger.resume", TriggerInfo, {"name": name}, body=body)

    def remove(self, name: str, /) -> bool:
        """Remove a trigger. Its runs stay. Return whether it existed.

        Args:
            name: Its name.
        """
        check("triggers.remove", TEXT, name=name)
        return (self._server.call("trigger.remove", Removed, {"name": name})).removed


class SyncRemoteKeys:
    """The API keys of a server, for synchronous code. `client.keys` returns it.

    Each method needs the scope `admin` on all namespaces.
    """

    def __init__(self, server: SyncServer) -> None:
        self._server = server

    def create(
        self,
        label: str,
        /,
        *,
        scopes: Collection[Scope | str],
        namespaces: Collection[str] | None = None,
        principal: str = "",
        expires_at: datetime | None = None,
        only_if_first: bool = False,
    ) -> NewKey:
        """Create a key, and return it with its text, which is never shown again.

        If a key with this label has the same rights already, it is returned without its text. The request is not
        repeated if its answer was lost, as the text would be lost too.

        Args:
            label: A name for people, by which the key can be rotated and revoked: 1 to 100 of `A-Z a-z 0-9 _ . @ -`.
            scopes: What the key allows: some of `read`, `payloads`, `start`, `operate`, `work` and `admin`.
            namespaces: Where it allows that; `["*"]`: in all namespaces. The client's namespace if omitted.
            principal: Who uses it: the id of the actor of its commands. The label if omitted.
            expires_at: From when on it is refused. Aware. Never if omitted.
            only_if_first: Refuse unless this is the first key that the store ever has.

        Raises:
            InvalidArgumentError: An argument has the wrong type.
            InvalidCommandError: The label, a scope or a namespace is not valid, or `expires_at` is in the past.
            CredentialExistsError: The key with this label has other rights, another principal or another end.
        """
        check("keys.create", TEXT, label=label, principal=principal)
        check("keys.create", AWARE.or_none, expires_at=expires_at)
        check("keys.create", TRUTH, only_if_first=only_if_first)
        wanted = several("keys.create", "scopes", scopes, "a list of scopes, such as ['read', 'start']")
        where = (self._server.namespace,) if namespaces is None else namespaces
        body = KeyRequest(
            label=label,
            scopes=tuple(_scope(one) for one in wanted),
            namespaces=tuple(several("keys.create", "namespaces", where, "a list of namespaces")),
            principal=principal,
            expires_at=expires_at,
            only_if_first=only_if_first,
        )
        return self._server.call("key.create", NewKey, body=body)

    def list(self) -> tuple[KeyInfo, ...]:
        """Return all keys of the store, the oldest first, also those that have expired or were revoked."""
        return tuple([one for one in self._server.pages("key.list", KeyPage, None, PageQuery(), None)])

    def rotate(self, name: str, /, *, grace: Duration = GRACE) -> NewKey:
        """Replace the secret of a key, and return it with its new text. The old text is accepted for a while.

        The request is not repeated if its answer was lost.

        Args:
            name: The label or the id of the key.
            grace: How long the old text is accepted: from 0 to 30 days. A day if omitted.

        Raises:
            InvalidArgumentError: An argument has the wrong type.
            InvalidCommandError: `grace` is too long, or the key has expired.
            CredentialNotFoundError: There is no such key, or it was revoked.
        """
        check("keys.rotate", TEXT, name=name)
        body = KeyRotation(grace=duration("keys.rotate", "grace", grace, timedelta(0)))
        return self._server.call("key.rotate", NewKey, {"label": name}, body=body)

    def revoke(self, name: str, /, *, reason: str = "") -> KeyInfo:
        """Revoke a key for good, and return it. Servers refuse it within five seconds.

        Args:
            name: The label or the id of the key.
            reason: Why, for people.

        Raises:
            CredentialNotFoundError: There is no such key, or it was revoked.
        """
        check("keys.revoke", TEXT, name=name, reason=reason)
        query = KeyRevocation(reason=reason)
        return self._server.call("key.revoke", KeyInfo, {"label": name}, query=query)


class SyncRemoteNamespaces:
    """The namespaces of a server, for synchronous code. `client.namespaces` returns it."""

    def __init__(self, server: SyncServer) -> None:
        self._server = server

    def create(
        self,
        name: str,
        /,
        *,
        note: str = "",
        max_active_runs: int | None = None,
        max_starts_per_minute: int | None = None,
    ) -> NamespaceInfo:
        """Create a namespace, or replace the note and the quotas of one, and return it.

        Args:
            name: Its name.
            note: What it is for, for people.
            max_active_runs: How many of its runs may be active for a client to start another; any number if omitted.
            max_starts_per_minute: How many of its runs may have been created in the last minute for a client to start
                another.

        Raises:
            InvalidArgumentError: An argument has the wrong type, or a quota is out of bounds.
            InvalidNamespaceError: The name is too long or has other characters.
        """
        check("namespaces.create", TEXT, name=name, note=note)
        body = NamespaceRequest(
            name=name,
            note=note,
            max_active_runs=max_active_runs,
            max_starts_per_minute=max_starts_per_minute,
        )
        return self._server.call("namespace.create", NamespaceInfo, body=body)

    def list(self, *, after: str | None = None, limit: int | None = None) -> Iterator[NamespaceInfo]:
        """Return the namespaces that the key reaches, by name. They are read page by page.

        Args:
            after: Only those after this name.
            limit: How many at most; all if omitted.

        Raises:
            InvalidFilterError: `limit` is not a number of at least 1.
            InvalidArgumentError: `after` is not a string.
        """
        check("namespaces.list", TEXT.or_none, after=after)
        query, most = PageQuery(after=after), checked_limit(limit)
        for one in self._server.pages("namespace.list", NamespacePage, None, query, most):
            yield one

    def describe(self, name: str, /) -> NamespaceDetails:
        """Return a namespace with counts of what it has, whether it was created or not.

        Args:
            name: Its name.
        """
        check("namespaces.describe", TEXT, name=name)
        return self._server.call("namespace.get", NamespaceDetails, {"namespace": name})

    def delete(self, name: str, /, *, purge: bool = False) -> bool:
        """Delete a namespace. Return whether it had been created or, with `purge`, had anything.

        Args:
            name: Its name.
            purge: First remove everything that it has, in batches; active runs are ended at once, without cleanup. It
                is safe to repeat the call.

        Raises:
            NamespaceInUseError: It has runs, schedules, triggers, sinks or topics.
        """
        check("namespaces.delete", TEXT, name=name)
        check("namespaces.delete", TRUTH, purge=purge)
        path, query = {"namespace": name}, NamespaceDeletion(purge=purge, limit=500)
        while True:
            reply = self._server.call("namespace.delete", NamespaceDeleted, path, query=query)
            if reply.next is None:
                return reply.deleted
            query = attrs.evolve(query, after=reply.next)


def _scope(text: Scope | str) -> Scope:
    try:
        return Scope(text)
    except ValueError:
        known = ", ".join(scope.value for scope in Scope)
        raise InvalidArgumentError(
            "scopes", f"keys.create: {text!r} is no scope; there are {known}"
        ) from None
