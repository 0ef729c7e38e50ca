"""Scopes: the rights that a credential has on namespaces."""

from enum import StrEnum
from typing import Final


class Scope(StrEnum):
    """A right on a namespace."""

    READ = "read"
    """See ids, names, states, times, counts, error codes and attributes."""

    PAYLOADS = "payloads"
    """See what user code wrote: inputs, headers, results, error messages, logs, annotations and artifacts."""

    START = "start"
    """Start runs, and send them signals, updates and wake-ups."""

    OPERATE = "operate"
    """Cancel, terminate, pause, resume and rerun runs; change limits, queues and schedules; replay dead letters."""

    WORK = "work"
    """Claim jobs as a remote worker, and report their outcomes."""

    ADMIN = "admin"
    """Remove runs; create and revoke keys; create and delete namespaces; read the audit log."""


ALL_NAMESPACES: Final = "*"
"""In the namespaces of a credential or principal: every namespace."""
