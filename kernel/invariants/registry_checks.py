"""Invariant R1: exactly the open sessions that have registered are in the worker registry."""

from collections.abc import Iterator

from holdfast.kernel.invariants.snapshots import Snapshot
from holdfast.kernel.invariants.violations import Violation
from holdfast.ports.records.session import SessionState


def registrations_exist(snapshot: Snapshot) -> Iterator[Violation]:
    """R1: each session that is marked as registered is open and has a row, in its namespace, and no other one has."""
    if snapshot.registrations is None:
        return
    found = {row.session: row for row in snapshot.registrations}
    for key, session in snapshot.sessions.items():
        row = found.pop(key, None)
        if session.is_registered and session.state is not SessionState.OPEN:
            yield Violation("R1", key, "the session is dead, but marked as registered")
        elif bool(session.is_registered) is not (row is not None):
            has = "no row" if row is None else "a row"
            yield Violation(
                "R1", key, f"is_registered is {session.is_registered}, but the registry has {has}"
            )
        elif row is not None and row.namespace != session.namespace:
            yield Violation(
                "R1", key, f"it is registered in {row.namespace!r}, but was opened in another one"
            )
    for key in found:
        yield Violation("R1", key, "the registry has a row of a session that does not exist")
