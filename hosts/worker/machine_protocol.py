"""The messages between a worker's state machine and its host: inputs and actions."""

from typing import TypeAlias

from holdfast.kernel.commands import NO_FOLLOW_UP, Attempt, FollowUp, JobSettle
from holdfast.ports.records.job import PassOver
from holdfast.ports.searches import QueueClaim
from holdfast.ports.structs import frozen

# Inputs ---------------------------------------------------------------------------------------------------------


@frozen
class Woken:
    """There may be work: a hint arrived."""


@frozen
class Claimed:
    """A claim was answered."""

    attempts: tuple[Attempt, ...]
    """The leased attempts whose code this worker has."""
    requested: int
    """The limit of the claim, or more if jobs were released for lack of code: then it was not filled."""
    follow_up: FollowUp = NO_FOLLOW_UP


@frozen
class BodyEnded:
    """A body ended."""

    attempt: Attempt
    settle: JobSettle | None
    """The command that stores its result; None if it was cancelled or abandoned."""


@frozen
class Settled:
    """A batch of results was stored."""

    opened: bool
    """Whether there may be new work in the queues."""
    retries_in: tuple[float, ...] = ()
    """Seconds until retries and polls of these jobs are due."""
    next_attempts: tuple[Attempt | None, ...] = ()
    """For each settle the attempt that it leased, or None. Empty if none leased any."""
    follow_up: FollowUp = NO_FOLLOW_UP


@frozen
class HeartbeatAnswered:
    """The store answered a heartbeat."""

    lost: tuple[Attempt, ...]
    """Attempts whose lease is lost."""


@frozen
class RunsEnded:
    """A hint that these runs have ended. The next heartbeat verifies it."""

    runs: frozenset[str]


@frozen
class HistoriesGrew:
    """A hint that histories of runs here have new rows, which are events for sinks. The drivers read them."""


@frozen
class SweepDone:
    """A maintenance tick has ended."""

    more: bool
    """Whether it hit a limit, so that another one follows at once."""
    wakes_in: tuple[float, ...] = ()
    """Seconds until jobs that wait for a rate limit are due."""


@frozen
class WokeDue:
    """Due sleeping jobs were queued."""

    more: bool
    """Whether that hit a limit, so that there may be more."""
    wakes_in: tuple[float, ...] = ()
    """See `SweepDone.wakes_in`."""


@frozen
class FollowedUp:
    """A follow-up was carried out, as far as possible."""

    done: FollowUp
    opened: bool
    """Whether there may be new work in the queues."""
    wakes_in: tuple[float, ...] = ()
    """See `SweepDone.wakes_in`."""


@frozen
class EventsFound:
    """These sinks have events to receive."""

    sinks: tuple[str, ...]


@frozen
class SinkFlushed:
    """A round of delivery to a sink has ended."""

    sink: str
    more: bool
    """Whether another round should follow at once."""


@frozen
class CallFailed:
    """A call to the store failed; the machine repeats the action later."""

    action: "Action"


@frozen
class SessionLost:
    """The session is dead, and so are its leases."""

    action: "Action | None" = None
    """The action that was refused because of it; None if the renewal noticed it."""


@frozen
class SessionReady:
    """A session is open, for which jobs can be claimed."""


@frozen
class Drain:
    """Stop gracefully."""


@frozen
class Stop:
    """Stop at once."""


Input: TypeAlias = (
    Woken
    | Claimed
    | BodyEnded
    | Settled
    | HeartbeatAnswered
    | RunsEnded
    | HistoriesGrew
    | SweepDone
    | WokeDue
    | FollowedUp
    | EventsFound
    | SinkFlushed
    | CallFailed
    | SessionLost
    | SessionReady
    | Drain
    | Stop
)


# Actions --------------------------------------------------------------------------------------------------------


@frozen
class OpenSession:
    """Open a session. Answer: SessionReady."""


@frozen
class Claim:
    """Claim up to `limit` jobs. Answer: Claimed."""

    queue_claims: tuple[QueueClaim, ...]
    """The queues to claim from, each with its own limit."""
    limit: int
    pass_over: PassOver = PassOver.NOTHING
    """Which jobs to leave out because of what this worker runs."""


@frozen
class Start:
    """Run the body of an attempt. Answer: Ended."""

    attempt: Attempt


@frozen
class Cancel:
    """Cancel the body of an attempt, whose result would be dropped. Answer: Ended."""

    attempt: Attempt


@frozen
class Settle:
    """Store results. Answer: Settled."""

    settles: tuple[JobSettle, ...]
    lease_next: tuple[bool, ...]
    """For each settle, whether to lease the next job of its run with it."""


@frozen
class Heartbeat:
    """Send heartbeats, and check which of these attempts still hold their lease. Answer: HeartbeatAnswered."""

    attempts: tuple[Attempt, ...]


@frozen
class Sweep:
    """Run a maintenance tick, if this worker has the leader lease. Answer: SweepDone."""


@frozen
class WakeDue:
    """Queue the sleeping jobs that are due. Answer: WokeDue."""


@frozen
class FindEvents:
    """Look up which sinks have events to receive. Answer: EventsFound."""


@frozen
class Flush:
    """Deliver events to a sink, which may take long. Answer: SinkFlushed."""

    sink: str


@frozen
class Release:
    """Release these attempts. No answer."""

    attempts: tuple[Attempt, ...]


@frozen
class Finish:
    """The machine has stopped: close the session and end. No answer."""


Action: TypeAlias = (
    OpenSession
    | Claim
    | Start
    | Cancel
    | Settle
    | Heartbeat
    | Sweep
    | WakeDue
    | FollowUp  # Answer: FollowedUp. If it fails, the maintenance tick does the same.
    | FindEvents
    | Flush
    | Release
    | Finish
)
