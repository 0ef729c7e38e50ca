"""Quotas of namespaces, and how much of them is used."""

import attrs

from holdfast.ports.records.namespace import NamespaceRow


@attrs.define
class QuotaUse:
    """How much of its quotas a namespace has used, as a batch of commands finds it."""

    row: NamespaceRow
    active: int
    """Its active runs, at most as many as the quota."""
    started: int
    """Its runs that were created in the last minute, at most as many as the quota."""
    known: frozenset[str] = frozenset()
    """The keys of the runs that the batch has read: all others of its runs in the state are new."""
    open: frozenset[str] = frozenset()
    """Those of them that were active then."""
