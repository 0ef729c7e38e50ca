"""The rule for starts that are gathered: a start joins the run that waits, or begins one (docs/decisions/0087).

A gathering run is pending, and its row in `gatherings` has the name by which the next start finds it. That row exists
as long as starts may join: it is inserted with the run, and deleted by the commit in which the run begins or ends. Two
starts that find no run insert the same name, so one of them conflicts, is repeated, and joins. A start holds the lock
of the run that it joins, as the admission does: a start is in the input of the run, or begins the next one.
"""

from hashlib import sha256

from holdfast.kernel.commands import SIGNALS_MAX, FollowUp, RunCreate, RunCreated, merge
from holdfast.kernel.history import events
from holdfast.kernel.limits.fairness import Turn, with_turn
from holdfast.kernel.pipelines.gather_plan import GATHERED_BYTES_MAX, GatherPlan
from holdfast.kernel.pipelines.plan import Plan
from holdfast.kernel.rules.attempt_output import annotations_at_start
from holdfast.kernel.rules.fair_starts import ranked, turn_of_run, weight_of_pending
from holdfast.kernel.rules.namespaces import check_quota
from holdfast.kernel.rules.run_creation import created_event, new_run, store_plan
from holdfast.kernel.rules.signals import append_signals, check_signals
from holdfast.kernel.runs.builder import INPUT_ROW, RunDraft
from holdfast.kernel.runs.plan_interpreter import begin
from holdfast.kernel.state import Decision, State
from holdfast.ports.changes import Change, Delete, Insert, Update
from holdfast.ports.clock import Ids
from holdfast.ports.errors import InvalidCommandError
from holdfast.ports.records.gatherings import GatheredStarts, Gathering, GatheringName
from holdfast.ports.records.job import rank_of
from holdfast.ports.records.limits import OverRate, WhenFull
from holdfast.ports.records.run import Run, RunStatus, attribute_texts
from holdfast.ports.records.values import Micros
from holdfast.ports.structs import evolve
from holdfast.ports.tables import GATHERINGS


def name_of(command: RunCreate, plan: Plan) -> GatheringName:
    """Return the name of the gathering that a start belongs to.

    It has the fingerprint of the plan, so starts of changed code, or with other options, are gathered apart.
    """
    assert plan.gather is not None
    text = None if plan.gather.by is None else attribute_texts(command.attributes).get(plan.gather.by)
    apart = "" if text is None else sha256(text.encode(errors="surrogatepass")).hexdigest()
    return GatheringName(command.namespace, f"{plan.fingerprint}/{apart}")


def gather_start(state: State, command: RunCreate, plan: Plan, now: Micros, ids: Ids) -> Decision[RunCreated]:
    """Let a start join the run that gathers, or store the first start of one. Raises InvalidCommandError."""
    gather = plan.gather
    assert gather is not None
    _check(command, plan, gather)
    if command.signals:
        check_signals(plan, "", command.signals)
    name = name_of(command, plan)
    known = state.tables.gatherings.get(name)
    run = None if known is None else state.tables.runs.get(known.run)
    if run is None or run.key in state.excluded or not run.is_gathering:
        return _first(state, command, plan, gather, name, now, ids)
    return _joined(state, command, plan, gather, run, now, ids)


def _check(command: RunCreate, plan: Plan, gather: GatherPlan) -> None:
    for given, option, instead in (
        (command.id, "id", "an idempotency key starts once, and `by` keeps starts apart"),
        (command.start_at, "start_at", "`quiet` and `within` say when it begins"),
    ):
        if given is not None:
            raise InvalidCommandError(
                f"{plan.workflow!r} gathers its starts, so a start has no {option}: leave it out; {instead}"
            )
    if command.concurrency_full is not WhenFull.WAIT:
        raise InvalidCommandError(
            f"{plan.workflow!r} gathers its starts, so a start can't have concurrency_full="
            f"{command.concurrency_full.value!r}: a start that joins a run makes no run more; leave it out"
        )
    if command.rate is not None and command.rate.over is OverRate.REFUSE:
        raise InvalidCommandError(
            f"{plan.workflow!r} gathers its starts, and what is refused can't join a run: use a rate with over='wait',"
            " under which the run waits"
        )
    if gather.keep == "all" and command.items is None:
        raise InvalidCommandError(
            f"{plan.workflow!r} joins the lists of its starts, so a start says in `items` how many its list has"
        )
    for number, option in ((command.items, "items"), (command.input_size, "input_size")):
        if number is not None and number < 0:
            raise InvalidCommandError(f"{option} is {number}; it must not be negative")
    if len(command.signals) > SIGNALS_MAX:
        raise InvalidCommandError(f"a run is started with at most {SIGNALS_MAX} signals")


def _first(
    state: State,
    command: RunCreate,
    plan: Plan,
    gather: GatherPlan,
    name: GatheringName,
    now: Micros,
    ids: Ids,
) -> Decision[RunCreated]:
    """Store a run with its first start."""
    check_quota(state, command)
    until = now + gather.within_us
    start_at = until if gather.quiet_us is None else min(until, now + gather.quiet_us)
    gathered = GatheredStarts(
        name=name.name,
        is_open=True,
        keep=gather.keep,
        until=until,
        size=_size(command),
        items=command.items or 0,
        rows=((INPUT_ROW, INPUT_ROW),),
    )
    deadline = plan.deadline_us if command.deadline is None else command.deadline
    made = new_run(command, plan, None, now, ids)
    run = evolve(
        made,
        status=RunStatus.PENDING,
        start_at=start_at,
        queue_position=rank_of(start_at, made.priority),
        deadline=None if deadline is None else until + deadline,
        in_rate_line=0,
        gathered=gathered.to_text(),
    )
    is_full = _is_full(gather, gathered)
    run = _due(run, now) if is_full else run
    turn = _turn(state, run, plan, now, command.weight) if is_full else None
    run = ranked(run, turn)
    draft = RunDraft(run, now, is_new=True)
    created = created_event(command, plan, run, messages=len(command.signals))
    draft.append(evolve(created, start_at=None if is_full else start_at), payload=command.input)
    messages = append_signals(draft, command.signals, key=command.idempotency_key)
    row = Gathering(namespace=name.namespace, name=name.name, run=run.key)
    named: tuple[Change, ...] = ()
    if not is_full:
        named = (Update(row) if name in state.tables.gatherings else Insert(row),)
    follow_up = _begin(draft, plan, run) if is_full else None
    reply = _reply(run, draft, gather, gathered, command, messages=messages, joined=False)
    changes = (
        *store_plan(state, plan),
        *with_turn(draft.changes(), run.key, turn),
        *(weight_of_pending(state, command, plan, now) if turn is None else ()),
        *named,
        *annotations_at_start(run, command, ids),
    )
    return Decision(
        reply if follow_up is None else evolve(reply, follow_up=follow_up), changes, tuple(draft.hints)
    )


def _joined(
    state: State, command: RunCreate, plan: Plan, gather: GatherPlan, run: Run, now: Micros, ids: Ids
) -> Decision[RunCreated]:
    """Add a start to a run that has not begun."""
    before = run.gathered_starts
    assert before is not None
    gathered = before.with_start(run.last_row + 1, size=_size(command), items=command.items or 0)
    is_full = _is_full(gather, gathered)
    start_at = run.start_at
    if start_at is not None and gather.quiet_us is not None:
        # The clock of this host may be behind that of the last start: only a full batch begins earlier.
        start_at = max(start_at, min(gathered.until, now + gather.quiet_us))
    after = evolve(run, gathered=gathered.to_text(), start_at=start_at)
    closed: tuple[Change, ...] = ()
    turn: Turn | None = None
    if is_full:
        after = _due(after, now)
        turn = _turn(state, after, plan, now, command.weight)
        after = ranked(after, turn)
        closed = (Delete(GATHERINGS, GatheringName(run.namespace, gathered.name)),)
    draft = RunDraft(after, now)
    joined = events.RunGathered(
        start=gathered.starts,
        start_at=None if is_full else start_at,
        items=command.items if gather.keep == "all" else None,
        key=command.idempotency_key,
    )
    draft.append(joined, payload=command.input)
    messages = append_signals(draft, command.signals, key=command.idempotency_key)
    follow_up = _begin(draft, plan, after) if is_full else None
    reply = _reply(run, draft, gather, gathered, command, messages=messages, joined=True)
    changes = (
        *with_turn(draft.changes(), run.key, turn),
        *(weight_of_pending(state, command, plan, now) if turn is None else ()),
        *closed,
        *annotations_at_start(evolve(after, created_at=now), command, ids),
    )
    return Decision(
        reply if follow_up is None else evolve(reply, follow_up=follow_up), changes, tuple(draft.hints)
    )


def _size(command: RunCreate) -> int:
    inline = command.input.inline
    return (command.input_size or 0) if inline is None else len(inline.encode(errors="surrogatepass"))


def _is_full(gather: GatherPlan, gathered: GatheredStarts) -> bool:
    return gathered.starts >= gather.starts_max or gathered.size >= GATHERED_BYTES_MAX


def _due(run: Run, now: Micros) -> Run:
    """Return a run that gathers nothing more: it begins now, or waits for its slot, or for being resumed."""
    gathered = run.gathered_starts
    assert gathered is not None
    closed = evolve(gathered, is_open=False).to_text()
    rank = min(run.queue_position, rank_of(now, run.priority))  # it waits from now on, not from `within` on
    if run.concurrency_key is not None or run.waits_for_rate or run.start_at is None:
        in_rate_line = run.in_rate_line if run.concurrency_key is not None else int(run.waits_for_rate)
        return evolve(run, start_at=None, queue_position=rank, gathered=closed, in_rate_line=in_rate_line)
    return evolve(run, start_at=min(run.start_at, now), queue_position=rank, gathered=closed)


def _turn(state: State, run: Run, plan: Plan, now: Micros, weight: int | None) -> Turn | None:
    """Return the turn of a run that is full, if it begins now."""
    begins = _begins_now(run)
    return turn_of_run(state, run, plan, now, weight=weight) if begins else None


def _begin(draft: RunDraft, plan: Plan, run: Run) -> FollowUp:
    """Admit a run that is full, unless it is paused, or waits for a slot or its rate; return what can be done next."""
    if _begins_now(run):
        draft.admit()
        draft.append(events.RunAdmitted())
        begin(draft, plan, run.input)
    return merge(draft.follow_up)


def _begins_now(run: Run) -> bool:
    return run.status is RunStatus.PENDING and run.concurrency_key is None and not run.waits_for_rate


def _reply(
    run: Run,
    draft: RunDraft,
    gather: GatherPlan,
    gathered: GatheredStarts,
    command: RunCreate,
    *,
    messages: tuple[int, ...],
    joined: bool,
) -> RunCreated:
    has_items = gather.keep == "all" and command.items is not None
    return RunCreated(
        run_id=run.id,
        run=run.key,
        generation=run.generation,
        status=draft.status,
        created=not joined,
        messages=messages,
        joined=joined,
        first_item=gathered.items - (command.items or 0) if has_items else None,
        items=command.items if has_items else None,
    )
