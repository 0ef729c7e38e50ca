"""What can be done after a command, as data of its reply."""

from collections.abc import Iterable, Iterator
from typing import Final

from holdfast.ports.structs import frozen


@frozen
class FollowUp:
    """What a host does after a commit, so that nothing waits for maintenance. Omitting or repeating it is harmless."""

    runs: tuple[str, ...] = ()
    """Concurrency keys for which `RunClaimPending` may now admit a run."""
    jobs: tuple[str, ...] = ()
    """Concurrency keys for which `JobAdmit` may now queue a job.

    They are `<workflow>/<stage>`, `step:<name>` for queued steps, or `/<name>` for a named rate limit, followed by the
    text of an attribute if the limit is per attribute.
    """
    deliveries: bool = False
    """Whether results are to be delivered to other runs: send `RunDeliver`."""
    rates: tuple[str, ...] = ()
    """Rates of starts under which `RunClaimPending` may now admit a run: `run-rate:<name>`."""
    topics: tuple[str, ...] = ()
    """Topics with something to deliver: send `TopicDeliver`."""

    @property
    def delivers(self) -> bool:
        """Whether something is to be delivered to other runs."""
        return bool(self.deliveries or self.topics)

    def __bool__(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.runs or self.jobs or self.rates or self.delivers)

    def parts(self) -> "Iterator[FollowUp]":
        """Yield the admissions, then the deliveries, if there are any. They do not depend on each other."""
        if self.runs or self.jobs or self.rates:
            yield FollowUp(self.runs, self.jobs, rates=self.rates)
        if self.delivers:
            yield FollowUp(deliveries=self.deliveries, topics=self.topics)


NO_FOLLOW_UP: Final = FollowUp()


@frozen(kw_only=True)
class WithFollowUp:
    """Base of the replies to commands after which there may be more to do."""

    follow_up: FollowUp = NO_FOLLOW_UP
    """What can be done now."""


def merge(*follow_ups: FollowUp) -> FollowUp:
    """Return all of these in one."""
    some = [one for one in follow_ups if one]
    if len(some) < 2:  # nothing to merge, as nearly always
        return some[0] if some else NO_FOLLOW_UP
    return FollowUp(
        tuple(dict.fromkeys(key for one in some for key in one.runs)),
        tuple(dict.fromkeys(key for one in some for key in one.jobs)),
        any(one.deliveries for one in some),
        tuple(dict.fromkeys(key for one in some for key in one.rates)),
        tuple(dict.fromkeys(name for one in some for name in one.topics)),
    )


def follow_up_of(replies: Iterable[object]) -> FollowUp:
    """Return the follow-ups of all replies in one. What is no reply has none, a refusal for example."""
    return merge(*(reply.follow_up for reply in replies if isinstance(reply, WithFollowUp)))
