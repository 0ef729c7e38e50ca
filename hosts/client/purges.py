"""Purges: everything in a namespace is removed, in pages that each take a bounded time.

A page removes schedules, triggers and sinks first, so that nothing new starts and no event is waited for. Then active
runs are terminated, and all runs are removed; at last topics, to which none of them has subscribed any more. Every step
can be repeated: what was removed is not found again.
"""

import logging
import re
from enum import StrEnum
from itertools import islice
from typing import Final

import attrs

from holdfast.hosts.client.bulk_actions import REMOVE, TERMINATE, Action, apply_page, command_for
from holdfast.hosts.client.client import Client
from holdfast.hosts.events.sinks import list_sinks, remove_sink
from holdfast.hosts.inspection.schedules import schedule_rows
from holdfast.hosts.inspection.topics import topic_infos
from holdfast.hosts.inspection.triggers import trigger_entries
from holdfast.hosts.wiring.services import Core
from holdfast.kernel.commands import NamespaceDelete, ScheduleRemove, TopicRemove, TriggerRemove
from holdfast.ports.clock import micros
from holdfast.ports.errors import InvalidFilterError, TopicInUseError
from holdfast.ports.pagination import ListPlace, list_place
from holdfast.ports.queries.namespaces import CountNamespace
from holdfast.ports.queries.runs import RunFilter
from holdfast.ports.records.values import Micros

PURGED_AT_ONCE: Final = 100
"""How many schedules, triggers, sinks, runs and rows of topics a page goes through, by default."""
_PLACE: Final = re.compile(r"(terminate|remove)\.([0-9]{1,18})(?:\.([0-9A-Za-z.]+))?", re.ASCII)
_REASON: Final = "its namespace was deleted"

_log = logging.getLogger("holdfast.engine")


class PurgePhase(StrEnum):
    """What a purge does to runs."""

    TERMINATE = "terminate"
    REMOVE = "remove"

    @property
    def action(self) -> Action:
        """The action on runs."""
        return TERMINATE if self is PurgePhase.TERMINATE else REMOVE


@attrs.frozen
class PurgePlace:
    """Where a purge continues."""

    phase: PurgePhase
    before: Micros
    """Runs that were created at this instant or later are left alone."""
    after: ListPlace | None = None
    """The last run that was gone through."""

    @property
    def text(self) -> str:
        """The place as text."""
        after = "" if self.after is None else f".{self.after.text}"
        return f"{self.phase.value}.{self.before}{after}"


def purge_place(text: str) -> PurgePlace:
    """Return the place that a text describes. InvalidFilterError if it describes none."""
    found = _PLACE.fullmatch(text)
    try:
        if found is not None:
            phase, before, after = found.groups()
            return PurgePlace(PurgePhase(phase), int(before), None if after is None else list_place(after))
    except ValueError:
        pass
    raise InvalidFilterError("after", f"is {text!r:.120}; it must be the `next` of a purge")


@attrs.frozen
class PurgePage:
    """What a page of a purge has done."""

    seen: int
    """How many schedules, triggers, sinks, runs and rows of topics it went through."""
    deleted: bool = False
    """Whether the namespace had been created, and is deleted now."""
    next: PurgePlace | None = None
    """Where the purge continues; None if it is over."""


def purge_page(
    client: Client, name: str, after: PurgePlace | None = None, limit: int = PURGED_AT_ONCE
) -> PurgePage:
    """Go through the next schedules, triggers, sinks and runs of a namespace, and delete it once it is empty.

    Runs that can't be removed yet are named in the log, and passed over. NamespaceInUseError if there are such in the
    end, or if something was started or created meanwhile.
    """
    inside = client.in_namespace(name)
    core = inside.core
    core.connect()
    left = limit - _remove_others(inside, limit)
    place = after or PurgePlace(PurgePhase.TERMINATE, _now(core))
    while left > 0:
        seen, following = _act(inside, place, left)
        left -= seen
        if following is not None:
            place = attrs.evolve(place, after=following)
        elif place.phase is PurgePhase.TERMINATE:
            place = PurgePlace(PurgePhase.REMOVE, _now(core))
        elif removed := _remove_topics(inside, left):
            left -= removed
        else:
            return PurgePage(limit - left, client.dispatch(NamespaceDelete(namespace=name)).deleted)
    return PurgePage(limit, next=place)


def remaining_in(core: Core) -> int:
    """Return how much a namespace has: runs, schedules, triggers, sinks, topics; up to 10,000 of a kind and status."""
    counts = core.stores.persistence.read(CountNamespace(namespace=core.namespace))
    of_topics = counts.topics + counts.messages + counts.groups
    return sum(counts.runs.values()) + counts.schedules + counts.triggers + counts.sinks + of_topics


def _now(core: Core) -> Micros:
    return micros(core.clock.now()) + 1


def _remove_others(client: Client, limit: int) -> int:
    """Remove schedules, triggers and sinks, up to a number of them. Return how many."""
    core = client.core
    schedules = [row.name for row in islice(schedule_rows(core), limit)]
    for name in schedules:
        client.dispatch(ScheduleRemove(namespace=core.namespace, schedule=name))
    triggers = [one.row.name for one in trigger_entries(core, limit=limit - len(schedules))]
    for name in triggers:
        client.dispatch(TriggerRemove(namespace=core.namespace, trigger=name))
    sinks = list_sinks(core)[: limit - len(schedules) - len(triggers)]
    for sink in sinks:
        remove_sink(client, sink.name)
    return len(schedules) + len(triggers) + len(sinks)


def _remove_topics(client: Client, limit: int) -> int:
    """Remove rows of topics, up to a number of them. Return how many; none is left if there are 0."""
    core, left = client.core, limit
    for topic in topic_infos(core, None, None):
        remove = TopicRemove(namespace=core.namespace, topic=topic.name, limit=min(left, 10_000))
        try:
            done = client.dispatch(remove)
        except TopicInUseError as error:  # a run that can't be removed has subscribed
            _log.warning("topic %s of the namespace %s: %s", topic.name, core.namespace, error)
            continue
        left -= max(1, done.rows)
        if done.more or left <= 0:
            break
    return limit - left


def _act(client: Client, place: PurgePlace, limit: int) -> tuple[int, ListPlace | None]:
    """Act on the next runs. Return how many there were, and the last of them if there may be more."""
    core, action = client.core, place.phase.action
    which = RunFilter(
        namespace=core.namespace,
        statuses=action.default_statuses,
        created_before=place.before,
        newest=True,
    )
    result, following = apply_page(
        client, action, which, command_for(action, reason=_REASON), after=place.after, limit=limit
    )
    for refusal in result.refusals:
        _log.warning("run %s of the namespace %s: %s", refusal.id, core.namespace, refusal.message)
    return result.seen, following
