"""The reads of the kernel's features, in the order in which `load` makes them."""

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

FEATURE_READS: Final = FeatureReads(
    find=find,
    after_locks=(read_whole, read_slots, read_rates),
    before_plans=(read_annotation_keys, read_annotations, read_past, read_run_remains, read_messages),
    after_plans=(read_histories,),
)
