"""Gathering runs: pending runs that other starts of their workflow join, until they begin (docs/decisions/0087)."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple, cast

from holdfast.ports.json import canonical, parse
from holdfast.ports.records.values import Micros
from holdfast.ports.references import Reference, list_reference, of_run
from holdfast.ports.structs import evolve, frozen

ROWS_KEPT: Final = "all"
"""The text of `GatheredStarts.keep` with which the function gets the inputs of all starts."""


class GatheringName(NamedTuple):
    """The name under which the next start finds a gathering run. At most one run has it at a time."""

    namespace: str
    name: str
    """The fingerprint of the plan, and the text of the attribute that it gathers by."""


@frozen(kw_only=True)
class Gathering:
    """A gathering run, by its name. The row exists as long as starts may join the run."""

    namespace: str
    name: str
    run: str
    """The key of the run. Only a transaction that holds the lock of that run deletes this row."""

    @property
    def gathering_name(self) -> GatheringName:
        """The name under which the run is found."""
        return GatheringName(self.namespace, self.name)


@frozen(kw_only=True)
class GatheredStarts:
    """The starts that a run has gathered so far, or did gather before it began."""

    name: str
    """The name of its `Gathering`."""
    is_open: bool
    """Whether starts may still join it, as long as it is pending or paused."""
    keep: str
    """Whose input the function gets: `first`, `last` or `all`."""
    until: Micros
    """When it begins at the latest, as far as that depends on the gathering."""
    starts: int = 1
    """How many starts it is made of."""
    size: int = 0
    """Length of their inputs together, in bytes."""
    items: int = 0
    """How many items their lists have together; 0 unless all are kept."""
    rows: tuple[tuple[int, int], ...] = ()
    """Ranges of numbers of the history rows with their inputs, in order."""
    of: str | None = None
    """The key of the generation that has these rows; None: the generation itself."""

    @property
    def input(self) -> Reference:
        """The reference to what the function gets: with `all`, to the list of the inputs."""
        reference: Reference
        if self.keep == ROWS_KEPT:
            reference = list_reference(tuple(self.numbers))
        else:
            reference = self.rows[0][0] if self.keep == "first" else self.rows[-1][1]
        return reference if self.of is None else of_run(self.of, reference)

    @property
    def numbers(self) -> Iterator[int]:
        """The numbers of the history rows with their inputs, in order."""
        return (number for first, last in self.rows for number in range(first, last + 1))

    def with_start(self, number: int, *, size: int, items: int) -> "GatheredStarts":
        """Return the starts with one more, whose input is in the row of this number."""
        first, last = self.rows[-1]
        is_next = last == number - 1
        return evolve(
            self,
            starts=self.starts + 1,
            size=self.size + size,
            items=self.items + items,
            rows=(*self.rows[:-1], (first, number)) if is_next else (*self.rows, (number, number)),
        )

    def to_text(self) -> str:
        """Return the stored text."""
        data: dict[str, object] = {
            "name": self.name,
            "open": self.is_open,
            "keep": self.keep,
            "until": self.until,
            "starts": self.starts,
            "size": self.size,
            "items": self.items,
            "rows": self.rows,
        }
        return canonical(data if self.of is None else {**data, "of": self.of})


def gathered_from(text: str) -> GatheredStarts:
    """Return the gathered starts that are stored as this text. Raises one of `PARSE_ERRORS` if it is damaged."""
    data = cast("dict[str, Any]", parse(text))
    of = data.get("of")
    rows = tuple((int(first), int(last)) for first, last in data["rows"])
    if not rows or any(first > last for first, last in rows):
        raise ValueError("it names no rows")
    return GatheredStarts(
        name=str(data["name"]),
        is_open=bool(data["open"]),
        keep=str(data["keep"]),
        until=int(data["until"]),
        starts=int(data["starts"]),
        size=int(data["size"]),
        items=int(data["items"]),
        rows=rows,
        of=None if of is None else str(of),
    )
