"""What a run's history tells: where the run must be, how its attempts ended, and which rows can't be."""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final, TypeAlias, cast

import attrs

from holdfast.kernel.plan import MapPlan, NodePlan, Plan, plan_from_json
from holdfast.kernel.progress import Progress, progress_from
from holdfast.ports.json import parse
from holdfast.ports.records import HistoryRow, Job, JobKind, Run, Session
from holdfast.ports.references import Reference, list_reference, map_reference, references_from
from holdfast.testing.invariants.snapshots import Snapshot

Item: TypeAlias = tuple[str, int | None]
"""A stage, or one item of a map: the node's name, and the item's index."""

_ATTEMPT_ENDS: Final = frozenset(
    {"stage.completed", "stage.expanded", "stage.retrying", "stage.failed", "stage.lost"}
)


@attrs.define
class Place:
    """Where a run must be, worked out from its plan and its history and nothing else."""

    plan: Plan
    group: int = 0
    input: Reference = 1
    kept: dict[str, Reference] = attrs.field(factory=dict[str, Reference])
    totals: dict[str, int] = attrs.field(factory=dict[str, int])
    first_rows: dict[str, int] = attrs.field(factory=dict[str, int])
    done: dict[str, set[int]] = attrs.field(factory=dict[str, set[int]])
    outputs: dict[str, Reference] = attrs.field(factory=dict[str, Reference])
    gave: dict[str, Reference] = attrs.field(factory=dict[str, Reference])
    """What all nodes gave that are done, those of former groups among them."""

    @property
    def nodes(self) -> dict[str, NodePlan]:
        """The nodes of the current group; none at the end."""
        if self.group >= len(self.plan.groups):
            return {}
        return {node.name: node for node in self.plan.groups[self.group].nodes}

    def turn(self, node: MapPlan) -> int:
        """How many items of an expanded map have had their turn so far."""
        return min(self.totals[node.name], len(self.done[node.name]) + node.limit)

    def due(self) -> Iterator[tuple[JobKind, str, int | None]]:
        """Yield the jobs that the run must have."""
        for name, node in self.nodes.items():
            if name in self.outputs:
                continue
            if not isinstance(node, MapPlan):
                yield JobKind.STAGE, name, None
            elif name not in self.totals:
                yield JobKind.EXPAND, name, None
            else:
                yield from (
                    (JobKind.STAGE, name, item)
                    for item in range(self.turn(node))
                    if item not in self.done[name]
                )

    def keep(self, kept: Mapping[str, Reference]) -> None:
        """Begin where a rerun does, at the first group of which not everything is kept."""
        for name in self.plan.nodes:
            if name in kept:
                self._give(name, kept[name])

    def expand(self, row: HistoryRow) -> str | None:
        """Take a `stage.expanded` row; return what is wrong with it."""
        name = row.node or ""
        if not isinstance(self.nodes[name], MapPlan) or name in self.totals:
            return f"row {row.number} expands {name!r}, which is no map or is expanded already"
        self.totals[name], self.first_rows[name] = fact(row, "items"), row.number
        self.done[name] = set()
        if not self.totals[name]:
            self._give(name, list_reference(()))
        return None

    def complete(self, row: HistoryRow) -> str | None:
        """Take a `stage.completed` row; return what is wrong with it."""
        name = row.node or ""
        if name in self.outputs:
            return f"row {row.number} completes {name!r} again"
        if row.item is None:
            if isinstance(self.nodes[name], MapPlan):
                return f"row {row.number} completes the map {name!r} as if it were a stage"
            self._give(name, row.number)
            return None
        if name not in self.totals or row.item not in range(self.totals[name]) or row.item in self.done[name]:
            return f"row {row.number} completes item {row.item} of {name!r}, which is not open"
        self.done[name].add(row.item)
        if len(self.done[name]) == self.totals[name]:
            self._give(name, map_reference(name, self.first_rows[name], row.number))
        return None

    def _give(self, name: str, output: Reference) -> None:
        self.outputs[name] = self.gave[name] = output
        if len(self.outputs) < len(self.nodes):
            return
        outputs = tuple(self.outputs[node] for node in self.nodes)
        self.kept |= {node: self.outputs[node] for node in self.nodes if node in self.plan.mapped_over}
        self.input = list_reference(outputs) if self.plan.groups[self.group].parallel else outputs[0]
        self.group += 1
        self.totals, self.first_rows, self.done, self.outputs = {}, {}, {}, {}


@attrs.frozen(kw_only=True)
class Seen:
    """A run with all its rows, and what its history tells: `place`, and the rows that can't be."""

    run: Run
    jobs: Sequence[Job]
    history: Sequence[HistoryRow]
    sessions: Mapping[str, Session]
    progress: Progress
    place: Place
    twice: Sequence[str]
    early: Sequence[str]

    @property
    def is_repaired(self) -> bool:
        """Whether rows of it were lost and replaced: counts of attempts and epochs then begin anew."""
        return any(row.type == "run.repaired" for row in self.history)

    def attempts(self) -> dict[Item, list[HistoryRow]]:
        """Return for each stage and item the rows in which its attempts ended."""
        ends: dict[Item, list[HistoryRow]] = {}
        for row in self.history:
            if row.type in _ATTEMPT_ENDS and row.node is not None:
                ends.setdefault((row.node, row.item), []).append(row)
        return ends


def look(run: Run, plan: str, snapshot: Snapshot) -> Seen:
    """Read the history of a run from its beginning. `plan` is the stored text of its plan."""
    place = Place(_plan(plan))
    place.keep(references_from(run.kept))
    twice: list[str] = []
    early: list[str] = []
    history = snapshot.history.get(run.key, ())
    for row in history:
        if row.type not in _ATTEMPT_ENDS:
            continue
        if row.node not in place.nodes:
            early.append(f"row {row.number} is a {row.type} of {row.node!r}, whose turn it is not")
        elif row.type == "stage.expanded":
            twice += filter(None, (place.expand(row),))
        elif row.type == "stage.completed":
            twice += filter(None, (place.complete(row),))
    return Seen(
        run=run,
        jobs=[job for _, job in sorted(snapshot.jobs.get(run.key, {}).items())],
        history=history,
        sessions=snapshot.sessions,
        progress=progress_from(run.progress),
        place=place,
        twice=twice,
        early=early,
    )


def fact(row: HistoryRow, name: str) -> int:
    """Return a number that a row of history tells; 0 if it does not."""
    return cast("dict[str, int]", parse(row.data or "{}")).get(name, 0)


@lru_cache(maxsize=256)
def _plan(text: str) -> Plan:
    return plan_from_json(text)
