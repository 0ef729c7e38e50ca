"""A credential that was checked: who holds it, and what a browser session needs to end with it."""

import attrs

from holdfast.hosts.http.principals import Principal
from holdfast.ports.records.values import Micros


@attrs.frozen(kw_only=True)
class VerifiedCredential:
    """A valid API key or token."""

    principal: Principal
    """Who holds it."""
    expires_at: Micros | None = None
    """From when on it is refused; None: never."""
    key: str | None = None
    """The id of the API key; None for a token."""
    key_hash: str | None = None
    """The hash of the key's secret that was sent."""
