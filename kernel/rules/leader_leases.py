"""Rule for leader leases: one session at a time does a maintenance task."""

from holdfast.kernel.commands import LeaderAcquire, LeaderAcquired
from holdfast.kernel.rules.sessions import open_session
from holdfast.kernel.state import Decision, Reads, State
from holdfast.ports.changes import Insert, Update
from holdfast.ports.clock import Ids
from holdfast.ports.records.session import LeaderLease
from holdfast.ports.records.values import Micros


def reads_of_acquire(command: LeaderAcquire) -> Reads:
    """Lock the leader lease."""
    return Reads(leader_leases=(command.name,), sessions=(command.session,))


def decide_acquire(state: State, command: LeaderAcquire, now: Micros, _: Ids) -> Decision[LeaderAcquired]:
    """Give the leader lease to the session if it is free, expired, or its own already. Raises SessionLostError."""
    open_session(state, command.session)
    leader_lease = state.tables.leaders.get(command.name)
    if leader_lease is not None and leader_lease.expires_at > now and leader_lease.session != command.session:
        return Decision(LeaderAcquired(taken=False, expires_at=leader_lease.expires_at))
    until = now + command.lease
    taken = LeaderLease(name=command.name, session=command.session, expires_at=until)
    # A row that does not exist cannot be locked: of two sessions that add it, one conflicts and decides again.
    change = Insert(taken) if leader_lease is None else Update(taken)
    return Decision(LeaderAcquired(taken=True, expires_at=until), (change,))
