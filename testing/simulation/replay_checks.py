"""The replay check: replaying a history must make the same requests and end with the same outcome."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from random import Random
from typing import Any, Final, cast

from holdfast.hosts.functions.function_events import last_first_turn_row
from holdfast.hosts.functions.replay import FunctionReplay
from holdfast.hosts.wiring.input_loader import InputLoader
from holdfast.hosts.wiring.payloads import Payloads
from holdfast.kernel.authoring.functions import Workflow
from holdfast.kernel.functions.machine import FunctionMachine
from holdfast.kernel.functions.protocol import (
    FunctionContinued,
    FunctionFailed,
    FunctionReturned,
    Row,
    StepRequest,
    TimerFired,
    TimerRequest,
    Turn,
)
from holdfast.kernel.functions.run_facts import facts_of
from holdfast.kernel.history import events
from holdfast.kernel.history.events.parsed_rows import ParsedRow, parse_rows
from holdfast.kernel.invariants import Violation
from holdfast.ports.json import parse
from holdfast.ports.mailboxes import mailbox_from
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.run import Run, RunStatus
from holdfast.ports.records.values import Micros
from holdfast.ports.working_set import Tables
from holdfast.testing.simulation.step_records import StartedAttempt
from holdfast.testing.simulation.worlds import World

_DECIDES: Final = frozenset({events.ClockRead.type, events.FunctionBegan.type, events.ResultRefused.type})
"""The types of the rows that decide the course: a host that takes over before one of them may take another."""
_OUTCOMES: Final = frozenset({events.StageCompleted.type, events.StageFailed.type, events.RunContinued.type})
"""The types of the rows that end a function."""
_PREFIXES: Final = 2
"""The number of rows of each history at which another host takes over in the replay."""


def replay_violations(world: World, tables: Tables) -> Iterator[Violation]:
    """Replay the histories of all durable functions; yield where they come out differently (D2, S4, S6, M1, T1)."""
    functions = {
        (one.name, one.version): one for one in world.scenario.workflows if isinstance(one, Workflow)
    }
    inputs = InputLoader(world.store.inner, Payloads(world.blobs))
    for run in tables.runs.values():
        function = functions.get((run.workflow, run.version))
        if function is None:
            continue
        begun = {call: tries for (key, call), tries in world.watch.steps.begun.items() if key == run.key}
        text, rows = inputs.input_of(run), tables.whole_history(run)
        replay = _Replay(function, run, text, rows, Payloads(world.blobs))
        for invariant, what in replay.wrong(begun):
            yield Violation(invariant, f"{run.id}.{run.generation}", what)


class _Replay:
    """Replays of one run's history in new machines."""

    def __init__(
        self,
        function: Workflow[..., Any],
        run: Run,
        text: str,
        rows: Sequence[HistoryRow],
        payloads: Payloads,
    ) -> None:
        self._function = function
        self._run = run
        self._text = text
        self._rows = rows
        self._payloads = payloads

    def wrong(self, begun: Mapping[str, Sequence[StartedAttempt]]) -> Iterator[tuple[str, str]]:
        """Yield the violations, each as invariant and message."""
        noted, drive = self._opened(self._rows)
        if drive.fault is not None:
            yield "D2", f"the history can't be replayed after row {noted.row}: {drive.fault}"
        else:
            yield from noted.early
            yield from self._of_end(drive)
            yield from self._of_messages(frozenset(noted.received))
            yield from _not_requested(begun, noted.steps)
            yield from self._taken_over(noted.requests_by_row)
        drive.close()

    def _opened(self, rows: Sequence[HistoryRow]) -> "tuple[_Noted, FunctionReplay]":
        first = self._rows[0]
        machine = self._function.machine(
            self._text,
            began_at=first.at,
            seed=first.run,
            run=facts_of(self._run),
        )
        noted = _Noted(machine)
        drive = FunctionReplay(cast("FunctionMachine", noted), self._payloads.get)
        drive.open(rows)
        return noted, drive

    @property
    def _own(self) -> Sequence[HistoryRow]:
        return self._rows[self._run.first_row - 1 :]

    def _taken_over(self, requests_by_row: Mapping[int, Sequence[object]]) -> Iterator[tuple[str, str]]:
        """Yield rows after which a host that takes over waits for other calls than one that continues."""
        draw = Random(self._run.key)
        there = last_first_turn_row(parse_rows(self._rows))
        for at in sorted(draw.sample(range(len(self._rows) + 1), min(_PREFIXES, len(self._rows) + 1))):
            if at < there or any(row.type in _DECIDES for row in self._rows[at:]):
                continue  # before a deciding row it may read another time, or start with fewer messages
            noted, drive = self._opened(self._rows[:at])
            waits, did = noted.requests_by_row[noted.row], requests_by_row[noted.row]
            if waits != did:
                yield (
                    "D2",
                    f"after row {noted.row} a new replay waits for {waits}, but the running one waited for {did}",
                )
            drive.close()

    def _of_end(self, drive: FunctionReplay) -> Iterator[tuple[str, str]]:
        """Yield runs that ended otherwise than their function did in the replay (S4, S6); a cancelled one may."""
        ended, run = drive.ended, self._run
        types = {row.type for row in self._own}
        if _is_cut_off(types):
            yield (
                "S6",
                "the run was cancelled after its function had started, but without cancelling the function",
            )
        if run.is_continued:
            (row,) = (row for row in self._own if row.type == events.RunContinued.type)
            with_ = None if row.payload is None else self._payloads.get(row.payload)
            if not isinstance(ended, FunctionContinued) or ended.input != with_:
                yield "S4", f"the run continues as new with {with_}, but its function ends with {ended}"
        elif run.status is RunStatus.COMPLETED:
            outputs = [
                self._payloads.get(row.payload)
                for row in self._rows
                if row.type == events.StageCompleted.type and row.payload is not None
            ]
            if not isinstance(ended, FunctionReturned) or [ended.output] != outputs:
                yield "S4", f"the output of the run is {outputs}, but its function ends with {ended}"
        elif isinstance(ended, FunctionReturned) and run.status is RunStatus.FAILED and _is_own(run):
            yield "S6", f"the run failed with {run.error}, but its function returns {ended.output}"
        elif isinstance(ended, FunctionFailed) and run.status is RunStatus.FAILED and _is_own(run):
            raised = type(ended.error).__name__
            if raised not in (run.error or ""):
                yield "S6", f"the run failed with {run.error}, but its function raises {raised}"

    def _of_messages(self, received: Collection[int]) -> Iterator[tuple[str, str]]:
        """Yield messages that the store counts as received and the function has not received, or vice versa (M1)."""
        mailbox = mailbox_from(self._run.mailbox)
        sent = {row.number for row in self._rows if row.type == events.SignalReceived.type}
        known = sent.difference(mailbox.unread, mailbox.returned)
        if wrong := sorted(known.difference(received)):
            yield "M1", f"messages {wrong} count as received, but the function has not received them"
        has_ended = any(row.type in _OUTCOMES for row in self._own)
        if has_ended and (wrong := sorted(set(received) - known)):
            yield "M1", f"messages {wrong} count as unread, but the function has received them"


class _Noted:
    """A wrapper of a function machine that records its pending requests after each row, and timers fired early."""

    def __init__(self, machine: FunctionMachine) -> None:
        self._machine = machine
        self.row = 0
        self.requests_by_row: dict[int, list[object]] = {}
        """The pending requests by the last row fed. Without arguments: these may depend on patches."""
        self.steps: dict[str, StepRequest] = {}
        self.early: list[tuple[str, str]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._machine, name)

    def begin(
        self,
        *,
        more: bool,
        patches: Sequence[str],
        shown: Micros | None,
        refused: str,
        inbox: Sequence[Row],
    ) -> Turn:
        """See `FunctionMachine.begin`."""
        turn = self._machine.begin(more=more, patches=patches, shown=shown, refused=refused, inbox=inbox)
        self._note()
        return turn

    def feed(self, row: Row, *, more: bool = False) -> Turn:
        """See `FunctionMachine.feed`."""
        if isinstance(row.event, TimerFired):
            for one in self._machine.pending_requests:
                if isinstance(one, TimerRequest) and one.call == row.event.call and row.at < one.at:
                    early = (one.at - row.at) / 1_000_000
                    self.early.append(
                        ("T1", f"row {row.number}: timer {one.call} fired {early:.3f} s too early")
                    )
        turn = self._machine.feed(row, more=more)
        self.row = row.number
        self._note()
        return turn

    def feed_steps(
        self, rows: Sequence[ParsedRow], place: int, *, past: int, apart: Collection[int]
    ) -> tuple[int, Turn | None]:
        """See `FunctionMachine.feed_steps`: one row at a time."""
        after, turn = self._machine.feed_steps(rows[: place + 1], place, past=past, apart=apart)
        if after > place:
            self.row = rows[place][0].number
            self._note()
        return after, turn

    def _note(self) -> None:
        pending = self._machine.pending_requests
        self.requests_by_row[self.row] = [(one.call, one.what, getattr(one, "at", None)) for one in pending]
        self.steps |= {one.call: one for one in pending if isinstance(one, StepRequest)}


def _not_requested(
    begun: Mapping[str, Sequence[StartedAttempt]], steps: Mapping[str, StepRequest]
) -> Iterator[tuple[str, str]]:
    """Yield steps that were started and that the replay does not request, or requests with other arguments."""
    for call, tries in begun.items():
        request = steps.get(call)
        for one in tries[:1]:
            if request is None:
                yield "D2", f"call {call}, step {one.step!r}, was started, but the replay does not request it"
            elif (request.step, request.arguments) != (one.step, one.arguments):
                requested = f"{request.step}{request.arguments}"
                yield "D2", f"call {call} was {one.step}{one.arguments}, but the replay requests {requested}"


def _is_cut_off(types: Collection[str]) -> bool:
    """Return whether a run with rows of these types was cancelled after its function had started, without it."""
    has_begun = events.StepCompleted.type in types
    return has_begun and events.RunCancelled.type in types and events.RunCancelling.type not in types


def _is_own(run: Run) -> bool:
    """Return whether a run failed with an error that its function raised."""
    error = parse(run.error or "{}")
    return error.get("code") == "body_error" and error.get("stage") is not None
