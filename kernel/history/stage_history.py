"""."""

import attrs

from holdfast.kernel.history import events
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.values import Payload
from holdfast.ports.searches import NodeRows


@attrs.define
class StageHistory:
    """The history of a run as far as a rerun needs it: the input, and its stage rows by node and type."""

    input: Payload | None = None
    rows: dict[str, dict[str, NodeRows]] = attrs.field(factory=dict[str, dict[str, NodeRows]])

    def add(self, rows: NodeRows) -> None:
        """Add rows that follow the known ones."""
        of_node = self.rows.setdefault(rows.node, {})
        known = of_node.get(rows.type)
        if known is not None:
            rows = attrs.evolve(rows, first=known.first, rows=known.rows + rows.rows)
        of_node[rows.type] = rows

    def append(self, row: HistoryRow) -> None:
        """Add a row that was appended to the history."""
        if row.type == events.RunCreated.type:
            self.input = row.payload
        if row.node is not None:
            self.add(NodeRows(row.run, row.node, row.type, row.number, row.number, 1))
