"""What the features of the kernel give to its dispatcher: their reads, and the streams of sinks.

Beside the registry of rules this is the only module by which the core of the kernel reaches its features
(docs/explanation/architecture.md).
"""

from typing import Final

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
from holdfast.kernel.dispatch.loader import FeatureReads
from holdfast.kernel.dispatch.searches import find
from holdfast.kernel.dispatch.stream_heads import StreamHeads

__all__ = ["FEATURE_READS", "StreamHeads"]

FEATURE_READS: Final = FeatureReads(
    find=find,
    after_locks=(read_whole, read_slots, read_rates),
    before_plans=(read_annotation_keys, read_annotations, read_past, read_run_remains, read_messages),
    after_plans=(read_histories,),
)
