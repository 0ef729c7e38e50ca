"""What the features of the kernel give to its dispatcher: their reads, and the streams of sinks.

Beside the registry of rules this is the only module by which the core of the kernel reaches its features
(docs/explanation/architecture.md).
"""

from holdfast.kernel.dispatch.audit_entries import audit_entries
from holdfast.kernel.dispatch.changed_limits import read_limits
from holdfast.kernel.dispatch.fair_loader import read_turns
from holdfast.kernel.dispatch.gathering_reads import read_gatherings, reads_of_gathered
from holdfast.kernel.dispatch.history_loader import (
    read_annotation_keys,
    read_annotations,
    read_histories,
    read_messages,
    read_past,
    read_run_remains,
    read_whole,
)
from holdfast.kernel.dispatch.limit_loader import read_rates, read_slots
from holdfast.kernel.dispatch.loader import FeatureReads, lock_rows
from holdfast.kernel.dispatch.quotas import QuotaReads, note_known_runs
from holdfast.kernel.dispatch.read_set import ReadSet
from holdfast.kernel.dispatch.searches import find
from holdfast.kernel.dispatch.start_lines import count_lines, lock_starts
from holdfast.kernel.dispatch.stream_heads import StreamHeads
from holdfast.kernel.state import Reads, State
from holdfast.ports.clock import Clock
from holdfast.ports.persistence import Transaction

__all__ = ["StreamHeads", "audit_entries", "feature_reads", "reads_of_gathered"]


def _count_lines(tx: Transaction, state: State, needs: list[Reads], wanted: ReadSet) -> None:
    count_lines(tx, state, needs, wanted, lock_rows)


def feature_reads(clock: Clock) -> FeatureReads:
    """Return the reads of all features, for one kernel."""
    return FeatureReads(
        find=find,
        before_locks=(QuotaReads(clock).read, lock_starts),
        after_locks=(_count_lines, read_whole, read_gatherings, read_slots, read_rates),
        before_plans=(
            read_limits,
            read_annotation_keys,
            read_annotations,
            read_past,
            read_run_remains,
            read_messages,
        ),
        after_plans=(read_histories, read_turns, note_known_runs),
    )
