"""Rules for the outcomes of jobs that expand a map or evaluate a condition."""

from typing import Final

from holdfast.kernel.commands import ConditionEvaluated, Failure, JobSettled, MapExpanded
from holdfast.kernel.history import events
from holdfast.kernel.pipelines.plan import MapPlan
from holdfast.kernel.pipelines.progress import MapProgress, progress_from
from holdfast.kernel.rules.retries import NO_DETAILS, fail_stage
from holdfast.kernel.rules.settlement import Settlement
from holdfast.kernel.runs.plan_interpreter import condition_evaluated, map_expanded
from holdfast.kernel.state import Decision
from holdfast.ports.changes import Insert
from holdfast.ports.json import compact
from holdfast.ports.records.values import MapItems, Payload

PAGE_BYTES_MAX: Final = 32_768
"""Most JSON text in a page of map items, in characters, unless it holds a single item."""
PAGE_ITEMS_MAX: Final = 100
"""Most items in a page of map items."""


def expand_map(settlement: Settlement) -> Decision[JobSettled]:
    """Store the items of a map and open its first jobs, or fail it if it has too few."""
    outcome, run, job, plan = settlement.command.outcome, settlement.run, settlement.job, settlement.plan
    assert isinstance(outcome, MapExpanded)
    draft = settlement.draft(takes_next=True)
    items = outcome.items
    size = _page_size(items)
    node = plan.node(job.node)
    assert isinstance(node, MapPlan)
    if node.enough is not None and node.enough.is_missed(total=len(items), failed=0):
        wanted = f"at least {node.enough.at_least} must complete"
        message = f"it has {len(items)} items, and {wanted}"
        fail_stage(draft, plan, job, Failure(code="too_few_items", message=message), NO_DETAILS)
        return settlement.settled(draft)
    row = draft.append(events.StageExpanded(items=len(items)), node=job.node, epoch=job.epoch)
    draft.close_job(job)
    counters = MapProgress(total=len(items), next=0, done=0, page_size=size, first_row=row)
    map_expanded(draft, plan, progress_from(run.progress), job.node, counters)
    pages = [
        Insert(
            MapItems(run=run.key, node=job.node, page=start // size, items=_page(items[start : start + size]))
        )
        for start in range(0, len(items), size)
    ]
    return settlement.settled(draft, more=pages)


def record_condition(settlement: Settlement) -> Decision[JobSettled]:
    """Record whether a condition holds, and open the jobs of the branch."""
    outcome, command, job, plan = (
        settlement.command.outcome,
        settlement.command,
        settlement.job,
        settlement.plan,
    )
    assert isinstance(outcome, ConditionEvaluated)
    draft = settlement.draft(takes_next=True)
    progress = progress_from(settlement.run.progress)
    tested = events.StageTested(
        test=plan.groups[progress.group].test,
        passed=outcome.passed,
        attempt=job.attempts,
        job=job.number,
        started_at=command.started_at,
        host=command.host or None,
    )
    draft.append(tested, node=job.node, epoch=job.epoch)
    draft.close_job(job)
    condition_evaluated(draft, plan, progress, passed=outcome.passed)
    return settlement.settled(draft)


def _page_size(items: tuple[Payload, ...]) -> int:
    longest = max((len(item.inline or item.blob or "") for item in items), default=0)
    return max(1, min(PAGE_ITEMS_MAX, PAGE_BYTES_MAX // (longest + 1)))


def _page(items: tuple[Payload, ...]) -> str:
    return compact([[item.inline, item.blob] for item in items])
