"""Workers and queues as the client shows them: what each worker has and holds, and what waits in each queue."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Final

import attrs

from holdfast.hosts.wiring.pages import pages_of
from holdfast.hosts.wiring.services import Core
from holdfast.kernel.commands.worker_about import ServedQueue, WorkerAbout, about_from
from holdfast.ports.clock import instant, micros
from holdfast.ports.queries.limits import COUNTED_MAX, ListLimits
from holdfast.ports.queries.workers import (
    HeldJob,
    HeldJobs,
    ListWorkers,
    QueueLine,
    QueueLines,
    RegisteredSession,
)
from holdfast.ports.records.values import Micros

FLEET_MAX: Final = 1_000
"""The most workers that are looked at to find out which code is served."""
HELD_SHOWN: Final = 100
"""How many of the jobs that a worker holds are listed."""
_PAGE: Final = 100
_QUEUE: Final = "queue:"


@attrs.frozen(kw_only=True)
class HeldWork:
    """A job that a worker holds."""

    run_id: str
    """The id of its run."""
    generation: int
    """The generation of its run."""
    definition: str
    """The code that it runs: `<workflow>@<version>`, `step:<name>`, or `stage:<name>` of a remote stage."""
    queue: str
    """The queue that it was claimed from."""
    kind: str
    """What it does: `stage`, `step`, `workflow`, ..."""
    node: str
    """Its stage or function; of a queued step, the call."""
    item: int | None
    """The index of its map item, if it has one."""
    attempt: int
    """Which attempt this is, from 1."""
    since: datetime
    """When it was claimed."""


@attrs.frozen(kw_only=True)
class WorkerInfo:
    """A worker, or another host with an open session, as it is now."""

    session: str
    """The id of its session."""
    name: str
    """Its name, for people."""
    host: str
    """The machine and process."""
    language: str
    """What it is written in."""
    versions: tuple[str, ...]
    """Versions of its programs, such as "holdfast 0.1.0"."""
    queues: tuple[str, ...]
    """The queues that it serves."""
    definitions: tuple[str, ...]
    """The code that it has: `<workflow>@<version>`, `step:<name>` for steps, `stage:<name>` for remote stages."""
    has_more: bool
    """Whether it has more queues or code than are listed."""
    slots: int
    """How many bodies it runs at once."""
    principal: str | None
    """Who runs it, if it came through a server."""
    started_at: datetime
    """When its session was opened."""
    renewed_at: datetime
    """When its session was last renewed."""
    is_live: bool
    """Whether its lease has not expired. A worker that is not live is listed until it is reaped."""
    holds: tuple[HeldWork, ...]
    """The jobs that it holds, at most 100."""


@attrs.frozen(kw_only=True)
class QueuedCode:
    """The jobs of a queue that need the same code."""

    definition: str
    """`<workflow>@<version>`, `step:<name>`, or `stage:<name>` of a remote stage."""
    queued: int
    """How many wait for a worker. At most 10,000 are counted."""
    running: int
    """How many a worker holds."""
    sleeping: int
    """How many wait for an instant or an event. At most 10,000 are counted."""
    waiting_since: datetime | None
    """Since when the first of the queued ones waits."""
    workers: int
    """How many live workers have the code and serve the queue."""
    is_unserved: bool
    """Whether jobs are queued that no live worker serves."""


@attrs.frozen(kw_only=True)
class QueueInfo:
    """A queue as it is now."""

    name: str
    """Its name."""
    is_paused: bool
    """Whether nothing is claimed from it."""
    queued: int
    """How many jobs wait for a worker."""
    running: int
    """How many a worker holds."""
    sleeping: int
    """How many wait for an instant or an event."""
    is_partial: bool
    """Whether a bound of the counts was reached, so that there may be more."""
    waiting_since: datetime | None
    """Since when the first of the queued ones waits."""
    workers: int
    """How many live workers serve it."""
    slots: int
    """How many of its bodies they run at once."""
    code: tuple[QueuedCode, ...]
    """By the code that its jobs need."""

    @property
    def unserved(self) -> tuple[QueuedCode, ...]:
        """The code that jobs are queued for and no live worker serves."""
        return tuple(one for one in self.code if one.is_unserved)


@attrs.frozen
class Fleet:
    """The live workers of a namespace."""

    workers: tuple[WorkerAbout, ...]
    is_whole: bool
    """Whether these are all."""

    @cached_property
    def _by_queue(self) -> Mapping[str, Sequence[tuple[ServedQueue, WorkerAbout]]]:
        found: dict[str, list[tuple[ServedQueue, WorkerAbout]]] = defaultdict(list)
        for about in self.workers:
            for queue in about.queues:
                found[queue.name].append((queue, about))
        return found

    @property
    def queues(self) -> frozenset[str]:
        """The queues that they serve."""
        return frozenset(self._by_queue)

    def serving(self, queue: str) -> Sequence[WorkerAbout]:
        """Return those that serve a queue."""
        return [about for _, about in self._by_queue.get(queue, ())]

    def slots(self, queue: str) -> int:
        """Return how many bodies of a queue they run at once."""
        return sum(
            min(about.concurrency, about.concurrency if one.limit is None else one.limit)
            for one, about in self._by_queue.get(queue, ())
        )

    def with_code(self, definition: str, queue: str) -> int:
        """Return how many serve a queue and have this code."""
        return sum(definition in about.definitions for about in self.serving(queue))

    def lacks(self, definition: str, queue: str) -> bool:
        """Whether certainly none serves the queue and has this code."""
        may_have = not self.is_whole or any(about.has_more for about in self.workers)
        return not may_have and not self.with_code(definition, queue)

    def versions_of(self, definition: str) -> tuple[str, ...]:
        """Return the versions of the same workflow that they have, whatever their queues."""
        workflow = definition.partition("@")[0]
        known = {one for about in self.workers for one in about.definitions}
        return tuple(sorted(one for one in known if "@" in one and one.partition("@")[0] == workflow))


def worker_infos(core: Core, after: str | None, limit: int | None) -> Iterator[WorkerInfo]:
    """Yield the workers of the namespace by the ids of their sessions, up to a number of them."""
    core.connect()
    for page in _pages(core, after, limit):
        held: dict[str, list[HeldWork]] = defaultdict(list)
        sessions = [one.session.id for one in page]
        for one in core.stores.persistence.read(HeldJobs(sessions=sessions, limit=HELD_SHOWN)):
            held[one.job.session or ""].append(_held_work(one))
        now = micros(core.clock.now())
        for worker in page:
            yield _worker_info(worker, tuple(held[worker.session.id]), now)


def _pages(core: Core, after: str | None, limit: int | None) -> Iterator[Sequence[RegisteredSession]]:
    """Yield pages of the sessions in the registry, none of them empty."""

    def read(place: str | None, wanted: int) -> Sequence[RegisteredSession]:
        query = ListWorkers(namespace=core.namespace, after=place or "", limit=wanted)
        return core.stores.persistence.read(query)

    return filter(None, pages_of(read, _PAGE, after, limit, lambda one: one.session.id))


def _held_work(one: HeldJob) -> HeldWork:
    job = one.job
    return HeldWork(
        run_id=one.run_id,
        generation=one.generation,
        definition=job.definition,
        queue=job.queue,
        kind=job.kind.value,
        node=job.node,
        item=job.item,
        attempt=job.attempts,
        since=instant(job.leased_at or 0),
    )


def _worker_info(one: RegisteredSession, holds: tuple[HeldWork, ...], now: Micros) -> WorkerInfo:
    session, about = one.session, about_from(one.row.about)
    return WorkerInfo(
        session=session.id,
        name=about.name,
        host=session.host,
        language=about.language,
        versions=about.versions,
        queues=tuple(queue.name for queue in about.queues),
        definitions=about.definitions,
        has_more=about.has_more,
        slots=about.concurrency,
        principal=session.principal,
        started_at=instant(session.opened_at),
        renewed_at=instant(max(session.opened_at, session.expires_at - one.row.lease)),
        is_live=session.expires_at > now,
        holds=holds,
    )


def fleet_of(core: Core) -> Fleet:
    """Return the live workers of the namespace."""
    core.connect()
    now = micros(core.clock.now())
    texts: list[str] = []
    looked_at = 0
    for page in _pages(core, None, FLEET_MAX + 1):
        looked_at += len(page)
        texts += (one.row.about for one in page if one.session.expires_at > now)
    # Workers of one deployment say the same.
    known = {text: about_from(text) for text in set(texts)}
    return Fleet(tuple(known[text] for text in texts), looked_at <= FLEET_MAX)


def queue_infos(core: Core, fleet: Fleet | None = None) -> tuple[QueueInfo, ...]:
    """Return the queues of the namespace that have jobs, are served by a live worker, or are paused, by name.

    The workers are read unless they are given.
    """
    fleet = fleet_of(core) if fleet is None else fleet
    contents = core.stores.persistence.read(QueueLines(namespace=core.namespace))
    lines: dict[str, list[QueueLine]] = defaultdict(list)
    for line in contents.lines:
        lines[line.queue].append(line)
    paused = _paused_queues(core)
    names = sorted({*lines, *fleet.queues, *paused})
    return tuple(
        _queue_info(name, lines[name], fleet, is_paused=name in paused, is_partial=contents.is_partial)
        for name in names
    )


def _paused_queues(core: Core) -> frozenset[str]:
    found: set[str] = set()
    query = ListLimits(namespace=core.namespace, after=_QUEUE, limit=_PAGE)
    while page := core.stores.persistence.read(query):
        of_queues = [row for row in page if row.name.startswith(_QUEUE)]
        found.update(row.name.removeprefix(_QUEUE) for row in of_queues if row.is_paused)
        if len(of_queues) < len(page) or len(page) < _PAGE:
            break
        query = attrs.evolve(query, after=page[-1].name)
    return frozenset(found)


def _queue_info(
    name: str, lines: Sequence[QueueLine], fleet: Fleet, *, is_paused: bool, is_partial: bool
) -> QueueInfo:
    code = tuple(_queued_code(line, fleet) for line in lines)
    since = [one.waiting_since for one in code if one.waiting_since is not None]
    is_cut = any(COUNTED_MAX in (one.queued, one.sleeping) for one in code)
    return QueueInfo(
        name=name,
        is_paused=is_paused,
        queued=sum(one.queued for one in code),
        running=sum(one.running for one in code),
        sleeping=sum(one.sleeping for one in code),
        is_partial=is_partial or is_cut,
        waiting_since=min(since, default=None),
        workers=len(fleet.serving(name)),
        slots=fleet.slots(name),
        code=code,
    )


def _queued_code(line: QueueLine, fleet: Fleet) -> QueuedCode:
    return QueuedCode(
        definition=line.definition,
        queued=line.queued,
        running=line.running,
        sleeping=line.sleeping,
        waiting_since=None if line.since is None else instant(line.since),
        workers=fleet.with_code(line.definition, line.queue),
        is_unserved=line.queued > 0 and fleet.lacks(line.definition, line.queue),
    )


def unserved_text(fleet: Fleet, definition: str, queue: str) -> str:
    """Return the sentence about code that no live worker serves; "" if one may serve it."""
    if not fleet.lacks(definition, queue):
        return ""
    if not fleet.workers:
        return " No worker is live."
    if any(definition in about.definitions for about in fleet.workers):
        return " No live worker does: those that have it do not serve this queue."
    versions = fleet.versions_of(definition) if "@" in definition else ()
    others = f"; live are {', '.join(versions)}" if versions else ""
    none_has_it = "the only one does not have it" if len(fleet.workers) == 1 else "none of them has it"
    return f" No live worker does: {none_has_it}{others}."
