"""The audit log as the client shows it: administrative actions that are in no run's history."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Final, cast

import attrs

from holdfast.hosts.wiring.pages import pages_of, place_of
from holdfast.hosts.wiring.services import Core
from holdfast.ports.actors import Actor
from holdfast.ports.clock import instant
from holdfast.ports.json import parse
from holdfast.ports.pagination import ListPlace
from holdfast.ports.queries.credentials import ListAuditEntries
from holdfast.ports.records.audit_entry import AuditEntry

_PAGE: Final = 100


@attrs.frozen(kw_only=True)
class AuditInfo:
    """One command that an operator issued."""

    cursor: str
    """Its position in the log: pass it as `after` to list the entries before it."""
    at: datetime
    """When the command was carried out. Aware, in UTC."""
    action: str
    """The type of the command, such as `run.remove`."""
    target: str
    """What it was about: the id of a run, the name of a limit, a schedule or a sink, the label or id of a key."""
    actor: Actor | None
    """Who issued it, if known."""
    request_id: str | None
    """The id of the request that carried it."""
    details: Mapping[str, object]
    """The other fields of the command that were given."""


def audit_infos(core: Core, after: ListPlace | None, limit: int | None) -> Iterator[AuditInfo]:
    """Yield the audit entries of the namespace, the newest first, page by page."""
    core.connect()
    pages = pages_of(
        lambda place, size: core.stores.persistence.read(
            ListAuditEntries(namespace=core.namespace, after=place, limit=size)
        ),
        _PAGE,
        after,
        limit,
        place_of,
    )
    return (_info(entry) for page in pages for entry in page)


def _info(entry: AuditEntry) -> AuditInfo:
    return AuditInfo(
        cursor=entry.place.text,
        at=instant(entry.at),
        action=entry.action,
        target=entry.target,
        actor=entry.actor,
        request_id=entry.request_id,
        details=cast("dict[str, object]", parse(entry.details)),
    )
