"""The rule for messages that came with a start: if a run ends without receiving them, the next generation starts.

See docs/decisions/0061.
"""

from holdfast.kernel.commands import NO_FOLLOW_UP, FollowUp
from holdfast.kernel.rules.attempt_output import annotations_at_start
from holdfast.kernel.rules.run_creation import created_event, new_run
from holdfast.kernel.rules.unread_messages import count_forwarded, forward_unread
from holdfast.kernel.runs.builder import RunDraft
from holdfast.kernel.runs.plan_interpreter import begin
from holdfast.kernel.runs.stored_starts import kept_start
from holdfast.kernel.state import Decision, State
from holdfast.ports.clock import Ids
from holdfast.ports.records.run import TERMINAL, Run, RunStatus
from holdfast.ports.records.values import Micros
from holdfast.ports.structs import evolve
from holdfast.ports.transport import Hint


def start_successor(state: State, run: Run, ended: RunDraft, now: Micros, ids: Ids) -> Decision[FollowUp]:
    """Store the next generation of an ended run that has an unread message with a start; otherwise change nothing.

    It starts from the oldest such start and receives all unread messages. Each start begins at most one generation, so
    a function that never receives anything does not restart for ever.
    """
    mailbox = ended.mailbox
    if ended.status not in TERMINAL or not mailbox.starts:
        return Decision(NO_FOLLOW_UP)
    for row in sorted(set(mailbox.starts.values())):
        start = kept_start(state.messages[run.key, row])
        if start.begins_after(ended.status):
            break
    else:
        return Decision(NO_FOLLOW_UP)
    plan = state.plan_named(start.plan)
    following = new_run(start.command, plan, run, now, ids)
    draft = RunDraft(following, now, is_new=True)
    created = created_event(start.command, plan, following, messages=count_forwarded(mailbox, row))
    first = draft.append(evolve(created, start=row, actor=start.command.actor), payload=start.command.input)
    forward_unread(state, draft, run, mailbox, row)
    if following.status is not RunStatus.PENDING:
        begin(draft, plan, first)
    annotations = annotations_at_start(following, start.command, ids)
    hints: tuple[Hint, ...] = tuple(draft.hints)
    return Decision(draft.follow_up, (*draft.changes(), *annotations), hints)
