"""Commands that let in what waits for its time or a slot, and end what is past its deadline."""

from collections.abc import Iterable
from typing import ClassVar, Literal

from holdfast.kernel.commands.command import Command
from holdfast.kernel.commands.functions import JobRecorded
from holdfast.kernel.commands.jobs import JobClaimed, JobReleased, JobsClaimed, JobSettled, JobsWoken
from holdfast.kernel.commands.runs import RunCreated, RunDelivered, RunEnded, RunPaused, RunRerun
from holdfast.ports.structs import frozen


@frozen(kw_only=True)
class RunsAdmitted:
    """How many pending runs have begun.

    `next` is where to go on looking; None: from the start again. With `more` there may be more to admit at once.
    `admits_runs` and `admits_jobs` as in RunCreated.
    """

    admitted: int
    next: str | None = None
    more: bool = False
    admits_runs: tuple[str, ...] = ()
    admits_jobs: tuple[str, ...] = ()


@frozen(kw_only=True)
class RunClaimPending(Command[RunsAdmitted]):
    """Begin pending runs whose time has come and for which there is a free slot, by age and priority.

    With `keys` only the runs of these concurrency keys of this namespace are looked at. Without, all namespaces' are:
    at most `limit` runs whose time has come, and at most `limit` concurrency keys from `after` on, which is `next` of
    the reply before.
    """

    type: ClassVar[Literal["run.claim_pending"]] = "run.claim_pending"
    keys: tuple[str, ...] = ()
    after: str = ""
    limit: int = 500


@frozen(kw_only=True)
class JobsAdmitted:
    """How many limited jobs were queued. `next` and `more` as in RunsAdmitted.

    `wakes_at` are the instants at which there is room again under rate limits: a job sleeps until each of them.
    """

    admitted: int
    next: str | None = None
    more: bool = False
    wakes_at: tuple[int, ...] = ()


@frozen(kw_only=True)
class JobAdmit(Command[JobsAdmitted]):
    """Queue jobs of stages with `max_concurrency` of which fewer are under way, by age and priority.

    And those of stages with a `rate_limit` that may start now. `keys` are `<workflow>/<stage>` of this namespace, or
    what else replies have in `admits_jobs`; without, all are looked at, as in run.claim_pending.
    """

    type: ClassVar[Literal["job.admit"]] = "job.admit"
    keys: tuple[str, ...] = ()
    after: str = ""
    limit: int = 500


@frozen(kw_only=True)
class RunsExpired:
    """How many runs were ended, or told to end. `admits_runs` and `admits_jobs` as in RunCreated."""

    expired: int
    more: bool = False
    admits_runs: tuple[str, ...] = ()
    admits_jobs: tuple[str, ...] = ()


@frozen(kw_only=True)
class RunExpire(Command[RunsExpired]):
    """End runs whose deadline has passed as failed; what is under way loses its right to write.

    A function that has begun is told to end instead; its run fails when it has cleaned up.
    """

    type: ClassVar[Literal["run.expire"]] = "run.expire"
    limit: int = 500


def admissions(namespace: str, replies: Iterable[object]) -> tuple[RunClaimPending | JobAdmit, ...]:
    """Return what to send after these replies, so that what waits need not wait for maintenance.

    Nothing is lost if it is never sent, or sent twice.
    """
    runs: dict[str, None] = {}
    jobs: dict[str, None] = {}
    for reply in replies:
        if isinstance(
            reply,
            RunCreated
            | RunRerun
            | RunEnded
            | RunPaused
            | RunDelivered
            | JobSettled
            | RunsAdmitted
            | RunsExpired,
        ):
            runs.update(dict.fromkeys(reply.admits_runs))
            jobs.update(dict.fromkeys(reply.admits_jobs))
        elif isinstance(reply, JobsWoken | JobsClaimed | JobClaimed | JobReleased | JobRecorded):
            jobs.update(dict.fromkeys(reply.admits_jobs))
    claims = (RunClaimPending(namespace=namespace, keys=tuple(runs)),) if runs else ()
    admits = (JobAdmit(namespace=namespace, keys=tuple(jobs)),) if jobs else ()
    return (*claims, *admits)
