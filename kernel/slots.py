"""Who has slots: runs by their concurrency keys, jobs by their stages."""

from collections import Counter

from holdfast.ports.persistence import Waiting
from holdfast.ports.records import SlotName
from holdfast.ports.tables import Tables


def holders(tables: Tables, waiting: Waiting) -> Counter[SlotName]:
    """Return how many runs, or jobs, of these tables have a slot, for each."""
    of = tables.runs.values() if waiting is Waiting.RUNS else tables.all_jobs()
    return Counter(one.slot for one in of if one.has_slot and one.slot is not None)


def stage_key(workflow: str, stage: str) -> str:
    """Return the concurrency key of a stage's jobs. Neither name has a slash in it."""
    return f"{workflow}/{stage}"
