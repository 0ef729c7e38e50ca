"""Checks of one state of a store."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from operator import attrgetter
from typing import Final

from holdfast.kernel.history import events
from holdfast.kernel.invariants.gathering_checks import (
    begins_in_time,
    gathered_fits,
    gatherings_exist,
    start_times,
)
from holdfast.kernel.invariants.history_facts import (
    ENDS,
    Item,
    Phase,
    RunView,
    named_item,
    phase_of,
    replay_run,
)
from holdfast.kernel.invariants.limit_checks import is_changed
from holdfast.kernel.invariants.loss_checks import losses_are_counted, suspects_are_alone
from holdfast.kernel.invariants.mailbox_checks import mailbox_fits, messages_go_on
from holdfast.kernel.invariants.queued_step_checks import step_epochs, steps_are_counted, steps_have_jobs
from holdfast.kernel.invariants.registry_checks import registrations_exist
from holdfast.kernel.invariants.reply_checks import replies_come, updates_fit
from holdfast.kernel.invariants.row_events import event_of
from holdfast.kernel.invariants.run_rate_checks import units_in_periods
from holdfast.kernel.invariants.snapshots import Snapshot, as_snapshot
from holdfast.kernel.invariants.start_bound_checks import bounded_keys
from holdfast.kernel.invariants.topic_checks import topic_violations
from holdfast.kernel.invariants.violations import Violation
from holdfast.kernel.limits.overrides import slots_in_force
from holdfast.kernel.pipelines.plan import MapPlan, Plan, stage_of
from holdfast.ports.errors import UnreadableRowError
from holdfast.ports.json import canonical
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.job import Job, JobKind, JobState, losses_max
from holdfast.ports.records.limits import RateName, SlotName
from holdfast.ports.records.run import HELD, TERMINAL, Run, RunName, RunStatus
from holdfast.ports.references import KeptRows, Reference, of_run, reference_text, references_from
from holdfast.ports.unreadable import PARSE_ERRORS
from holdfast.ports.working_set import Tables

_GENERATION: Final = attrgetter("namespace", "id", "generation")


def check(store: Snapshot | Tables, *, runs: Collection[str] | None = None) -> list[Violation]:
    """Return the violations in a store.

    `runs` limits the checks of single runs to these keys, for example to runs that have changed. Checks across runs
    always cover all of them.
    """
    snapshot = as_snapshot(store)
    everything = snapshot.runs.keys() | snapshot.jobs.keys() | snapshot.history.keys()
    keys = everything if runs is None else everything.intersection(runs)
    of_several = [*_generations(snapshot), *_children(snapshot), *messages_go_on(snapshot)]
    of_several += [*gatherings_exist(snapshot), *registrations_exist(snapshot)]
    of_several += topic_violations(snapshot, keys)
    of_several += replies_come(snapshot)
    of_all = [
        *_slots(snapshot),
        *_rates(snapshot),
        *bounded_keys(snapshot),
        *units_in_periods(snapshot),
        *suspects_are_alone(snapshot),
    ]
    return [*of_several, *_one_by_one(snapshot, keys), *of_all]


def check_part(part: Snapshot | Tables, runs: Collection[str]) -> list[Violation]:
    """Return the violations in these runs, from a part of a store.

    The part must have the runs, their previous generations with histories, the newest generation of each id, and the
    runs that their jobs wait for. Limits are not checked, as runs outside of the part share them.
    """
    snapshot = as_snapshot(part)
    everything = snapshot.runs.keys() | snapshot.jobs.keys() | snapshot.history.keys()
    keys = everything.intersection(runs)
    of_several = (*_generations(snapshot), *_children(snapshot), *messages_go_on(snapshot))
    return [*(one for one in of_several if one.where in keys), *_one_by_one(snapshot, keys)]


def _one_by_one(snapshot: Snapshot, keys: Collection[str]) -> list[Violation]:
    found: list[Violation] = []
    looked: dict[str, RunView] = {}
    for key in sorted(keys):
        run = snapshot.runs.get(key)
        if run is None:
            found.append(Violation("S7", key, "jobs or history rows exist, but the run does not"))
            continue
        plan = snapshot.plans.get(run.plan)
        if plan is None:
            found.append(Violation("S7", key, f"plan {run.plan} of the run is not stored"))
            continue
        try:
            seen = looked[key] = replay_run(run, plan, snapshot)
            found += [Violation(name, key, what) for name, rule in _RULES for what in rule(seen)]
            found += [Violation("S4", key, what) for what in _kept(seen, snapshot, looked)]
        except (UnreadableRowError, *PARSE_ERRORS) as error:
            what = f"rows of the run can't be read or contradict its plan: {type(error).__name__}: {error}"
            found.append(Violation("S4", key, what))
    return found


def _kept(seen: RunView, snapshot: Snapshot, looked: Mapping[str, RunView]) -> Iterator[str]:
    """S4: a rerun keeps outputs of the previous generation, unchanged."""
    run = seen.run
    if run.rerun_of is None:
        if run.inherited is not None or run.rerun_from is not None:
            yield (
                f"the run is not a rerun, but keeps outputs ({run.inherited}) or starts from a stage"
                f" ({run.rerun_from})"
            )
        return
    before = snapshot.runs.get(run.rerun_of)
    if before is None or (before.name, before.generation + 1) != (run.name, run.generation):
        yield f"the run is a rerun of {run.rerun_of}, which is not its previous generation"
        return
    yield from _kept_rows(run, before, snapshot.history.get(before.key, ()))
    kept = references_from(run.inherited)
    plan = snapshot.plans.get(before.plan) if kept else None
    outputs: Mapping[str, Reference] = {}
    if plan is not None:
        outputs = (looked.get(before.key) or replay_run(before, plan, snapshot)).place.all_outputs
    for name, reference in kept.items():
        output = outputs.get(name)
        if output is None or of_run(before.key, output) != reference:
            yield f"the run keeps {reference} as output of {name!r}, but the previous generation has {output}"
    if run.rerun_from is None and kept:
        yield f"the run starts from the beginning, but keeps outputs: {run.inherited}"
    if run.rerun_from is not None and run.rerun_from in kept:
        yield f"the run starts from {run.rerun_from!r}, but keeps the output of that stage"


def _kept_rows(run: Run, before: Run, history: Sequence[HistoryRow]) -> Iterator[str]:
    """S4: the rows that a fork keeps are the first rows of the previous generation."""
    kept = run.kept_rows
    whole = (*before.kept_rows, KeptRows(before.key, before.last_row))
    if not kept:
        return
    *first, last = kept
    known = whole[len(first)] if len(first) < len(whole) else None
    begin = first[-1].last if first else 0
    is_theirs = known is not None and known.run == last.run and begin < last.last <= known.last
    if tuple(first) != whole[: len(first)] or not is_theirs:
        yield f"the run keeps the rows {kept}, but the previous generation has {whole}"
    if run.rerun_from is None:
        yield f"the run starts from the beginning, but keeps the rows {kept}"
    if last.run == before.key and any(row.type in ENDS and row.number <= last.last for row in history):
        yield f"the run keeps the rows {kept}, but they include the end of the previous generation"


def _slots(snapshot: Snapshot) -> Iterator[Violation]:
    """S10: no slot, of any level, has more holders than the highest limit of any of them, unless it was ever changed.

    Of a changed limit, each admission is checked (`limit_checks`): lowering interrupts nothing.
    """
    holders: dict[SlotName, list[int]] = {}
    jobs = (job for of_run in snapshot.jobs.values() for job in of_run.values())
    everyone: Iterator[Run | Job] = chain(snapshot.runs.values(), jobs)
    for one in everyone:
        if one.has_slot and not is_changed(snapshot, one):
            for slot, limit in slots_in_force({}, one):
                holders.setdefault(slot, []).append(limit)
    for slot, limits in holders.items():
        if len(limits) > max(limits):
            held = f"{len(limits)} runs or jobs in namespace {slot.namespace} hold a slot"
            found = f"{held}, but the limit is {max(limits)}"
            yield Violation("S10", slot.name, found)


def _rates(snapshot: Snapshot) -> Iterator[Violation]:
    """S11: of the leased jobs, no more were claimed within a rate limit's period than the limit allows.

    Rates that were ever changed are left out: by which limit a job was claimed is not known any more. The simulator,
    which sees each claim, checks those too.
    """
    starts: dict[RateName, list[Job]] = {}
    for jobs_of_run in snapshot.jobs.values():
        for job in jobs_of_run.values():
            if job.rate is None or is_changed(snapshot, job):
                continue
            if job.state is JobState.LEASED and job.leased_at is not None:
                starts.setdefault(job.rate, []).append(job)
    for rate, jobs in starts.items():
        limit = max(job.rate_limit or 0 for job in jobs)
        period = min(job.rate_period or 0 for job in jobs)
        at = sorted(job.leased_at or 0 for job in jobs)
        soonest = min((after - before for before, after in zip(at, at[limit:], strict=False)), default=period)
        if soonest < period:
            yield Violation(
                "S11",
                rate.name,
                f"{limit + 1} jobs started within {soonest} us, but the limit is {limit} in {period} us",
            )


def _generations(snapshot: Snapshot) -> Iterator[Violation]:
    """S5: each generation of a run exists once, and only the newest is active."""
    runs = sorted(snapshot.runs.values(), key=_GENERATION)
    for older, newer in pairwise(runs):
        if older.id != newer.id or older.namespace != newer.namespace:
            continue
        if older.generation == newer.generation:
            yield Violation(
                "S5", newer.key, f"generation {newer.generation} of run {newer.id!r} exists twice"
            )
        elif older.status not in TERMINAL:
            yield Violation("S5", older.key, "the run is active, but a newer generation of it exists")


def _children(snapshot: Snapshot) -> Iterator[Violation]:
    """S7: a child run that a job waits for is active, or has a delivery job for it."""
    waiting = [job for jobs in snapshot.jobs.values() for job in jobs.values() if job.waits_for_child]
    by_name: dict[RunName, list[Run]] = {}
    for run in snapshot.runs.values() if waiting else ():
        by_name.setdefault(run.name, []).append(run)
    for job in waiting:
        name = RunName(job.namespace, job.waiting_for or "")
        child = next((run for run in by_name.get(name, ()) if run.parent == job.key.text), None)
        child_jobs = snapshot.jobs.get(child.key, {}).values() if child else ()
        is_delivery_pending = any(
            one.input == canonical(job.key.text)
            for one in child_jobs
            if one.state is JobState.PENDING_DELIVERY
        )
        if child is None or (child.status in TERMINAL and not is_delivery_pending):
            yield Violation(
                "S7",
                job.run,
                f"job {job.number} waits for child run {name.id!r}, but no job will deliver its result",
            )


def _numbered(seen: RunView) -> Iterator[str]:
    """O1: history rows are numbered without gaps, from 1 or after the kept rows, and ordered by time."""
    numbers = [row.number for row in seen.history]
    first, last = seen.run.first_row, seen.run.last_row
    if len(numbers) != last + 1 - first or numbers != list(range(first, last + 1)):
        yield f"the history must have rows {first} to {last}, but has {_short(numbers) or 'none'}"
    if seen.history and seen.history[0].type != events.RunCreated.type:
        yield f"the first history row must be run.created, but is {seen.history[0].type}"
    for before, after in pairwise(seen.history):
        if after.at < before.at:
            yield f"row {after.number} has an earlier time than the row before it"


def _epochs(seen: RunView) -> Iterator[str]:
    """S1: each epoch of a job has at most one attempt, in order."""
    if seen.is_repaired:
        return
    live = {((job.node, job.item), phase_of(job)): job for job in seen.jobs}
    for (item, phase), rows in seen.attempts.items():
        epochs = [row.epoch or 0 for row in rows]
        if any(after <= before for before, after in pairwise(epochs)):
            yield f"the attempts of {named_item(item)} ended in epochs {epochs}; epochs must rise"
        job = live.get((item, phase))
        if job is not None and epochs and job.epoch - _is_under_way(job) < epochs[-1]:
            yield (
                f"job {job.number} is in epoch {job.epoch}, but an attempt of it ended in epoch {epochs[-1]}"
            )


def _outputs(seen: RunView) -> Iterator[str]:
    """S4: a stage completes once, and the run's progress refers to exactly that row."""
    yield from seen.twice
    if not seen.run.is_admitted or (seen.run.status in TERMINAL and seen.run.progress == "{}"):
        return  # a run that ended before it started has no place in its plan
    place, progress = seen.place, seen.progress
    if (place.group, place.input, place.kept) != (progress.group, progress.input, progress.kept):
        yield (
            f"by its history the run is in group {place.group} with input {place.input}, but its row has"
            f" {seen.run.progress}"
        )
        return
    if place.nodes and place.nodes.keys() != progress.nodes.keys():
        yield (
            f"the stages of group {place.group} are {sorted(place.nodes)}, but the run's row has"
            f" {seen.run.progress}"
        )
    for name, node in progress.nodes.items():
        if node.output != place.outputs.get(name):
            yield (
                f"by the history the output of {name!r} is {place.outputs.get(name)}, but the run's row"
                f" has {node.output}"
            )


def _ends(seen: RunView) -> Iterator[str]:
    """S6: an ended run has one end row, the last one except for outcomes of cancellations, and its status fits."""
    run = seen.run
    ends = [row for row in seen.history if row.type in ENDS]
    last = next((row for row in reversed(seen.history) if row.type not in events.CANCELLATION_OUTCOMES), None)
    if run.status not in TERMINAL:
        if ends:
            yield f"the run is {run.status}, but row {ends[0].number}, {ends[0].type}, ends it"
        return
    if len(ends) != 1 or ends[0] is not last or ENDS[ends[0].type] is not run.status:
        yield (
            f"the run is {run.status}, and must have one row that ends it so, but has"
            f" {[(row.number, row.type) for row in ends]}"
        )
    if run.is_continued or (ends and ends[0].type == events.RunContinued.type):
        if run.result is not None or run.error is not None or not seen.place.plan.function:
            yield (
                f"the run continues as new, and must have no result or error, but has {run.result} and"
                f" {run.error}"
            )
    elif run.status is RunStatus.COMPLETED:
        if seen.place.nodes:
            yield (
                f"the run is completed, but by its history it is in group {seen.place.group} of"
                f" {len(seen.place.plan.groups)}"
            )
        if run.result != reference_text(seen.place.input) or run.error is not None:
            yield (
                f"the run is completed, and must have the result {seen.place.input} and no error, but has"
                f" {run.result} and {run.error}"
            )
    elif run.result is not None or run.error is None:
        yield (
            f"the run is {run.status}, and must have an error and no result, but has {run.error} and"
            f" {run.result}"
        )
    if run.status is RunStatus.FAILED and not any(
        row.type == events.StageFailed.type for row in seen.history
    ):
        if run.deadline is None or run.ended_at is None or '"deadline_exceeded"' not in (run.error or ""):
            yield "the run is failed, but no stage failed and no deadline has passed"
        elif run.ended_at < run.deadline:
            yield f"the run failed at {run.ended_at}, before its deadline, {run.deadline}"


def _absorbed(seen: RunView) -> Iterator[str]:
    """S5: an ended run has no jobs but deliveries and cancellations."""
    run = seen.run
    if (run.status in TERMINAL) != (run.ended_at is not None):
        yield f"the run is {run.status}, but ended_at is {run.ended_at}"
    jobs = len(seen.jobs) + len(seen.steps)
    if run.status in TERMINAL and (jobs or run.open_jobs):
        yield (
            f"the run is {run.status}, and must have no open jobs, but its row counts {run.open_jobs} and"
            f" {jobs} exist"
        )
    for job in seen.pending_deliveries:
        if job.kind is not JobKind.DELIVER or job.epoch or job.session is not None:
            yield f"job {job.number} is a pending delivery, but its kind is {job.kind} or it was claimed"


def _after_its_end(seen: RunView) -> Iterator[str]:
    """C1: no rows follow the end of a run, except for outcomes of cancellations."""
    end = next((row.number for row in seen.history if row.type in ENDS), None)
    after = [
        row
        for row in seen.history
        if end is not None and row.number > end and row.type not in events.CANCELLATION_OUTCOMES
    ]
    if after:
        yield f"row {end} ends the run, but row {after[0].number}, {after[0].type}, follows"


def _left(seen: RunView) -> Iterator[str]:
    """C2: abandoned external work has exactly one cancel job, or one row with the outcome."""
    run, place = seen.run, seen.place
    jobs: dict[Item, Job] = {}
    for job in seen.cancels:
        item = (job.node, job.item)
        if item in jobs or item not in place.abandoned_work or item in place.cancel_outcomes:
            yield (
                f"job {job.number} cancels the external work of {named_item(item)}, which is still needed"
                " or already cancelled"
            )
        jobs[item] = job
        if item in place.abandoned_work and job.input != reference_text(place.abandoned_work[item]):
            left = f"the state of {named_item(item)} is in row {place.abandoned_work[item]}"
            yield f"job {job.number} cancels by {job.input}, but {left}"
        if job.namespace != run.namespace or job.definition != place.plan.definition:
            yield (
                f"job {job.number} must be for {place.plan.definition} in namespace {run.namespace}, but is"
                f" for {job.definition} in {job.namespace}"
            )
        is_held = job.state is JobState.LEASED
        most = place.plan.cancels.get(job.node, 0)
        if job.max_attempts != most or not is_held <= job.tries <= most - (not is_held):
            yield (
                f"job {job.number} is {job.state} with {job.tries} of {job.max_attempts} attempts, but"
                f" the plan allows {most}"
            )
        match job.state:
            case JobState.LEASED:
                fine = job.session in seen.sessions and job.leased_at is not None and job.wake_at is None
            case JobState.SLEEPING | JobState.QUEUED:
                is_asleep = job.state is JobState.SLEEPING
                fine = (
                    job.session is None and job.leased_at is None and (job.wake_at is not None) == is_asleep
                )
            case _:
                fine = False
        if not fine:
            yield f"no worker will claim job {job.number}, because its fields contradict its state: {job}"
    for item in place.abandoned_work.keys() - place.cancel_outcomes.keys() - jobs.keys():
        yield f"the external work of {named_item(item)} is abandoned, but no job cancels it"


def _orphans(seen: RunView) -> Iterator[str]:
    """S7: an active run has exactly the jobs that its place in the plan needs, and its counters are right."""
    run, place = seen.run, seen.place
    jobs = len(seen.jobs) + len(seen.steps)
    if run.open_jobs != jobs:
        yield f"the run counts {run.open_jobs} open jobs, but has {jobs}"
    if run.status in TERMINAL:
        return
    waits = not run.is_admitted and run.status in {RunStatus.PENDING, *HELD}
    if run.status is RunStatus.PENDING and run.is_admitted:
        yield "the run is pending, but it has been admitted"
    if waits and seen.jobs:
        yield f"the run has not been admitted, but has {len(seen.jobs)} jobs"
    if waits and run.start_at is None and run.concurrency_key is None and not run.in_rate_line:
        yield "the run waits to be admitted, but has no start_at and no concurrency key, and waits for no rate"
    if waits:
        return
    if run.start_at is not None:
        yield f"the run has been admitted, but still has start_at {run.start_at}"
    if not seen.jobs:
        yield f"the run is {run.status}, but has no job"
    there = [(job.kind, job.node, job.item) for job in seen.jobs]
    due = list(place.due())
    if there != due:
        have, want = Counter(there), Counter(due)
        if want - have:
            yield f"the run lacks jobs: {_jobs(want - have)}"
        if have - want:
            yield f"the run has jobs that its plan does not need: {_jobs(have - want)}"
    for name, node in seen.progress.nodes.items():
        if node.job is not None and not any(job.number == node.job and job.node == name for job in seen.jobs):
            yield f"{name!r} waits for job {node.job}, which does not exist"
        planned = place.nodes.get(name)
        if node.map is not None and isinstance(planned, MapPlan) and name in place.totals:
            counters = node.map
            counted = (counters.total, counters.done, counters.failed, counters.next, counters.first_row)
            ended = (len(place.done[name]), len(place.failed[name]))
            true = (place.totals[name], *ended, place.turn(planned), place.first_rows[name])
            if counted != true:
                yield (
                    f"the counters (total, done, failed, next, first row) of map {name!r} must be {true},"
                    f" but are {counted}"
                )


def _definition_of(job: Job, plan: Plan) -> str:
    """Return the code that a job of this plan needs."""
    node = plan.nodes.get(job.node)
    return plan.definition if node is None else stage_of(node).definition(plan.definition, job.kind)


def _leases(seen: RunView) -> Iterator[str]:
    """S7: each job is in a state that a worker or maintenance will change."""
    for job in (*seen.jobs, *seen.steps):
        if job.number > seen.run.last_job or job.namespace != seen.run.namespace:
            yield (
                f"job {job.number} in namespace {job.namespace} is not a job of this run, whose last is"
                f" {seen.run.last_job}"
            )
        if job.kind is not JobKind.STEP and job.definition != (
            wanted := _definition_of(job, seen.place.plan)
        ):
            yield f"job {job.number} must be for {wanted}, but is for {job.definition}"
        match job.state:
            case JobState.LEASED:
                fine = job.session in seen.sessions and job.leased_at is not None
                fine = fine and (job.wake_at is None or job.kind in {JobKind.STAGE, JobKind.POLL})
            case JobState.SLEEPING:
                fine = job.session is None and job.leased_at is None
                fine = fine and (not job.waits_for_child if job.wake_at else job.is_woken)
            case JobState.QUEUED:
                fine = job.session is None and job.leased_at is None and job.wake_at is None
            case JobState.LIMITED:
                fine = job.session is None and job.leased_at is None and job.wake_at is None
                fine = fine and job.concurrency_key is not None
            case _:
                fine = job.session is None and job.leased_at is None
        is_paused = seen.run.status in HELD
        if (job.state is JobState.PAUSED) != is_paused and job.state is not JobState.LEASED:
            yield f"the run is {seen.run.status}, but job {job.number} is {job.state}"
        if not fine:
            yield f"no worker will claim job {job.number}, because its fields contradict its state: {job}"


def _attempts(seen: RunView) -> Iterator[str]:
    """S8: attempts are counted one by one and never exceed the maximum."""
    ends = seen.attempts
    for job in seen.jobs:
        phase = phase_of(job)
        is_held = _is_under_way(job)
        if job.max_attempts != _attempts_max(seen, job.node, phase):
            yield (
                f"job {job.number} has a maximum of {job.max_attempts} attempts, which is not that of its"
                " plan"
            )
        node = seen.place.plan.nodes.get(job.node)
        limit = stage_of(node).max_concurrency if node and job.kind is JobKind.STAGE else None
        if node is not None and job.concurrency_limit != limit:
            yield (
                f"job {job.number} has the concurrency limit {job.concurrency_limit}, but its plan has"
                f" {limit}"
            )
        rate = stage_of(node).rate if node and job.kind is JobKind.STAGE else None
        planned = None if rate is None else (rate.limit, rate.per_us)
        if (
            node is not None
            and (None if job.rate_limit is None else (job.rate_limit, job.rate_period)) != planned
        ):
            yield (
                f"job {job.number} has the rate limit {job.rate_limit} in {job.rate_period} us, but its"
                f" plan has {planned}"
            )
        if not is_held <= job.tries <= job.max_attempts - (not is_held):
            yield (
                f"job {job.number} is {job.state} with {job.tries} attempts, but may have at most"
                f" {job.max_attempts}"
            )
        if job.attempts > job.epoch:
            yield f"job {job.number} has {job.attempts} attempts, but was claimed {job.epoch} times"
        if phase in (Phase.CHECK, Phase.DRIVE):  # unfinished checks and parked drives leave no row
            continue
        ended = [
            row
            for row in ends.get(((job.node, job.item), phase), ())
            if row.type != events.StageExpanded.type
        ]
        if not seen.is_repaired and len(ended) != job.attempts - is_held:
            yield (
                f"job {job.number} counts {job.attempts} attempts, but the history has {len(ended)} that"
                " ended"
            )
        lost = sum(row.type == events.StageLost.type for row in ended)
        if not seen.is_repaired and lost != job.lost_attempts:
            yield f"job {job.number} counts {job.lost_attempts} lost attempts, but the history has {lost}"
    for (item, phase), rows in ends.items():
        numbers = [attempt for row in rows if (attempt := _attempt(row)) is not None]
        most = _attempts_max(seen, item[0], phase)
        leave_rows = phase not in (Phase.CHECK, Phase.DRIVE)
        if not seen.is_repaired and leave_rows and numbers != list(range(1, len(numbers) + 1)):
            yield f"the ended attempts of {named_item(item)} are {numbers}; they must count from 1"
        if phase is not Phase.DRIVE:
            most += losses_max(most) - 1
        if any(number > most for number in numbers):
            yield f"{named_item(item)} may have {most} attempts, but the ended ones are {numbers}"


def _run_attempts(seen: RunView) -> Iterator[str]:
    """S8: attempts of a whole run never exceed the maximum."""
    created = event_of(seen.history[0]) if seen.history else None
    attempt = created.attempt if isinstance(created, events.RunCreated) else None
    if attempt is not None and attempt > seen.place.plan.run_attempts:
        yield f"the run is attempt {attempt}, but its plan allows {seen.place.plan.run_attempts}"


def _attempt(row: HistoryRow) -> int | None:
    """Return the number of the attempt that a row ended; None if it does not record it."""
    ended = event_of(row)
    return ended.attempt if isinstance(ended, events.StageAttempt | events.StageLost) else None


def _on_time(seen: RunView) -> Iterator[str]:
    """T1: no run was admitted before its `start_at`."""
    created = event_of(seen.history[0]) if seen.history else None
    first = (created.start_at or 0) if isinstance(created, events.RunCreated) else 0
    for row, start_at in start_times(seen.history, first):
        if row.type == events.RunAdmitted.type and row.at < start_at:
            yield f"the run was admitted at {row.at}, before its start_at, {start_at}"


def _is_under_way(job: Job) -> bool:
    """Whether the last counted attempt has not ended: it is leased, or waits for a child run."""
    return job.state is JobState.LEASED or job.waits_for_child


def _attempts_max(seen: RunView, name: str, phase: Phase) -> int:
    node = seen.place.plan.nodes.get(name)
    stage = None if node is None else stage_of(node)
    if stage is None:
        return 0
    if phase is Phase.CHECK:
        return stage.check.retry.attempts if stage.check else 0
    return stage.max_attempts


def _in_order(seen: RunView) -> Iterator[str]:
    """S9: no stage starts before all earlier groups are done."""
    yield from seen.early
    if seen.run.status not in TERMINAL:
        for job in seen.jobs:
            if job.node not in seen.place.nodes:
                yield (
                    f"job {job.number} is for {job.node!r}, which is not in the current group,"
                    f" {seen.place.group}"
                )


_RULES: Final[Sequence[tuple[str, Callable[[RunView], Iterator[str]]]]] = (
    ("F4", gathered_fits),
    ("F5", begins_in_time),
    ("O1", _numbered),
    ("S1", _epochs),
    ("S4", _outputs),
    ("C1", _after_its_end),
    ("C2", _left),
    ("S5", _absorbed),
    ("S6", _ends),
    ("S7", _orphans),
    ("S7", _leases),
    ("S1", step_epochs),
    ("S7", steps_have_jobs),
    ("S8", steps_are_counted),
    ("S8", _attempts),
    ("S8", _run_attempts),
    ("S12", losses_are_counted),
    ("S9", _in_order),
    ("T1", _on_time),
    ("M1", mailbox_fits),
    ("M3", updates_fit),
)


def _jobs(jobs: Counter[tuple[JobKind, str, int | None]]) -> str:
    return _short([f"{kind} {named_item((node, item))}" for kind, node, item in jobs.elements()])


def _short(things: Sequence[object]) -> str:
    named = ", ".join(map(str, things[:10]))
    return named if len(things) <= 10 else f"{named} and {len(things) - 10} more"
