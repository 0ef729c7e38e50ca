"""Recordings of decisions as JSON, with everything that a decision depends on, so that each can be decided again."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, cast

import attrs

from holdfast.kernel import composed_searches
from holdfast.kernel import state as kernel_state
from holdfast.kernel.commands import Command
from holdfast.kernel.commands.codec import command_data, from_data, to_data
from holdfast.kernel.dispatch.kernel import Decider
from holdfast.kernel.history.stage_history import StageHistory
from holdfast.kernel.limits.quotas import QuotaUse
from holdfast.kernel.pipelines.plan import Plan, plan_from_json
from holdfast.kernel.search_results import RunRemains, SearchResult
from holdfast.kernel.state import ComposedSearch, Decision, State
from holdfast.ports import searches
from holdfast.ports.attempt_output import Annotation
from holdfast.ports.changes import Change
from holdfast.ports.clock import Ids
from holdfast.ports.errors import UnknownZoneError
from holdfast.ports.json import canonical, parse
from holdfast.ports.records.browser_session import BrowserSession
from holdfast.ports.records.credential import Credential
from holdfast.ports.records.gatherings import Gathering
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.job import Job
from holdfast.ports.records.limits import LimitRow, RateName, RateWindow, SlotName
from holdfast.ports.records.namespace import NamespaceRow
from holdfast.ports.records.outbox import Sink, Stream
from holdfast.ports.records.run import Run, RunName
from holdfast.ports.records.schedule import ScheduleRow
from holdfast.ports.records.session import LeaderLease, Session
from holdfast.ports.records.topic import GroupRow, ReturnedRow, SubscriptionRow, TopicMessageRow, TopicRow
from holdfast.ports.records.trigger import TriggerRow
from holdfast.ports.records.values import IdempotencyReply, Micros, PlanRow
from holdfast.ports.records.workflow import WorkflowRow
from holdfast.ports.searches import CompletedRow, Search
from holdfast.ports.structs import frozen
from holdfast.ports.tables import ANNOTATIONS, StoredRecord
from holdfast.ports.transport import Hint
from holdfast.ports.working_set import Tables
from holdfast.ports.zones import UTC_TABLE, ZoneTable, ZoneTables


def _tag(kind: type) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()


def _is_search(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, (Search, ComposedSearch))


_SEARCHES: Final[Mapping[str, type[Any]]] = {
    _tag(kind): kind
    for module in (searches, kernel_state, composed_searches)
    for kind in vars(module).values()
    if _is_search(kind)
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
    "schedules": ScheduleRow,
    "gatherings": Gathering,
    "limits": LimitRow,
    "credentials": Credential,
    "browser_sessions": BrowserSession,
    "namespaces": NamespaceRow,
    "registered": WorkflowRow,
    "triggers": TriggerRow,
    "topics": TopicRow,
    "topic_messages": TopicMessageRow,
    "subscriptions": SubscriptionRow,
    "groups": GroupRow,
    "returned_messages": ReturnedRow,
}


@frozen(kw_only=True)
class Recording:
    """One recorded decision with its input. All fields are JSON texts, except `now` and `ids`."""

    state: str
    command: str
    now: Micros
    ids: tuple[str, ...]
    decision: str
    zones: str | None = None
    """The time zone tables that were read, as `RecordedZones`; None if none was."""

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


@frozen(kw_only=True)
class UnknownZone:
    """A name for which the time zone data has no table, and what the error advised."""

    name: str
    advice: str


@frozen(kw_only=True)
class RecordedZones:
    """The time zone tables that a decision read: the `ZoneTables` with which it is made again."""

    version: str
    tables: tuple[ZoneTable, ...] = ()
    unknown: tuple[UnknownZone, ...] = ()

    def table(self, name: str) -> ZoneTable:
        """Return a recorded table. Raises UnknownZoneError if none was recorded."""
        if name == UTC_TABLE.name:
            return UTC_TABLE
        for table in self.tables:
            if table.name == name:
                return table
        advice = next((one.advice for one in self.unknown if one.name == name), "")
        raise UnknownZoneError(name, self.version, advice)


class _RecordingZones:
    """Source of time zone tables that records those it passes on."""

    def __init__(self, inner: ZoneTables) -> None:
        self._inner = inner
        self._tables: dict[str, ZoneTable] = {}
        self._unknown: dict[str, UnknownZone] = {}

    @property
    def version(self) -> str:
        return self._inner.version

    def table(self, name: str) -> ZoneTable:
        try:
            found = self._inner.table(name)
        except UnknownZoneError as error:
            self._unknown[name] = UnknownZone(name=name, advice=error.advice)
            raise
        if name != UTC_TABLE.name:
            self._tables[name] = found
        return found

    def recorded(self) -> str | None:
        if not self._tables and not self._unknown:
            return None
        zones = RecordedZones(
            version=self.version,
            tables=tuple(self._tables.values()),
            unknown=tuple(self._unknown.values()),
        )
        return canonical(to_data(zones))


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
        zones = state.zones
        read_zones = None if zones is None else _RecordingZones(zones)
        state.zones = read_zones
        try:
            decision = rule(state, command, now, drawn)
        finally:
            state.zones = zones
        record(
            Recording(
                state=before,
                command=canonical(command_data(command)),
                now=now,
                ids=tuple(drawn.drawn),
                decision=decision_json(decision),
                zones=None if read_zones is None else read_zones.recorded(),
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
    state.zones = None if recording.zones is None else from_data(parse(recording.zones), RecordedZones)
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
    quotas = [
        [
            to_data(use.row),
            use.active,
            use.started,
            sorted(use.known),
            *([sorted(use.open)] if use.open else []),
        ]
        for use in state.quotas.values()
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
            **({"credentials": to_data(list(tables.credentials.values()))} if tables.credentials else {}),
            **(
                {"browser_sessions": to_data(list(tables.browser_sessions.values()))}
                if tables.browser_sessions
                else {}
            ),
            **({"limits": to_data(list(tables.limits.values()))} if tables.limits else {}),
            **({"schedules": to_data(list(tables.schedules.values()))} if tables.schedules else {}),
            **({"namespaces": to_data(list(tables.namespaces.values()))} if tables.namespaces else {}),
            **({"registered": to_data(list(tables.workflows.values()))} if tables.workflows else {}),
            **({"quotas": quotas} if quotas else {}),
            **({"triggers": to_data(list(tables.triggers.values()))} if tables.triggers else {}),
            **({"topics": to_data(list(tables.topics.values()))} if tables.topics else {}),
            **(
                {"topic_messages": to_data(list(tables.topic_messages.values()))}
                if tables.topic_messages
                else {}
            ),
            **(
                {"subscriptions": to_data(list(tables.subscriptions.values()))}
                if tables.subscriptions
                else {}
            ),
            **({"groups": to_data(list(tables.groups.values()))} if tables.groups else {}),
            **(
                {"returned_messages": to_data(list(tables.returned_messages.values()))}
                if tables.returned_messages
                else {}
            ),
            **({"gatherings": to_data(list(tables.gatherings.values()))} if tables.gatherings else {}),
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
    for row, active, started, *known in data.get("quotas", ()):
        namespace = from_data(row, NamespaceRow)
        state.quotas[namespace.name] = QuotaUse(namespace, active, started, *map(frozenset[str], known))
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
