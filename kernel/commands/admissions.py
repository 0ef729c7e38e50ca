"""Commands that admit pending runs, queue jobs that waited for a limit, and expire runs past their deadline."""

from typing import ClassVar, Literal

from holdfast.kernel.commands.command import Command
from holdfast.kernel.commands.follow_ups import FollowUp, WithFollowUp
from holdfast.ports.structs import frozen


@frozen(kw_only=True)
class RunsAdmitted(WithFollowUp):
    """Reply to `RunClaimPending`."""

    admitted: int
    """How many pending runs were admitted."""
    next: str | None = None
    """The `after` of the next command; None: start over."""
    more: bool = False
    """Whether the same command may admit more runs now, or runs of other namespaces went on to their next line."""
    wakes_at: tuple[int, ...] = ()
    """Instants at which rates of starts allow the next run to begin: of lines that were held up, and the first of those
    that were known to be."""


@frozen(kw_only=True)
class RunClaimPending(Command[RunsAdmitted]):
    """Command to admit pending runs whose `start_at` has passed, that get a slot, and whose rate allows their start.

    They are admitted by age and priority.
    """

    type: ClassVar[Literal["run.claim_pending"]] = "run.claim_pending"
    keys: tuple[str, ...] = ()
    """Concurrency keys of this namespace to admit runs of. Empty, without `rates`: all keys, rates and due runs of all
    namespaces."""
    rates: tuple[str, ...] = ()
    """Rates of starts of this namespace, `run-rate:<name>`, to admit runs under."""
    after: str = ""
    """Position to continue from, without `keys` and `rates`: `next` of the previous reply."""
    limit: int = 500
    """Most runs that wait for slots, and that wait for rates, that are read, and most concurrency keys and rates."""
    due: bool = False
    """Only due runs of this namespace: those whose `start_at` has passed, or whose rate allows the next start."""


@frozen(kw_only=True)
class JobsAdmitted:
    """Reply to `JobAdmit`."""

    admitted: int
    """How many limited jobs were queued."""
    next: str | None = None
    """The `after` of the next command; None: start over."""
    more: bool = False
    """Whether the same command may queue more jobs now."""
    wakes_at: tuple[int, ...] = ()
    """Instants at which rate limits allow the next start. A job sleeps until each of them."""


@frozen(kw_only=True)
class JobAdmit(Command[JobsAdmitted]):
    """Command to queue limited jobs that get a slot and whose rate limit allows a start, by age and priority.

    These are jobs of stages and queued steps with `max_concurrency` or `rate_limit`.
    """

    type: ClassVar[Literal["job.admit"]] = "job.admit"
    keys: tuple[str, ...] = ()
    """Concurrency keys of this namespace, as in `FollowUp.jobs`. Empty: all keys of all namespaces."""
    after: str = ""
    """Position to continue from, without `keys`: `next` of the previous reply."""
    limit: int = 500
    """Most jobs, and without `keys` also most concurrency keys, that are read."""


@frozen(kw_only=True)
class RunsExpired(WithFollowUp):
    """Reply to `RunExpire`."""

    expired: int
    """How many runs failed or began to clean up."""
    more: bool = False
    """Whether the same command may expire more runs now."""


@frozen(kw_only=True)
class RunExpire(Command[RunsExpired]):
    """Command to fail runs whose deadline has passed, in all namespaces. Their attempts are fenced.

    A durable function that has started cleans up first: its run is `cancelling` until then.
    """

    type: ClassVar[Literal["run.expire"]] = "run.expire"
    limit: int = 500
    """Most runs that are read."""


def admissions(namespace: str, follow_up: FollowUp) -> tuple[RunClaimPending | JobAdmit, ...]:
    """Return the commands that admit the runs and jobs of a follow-up, so that none waits for maintenance."""
    has_runs = follow_up.runs or follow_up.rates
    claim = RunClaimPending(namespace=namespace, keys=follow_up.runs, rates=follow_up.rates)
    claims = (claim,) if has_runs else ()
    admits = (JobAdmit(namespace=namespace, keys=follow_up.jobs),) if follow_up.jobs else ()
    return (*claims, *admits)
