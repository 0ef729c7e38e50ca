"""What a worker's machine is told (inputs), and what it says to do (actions)."""

from typing import TypeAlias

from holdfast.kernel.commands import Attempt, JobAdmit, JobSettle, RunClaimPending
from holdfast.ports.persistence import Lane
from holdfast.ports.records import PassOver
from holdfast.ports.structs import frozen

# Inputs ---------------------------------------------------------------------------------------------------------


@frozen
class Woken:
    """There may be work."""


@frozen
class Claimed:
    """A claim came back with these attempts; it had asked for `asked`. `admits` as in Settled."""

    attempts: tuple[Attempt, ...]
    requested: int
    admits: tuple[RunClaimPending | JobAdmit, ...] = ()


@frozen
class Ended:
    """A body ended, and is to be settled; None if it was given up or is to be given back."""

    attempt: Attempt
    settle: JobSettle | None


@frozen
class Settled:
    """A batch of settles was stored.

    `opened` says whether there may be new work in the queues, `retries_in` when bodies are tried again or checks are
    made. `taken` has, for each settle, the attempt that was leased with it, or None; it is empty if there was none at
    all. `admits` are the commands that let in what waits for the slots that were freed. `has_deliveries` says whether
    runs are to be told of the ends of others.
    """

    opened: bool
    retries_in: tuple[float, ...] = ()
    taken: tuple[Attempt | None, ...] = ()
    admits: tuple[RunClaimPending | JobAdmit, ...] = ()
    has_deliveries: bool = False


@frozen
class HeartbeatAnswered:
    """These attempts are no longer held."""

    lost: tuple[Attempt, ...]


@frozen
class RunsEnded:
    """These runs may have ended: somebody said so. What is true is asked for."""

    runs: frozenset[str]


@frozen
class SweepDone:
    """A round of maintenance is over; `more` says whether it hit a limit, so that another should follow at once.

    `wakes_in` says when sleepers are due that wait under rate limits.
    """

    more: bool
    wakes_in: tuple[float, ...] = ()


@frozen
class WokeDue:
    """Due sleepers were queued; `more` says whether that hit a limit. `wakes_in` as in SweepDone."""

    more: bool
    wakes_in: tuple[float, ...] = ()


@frozen
class Admitted:
    """What waited for slots was let in; `opened` says whether there may be new work. `wakes_in` as in SweepDone."""

    opened: bool
    wakes_in: tuple[float, ...] = ()


@frozen
class EventsFound:
    """These sinks have events to get."""

    sinks: tuple[str, ...]


@frozen
class SinkFlushed:
    """A round of bringing events to a sink is over; `more` says whether another should follow at once."""

    sink: str
    more: bool


@frozen
class EndsDelivered:
    """Runs were told of the ends of others, as far as they could be."""


@frozen
class CallFailed:
    """A call to the store failed: the action is to be tried again later."""

    action: "Action"


@frozen
class SessionLost:
    """The session is dead: nothing that is held is held any more. `action` is the one that was refused for it."""

    action: "Action | None" = None


@frozen
class SessionReady:
    """There is a session to claim for."""


@frozen
class Drain:
    """Stop gently."""


@frozen
class Stop:
    """Stop now."""


Input: TypeAlias = (
    Woken
    | Claimed
    | Ended
    | Settled
    | HeartbeatAnswered
    | RunsEnded
    | SweepDone
    | WokeDue
    | Admitted
    | EventsFound
    | SinkFlushed
    | EndsDelivered
    | CallFailed
    | SessionLost
    | SessionReady
    | Drain
    | Stop
)


# Actions --------------------------------------------------------------------------------------------------------


@frozen
class OpenSession:
    """Open a session, then say SessionReady."""


@frozen
class Claim:
    """Claim jobs, then say Claimed."""

    lanes: tuple[Lane, ...]
    limit: int
    pass_over: PassOver = PassOver.NOTHING


@frozen
class Start:
    """Run the body of an attempt, then say Ended."""

    attempt: Attempt


@frozen
class Cancel:
    """Cancel the body of an attempt: what it does is of no use any more. Ended follows."""

    attempt: Attempt


@frozen
class Settle:
    """Settle these, then say Settled. `takes` says for each whether its run's next job is to be leased with it."""

    settles: tuple[JobSettle, ...]
    takes: tuple[bool, ...]


@frozen
class Heartbeat:
    """Ask whether these attempts are still held, then say HeartbeatAnswered."""

    attempts: tuple[Attempt, ...]


@frozen
class Sweep:
    """Do a round of maintenance, if it is this worker's duty; then say SweepDone."""


@frozen
class WakeDue:
    """Queue the sleepers that are due; then say WokeDue."""


@frozen
class Admit:
    """Let in what waits for slots, by these commands; then say Admitted. If it fails, maintenance does it."""

    commands: tuple[RunClaimPending | JobAdmit, ...]


@frozen
class Look:
    """Look which sinks have events to get, then say EventsFound."""


@frozen
class Flush:
    """Bring events to a sink, which may take its time; then say SinkFlushed."""

    sink: str


@frozen
class DeliverEnds:
    """Tell runs of the ends of others that they wait for, or are children of; then say EndsDelivered."""


@frozen
class Release:
    """Give these attempts back. Nothing is to be said after it."""

    attempts: tuple[Attempt, ...]


@frozen
class Finish:
    """Everything is done: close the session and end."""


Action: TypeAlias = (
    OpenSession
    | Claim
    | Start
    | Cancel
    | Settle
    | Heartbeat
    | Sweep
    | WakeDue
    | Admit
    | DeliverEnds
    | Look
    | Flush
    | Release
    | Finish
)
