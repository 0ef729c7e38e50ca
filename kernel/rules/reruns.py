"""The rule for reruns and forks: a new generation that refers to the outputs and rows that it keeps.

See docs/decisions/0013. The next attempt of a run that is retried as a whole is a rerun from the start, made by the
commit in which the attempt before fails (docs/decisions/0076).
"""

from collections.abc import Sequence

from attrs import frozen

from holdfast.kernel.commands import (
    NO_FOLLOW_UP,
    Failure,
    FollowUp,
    JobSettled,
    RunRerun,
    RunRerunFrom,
    merge,
)
from holdfast.kernel.commands.attempt_output import REASON_MAX
from holdfast.kernel.history import events
from holdfast.kernel.limits.fairness import with_turn
from holdfast.kernel.pipelines.plan import Plan
from holdfast.kernel.rules.admissions import begin_run
from holdfast.kernel.rules.children import adopt_child
from holdfast.kernel.rules.continue_as_new import carried_annotations
from holdfast.kernel.rules.fair_starts import ranked, turn_of_run
from holdfast.kernel.rules.follow_ups import follow_up_after
from holdfast.kernel.rules.retries import AttemptDetails, attempt_of_run, fail_stage, next_run_at
from holdfast.kernel.rules.run_creation import store_plan
from holdfast.kernel.rules.runs import is_older, named_run
from holdfast.kernel.rules.start_bounds import apply_bound
from holdfast.kernel.rules.topics import subscription_of
from holdfast.kernel.rules.unread_messages import append_again, append_start
from holdfast.kernel.runs.builder import RunDraft
from holdfast.kernel.runs.forks import Fork, open_children, plan_fork
from holdfast.kernel.runs.gathered_starts import carried_starts
from holdfast.kernel.runs.rerun_plan import Rerun, check_point, choose_plan, plan_rerun
from holdfast.kernel.runs.subscriptions import mailbox_of_replaced
from holdfast.kernel.state import Decision, Reads, State
from holdfast.ports.changes import Change, Insert
from holdfast.ports.clock import Ids
from holdfast.ports.mailboxes import Mailbox, mailbox_from
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.job import Job, JobKey, rank_of
from holdfast.ports.records.run import TERMINAL, Run, RunName, RunStatus
from holdfast.ports.records.topic import GROUP_CHANNEL
from holdfast.ports.records.values import Micros
from holdfast.ports.references import kept_rows_text, references_text
from holdfast.ports.structs import evolve


def reads_of_rerun(command: RunRerunFrom) -> Reads:
    """Lock the newest generation of the run and read its history."""
    return Reads(names=(RunName(command.namespace, command.run_id),), past_names=True)


def decide_rerun(state: State, command: RunRerunFrom, now: Micros, ids: Ids) -> Decision[RunRerun]:
    """Store the next generation, and terminate the previous one if it is active.

    Raises RunNotFoundError, RerunRefusedError, UnknownWorkflowError, InvalidCommandError.
    """
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
    plan = choose_plan(state.workflows, before, former, command.version)
    check_point(before, former, plan, command.stage, command.row)
    begins = (
        _stage(plan_rerun(before, past, former, plan, command.stage))
        if former.function is None or plan.function is None
        else _call(_planned_fork(state, before, former, command))
    )
    run = _next_generation(before, plan, begins, ids.new(), now)
    adopted = [] if begins.fork is None else [child.key for child in _children(state, run, begins.fork)]
    bounded = apply_bound(state, run, now, before=before, adopted=adopted, returns=False)
    turn = None if run.status is RunStatus.PENDING else turn_of_run(state, run, plan, now)
    run = ranked(run, turn)
    draft = RunDraft(run, now, is_new=True)
    created = _created_event(command, before, run, plan, begins, bounded.ended)
    # The input is copied: the first own row of every generation has its input.
    row = draft.append(created, payload=past.input)
    assert row == run.first_row
    taken_over: tuple[Change, ...] = ()
    if begins.fork is not None:
        taken_over = _carry_on(state, draft, before, run, begins.fork)
    if run.status is not RunStatus.PENDING:
        begin_run(draft, plan, run)
    ended = None if before.status in TERMINAL else _ended(state, before, command, run, begins, now)
    reply = RunRerun(
        run_id=run.id,
        run=run.key,
        generation=run.generation,
        status=draft.status,
        started=True,
        rerun_of=before.generation,
        stage=begins.start,
        runs=begins.runs,
        keeps=begins.keeps,
        row=None if begins.fork is None else begins.fork.row,
        terminated=ended is not None,
        ended=tuple(bounded.ended),
        follow_up=merge(
            draft.follow_up,
            *bounded.follow_ups,
            follow_up_after(state, before, ended) if ended else NO_FOLLOW_UP,
            FollowUp(deliveries=bool(taken_over)),
        ),
    )
    changes = (
        *(ended.changes() if ended else ()),
        *store_plan(state, plan),
        *bounded.changes,
        *with_turn(draft.changes(), run.key, turn),
        *taken_over,
    )
    return Decision(reply, changes, (*(ended.hints if ended else ()), *bounded.hints, *draft.hints))


@frozen(kw_only=True)
class _Begins:
    """Starting point of the new generation, of a pipeline or of a durable function."""

    start: str | None
    """Stage or call at which it starts; None: from the start."""
    kept: str | None
    """Text for `Run.inherited`: references to outputs, or the kept rows."""
    runs: tuple[str, ...] = ()
    """Stages that it runs."""
    keeps: tuple[str, ...] = ()
    """Stages whose outputs it keeps."""
    fork: Fork | None = None
    """Fork, if it is a durable function."""


def _stage(rerun: Rerun) -> _Begins:
    return _Begins(
        start=rerun.stage,
        kept=references_text(rerun.keeps),
        runs=rerun.runs,
        keeps=tuple(rerun.keeps),
    )


def _call(fork: Fork) -> _Begins:
    return _Begins(
        start=fork.start,
        kept=kept_rows_text(fork.kept),
        fork=fork,
    )


def retry_run(
    state: State, run: Run, job: Job, failure: Failure, details: AttemptDetails, now: Micros, ids: Ids
) -> Decision[JobSettled] | None:
    """Fail the run of a function and store its next attempt; return None if it is not tried again.

    The attempt gets the same input, and the messages and updates that the run has received so far. The parent of the
    run waits for it, and the deadline stays. Child runs are closed with the attempt that started them.
    """
    plan, history = state.plan_of(run), state.histories[run.key]
    attempt = attempt_of_run(run, history)
    retry_at = next_run_at(plan, run, job, attempt, failure, now)
    if retry_at is None:
        return None
    ended = RunDraft(evolve(run, parent=None), now)
    fork = plan_fork(run, history, {}, row=1)
    # The next attempt has the others, and answers the updates.
    ended.keep_mailbox(evolve(mailbox_of_replaced(ended.mailbox), updates={}))
    fail_stage(ended, plan, job, failure, details, retry_run_at=retry_at)
    starts_at = retry_at if retry_at > now else None
    begins = _next_generation(
        run, plan, _call(fork), ids.new(), now, starts_at=starts_at, counted_at=run.rate_counted_at
    )
    turn = None if begins.status is RunStatus.PENDING else turn_of_run(state, begins, plan, now)
    following = evolve(ranked(begins, turn), deadline=run.deadline)
    draft = RunDraft(following, now, is_new=True)
    created = events.RunCreated(
        definition=plan.definition,
        start_at=following.start_at,
        deadline=following.deadline,
        rerun_of=run.generation,
        row=fork.row,
        inbox=following.first_row + len(fork.redelivered) + _later_starts(run, fork),
        reason=f"attempt {attempt.number} failed: {failure.type or failure.code}: {failure.message}"[
            :REASON_MAX
        ],
        attempt=attempt.number + 1,
        first_attempt_at=attempt.first_at,
    )
    draft.append(created, payload=history[run.first_row - 1].payload)
    _carry_on(state, draft, run, following, fork)
    if run.status is RunStatus.PAUSED:
        draft.append(events.RunPaused())
        draft.pause()
    if following.status is RunStatus.RUNNING:
        begin_run(draft, plan, following)
    reply = JobSettled(
        status="settled",
        run_status=ended.status,
        retry_at=retry_at,
        follow_up=merge(draft.follow_up, follow_up_after(state, run, ended)),
    )
    annotations = carried_annotations(state, run, following.key, ids)
    begun = with_turn(draft.changes(), following.key, turn)
    return Decision(reply, (*ended.changes(), *begun, *annotations), (*ended.hints, *draft.hints))


def _planned_fork(state: State, before: Run, plan: Plan, command: RunRerunFrom) -> Fork:
    history = state.histories[before.key]
    found = (state.tables.run_named(RunName(before.namespace, child)) for child in open_children(history))
    return plan_fork(
        before,
        history,
        {child.id: child for child in found if child is not None},
        start=None if command.stage == plan.function else command.stage,
        row=1 if command.stage == plan.function else command.row,
    )


def _created_event(
    command: RunRerunFrom, before: Run, run: Run, plan: Plan, begins: _Begins, ended: Sequence[str]
) -> events.RunCreated:
    fork = begins.fork
    return events.RunCreated(
        definition=plan.definition,
        rerun_of=before.generation,
        from_=begins.start,
        keeps=None if fork is not None else begins.keeps,
        row=None if fork is None else fork.row,
        inbox=run.first_row + len(fork.redelivered) + _later_starts(before, fork)
        if fork is not None and fork.begins_anew
        else None,
        reason=command.reason,
        ended=tuple(ended) or None,
    )


def _children(state: State, run: Run, fork: Fork) -> list[Run]:
    """Return the child runs that a fork takes over."""
    children: list[Run] = []
    for one in fork.children:
        child = state.tables.run_named(RunName(run.namespace, one))
        assert child is not None
        children.append(child)
    return children


def _carry_on(state: State, draft: RunDraft, before: Run, run: Run, fork: Fork) -> tuple[Change, ...]:
    """Append again the messages and updates that arrived after the fork's point, and take over the child runs.

    Messages in kept rows are unread until the replay has received them. Messages that the previous generation had not
    received keep their starts, and only those of groups go back to them. The subscriptions of an active generation stay
    as they are: they may have messages to catch up with. Returns the changes of the child runs and subscriptions.
    """
    starts, unread = mailbox_from(before.mailbox).starts, mailbox_from(before.mailbox).groups
    history = state.histories[before.key]
    kept_starts = {number: row for number, row in starts.items() if number < fork.row}
    subscribed = mailbox_from(before.mailbox).subscribed
    kept = {one.channel for one in fork.subscriptions}
    stay = (
        ()
        if before.status in TERMINAL
        else tuple(one for one in subscribed if not one.startswith(GROUP_CHANNEL) or one in kept)
    )
    draft.keep_mailbox(
        Mailbox(
            unread=fork.kept_messages,
            starts=kept_starts,
            closed=fork.closed_channels,
            subscribed=tuple(sorted({*stay, *(one.channel for one in fork.subscriptions)})),
            groups={number: one for number, one in fork.kept_of_groups.items() if number in unread},
            read_before={
                number: one.channel for number, one in fork.kept_of_groups.items() if number not in unread
            },
            returned=fork.returned,
            updates=fork.updates,
            sent={} if before.status in TERMINAL else {call: one.key for call, one in fork.sent.items()},
        )
    )
    known: dict[int, int] = {row: row for row in starts.values() if row < fork.row}
    for row in fork.redelivered:
        if row.type == events.SignalReceived.type:
            start = starts.get(row.number)
            if start is not None and start not in known:
                known[start] = append_start(draft, history[start - 1])
            again = append_again(draft, row, start=None if start is None else known[start])
            if again in draft.mailbox.groups and row.number not in unread:
                draft.keep_mailbox(draft.mailbox.mark_read_before(again))
            continue
        event = _again(row)
        number = draft.append(event, node=row.node, payload=row.payload)
        if isinstance(event, events.UpdateReceived) and event.address is not None:
            draft.keep_mailbox(draft.mailbox.with_update(number, event.address))
    if before.status in TERMINAL:
        _lose_replies(draft, fork, state.plan_of(run).function)
    # Of an ended run, it has the messages that were delivered before, and gets those that are published from now on.
    changes: tuple[Change, ...] = tuple(
        Insert(subscription_of(run, one, run.created_at + 1, run.created_at))
        for one in fork.subscriptions
        if one.channel not in stay
    )
    for child in _children(state, run, fork):
        if child.status not in TERMINAL:
            draft.count_child()
        changes += adopt_child(child, JobKey(run.key, 1)).changes
    return changes


def _lose_replies(draft: RunDraft, fork: Fork, node: str | None) -> None:
    """Append that kept updates of an ended run have no reply: replies that arrived after its end were dropped."""
    for call, sent in fork.sent.items():
        lost = events.UpdateReplied(
            call=call,
            run=sent.run,
            outcome="lost",
            message="the run that sent it ended before the reply arrived, and was run again",
        )
        draft.append(lost, node=node)


def _again(row: HistoryRow) -> events.HistoryEvent:
    """Return the event of a redelivered row with the number that it had."""
    match events.event_of(row):
        case (
            events.UpdateReceived()
            | events.FunctionBegan()
            | events.ClockRead()
            | events.PatchMarked()
            | events.UpdateReplied()
            | events.ChildCompleted()
            | events.ChildFailed()
        ) as event:
            return evolve(event, again=row.number)
        case event:
            raise AssertionError(f"{event.type} is not delivered again")


def _later_starts(before: Run, fork: Fork) -> int:
    """Return how many start rows are appended again with their messages."""
    return len({row for row in mailbox_from(before.mailbox).starts.values() if row >= fork.row})


def _next_generation(
    before: Run,
    plan: Plan,
    begins: _Begins,
    key: str,
    now: Micros,
    *,
    starts_at: Micros | None = None,
    counted_at: Micros | None = None,
) -> Run:
    """Return the next generation. It waits for a slot again, and has the same time until its deadline.

    A rerun is a start that its rate counts. The next attempt of a whole run is none: it keeps `counted_at`.
    """
    waits_for_rate = before.rate_key is not None and counted_at is None
    waits = starts_at is not None or before.concurrency_key is not None or waits_for_rate
    deadline = None if before.deadline is None else now + before.deadline - before.created_at
    return evolve(
        before,
        key=key,
        generation=before.generation + 1,
        version=plan.version,
        plan=plan.fingerprint,
        status=RunStatus.PENDING if waits else RunStatus.RUNNING,
        start_at=starts_at,
        deadline=deadline,
        queue_position=rank_of(now, before.priority),
        created_at=now,
        updated_at=now,
        ended_at=None,
        last_row=0 if begins.fork is None else begins.fork.row - 1,
        last_job=0,
        open_jobs=0,
        progress="{}",
        result=None,
        error=None,
        # The parent of an active run waits for the new generation. A result that was delivered does not change.
        parent=None if before.status in TERMINAL else before.parent,
        parent_run=None if before.status in TERMINAL else before.parent_run,
        children=0,
        rerun_of=before.key,
        rerun_from=begins.start,
        inherited=begins.kept,
        mailbox=None,
        reported_row=0,
        gathered=carried_starts(before),
        rate_counted_at=counted_at,
        in_rate_line=int(waits_for_rate and starts_at is None and before.concurrency_key is None),
    )


def _ended(
    state: State, before: Run, command: RunRerunFrom, run: Run, begins: _Begins, now: Micros
) -> RunDraft:
    """Terminate the previous generation, which is active. Its attempts are fenced."""
    draft = RunDraft(evolve(before, parent=None), now)
    if begins.fork is not None:  # the new generation has the others, and answers the updates
        kept = (one.channel for one in begins.fork.subscriptions)
        draft.keep_mailbox(evolve(mailbox_of_replaced(draft.mailbox, kept), updates={}))
    draft.append(events.RunTerminated(rerun=run.generation, reason=command.reason))
    message = f"it is run again as generation {run.generation}" + (
        f": {command.reason}" if command.reason else ""
    )
    error: dict[str, object] = {"code": "terminated", "message": message}
    draft.end(RunStatus.CANCELLED, cancels=state.cancels_of(before), error=error)
    return draft
