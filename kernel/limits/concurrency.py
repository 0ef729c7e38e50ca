"""Who has slots: runs by their concurrency keys, jobs by their stages. And where jobs wait for these, and for rates."""

import hashlib
from collections import Counter
from typing import Final

from holdfast.kernel.pipelines.plan import RatePlan, StagePlan
from holdfast.ports.persistence import Waiting
from holdfast.ports.records import Run, SlotName, attribute_texts
from holdfast.ports.working_set import Tables

_TEXT_MAX: Final = 64


def holders(tables: Tables, waiting: Waiting) -> Counter[SlotName]:
    """Return how many runs, or jobs, of these tables have a slot, for each."""
    of = tables.runs.values() if waiting is Waiting.RUNS else tables.all_jobs()
    return Counter(one.slot for one in of if one.has_slot and one.slot is not None)


def line_of(run: Run, stage: StagePlan) -> str:
    """Return the concurrency key of the jobs that a run has of a stage with limits.

    It is `<workflow>/<stage>`, or `/<name>~<period>` of a rate limit that has a name: starts that count no more in the
    shorter of two periods may still count in the longer one, so each has its own. And, where a rate is limited for each
    text of an attribute, `/<text>` after it. Names have no slash in them.
    """
    return _line(run, f"{run.workflow}/{stage.name}", stage.rate)


def line_of_step(run: Run, definition: str, rate: RatePlan | None) -> str:
    """Return the concurrency key of the jobs of a step with limits, of whatever workflow.

    It is `step:<name>`, which no stage has, as names have no colon; or as for a stage that of the rate limit.
    """
    return _line(run, definition, rate)


def _line(run: Run, whose: str, rate: RatePlan | None) -> str:
    if rate is None:
        return whose
    line = whose if rate.name is None else f"/{rate.name}~{rate.per_us}"
    return line if rate.by is None else f"{line}/{_short(attribute_texts(run.attributes).get(rate.by))}"


def _short(text: str | None) -> str:
    """Return what stands for a text in a key: itself, if it is short and plain. Nothing stands for no text."""
    if text is None:
        return ""
    if 0 < len(text) <= _TEXT_MAX and text.isascii() and text.isprintable() and not text.startswith("#"):
        return text
    return f"#{hashlib.sha256(text.encode(errors='surrogatepass')).hexdigest()}"
