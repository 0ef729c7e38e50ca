"""Operations on API keys, and the audit log. They are about the whole store, and need `admin` on all namespaces."""

from datetime import datetime, timedelta
from typing import Final

import attrs

from holdfast.hosts.client.api_keys import GRACE
from holdfast.hosts.http.authentication.loopback import LOCAL
from holdfast.hosts.http.operations import (
    Hint,
    Invocation,
    Nothing,
    Operation,
    PageQuery,
    Reach,
    Table,
    page_of,
)
from holdfast.hosts.http.principals import ALL_NAMESPACES, Scope
from holdfast.hosts.inspection.audit_log import AuditInfo
from holdfast.hosts.inspection.filters import place_option
from holdfast.hosts.inspection.keys import KeyInfo, NewKey, key_info
from holdfast.ports.errors import (
    CredentialExistsError,
    CredentialNotFoundError,
    InvalidArgumentError,
    InvalidCommandError,
    InvalidFilterError,
    InvalidNamespaceError,
)
from holdfast.ports.queries.credentials import ListCredentials

_KEYS: Final = "/v1/keys"
_KEY: Final = f"{_KEYS}/{{label}}"


@attrs.frozen(kw_only=True)
class KeyPage:
    """A page of the list of keys."""

    items: tuple[KeyInfo, ...]
    """The keys, the oldest first, also those that have expired or were revoked."""
    next: str | None
    """The `after` of the next page; null on the last one."""


@attrs.frozen(kw_only=True)
class KeyRequest:
    """A key that is created."""

    label: str
    """A name for people, by which it can be rotated and revoked: 1 to 100 of `A-Z a-z 0-9 _ . @ -`."""
    scopes: tuple[Scope, ...] = attrs.field(validator=attrs.validators.min_len(1))
    """What it allows."""
    namespaces: tuple[str, ...] = attrs.field(validator=attrs.validators.min_len(1))
    """Where it allows that; `*` is all."""
    principal: str = ""
    """Who uses it: the id of the actor of its commands. The label if omitted."""
    expires_at: datetime | None = None
    """From when on it is refused; never if omitted."""
    only_if_first: bool = False
    """Whether to refuse unless the store has never had a key. Always so while no key is needed."""


@attrs.frozen(kw_only=True)
class KeyRotation:
    """The rotation of a key."""

    grace: timedelta = GRACE
    """How long the former secret is accepted: at most 30 days, a day if omitted."""


@attrs.frozen(kw_only=True)
class KeyRevocation:
    """The query parameters of a revocation."""

    reason: str = ""
    """Why, for people."""


@attrs.frozen(kw_only=True)
class AuditQuery(PageQuery):
    """The query parameters of the audit log."""

    namespace: str | None = None
    """Of which namespace; that of the server's engine, in which commands on keys are, if omitted."""


@attrs.frozen(kw_only=True)
class AuditPage:
    """A page of the audit log."""

    items: tuple[AuditInfo, ...]
    """The entries, the newest first."""
    next: str | None
    """The `after` of the next page; null on the last one."""


def list_keys(call: Invocation[PageQuery, Nothing]) -> KeyPage:
    """List the API keys of the store, without their secrets."""
    core = call.engine.core
    core.connect()
    query = ListCredentials(after=place_option({"after": call.query.after}), limit=call.query.limit + 1)
    items, last = page_of(core.stores.persistence.read(query), call.query.limit)
    return KeyPage(items=tuple(map(key_info, items)), next=None if last is None else last.place.text)


def create_key(call: Invocation[Nothing, KeyRequest]) -> NewKey:
    """Create an API key.

    Its text is in this answer only: the store has its hash. If a key with the label has the same rights already, the
    answer has no text. While the store has had no key, a request from the server's own machine may create the first
    one, which must have `admin` on all namespaces, since others are created with it.
    """
    body = call.body
    is_first = call.principal is LOCAL
    if is_first and not (Scope.ADMIN in body.scopes and ALL_NAMESPACES in body.namespaces):
        raise InvalidArgumentError(
            "scopes",
            'the first key needs the scope "admin" on the namespaces ["*"], to create others with it',
        )
    return call.engine.keys.create(
        body.label,
        scopes=body.scopes,
        namespaces=body.namespaces,
        principal=body.principal,
        expires_at=body.expires_at,
        only_if_first=body.only_if_first or is_first,
    )


def rotate_key(call: Invocation[Nothing, KeyRotation]) -> NewKey:
    """Give an API key a new secret. Its new text is in this answer only."""
    return call.engine.keys.rotate(call.path["label"], grace=call.body.grace)


def revoke_key(call: Invocation[KeyRevocation, Nothing]) -> KeyInfo:
    """Revoke an API key for good. Servers refuse it within five seconds."""
    return call.engine.keys.revoke(call.path["label"], reason=call.query.reason)


def list_audit(call: Invocation[AuditQuery, Nothing]) -> AuditPage:
    """List administrative actions that are in no run's history, the newest first."""
    query = call.query
    engine = call.engine if query.namespace is None else call.engine.in_namespace(query.namespace)
    items, last = page_of(engine.audit(after=query.after, limit=query.limit + 1), query.limit)
    return AuditPage(items=items, next=None if last is None else last.cursor)


OPERATIONS: Final[Table] = (
    Operation(
        name="key.list",
        method="GET",
        path=_KEYS,
        scope=Scope.ADMIN,
        reach=Reach.ALL,
        query=PageQuery,
        reply=KeyPage,
        handler=list_keys,
        errors=(InvalidFilterError,),
    ),
    Operation(
        name="key.create",
        method="POST",
        path=_KEYS,
        scope=Scope.ADMIN,
        reach=Reach.ALL,
        body=KeyRequest,
        reply=NewKey,
        handler=create_key,
        hint=Hint.CHANGES,
        errors=(CredentialExistsError, InvalidArgumentError, InvalidCommandError),
    ),
    Operation(
        name="key.rotate",
        method="POST",
        path=f"{_KEY}/rotate",
        scope=Scope.ADMIN,
        reach=Reach.ALL,
        body=KeyRotation,
        reply=NewKey,
        handler=rotate_key,
        hint=Hint.CHANGES,
        errors=(CredentialNotFoundError, InvalidArgumentError, InvalidCommandError),
    ),
    Operation(
        name="key.revoke",
        method="DELETE",
        path=_KEY,
        scope=Scope.ADMIN,
        reach=Reach.ALL,
        query=KeyRevocation,
        reply=KeyInfo,
        handler=revoke_key,
        hint=Hint.DESTROYS,
        errors=(CredentialNotFoundError, InvalidCommandError),
    ),
    Operation(
        name="audit.list",
        method="GET",
        path="/v1/audit",
        scope=Scope.ADMIN,
        reach=Reach.ALL,
        query=AuditQuery,
        reply=AuditPage,
        handler=list_audit,
        errors=(InvalidFilterError, InvalidNamespaceError),
    ),
)
