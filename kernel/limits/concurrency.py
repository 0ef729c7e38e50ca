"""Concurrency limits: slots in use, and the concurrency keys of jobs under a concurrency or rate limit."""

import hashlib
from collections import Counter
from typing import Final

from holdfast.kernel.pipelines.plan import RatePlan, StagePlan
from holdfast.ports.records.limits import SlotName
from holdfast.ports.records.run import Run, attribute_texts
from holdfast.ports.searches import Waiting
from holdfast.ports.working_set import Tables

_TEXT_MAX: Final = 64


def count_used_slots(tables: Tables, waiting: Waiting) -> Counter[SlotName]:
    """Return how many slots of each concurrency limit are held by the runs, or jobs, of these tables."""
    of = tables.runs.values() if waiting is Waiting.RUNS else tables.all_jobs()
    return Counter(one.slot for one in of if one.has_slot and one.slot is not None)


def stage_limit_key(run: Run, stage: StagePlan) -> str:
    """Return the concurrency key of a run's jobs of a stage with limits.

    It is `<workflow>/<stage>`, or `/<name>~<period>` under a rate limit with a name. The period is part of the key
    because a start that no longer counts in one period may still count in a longer one. If the rate is limited for each
    text of an attribute, `/<text>` is appended. Names contain no slash.
    """
    return _line(run, f"{run.workflow}/{stage.name}", stage.rate)


def step_limit_key(run: Run, definition: str, rate: RatePlan | None) -> str:
    """Return the concurrency key of the jobs of a step with limits, in any workflow.

    It is `step:<name>`, which no stage has because names contain no colon; under a named rate limit it is as for a
    stage.
    """
    return _line(run, definition, rate)


def _line(run: Run, whose: str, rate: RatePlan | None) -> str:
    if rate is None:
        return whose
    line = whose if rate.name is None else f"/{rate.name}~{rate.per_us}"
    return line if rate.by is None else f"{line}/{_short(attribute_texts(run.attributes).get(rate.by))}"


def _short(text: str | None) -> str:
    """Return a text as it appears in a key: as it is if short and plain, else its hash. "" for None."""
    if text is None:
        return ""
    if 0 < len(text) <= _TEXT_MAX and text.isascii() and text.isprintable() and not text.startswith("#"):
        return text
    return f"#{hashlib.sha256(text.encode(errors='surrogatepass')).hexdigest()}"
