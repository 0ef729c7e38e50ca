"""Recordings of decisions as JSON, with everything that a decision depends on, so that each can be decided again."""

from collections.abc import Callable, Iterator
from typing import Any, Final, cast

import attrs

from holdfast.kernel.commands import Command
from holdfast.kernel.commands.codec import command_data, from_data, to_data
from holdfast.kernel.pipelines.plan import Plan, plan_from_json
from holdfast.kernel.runs.rerun_plan import Past
from holdfast.kernel.state import (
    Claimable,
    DeadLettered,
    Decision,
    Due,
    DueStreams,
    Expired,
    Found,
    HeartbeatOverdue,
    Lost,
    MissingJobs,
    Overdue,
    RunRemains,
    Search,
    State,
    UndeliveredRows,
    WaitingJobs,
    WaitingRuns,
    Wakeable,
)
from holdfast.ports.attempt_output import Annotation
from holdfast.ports.changes import Change
from holdfast.ports.clock import Ids
from holdfast.ports.json import canonical, parse
from holdfast.ports.persistence import CompletedRow
from holdfast.ports.records import (
    HistoryRow,
    IdempotencyReply,
    Job,
    LeaderLease,
    Micros,
    PlanRow,
    RateName,
    RateWindow,
    Run,
    RunName,
    Session,
    Sink,
    SlotName,
    Stream,
)
from holdfast.ports.structs import frozen
from holdfast.ports.transport import Hint
from holdfast.ports.working_set import Tables

_SEARCHES: Final[dict[str, type[Search]]] = {
    "claimable_jobs": Claimable,
    "dead_lettered_streams": DeadLettered,
    "due_jobs": Due,
    "due_streams": DueStreams,
    "expired_sessions": Expired,
    "jobs_of_dead_sessions": Lost,
    "jobs_with_overdue_heartbeats": HeartbeatOverdue,
    "runs_missing_jobs": MissingJobs,
    "runs_past_their_deadline": Overdue,
    "runs_with_undelivered_rows": UndeliveredRows,
    "waiting_jobs": WaitingJobs,
    "waiting_runs": WaitingRuns,
    "wakeable_jobs": Wakeable,
}
_TAGS: Final = {kind: tag for tag, kind in _SEARCHES.items()}


@frozen(kw_only=True)
class Recording:
    """One recorded decision with its input. All fields are JSON texts, except `now` and `ids`."""

    state: str
    command: str
    now: Micros
    ids: tuple[str, ...]
    decision: str

    def to_json(self) -> str:
        """Return the recording as canonical JSON."""
        return canonical(attrs.asdict(self))


class _Drawn:
    """Source of ids that records the ids it passes on."""

    def __init__(self, inner: Ids) -> None:
        self._inner = inner
        self.drawn: list[str] = []

    def new(self) -> str:
        self.drawn.append(self._inner.new())
        return self.drawn[-1]


class _Replayed:
    """Source of ids that returns recorded ids."""

    def __init__(self, ids: tuple[str, ...]) -> None:
        self._ids: Iterator[str] = iter(ids)

    def new(self) -> str:
        return next(self._ids)


def recorded(
    decide: Callable[[State, Any, Micros, Ids], Decision[Any]],
    state: State,
    command: Command[Any],
    now: Micros,
    ids: Ids,
) -> tuple[Decision[Any], Recording]:
    """Decide, and return the decision with its recording."""
    before = state_json(state)
    drawn = _Drawn(ids)
    decision = decide(state, command, now, drawn)
    recording = Recording(
        state=before,
        command=canonical(command_data(command)),
        now=now,
        ids=tuple(drawn.drawn),
        decision=decision_json(decision),
    )
    return decision, recording


def recording_from(text: str) -> Recording:
    """Return the recording that was written by `Recording.to_json`."""
    return from_data(parse(text), Recording)


def decided_again(recording: Recording) -> str:
    """Decide again from a recording alone, and return the decision as JSON."""
    from holdfast.kernel.rules.registry import RULES, command_from  # the rules' codec needs this module's

    command = command_from(parse(recording.command))
    rule = RULES[type(command)]
    state = state_from(recording.state)
    return decision_json(rule.decide(state, command, recording.now, _Replayed(recording.ids)))


def decision_json(decision: Decision[Any]) -> str:
    """Return a decision as canonical JSON."""
    return canonical(
        {
            "reply": to_data(decision.reply),
            "changes": [to_data(change, Change) for change in decision.changes],
            "hints": [to_data(hint, Hint) for hint in decision.hints],
        }
    )


def state_json(state: State) -> str:
    """Return as canonical JSON what a decision can see of a state."""
    tables = state.tables
    annotation_keys = [[run, key, sorted(names)] for (run, key), names in sorted(tables.said_keys.items())]
    annotations = [to_data(one) for of_run in tables.annotations.values() for one in of_run]
    unseen = {run: [to_data(row) for row in rows] for run, rows in sorted(state.unseen.items())}
    messages = [[run, to_data(row)] for (run, _), row in sorted(state.messages.items())]
    histories = {run: [to_data(row) for row in rows] for run, rows in sorted(state.histories.items())}
    steps = {run: [to_data(row) for row in rows] for run, rows in sorted(state.steps.items())}
    suspensions = [to_data(row) for row in state.suspensions.values()]
    run_remains = [
        [*name, {**cast("dict[str, object]", to_data(left)), "unheard": sorted(left.unheard)}]
        for name, left in sorted(state.run_remains.items())
    ]
    return canonical(
        {
            **({"said_keys": annotation_keys} if annotation_keys else {}),
            **({"said": annotations} if annotations else {}),
            **({"suspensions": suspensions} if suspensions else {}),
            **({"leavings": run_remains} if run_remains else {}),
            **({"steps": steps} if steps else {}),
            **({"unseen": unseen} if unseen else {}),
            **({"messages": messages} if messages else {}),
            **({"histories": histories} if histories else {}),
            "runs": to_data(list(tables.runs.values()), list[Run]),
            "jobs": to_data(list(tables.all_jobs()), list[Job]),
            "sessions": to_data(list(tables.sessions.values()), list[Session]),
            "duties": to_data(list(tables.duties.values()), list[LeaderLease]),
            "sinks": to_data(list(tables.sinks.values()), list[Sink]),
            "streams": to_data(list(tables.streams.values()), list[Stream]),
            "replies": to_data(list(tables.replies.values()), list[IdempotencyReply]),
            "stored": to_data(list(tables.plans.values()), list[PlanRow]),
            "stored_plans": sorted(state.stored_plans),
            "plans": {name: plan.to_json() for name, plan in state.plans.items()},
            "workflows": [
                [name, version, plan.to_json()] for (name, version), plan in state.workflows.items()
            ],
            "found": [
                [_TAGS[type(search)], to_data(search), to_data(found)]
                for search, found in state.found.items()
            ],
            "past": to_data(state.past, dict[str, Past] | None),
            "completed": [to_data(row) for rows in state.completed.values() for row in rows],
            "slots": [list(slot) for slot in sorted(tables.slots)],
            "used": [[*slot, number] for slot, number in sorted(state.used.items())],
            **({"rates": to_data(list(tables.rates.values()), list[RateWindow])} if tables.rates else {}),
            **(
                {"rated": [[*rate, number] for rate, number in sorted(state.rated.items())]}
                if state.rated
                else {}
            ),
        }
    )


def _search(kind: str, data: object) -> Search:
    return from_data(data, _SEARCHES[kind])


def state_from(text: str) -> State:
    """Return the state that `state_json` wrote as this text."""
    data = cast("dict[str, Any]", parse(text))
    tables = Tables()
    for run in from_data(data["runs"], list[Run]):
        tables.put_run(run)
    for job in from_data(data["jobs"], list[Job]):
        tables.put_job(job)
    tables.sessions = {session.id: session for session in from_data(data["sessions"], list[Session])}
    tables.duties = {lease.name: lease for lease in from_data(data["duties"], list[LeaderLease])}
    # Older recordings have no sinks.
    tables.sinks = {sink.key: sink for sink in from_data(data.get("sinks", []), list[Sink])}
    tables.streams = {stream.key: stream for stream in from_data(data.get("streams", []), list[Stream])}
    tables.replies = {
        (reply.namespace, reply.key): reply for reply in from_data(data["replies"], list[IdempotencyReply])
    }
    annotation_keys = cast("list[tuple[str, str, list[str]]]", data.get("said_keys", []))
    tables.said_keys = {(run, key): set(names) for run, key, names in annotation_keys}
    for one in from_data(data.get("said", []), list[Annotation]):
        tables.annotations.setdefault(one.run, []).append(one)
    tables.slots = {SlotName(*slot) for slot in data.get("slots", ())}
    tables.plans = {plan.fingerprint: plan for plan in from_data(data["stored"], list[PlanRow])}
    workflows: dict[tuple[str, str | None], Plan] = {
        (name, version): plan_from_json(plan) for name, version, plan in data["workflows"]
    }
    state = State(workflows)
    state.tables = tables
    state.plans = {name: plan_from_json(plan) for name, plan in data["plans"].items()}
    state.stored_plans = frozenset(data["stored_plans"])
    state.past = None if data.get("past") is None else from_data(data["past"], dict[str, Past])
    state.run_remains = {
        RunName(namespace, name): from_data(left, RunRemains)
        for namespace, name, left in data.get("leavings", ())
    }
    windows = from_data(data.get("rates", []), list[RateWindow])
    tables.rates = {window.rate_name: window for window in windows}
    state.rated = {RateName(namespace, name): number for namespace, name, number in data.get("rated", ())}
    state.used = {SlotName(namespace, name): number for namespace, name, number in data.get("used", ())}
    for kind, search, found in data["found"]:
        state.found[_search(kind, search)] = from_data(found, Found)
    state.unseen = from_data(data.get("unseen", {}), dict[str, list[HistoryRow]])
    for run, message in data.get("messages", ()):
        unread = from_data(message, HistoryRow)
        state.messages[run, unread.number] = unread
    state.histories = from_data(data.get("histories", {}), dict[str, list[HistoryRow]])
    state.steps = from_data(data.get("steps", {}), dict[str, list[HistoryRow]])
    for suspension in from_data(data.get("suspensions", []), list[HistoryRow]):
        state.suspensions[suspension.run, suspension.number] = suspension
    for row in from_data(data["completed"], list[CompletedRow]):
        state.completed.setdefault(row.run, []).append(row)
    return state
