"""The checks at the end of a simulation: invariants of the final state, and wasted work where no fault fired."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from holdfast.hosts.wiring.input_loader import InputLoader
from holdfast.hosts.wiring.payloads import Payloads
from holdfast.kernel.dispatch.unreadable_runs import unreadable_of
from holdfast.kernel.history import events
from holdfast.kernel.invariants import Violation, check
from holdfast.ports.json import parse
from holdfast.ports.mailboxes import mailbox_from
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.outbox import Sink
from holdfast.ports.records.run import Run, RunStatus
from holdfast.ports.records.values import Micros
from holdfast.ports.references import reference_from
from holdfast.ports.working_set import Tables
from holdfast.testing.simulation.replay_checks import replay_violations
from holdfast.testing.simulation.worlds import World
from holdfast.testing.snapshots import snapshot_of

_NAMED: Final = re.compile(r"([A-Z][0-9]+): (.*)", re.DOTALL)
_SEEN_WITHIN: Final[Micros] = 45_000_000


def wrong_at_end(world: World) -> list[Violation]:
    """Return the violations in a world in which everything has ended."""
    tables = world.store.tables
    return [
        *check(tables),
        *_results(world, tables),
        *_events(world, tables),
        *_forgotten(tables),
        *map(_of_scenario, world.scenario.at_end(tables)),
        *replay_violations(world, tables),
        *_stored(world, tables),
        *_unreadable(world, tables),
    ]


def _of_scenario(what: str) -> Violation:
    """Return the violation in a text such as `M9: a message is missing`; L1 without a name."""
    found = _NAMED.fullmatch(what)
    return Violation("L1", "-", what) if found is None else Violation(found[1], "-", found[2])


def wasted_work(world: World) -> list[Violation]:
    """Return wasted work in a world without faults (W1): repairs, repeated deliveries, lost attempts, late ends."""
    watch = world.watch
    found = [Violation("W1", run, "the run was repaired, but there was no fault") for run in watch.repaired]
    for (sink, run), numbers in watch.delivered.items():
        twice = [number for number, times in Counter(numbers).items() if times > 1]
        if twice:
            found.append(Violation("W1", run, f"sink {sink} received events {twice} more than once"))
    for key, rows in world.store.tables.history.items():
        found += (Violation("W1", key, what) for what in _lost(rows))
    return [*found, *watch.steps.wasted(), *_late(world.store.tables)]


def _late(tables: Tables) -> Iterator[Violation]:
    """Yield runs that outlived their deadline by more than maintenance may take, in a world without faults (T3)."""
    for run in tables.runs.values():
        if run.deadline is None or run.ended_at is None:
            continue
        noticed_at = next(
            (row.at for row in tables.history[run.key] if row.type == events.RunCancelling.type), run.ended_at
        )
        if noticed_at > run.deadline + _SEEN_WITHIN:
            late = (noticed_at - run.deadline) / 1_000_000
            yield Violation(
                "T3",
                f"{run.id}.{run.generation}",
                f"the run was still active {late:.0f} s after its deadline",
            )


def _lost(rows: Sequence[HistoryRow]) -> Iterator[str]:
    for row in rows:
        if row.type == events.StageLost.type:
            yield f"row {row.number}: an attempt was lost: {row.data}"


def _results(world: World, tables: Tables) -> Iterator[Violation]:
    """Yield completed runs whose result is not the one that the scenario expects (S4)."""
    inputs = InputLoader(world.store.inner, Payloads(world.blobs))
    for run in tables.runs.values():
        if run.status is not RunStatus.COMPLETED or run.is_continued:
            continue
        input_value = parse(inputs.input_of(run))
        output = parse(inputs.text(run.key, reference_from(run.result or "null")))
        wrong = world.scenario.expected(run, input_value, output)
        if wrong is not None:
            yield Violation("S4", f"{run.id}.{run.generation}", wrong)


def _forgotten(tables: Tables) -> Iterator[Violation]:
    """Yield reruns whose history lacks a message that was sent to the generation before (I1)."""
    by_name: dict[tuple[str, str, object], Run] = {
        (run.namespace, run.id, run.generation): run for run in tables.runs.values()
    }
    for run in tables.runs.values():
        created, *later_rows = tables.history[run.key]
        before = by_name.get((run.namespace, run.id, events.RunCreated.from_row(created).rerun_of))
        if before is None:
            continue
        again = {
            events.SignalReceived.from_row(row).again
            for row in later_rows
            if row.type == events.SignalReceived.type
        }
        returned = mailbox_from(before.mailbox).returned
        for row in tables.whole_history(before):
            is_later = row.type == events.SignalReceived.type and row.number >= run.first_row
            if is_later and row.number not in again and row.number not in returned:
                yield Violation(
                    "I1",
                    f"{run.id}.{run.generation}",
                    f"the rerun lacks message {row.number} of the previous generation",
                )


def _events(world: World, tables: Tables) -> Iterator[Violation]:
    """Yield events that a sink never received, from the first stored after its `since` on (O2)."""
    for sink in tables.sinks.values():
        for run in tables.runs.values():
            missing = _missing(world, tables, sink, run)
            if missing:
                yield Violation("O2", run.key, f"sink {sink.name} never received events {missing}")


def _missing(world: World, tables: Tables, sink: Sink, run: Run) -> list[int]:
    rows = tables.history.get(run.key, [])
    first = next((row.number for row in rows if row.at >= sink.since), run.last_row + 1)
    taken = set(world.watch.delivered.get((sink.name, run.key), ()))
    return [row.number for row in rows if row.number >= first and row.number not in taken]


def _unreadable(world: World, tables: Tables) -> Iterator[Violation]:
    """Yield stored values that are taken for unreadable (R1)."""
    for one in unreadable_of(world.store.inner, tuple(tables.runs)):
        yield Violation("R1", one.run, f"{one.table}.{one.column}: {one.why}")


def _stored(world: World, tables: Tables) -> Iterator[Violation]:
    """Yield rows in which the store differs from the commits that were observed (S3)."""
    stored = snapshot_of(world.store.inner)
    for key, run in tables.runs.items():
        if stored.runs.get(key) != run:
            yield Violation(
                "S3",
                key,
                f"the stored run differs from the committed one: expected {run}, got {stored.runs.get(key)}",
            )
        if list(stored.history.get(key, ())) != tables.history.get(key, []):
            yield Violation("S3", key, "the stored history differs from the committed rows")
        if dict(stored.jobs.get(key, {})) != tables.jobs.get(key, {}):
            yield Violation("S3", key, "the stored jobs differ from the committed ones")
    for key in stored.runs.keys() - tables.runs.keys():
        yield Violation("S3", key, "the run is stored, but was never committed")
