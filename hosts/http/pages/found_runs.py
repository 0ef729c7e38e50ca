"""The runs that match the filters of a page. What would take long is looked for among the newest runs only."""

from typing import Final

import attrs

from holdfast.hosts.http.operations import Invocation, Nothing
from holdfast.hosts.http.pages.page import Page
from holdfast.hosts.http.pages.run_filters import RunsPageQuery
from holdfast.hosts.http.run_reads import (
    RunConditions,
    RunCount,
    RunPage,
    RunsFilter,
    RunsQuery,
    count_upto,
    list_runs,
)
from holdfast.hosts.wiring.caller_reads import CallerReads
from holdfast.ports.clock import instant, micros
from holdfast.ports.errors import ReadTimeoutError
from holdfast.ports.pagination import ListPlace, list_place
from holdfast.ports.queries.runs import PlaceOfRun
from holdfast.ports.read_limits import limited_reads, read_limit

COUNT_MAX: Final = 1_000
"""Where a page stops to count: a count reads each run, and a page shows fifty."""
SECONDS: Final = 0.5
"""How long a filter may take that is tried on all runs."""
NEWEST: Final = 10_000
"""How many runs, the newest, are looked through by a filter that takes longer."""


@attrs.frozen(kw_only=True)
class FoundRuns:
    """The runs of a page."""

    page: RunPage
    """The runs, and where the next page begins."""
    count: RunCount
    """How many match."""
    among: int | None = None
    """Of how many runs, the newest ones before this page, they are; None if all were looked through."""
    is_later: bool = False
    """Whether there is a page before this one."""


def found_runs(page: Page[RunsPageQuery]) -> FoundRuns:
    """Return the runs that match the filters of a page."""
    conditions = page.query.conditions
    limit = read_limit()
    try:
        with limited_reads(CallerReads(SECONDS if limit is None else min(SECONDS, limit.seconds))):
            return FoundRuns(page=_listed(page, conditions), count=_counted(page, conditions))
    except ReadTimeoutError:
        return _among_newest(page, conditions)


def _among_newest(page: Page[RunsPageQuery], conditions: RunConditions) -> FoundRuns:
    """Return the matches among the newest runs before the page: then the next page begins before all of these."""
    before = list_place(page.query.after) if page.query.after else None
    if conditions.until is not None:
        until = ListPlace(micros(conditions.until), "")
        before = until if before is None else min(before, until)
    place = page.core.stores.persistence.read(PlaceOfRun(page.core.namespace, NEWEST, before))
    if place is None:
        return FoundRuns(page=_listed(page, conditions), count=_counted(page, conditions))
    # Whole instants: the runs that were started together with the last of them are all on the next page.
    edge = ListPlace(place.at + 1, "0")
    since, oldest = conditions.since, instant(edge.at)
    within = attrs.evolve(conditions, since=oldest if since is None else max(since, oldest))
    found = _listed(page, within)
    following = found.next or (None if since is not None and since >= oldest else edge.text)
    upto = within if before is None else attrs.evolve(within, until=instant(before.at + 1))
    return FoundRuns(
        page=attrs.evolve(found, next=following),
        count=_counted(page, upto),
        among=NEWEST,
        is_later=bool(page.query.after),
    )


def _listed(page: Page[RunsPageQuery], conditions: RunConditions) -> RunPage:
    given = attrs.asdict(conditions, recurse=False)
    query = RunsQuery(**given, after=page.query.after or None, limit=page.query.limit)
    call: Invocation[RunsQuery, Nothing] = page.reading(query)
    return list_runs(call)


def _counted(page: Page[RunsPageQuery], conditions: RunConditions) -> RunCount:
    return count_upto(page.core, RunsFilter(**attrs.asdict(conditions, recurse=False)), COUNT_MAX)
