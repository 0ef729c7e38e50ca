"""The rule for running a run again: a new generation of it, which keeps what it does not run by reference."""

from attrs import evolve

from holdfast.kernel.commands import RunRerun, RunRerunFrom
from holdfast.kernel.decide.admissions import INPUT_ROW, admits_jobs, begin_run
from holdfast.kernel.decide.runs import is_older, named_run, storing
from holdfast.kernel.draft import RunDraft
from holdfast.kernel.reruns import Rerun, followed_plan, planned_rerun
from holdfast.kernel.state import Decision, Reads, State
from holdfast.ports.clock import Ids
from holdfast.ports.records import TERMINAL, Micros, Run, RunName, RunStatus, rank_of
from holdfast.ports.references import references_text


def reads_of_rerun(command: RunRerunFrom) -> Reads:
    """Read the newest generation of the run, and what has happened in it."""
    return Reads(names=(RunName(command.namespace, command.run_id),), past_names=True)


def decide_rerun(state: State, command: RunRerunFrom, now: Micros, ids: Ids) -> Decision[RunRerun]:
    """Store a generation that begins at the stage, and end the one before if it has not ended."""
    before = named_run(state, command)
    if is_older(before, command):
        return Decision(
            RunRerun(
                run_id=before.id,
                run=before.key,
                generation=before.generation,
                status=before.status,
                started=False,
            )
        )
    assert state.past is not None
    past = state.past[before.key]
    former = state.plan_of(before)
    plan = followed_plan(state.workflows, before, former, command.version)
    rerun = planned_rerun(before, past, former, plan, command.stage)
    run = _next_generation(before, rerun, ids.new(), now)
    draft = RunDraft(run, now, is_new=True)
    facts: dict[str, object] = {
        "definition": rerun.plan.definition,
        "rerun_of": before.generation,
        "from": rerun.stage,
        "keeps": list(rerun.keeps),
    }
    if command.reason:
        facts["reason"] = command.reason
    # Copied, so that a generation has what it was given in its first row like any other.
    row = draft.append("run.created", payload=past.input, data=facts)
    assert row == INPUT_ROW
    if run.status is not RunStatus.PENDING:
        begin_run(draft, rerun.plan, run)
    ended = None if before.status in TERMINAL else _ended(state, before, command, run.generation, now)
    admits = admits_jobs(state, before, ended) if ended else ()
    reply = RunRerun(
        run_id=run.id,
        run=run.key,
        generation=run.generation,
        status=draft.status,
        started=True,
        rerun_of=before.generation,
        stage=rerun.stage,
        runs=rerun.runs,
        keeps=tuple(rerun.keeps),
        terminated=ended is not None,
        admits_runs=draft.admits_runs or (ended.admits_runs if ended else ()),
        admits_jobs=tuple(dict.fromkeys((*draft.admits_jobs, *admits))),
        owes=draft.owes or (ended is not None and ended.owes),
    )
    changes = (*(ended.changes() if ended else ()), *storing(state, rerun.plan), *draft.changes())
    return Decision(reply, changes, (*(ended.hints if ended else ()), *draft.hints))


def _next_generation(before: Run, rerun: Rerun, key: str, now: Micros) -> Run:
    """Return a run that waits for a slot like the one before, and has as much time."""
    deadline = None if before.deadline is None else now + before.deadline - before.created_at
    return evolve(
        before,
        key=key,
        generation=before.generation + 1,
        version=rerun.plan.version,
        plan=rerun.plan.fingerprint,
        status=RunStatus.RUNNING if before.concurrency_key is None else RunStatus.PENDING,
        start_at=None,
        deadline=deadline,
        rank=rank_of(now, before.priority),
        created_at=now,
        updated_at=now,
        ended_at=None,
        last_row=0,
        last_job=0,
        open_jobs=0,
        progress="{}",
        result=None,
        error=None,
        # Whoever waits for it waits for the new generation. What its parent was told already does not change.
        parent=None if before.status in TERMINAL else before.parent,
        children=0,
        rerun_of=before.key,
        rerun_from=rerun.stage,
        kept=references_text(rerun.keeps),
    )


def _ended(state: State, before: Run, command: RunRerunFrom, generation: int, now: Micros) -> RunDraft:
    """End the generation before: whoever works for it can write no more, and whoever waits for it is told."""
    draft = RunDraft(evolve(before, parent=None), now)
    facts: dict[str, object] = {"rerun": generation}
    if command.reason:
        facts["reason"] = command.reason
    draft.append("run.terminated", data=facts)
    message = f"it is run again as generation {generation}" + (
        f": {command.reason}" if command.reason else ""
    )
    error: dict[str, object] = {"code": "terminated", "message": message}
    draft.end(RunStatus.CANCELLED, cancels=state.cancels_of(before), error=error)
    return draft
