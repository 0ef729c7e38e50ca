"""Namespaces that were created, with their quotas."""

from holdfast.ports.records.values import Micros
from holdfast.ports.structs import frozen


@frozen(kw_only=True)
class NamespaceRow:
    """A namespace that was created. One that is only used has no row."""

    name: str
    created_at: Micros
    note: str = ""
    """What it is for, for people."""
    max_active_runs: int | None = None
    """How many runs of it may be active for a client to start another; None: any number."""
    max_starts_per_minute: int | None = None
    """How many runs of it may have been created in the last minute for a client to start another; None: any number."""

    @property
    def has_quota(self) -> bool:
        """Whether starts of clients are limited."""
        return self.max_active_runs is not None or self.max_starts_per_minute is not None
