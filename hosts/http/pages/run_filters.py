"""The filters of runs in the address of a page, as conditions of the API and in words."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Final

import attrs

from holdfast.hosts.http.json_input import invalid
from holdfast.hosts.http.operations import PageQuery
from holdfast.hosts.http.run_reads import RunConditions
from holdfast.ports.records.run import RunStatus

ACTIVE: Final = (
    RunStatus.PENDING,
    RunStatus.RUNNING,
    RunStatus.PAUSED,
    RunStatus.CANCELLING,
    RunStatus.BLOCKED,
)
"""The statuses of runs that have not ended."""
CHOICES: Final = {"": "any", "active": "active", **{one.value: one.value for one in RunStatus}}
"""What the field for the status offers."""


@attrs.frozen(kw_only=True, slots=False)  # others inherit from it and from one class more
class RunsAddress:
    """The filters in an address. What a form sends without text is no filter."""

    status: tuple[str, ...] = ()
    """A status, or `active` for all runs that have not ended. May be repeated."""
    workflow: str = ""
    """The name of the workflow."""
    attribute: tuple[str, ...] = ()
    """An attribute as `name=text`. May be repeated."""
    since: str = ""
    """Created at this instant or later; in UTC if it has no offset."""
    until: str = ""
    """Created before this instant."""
    ids: tuple[str, ...] = ()
    """The ids of runs that a person has selected. May be repeated."""
    id_prefix: str = ""
    """How the run id begins."""
    waiting: bool = False
    """Whether only runs count that wait."""

    @property
    def conditions(self) -> RunConditions:
        """The conditions of the API. HttpError for a filter that is not understood."""
        return RunConditions(
            workflow=self.workflow.strip() or None,
            status=tuple(self._statuses()),
            attributes=self._attributes(),
            since=_instant("since", self.since),
            until=_instant("until", self.until),
            ids=self.ids or None,
            id_prefix=self.id_prefix.strip() or None,
            waiting=self.waiting,
        )

    @property
    def parameters(self) -> dict[str, str | bool | tuple[str, ...] | None]:
        """The query parameters of an address with these filters."""
        return {
            "status": tuple(one for one in self.status if one),
            "workflow": self.workflow.strip() or None,
            "attribute": tuple(one for one in self.attribute if one.strip()),
            "since": self.since or None,
            "until": self.until or None,
            "ids": self.ids,
            "id_prefix": self.id_prefix.strip() or None,
            "waiting": self.waiting,
        }

    @property
    def words(self) -> dict[str, str]:
        """The filters in words, by their parameters."""
        found: dict[str, str] = {}
        if statuses := [one for one in self.status if one]:
            found["status"] = f"status {' or '.join(statuses)}"
        if self.workflow.strip():
            found["workflow"] = f"workflow {self.workflow.strip()}"
        if given := [one for one in self.attribute if one.strip()]:
            found["attribute"] = f"attribute {' and '.join(given)}"
        if self.since:
            found["since"] = f"created at {_zoned(self.since)} or later"
        if self.until:
            found["until"] = f"created before {_zoned(self.until)}"
        if self.ids:
            number = len(set(self.ids))
            found["ids"] = "the selected run" if number == 1 else f"one of {number} selected runs"
        if self.id_prefix.strip():
            found["id_prefix"] = f"run id begins with {self.id_prefix.strip()}"
        if self.waiting:
            found["waiting"] = "waiting"
        return found

    def _statuses(self) -> Iterator[RunStatus]:
        for one in self.status:
            if one == "active":
                yield from ACTIVE
            elif one:
                try:
                    yield RunStatus(one)
                except ValueError:
                    raise invalid(
                        "status", f"{one!r:.80} is not one of {', '.join(list(CHOICES)[1:])}"
                    ) from None

    def _attributes(self) -> Mapping[str, str]:
        found: dict[str, str] = {}
        for one in self.attribute:
            name, equals, text = one.partition("=")
            if not one.strip():
                continue
            if not equals or not name.strip():
                raise invalid("attribute", f"{one!r:.80} is not written as name=text")
            if found.setdefault(name.strip(), text) != text:
                raise invalid("attribute", f"{name.strip()!r:.80} is given twice; a run has one text for it")
        return found


@attrs.frozen(kw_only=True)
class RunsPageQuery(RunsAddress, PageQuery):
    """The query parameters of the page of runs."""

    id: str = ""
    """The id of a run to open."""


def _zoned(text: str) -> str:
    found = _instant("", text)
    return text if found is None else f"{found.isoformat()}"


def _instant(name: str, text: str) -> datetime | None:
    if not text.strip():
        return None
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        raise invalid(name, f"{text!r:.80} is not an instant such as 2026-11-26T09:00") from None
    return found if found.utcoffset() is not None else found.replace(tzinfo=UTC)
