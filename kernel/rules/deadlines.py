"""Rules for deadlines: runs past their deadline fail; durable functions clean up first."""

from typing import Final

from holdfast.kernel.commands import FollowUp, RunExpire, RunsExpired, merge
from holdfast.kernel.history import events
from holdfast.kernel.rules.follow_ups import follow_up_after
from holdfast.kernel.rules.signals import start_cancelling
from holdfast.kernel.rules.successors import start_successor
from holdfast.kernel.runs.builder import RunDraft
from holdfast.kernel.runs.transitions import DEADLINE_EXCEEDED
from holdfast.kernel.state import Decision, Reads, State
from holdfast.ports.changes import Change
from holdfast.ports.clock import Ids
from holdfast.ports.records.run import TERMINAL, RunStatus
from holdfast.ports.records.values import Micros
from holdfast.ports.searches import OverdueRuns
from holdfast.ports.transport import Hint

_MESSAGE: Final = "the run had not ended when its deadline passed"


def reads_of_expire(command: RunExpire) -> Reads:
    """Search for runs whose deadline has passed; lock the jobs that drive their functions.

    Unread messages that came with a start are read as well.
    """
    return Reads(search=OverdueRuns(command.limit), found_starts=True, drivers=True)


def decide_expire(state: State, command: RunExpire, now: Micros, ids: Ids) -> Decision[RunsExpired]:
    """Fail the runs, or let their functions clean up first. Each run is checked again under its lock."""
    changes: list[Change] = []
    hints: list[Hint] = []
    follow_ups: list[FollowUp] = []
    expired = 0
    for run in map(state.tables.runs.get, state.found[OverdueRuns(command.limit)].runs):
        is_over = run is None or run.status in TERMINAL or run.is_ending
        if run is None or is_over or run.deadline is None or run.deadline > now:
            continue
        state.current_run = run.key
        draft = RunDraft(run, now)
        error: dict[str, object] = {"code": DEADLINE_EXCEEDED, "message": _MESSAGE}
        if run.is_admitted and state.plan_of(run).function is not None:
            cancelling = events.RunCancelling(reason="its deadline has passed", deadline=run.deadline)
            start_cancelling(state, draft, cancelling, run, error, now)
        else:
            draft.append(events.RunFailed(code=DEADLINE_EXCEEDED, message=_MESSAGE, deadline=run.deadline))
            draft.end(RunStatus.FAILED, cancels=state.cancels_of(run), error=error)
        begun = start_successor(state, run, draft, now, ids)
        changes += (*draft.changes(), *begun.changes)
        hints += (*draft.hints, *begun.hints)
        follow_ups += (follow_up_after(state, run, draft), begun.reply)
        expired += 1
    reply = RunsExpired(expired=expired, more=expired >= command.limit, follow_up=merge(*follow_ups))
    return Decision(reply, tuple(changes), tuple(hints))
