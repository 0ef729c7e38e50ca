"""The progress of a run through its plan: counters, whose size does not depend on that of maps.

Stored as JSON text in the run's row.
"""

from functools import lru_cache
from typing import cast

import attrs

from holdfast.ports.json import canonical, parse
from holdfast.ports.records.job import JobKey
from holdfast.ports.records.run import Run
from holdfast.ports.references import (
    Reference,
    item_reference,
    map_reference,
    partial_reference,
    reference_from,
    reference_text,
)
from holdfast.ports.structs import frozen
from holdfast.ports.unreadable import PARSE_ERRORS


@frozen(kw_only=True)
class MapProgress:
    """The counters of an open map."""

    total: int
    """Number of items."""
    next: int
    """Index of the next item that gets a job."""
    done: int
    """Number of completed items."""
    page_size: int
    """Number of items on each stored page of the list."""
    first_row: int
    """Number of the history row that the map was expanded with."""
    failed: int = 0
    """Number of items that failed, if the map tolerates that."""

    @property
    def ended(self) -> int:
        """How many items have ended, completed or failed."""
        return self.done + self.failed


@frozen(kw_only=True)
class NodeProgress:
    """A node of the current group: open with a job, open as a map whose items have jobs, or done with an output."""

    job: int | None = None
    """Number of its job."""
    map: MapProgress | None = None
    output: Reference | None = None
    is_condition: bool = False
    """Whether the job evaluates the condition that chooses between the nodes of the group."""


@frozen(kw_only=True)
class Progress:
    """The progress of a run: the current group, its input, its nodes, and outputs that later maps run over."""

    group: int
    input: Reference
    nodes: dict[str, NodeProgress] = attrs.field(factory=dict[str, NodeProgress])
    kept: dict[str, Reference] = attrs.field(factory=dict[str, Reference])

    def with_node(self, name: str, node: NodeProgress) -> "Progress":
        """Return the progress with one node changed."""
        return Progress(group=self.group, input=self.input, nodes={**self.nodes, name: node}, kept=self.kept)

    @property
    def is_done(self) -> bool:
        """Whether all nodes of the group are done."""
        return all(node.output is not None for node in self.nodes.values())

    def to_json(self) -> str:
        """Return the progress as stored JSON text."""
        data: dict[str, object] = {
            "group": self.group,
            "input": self.input,
            "nodes": {name: _node_data(node) for name, node in self.nodes.items()},
        }
        if self.kept:
            data["kept"] = self.kept
        return canonical(data)


def item_input(name: str, progress: MapProgress, index: int) -> Reference:
    """Return the reference to the map item with this index."""
    return item_reference(name, index // progress.page_size, index % progress.page_size)


def finished_map(name: str, progress: MapProgress, last_row: int, *, partial: bool = False) -> NodeProgress:
    """Return the node of a map that ended with row `last_row`. With `partial`, its output includes failed items."""
    make = partial_reference if partial else map_reference
    return NodeProgress(output=make(name, progress.first_row, last_row))


@lru_cache(maxsize=256)
def progress_from(text: str) -> Progress:
    """Return the progress stored as this text. For a run that has not been admitted it has no open nodes.

    Equal texts give the same object: the progress of a function does not change while its steps are recorded.
    """
    data = cast("dict[str, object]", parse(text))
    if not data:
        return Progress(group=0, input=1)
    nodes = cast("dict[str, dict[str, object]]", data["nodes"])
    kept = cast("dict[str, object]", data.get("kept", {}))
    return Progress(
        group=cast("int", data["group"]),
        input=_reference(data["input"]),
        nodes={name: _node_from(node) for name, node in nodes.items()},
        kept={name: _reference(reference) for name, reference in kept.items()},
    )


def driver_of(run: Run) -> JobKey | None:
    """Return the job that drives a run's function; None if the run has not started or has ended.

    For a pipeline it may be the job of any stage. None too if the progress can't be parsed.
    """
    try:
        nodes = progress_from(run.progress).nodes.values()
    except PARSE_ERRORS:
        return None
    number = next((node.job for node in nodes if node.job is not None), None)
    return None if number is None else JobKey(run.key, number)


def _node_data(node: NodeProgress) -> dict[str, object]:
    if node.output is not None:
        return {"output": node.output}
    if node.map is not None:
        counters = node.map
        numbers = [counters.total, counters.next, counters.done, counters.page_size, counters.first_row]
        return {"map": [*numbers, counters.failed] if counters.failed else numbers}
    return {"test": node.job} if node.is_condition else {"job": node.job}


def _node_from(data: dict[str, object]) -> NodeProgress:
    if "output" in data:
        return NodeProgress(output=_reference(data["output"]))
    if "map" in data:
        total, following, done, page_size, first_row, *failed = cast("list[int]", data["map"])
        return NodeProgress(
            map=MapProgress(
                total=total,
                next=following,
                done=done,
                page_size=page_size,
                first_row=first_row,
                failed=sum(failed),
            )
        )
    if "test" in data:
        return NodeProgress(job=cast("int", data["test"]), is_condition=True)
    return NodeProgress(job=cast("int", data["job"]))


def _reference(data: object) -> Reference:
    return data if isinstance(data, int) else reference_from(reference_text(cast("Reference", data)))
