"""Values as they are stored: payloads, plans, map items, replies under an idempotency key.

Instants are whole microseconds since 1970-01-01T00:00Z (`Micros`): every database stores, compares and orders
them alike, and no session's time zone can shift them (docs/decisions/0001). The public API uses aware datetimes.
"""

from typing import TypeAlias

from holdfast.ports.structs import frozen

Micros: TypeAlias = int
"""An instant since the epoch, or a duration, in microseconds."""


@frozen(kw_only=True)
class Payload:
    """A stored value, either inline or in a blob."""

    inline: str | None = None
    """The value's canonical JSON text."""
    blob: str | None = None
    """The key of the blob that holds that text."""

    def __attrs_post_init__(self) -> None:
        if (self.inline is None) == (self.blob is None):
            raise ValueError("a payload is either inline or in a blob")


@frozen(kw_only=True)
class MapItems:
    """One page of the items that a map goes over."""

    run: str
    node: str
    page: int
    items: str
    """JSON text: a list of payloads."""


@frozen(kw_only=True)
class PlanRow:
    """The plan of a pipeline, stored once."""

    fingerprint: str
    workflow: str
    version: str
    body: str
    """Canonical JSON text."""


@frozen(kw_only=True)
class IdempotencyReply:
    """The stored reply to a command with an idempotency key."""

    namespace: str
    key: str
    fingerprint: str
    """Identifies the command: the same key with another command is refused."""
    body: str
    """The reply's canonical JSON text."""
    created_at: Micros
