"""Queries for runs and their jobs."""

import attrs

from holdfast.ports.json import canonical
from holdfast.ports.pagination import ListPlace
from holdfast.ports.persistence import Query
from holdfast.ports.records.job import Job, JobKey
from holdfast.ports.records.run import Run, RunName, RunStatus
from holdfast.ports.records.values import Micros
from holdfast.ports.search_values import ValueMatch, ValueSource, code_of
from holdfast.ports.structs import frozen


@frozen
class FindRun(Query[Run | None]):
    """The newest generation of a run, or the given one."""

    name: RunName
    generation: int | None = None


@frozen
class RunsByKey(Query[tuple[Run, ...]]):
    """Runs by key, in no order."""

    keys: tuple[str, ...]


@frozen(kw_only=True)
class RunFilter:
    """A filter for runs; all given conditions must hold."""

    namespace: str
    workflow: str | None = None
    statuses: frozenset[RunStatus] = frozenset()
    """The statuses that match; empty for all."""
    created_from: Micros | None = None
    """The first instant of creation that matches."""
    created_before: Micros | None = None
    """The first instant of creation that no longer matches."""
    ended_before: Micros | None = None
    """Matches runs that have ended before this instant."""
    attributes: tuple[tuple[str, str], ...] = ()
    """(name, text) pairs, all of which a run must have."""
    annotations: tuple[tuple[str, str], ...] = ()
    """(name, text) pairs, each of which must have been annotated at some time."""
    values: tuple[ValueMatch, ...] = ()
    """Conditions on further values of a run."""
    ids: frozenset[str] = frozenset()
    """The ids that match; empty for all."""
    id_prefix: str | None = None
    """How the ids begin that match, compared character by character. Not empty."""
    queue: str | None = None
    """The queue of the run's jobs, unless a stage names another."""
    children_of: str | None = None
    """The id of the parent run."""
    error_code: str | None = None
    """The code of the error with which a run has ended, or is ending."""
    error_type: str | None = None
    """The class of that error, as `Raised.type` names it."""
    waiting: bool = False
    """Whether only running runs without a queued or leased job match.

    They wait for a time, a message, a child run, external work, a retry or a limit.
    """
    newest: bool = False
    """Whether only the newest generation of each run matches."""

    @property
    def value_matches(self) -> tuple[ValueMatch, ...]:
        """The conditions on attributes, annotations and further values, each once."""
        pairs = (
            *((ValueSource.ATTRIBUTE, name, text) for name, text in sorted(set(self.attributes))),
            *((ValueSource.ANNOTATION, name, text) for name, text in sorted(set(self.annotations))),
        )
        equal = (
            ValueMatch(source=source, name=name, codes=(code_of(text) or "",)) for source, name, text in pairs
        )
        return tuple(dict.fromkeys((*equal, *self.values)))

    @property
    def error_marks(self) -> tuple[str, ...]:
        """Texts that are all in `Run.error` if, and only if, the error matches.

        It is canonical JSON without inner objects, in whose texts a quote is never bare. So it need not be parsed, and
        a damaged one does not fail the statement.
        """
        wanted = {"code": self.error_code, "type": self.error_type}
        return tuple(f'"{name}":{canonical(text)}' for name, text in wanted.items() if text is not None)


@frozen
class ListRuns(Query[tuple[Run, ...]]):
    """Runs by time of creation, then by key; newest first by default.

    Runs created meanwhile do not move others from one page to another.
    """

    which: RunFilter
    after: ListPlace | None = attrs.field(default=None, kw_only=True)
    """The position of the last run of the page before. That run may have been removed."""
    oldest_first: bool = attrs.field(default=False, kw_only=True)
    limit: int = attrs.field(default=50, kw_only=True)


@frozen
class CountRuns(Query[dict[RunStatus, int]]):
    """The number of matching runs by status, without statuses that none has."""

    which: RunFilter
    at_most: int | None = None
    """Stop at this number of runs, which ones is not defined; None: count all, however long that takes."""


@frozen
class PlaceOfRun(Query[ListPlace | None]):
    """The position of the n-th newest run of a namespace, from 1, of all generations; None if it has fewer."""

    namespace: str
    number: int
    before: ListPlace | None = None
    """If set, only runs before this position count."""


@frozen
class JobsOfRun(Query[tuple[Job, ...]]):
    """The jobs of a run, by number."""

    run: str


@frozen(kw_only=True)
class QueuedJobs(Query[tuple[Job, ...]]):
    """Queued jobs of these definitions, by key."""

    namespace: str
    definitions: tuple[str, ...]
    quiet_since: Micros
    """Only jobs of runs that have not changed since then are returned."""
    after: JobKey | None = None
    """The key of the last job of the page before."""
    limit: int = 100


@frozen
class PendingDeliveries(Query[tuple[Job, ...]]):
    """Jobs that are pending delivery to another run, oldest run first."""

    limit: int = 100
    after: JobKey | None = None
    """The key of the last job of the page before."""


@frozen
class OrphanedChildren(Query[tuple[Run, ...]]):
    """Orphaned child runs: active ones whose parent job, of one of these runs, is gone. Ordered by the id of that job.

    Those with the close policy `abandon` are left out.
    """

    runs: tuple[str, ...]
    limit: int = 500
