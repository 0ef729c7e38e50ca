"""The query parameters of the page of a run."""

from typing import Literal, TypeAlias

import attrs

from holdfast.hosts.http.operations import GenerationQuery
from holdfast.kernel.authoring.attempt_context import Level

TabName: TypeAlias = Literal[
    "summary", "timeline", "graph", "steps", "history", "logs", "values", "messages", "children", "raw"
]


@attrs.frozen(kw_only=True)
class RunQuery(GenerationQuery):
    """The query parameters of the page of a run."""

    tab: TabName = "summary"
    """The tab."""
    row: int | None = attrs.field(default=None, validator=attrs.validators.optional(attrs.validators.ge(1)))
    """In the history and the steps: the number of the newest row that is shown; by default the last one."""
    after: str | None = None
    """In a list: the place after which it begins."""
    level: Level | None = None
    """In the log: lines of this level or a higher one."""
    stage: str | None = None
    """In the log: only lines of this stage."""
    from_: str = ""
    """In the timeline: where it begins, in seconds since the run was created."""
    to: str = ""
    """In the timeline: where it ends."""
