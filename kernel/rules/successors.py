"""The rule for messages that came with a start: if a run ends without receiving them, the next generation starts.

See docs/decisions/0061.
"""

from holdfast.kernel.commands import NO_FOLLOW_UP, FollowUp
from holdfast.kernel.limits.fairness import with_turn
from holdfast.kernel.limits.run_rates import with_rate
from holdfast.kernel.limits.start_bounds import with_concurrency
from holdfast.kernel.rules.attempt_output import annotations_at_start
from holdfast.kernel.rules.fair_starts import turn_of_start
from holdfast.kernel.rules.run_creation import created_event, new_run
from holdfast.kernel.rules.unread_messages import count_forwarded, forward_unread
from holdfast.kernel.runs.builder import RunDraft
from holdfast.kernel.runs.plan_interpreter import begin
from holdfast.kernel.runs.stored_starts import kept_start
from holdfast.kernel.state import Decision, State
from holdfast.ports.clock import Ids
from holdfast.ports.records.limits import OverRate
from holdfast.ports.records.run import TERMINAL, Run, RunStatus
from holdfast.ports.records.values import Micros
from holdfast.ports.structs import evolve
from holdfast.ports.transport import Hint


def start_successor(state: State, run: Run, ended: RunDraft, now: Micros, ids: Ids) -> Decision[FollowUp]:
    """Store the next generation of an ended run that has an unread message with a start; otherwise change nothing.

    It starts from the oldest such start and receives all unread messages. Each start begins at most one generation, so
    a function that never receives anything does not restart for ever.
    """
    mailbox = ended.mailbox.without_groups()
    if ended.status not in TERMINAL or not mailbox.starts:
        return Decision(NO_FOLLOW_UP)
    for row in sorted(set(mailbox.starts.values())):
        start = kept_start(state.messages[run.key, row])
        if start.begins_after(ended.status):
            break
    else:
        return Decision(NO_FOLLOW_UP)
    plan = state.plan_named(start.plan)
    # It comes under no bound: it takes the place of the run that has ended. Nor is it refused: nobody could repeat it.
    command = with_rate(with_concurrency(start.command, plan), plan)
    if command.rate is not None:
        command = evolve(command, rate=evolve(command.rate, over=OverRate.WAIT))
    turn = turn_of_start(state, command, plan, now)
    following = new_run(command, plan, run, now, ids, turn=turn)
    draft = RunDraft(following, now, is_new=True)
    created = created_event(command, plan, following, messages=count_forwarded(mailbox, row))
    first = draft.append(evolve(created, start=row, actor=start.command.actor), payload=start.command.input)
    forward_unread(state, draft, run, mailbox, row)
    if following.status is not RunStatus.PENDING:
        begin(draft, plan, first)
    annotations = annotations_at_start(following, start.command, ids)
    hints: tuple[Hint, ...] = tuple(draft.hints)
    return Decision(draft.follow_up, (*with_turn(draft.changes(), following.key, turn), *annotations), hints)
