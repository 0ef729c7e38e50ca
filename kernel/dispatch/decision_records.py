"""Recordings of decisions as JSON, with everything that a decision depends on, so that each can be decided again."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, cast

import attrs

from holdfast.kernel import state as kernel_state
from holdfast.kernel.commands import Command
from holdfast.kernel.commands.codec import command_data, from_data, to_data
from holdfast.kernel.dispatch.kernel import Decider
from holdfast.kernel.history.stage_history import StageHistory
from holdfast.kernel.pipelines.plan import Plan, plan_from_json
from holdfast.kernel.state import ComposedSearch, Decision, RunRemains, SearchResult, State
from holdfast.ports import searches
from holdfast.ports.attempt_output import Annotation
from holdfast.ports.changes import Change
from holdfast.ports.clock import Ids
from holdfast.ports.json import canonical, parse
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.job import Job
from holdfast.ports.records.limits import RateName, RateWindow, SlotName
from holdfast.ports.records.outbox import Sink, Stream
from holdfast.ports.records.run import Run, RunName
from holdfast.ports.records.session import LeaderLease, Session
from holdfast.ports.records.values import IdempotencyReply, Micros, PlanRow
from holdfast.ports.searches import CompletedRow, Search
from holdfast.ports.structs import frozen
from holdfast.ports.tables import ANNOTATIONS, StoredRecord
from holdfast.ports.transport import Hint
from holdfast.ports.working_set import Tables


def _tag(kind: type) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()


def _is_search(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, (Search, ComposedSearch))


_SEARCHES: Final[Mapping[str, type[Any]]] = {
    _tag(kind): kind for kind in (*vars(searches).values(), *vars(kernel_state).values()) if _is_search(kind)
}
_RECORDS: Final[dict[str, type[StoredRecord]]] = {
    "runs": Run,
    "jobs": Job,
    "sessions": Session,
    "leaders": LeaderLease,
    "sinks": Sink,
    "streams": Stream,
    "replies": IdempotencyReply,
    "annotations": Annotation,
    "stored": PlanRow,
    "rates": RateWindow,
}


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


class _RecordingIds:
    """Source of ids that records the ids it passes on."""

    def __init__(self, inner: Ids) -> None:
        self._inner = inner
        self.drawn: list[str] = []

    def new(self) -> str:
        self.drawn.append(self._inner.new())
        return self.drawn[-1]


class _RecordedIds:
    """Source of ids that returns recorded ids."""

    def __init__(self, ids: tuple[str, ...]) -> None:
        self._ids: Iterator[str] = iter(ids)

    def new(self) -> str:
        return next(self._ids)


def recording_decisions(record: Callable[[Recording], None]) -> Decider:
    """Return the `decide` of a kernel that records each decision, with everything that it depends on."""

    def decide(
        rule: Callable[[State, Any, Micros, Ids], Decision[Any]],
        state: State,
        command: Command[Any],
        now: Micros,
        ids: Ids,
    ) -> Decision[Any]:
        before = state_json(state)
        drawn = _RecordingIds(ids)
        decision = rule(state, command, now, drawn)
        record(
            Recording(
                state=before,
                command=canonical(command_data(command)),
                now=now,
                ids=tuple(drawn.drawn),
                decision=decision_json(decision),
            )
        )
        return decision

    return decide


def recording_from(text: str) -> Recording:
    """Return the recording that was written by `Recording.to_json`."""
    return from_data(parse(text), Recording)


def decided_again(recording: Recording) -> str:
    """Decide again from a recording alone, and return the decision as JSON."""
    from holdfast.kernel.rules.registry import RULES, command_from  # the rules' codec needs this module's

    command = command_from(parse(recording.command))
    rule = RULES[type(command)]
    state = state_from(recording.state)
    return decision_json(rule.decide(state, command, recording.now, _RecordedIds(recording.ids)))


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
    annotation_keys = sorted(tables.names[ANNOTATIONS])
    annotations = [to_data(one) for one in tables.annotations.values()]
    unseen = {run: [to_data(row) for row in rows] for run, rows in sorted(state.new_rows.items())}
    messages = [[run, to_data(row)] for (run, _), row in sorted(state.messages.items())]
    histories = {run: [to_data(row) for row in rows] for run, rows in sorted(state.histories.items())}
    steps = {run: [to_data(row) for row in rows] for run, rows in sorted(state.steps.items())}
    suspensions = [to_data(row) for row in state.suspensions.values()]
    run_remains = [
        [*name, {**cast("dict[str, object]", to_data(left)), "lagging_sinks": sorted(left.lagging_sinks)}]
        for name, left in sorted(state.run_remains.items())
    ]
    return canonical(
        {
            **({"annotation_keys": annotation_keys} if annotation_keys else {}),
            **({"annotations": annotations} if annotations else {}),
            **({"suspensions": suspensions} if suspensions else {}),
            **({"run_remains": run_remains} if run_remains else {}),
            **({"steps": steps} if steps else {}),
            **({"new_rows": unseen} if unseen else {}),
            **({"messages": messages} if messages else {}),
            **({"histories": histories} if histories else {}),
            "runs": to_data(list(tables.runs.values()), list[Run]),
            "jobs": to_data(list(tables.all_jobs()), list[Job]),
            "sessions": to_data(list(tables.sessions.values()), list[Session]),
            "leaders": to_data(list(tables.leaders.values()), list[LeaderLease]),
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
                [_tag(type(search)), to_data(search), to_data(found)] for search, found in state.found.items()
            ],
            "past": to_data(state.past, dict[str, StageHistory] | None),
            "completed": [to_data(row) for rows in state.completed.values() for row in rows],
            "slots": [list(slot) for slot in sorted(tables.slots)],
            "used_slots": [[*slot, number] for slot, number in sorted(state.used_slots.items())],
            **({"rates": to_data(list(tables.rates.values()), list[RateWindow])} if tables.rates else {}),
            **(
                {"queued_by_rate": [[*rate, number] for rate, number in sorted(state.queued_by_rate.items())]}
                if state.queued_by_rate
                else {}
            ),
        }
    )


def state_from(text: str) -> State:
    """Return the state that `state_json` wrote as this text."""
    data = cast("dict[str, Any]", parse(text))
    tables = Tables()
    for name, kind in _RECORDS.items():
        for record in data.get(name, ()):  # older recordings lack some
            tables.put(from_data(record, kind))
    tables.names[ANNOTATIONS].update(tuple(name) for name in data.get("annotation_keys", ()))
    for slot in data.get("slots", ()):
        tables.put(SlotName(*slot))
    workflows: dict[tuple[str, str | None], Plan] = {
        (name, version): plan_from_json(plan) for name, version, plan in data["workflows"]
    }
    state = State(workflows)
    state.tables = tables
    state.plans = {name: plan_from_json(plan) for name, plan in data["plans"].items()}
    state.stored_plans = frozenset(data["stored_plans"])
    state.past = None if data.get("past") is None else from_data(data["past"], dict[str, StageHistory])
    state.run_remains = {
        RunName(namespace, name): from_data(left, RunRemains)
        for namespace, name, left in data.get("run_remains", ())
    }
    state.queued_by_rate = {
        RateName(namespace, name): number for namespace, name, number in data.get("queued_by_rate", ())
    }
    state.used_slots = {
        SlotName(namespace, name): number for namespace, name, number in data.get("used_slots", ())
    }
    for kind, search, found in data["found"]:
        state.found[from_data(search, _SEARCHES[kind])] = from_data(found, SearchResult)
    state.new_rows = from_data(data.get("new_rows", {}), dict[str, list[HistoryRow]])
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
