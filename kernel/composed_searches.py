"""Searches of the features beside the core, each composed of several searches of the store.

`kernel/dispatch/searches.py` makes them. A command names one in `Reads.search`.
"""

import attrs

from holdfast.kernel.state import ComposedSearch
from holdfast.ports.errors import InvalidCommandError
from holdfast.ports.json import canonical, parse
from holdfast.ports.records.gatherings import GatheringName
from holdfast.ports.records.run import RunName
from holdfast.ports.records.schedule import ScheduleName
from holdfast.ports.records.topic import MessageName
from holdfast.ports.records.trigger import TriggerName
from holdfast.ports.records.values import Micros
from holdfast.ports.searches import SlotPlace, not_negative
from holdfast.ports.structs import frozen


def _a_place(_: object, __: object, value: str) -> None:
    if value:
        slot_place(value)


def slot_place(text: str) -> SlotPlace:
    """Return the place that a search continues from. InvalidCommandError if the text is not a `next` of a reply."""
    try:
        place = parse(text) if text else ["", ""]
    except (ValueError, RecursionError):
        place = None
    match place:
        case [str(namespace), str(key)]:
            return SlotPlace(namespace, key)
        case _:
            raise InvalidCommandError(f"after is {text[:100]!r}; it must be `next` of a reply")


def line_places(text: str) -> tuple[SlotPlace | None, SlotPlace | None]:
    """Return the places that a search of all lines continues from: among concurrency keys, and among rates of starts.

    None: that part is at its end. InvalidCommandError if the text is not a `next` of a reply.
    """
    first = SlotPlace("", "")
    try:
        places = parse(text) if text else [first, first]
    except (ValueError, RecursionError):
        places = ()
    match places:
        case [keys, rates]:
            return _line_place(keys, text), _line_place(rates, text)
        case _:
            raise InvalidCommandError(f"after is {text[:100]!r}; it must be `next` of a reply")


def _line_place(place: object, text: str) -> SlotPlace | None:
    match place:
        case None:
            return None
        case [str(namespace), str(key)]:
            return SlotPlace(namespace, key)
        case _:
            raise InvalidCommandError(f"after is {text[:100]!r}; it must be `next` of a reply")


def following_places(keys: str | None, rates: SlotPlace | None) -> str | None:
    """Return the text for `line_places`, from the `next` of the search among keys; None if both are at their end."""
    if rates is None:
        return None if keys is None else canonical([slot_place(keys), None])
    return canonical([None if keys is None else slot_place(keys), rates])


def _places(_: object, __: object, value: str) -> None:
    line_places(value)


@frozen(kw_only=True)
class WaitingRuns(ComposedSearch):
    """Search for pending runs that wait for a slot of these concurrency keys, or for these rates; the runs are locked.

    Without any of them, it searches all keys and rates of all namespaces from `after` on, and what is due.
    """

    namespace: str
    keys: tuple[str, ...]
    rates: tuple[str, ...] = ()
    after: str = attrs.field(validator=_places)
    limit: int = attrs.field(validator=not_negative)
    due: bool = False
    """Search only for runs whose `start_at` has passed, or whose rate allows the next start."""


@frozen(kw_only=True)
class WaitingJobs(ComposedSearch):
    """Search for jobs that wait for a slot or a rate limit under these keys, in one namespace; the jobs are locked.

    Without `keys`, it searches all keys of all namespaces from `after` on.
    """

    namespace: str
    keys: tuple[str, ...]
    after: str = attrs.field(validator=_a_place)
    limit: int = attrs.field(validator=not_negative)


@frozen
class FiringSchedules(ComposedSearch):
    """Search for due schedules of these workflows, with the runs that they started or may start. All are locked."""

    namespace: str
    workflows: tuple[str, ...]
    limit: int = attrs.field(validator=not_negative)


@frozen
class NamedSchedules(ComposedSearch):
    """Search for schedules by name, locked, with the runs that they started, also locked if `with_runs`."""

    names: tuple[ScheduleName, ...]
    with_runs: bool = False
    run_names: tuple[RunName, ...] = ()
    """Other runs to lock."""


@frozen(kw_only=True)
class LinesOfLimit(ComposedSearch):
    """Search for what a change of a limit may release.

    That is the concurrency keys under it for which something waits, the jobs, locked, that sleep until its rate allows
    the next start and, of a queue, the queued jobs after `after`.
    """

    namespace: str
    name: str
    after: str
    limit: int = attrs.field(validator=not_negative)


@frozen
class NamespaceContents(ComposedSearch):
    """Search for a namespace, locked, and for what it has."""

    namespace: str


@frozen
class RegisteredWorkflows(ComposedSearch):
    """Search for workflows by name and version, locked, and for the keys of all workflows of the namespace."""

    namespace: str
    versions: tuple[tuple[str, str], ...]


@frozen
class GatheringRuns(ComposedSearch):
    """Search for the runs that starts may join, by the names of their gatherings; the runs are locked."""

    names: tuple[GatheringName, ...]


@frozen
class NamedCredentials(ComposedSearch):
    """Search for credentials by id or label; they are locked. With `if_any`, it also checks whether any is stored."""

    names: tuple[str, ...]
    if_any: bool = False


@frozen
class SearchedBrowserSessions(ComposedSearch):
    """Search for browser sessions by id, and all of a principal if it is given; they are locked."""

    ids: tuple[str, ...]
    kind: str = ""
    principal: str = ""


@frozen
class RunsWithUndeliveredRows(ComposedSearch):
    """Search for runs with rows that are not in the outbox of a sink, by ascending run key from `after`."""

    namespace: str
    sinks: tuple[str, ...]
    after: str
    limit: int = attrs.field(validator=not_negative)


@frozen
class PublishedMessages(ComposedSearch):
    """Search for messages of topics by name."""

    names: tuple[MessageName, ...]


@frozen
class NamedTrigger(ComposedSearch):
    """Search for a trigger by name, locked, and for its topic.

    With `topic` and `since`, it is that topic, with the number of the first message since an instant.
    """

    name: TriggerName
    topic: str | None = None
    since: Micros | None = None


@frozen
class RemovedTopic(ComposedSearch):
    """Search for a topic, locked, for what uses it, and for the first rows that it has."""

    namespace: str
    topic: str
    limit: int = attrs.field(validator=not_negative)


@frozen
class TopicDeliveries(ComposedSearch):
    """Search for what is to be delivered of a topic, which is locked, with the runs that get it, locked.

    Without a topic, it is the first of the store that has something to deliver.
    """

    namespace: str
    topic: str | None
    after: str = attrs.field(validator=_a_place)
    """Without a topic: where the search continues from, a `next`; "" for the beginning."""
    limit: int = attrs.field(validator=not_negative)
