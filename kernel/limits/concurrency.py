"""Concurrency limits: slots in use, and the concurrency keys of jobs under a concurrency or rate limit."""

import hashlib
from collections import Counter
from typing import Final

from holdfast.kernel.pipelines.plan import RatePlan, SlotsPlan, StagePlan
from holdfast.ports.records.limits import SlotName
from holdfast.ports.records.run import Run, attribute_texts
from holdfast.ports.searches import Waiting
from holdfast.ports.working_set import Tables

_TEXT_MAX: Final = 64


def count_used_slots(tables: Tables, waiting: Waiting) -> Counter[SlotName]:
    """Return how many slots of each concurrency limit are held by the runs, or jobs, of these tables."""
    if waiting is Waiting.RUNS:
        return Counter(slot for run in tables.runs.values() if run.has_slot for slot in run.slots)
    return Counter(job.slot for job in tables.all_jobs() if job.has_slot and job.slot is not None)


def stage_limit_key(run: Run, stage: StagePlan) -> str:
    """Return the concurrency key of a run's jobs of a stage with limits.

    It is `<workflow>/<stage>`, or `/<name>~<period>` under a rate limit with a name. The period is part of the key
    because a start that no longer counts in one period may still count in a longer one. For slots with a name it is
    `/<name>`. If the rate or the slots are limited for each text of an attribute, `/<text>` is appended. Names contain
    no slash and no tilde.
    """
    return _line(run, f"{run.workflow}/{stage.name}", stage.rate, stage.slots)


def step_limit_key(run: Run, definition: str, rate: RatePlan | None, slots: SlotsPlan | None) -> str:
    """Return the concurrency key of the jobs of a step with limits, in any workflow.

    It is `step:<name>`, which no stage has because names contain no colon; under a named limit it is as for a stage.
    """
    return _line(run, definition, rate, slots)


def shared_slots(key: str) -> tuple[str, str | None] | None:
    """Return the name of the slots that a concurrency key stands for, and the text; None if they have no name."""
    if not key.startswith("/") or "~" in key.split("/")[1]:
        return None
    name, slash, text = key[1:].partition("/")
    return name, text if slash else None


def _line(run: Run, whose: str, rate: RatePlan | None, slots: SlotsPlan | None) -> str:
    # A job waits in one line: named slots and a rate limit are never combined (`authoring.options.check_limits`).
    line, by = whose, None
    if slots is not None:
        line, by = whose if slots.name is None else f"/{slots.name}", slots.by
    elif rate is not None:
        line, by = whose if rate.name is None else f"/{rate.name}~{rate.per_us}", rate.by
    return line if by is None else f"{line}/{short_text(attribute_texts(run.attributes).get(by))}"


def short_text(text: str | None) -> str:
    """Return a text as it appears in a key: as it is if short and plain, else its hash. "" for None."""
    if text is None:
        return ""
    if 0 < len(text) <= _TEXT_MAX and text.isascii() and text.isprintable() and not text.startswith("#"):
        return text
    return f"#{hashlib.sha256(text.encode(errors='surrogatepass')).hexdigest()}"
