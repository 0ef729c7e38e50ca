"""`python -m tests.benchmarks`: prints figures as JSON lines on stdout and a table on stderr."""

import argparse
import contextlib
import os
import platform
import sys
import time
from collections.abc import Generator, Sequence
from typing import Final

import attrs

from tests.benchmarks import (
    fair_workloads,
    floors,
    functions,
    gathering_workloads,
    replays,
    schedule_workloads,
    topic_workloads,
    transaction_workloads,
    user_workloads,
    workloads,
)
from tests.benchmarks.figures import Case, Figure, table, take
from tests.benchmarks.programs import STAGES
from tests.benchmarks.sites import Before, Store, postgres_store, sqlite_store


@attrs.frozen(kw_only=True)
class Sizes:
    """Sizes of the workloads. `warm_up` divides the sizes of warm-up runs, but not of existing rows."""

    singly: int
    batches: int
    drain: int
    chains: int
    floor_stages: int
    asked: int
    items: int
    suspended: int
    schedules: int
    due: int
    keys: int
    woken: int
    idle_seconds: int
    replayed: int
    long_steps: int
    carried: int
    cold: int
    repeats: int
    warm_up: int


FULL: Final = Sizes(
    singly=500,
    batches=5_000,
    drain=5_000,
    chains=200,
    floor_stages=200,
    asked=200,
    items=10_000,
    suspended=100_000,
    schedules=100_000,
    due=1_000,
    keys=1_000,
    woken=1_000,
    idle_seconds=60,
    replayed=10_000,
    long_steps=3_000,
    carried=1_000,
    cold=10,
    repeats=3,
    warm_up=5,
)
QUICK: Final = Sizes(
    singly=100,
    batches=1_000,
    drain=500,
    chains=20,
    floor_stages=100,
    asked=20,
    items=500,
    suspended=2_000,
    schedules=2_000,
    due=200,
    keys=100,
    woken=200,
    idle_seconds=5,
    replayed=1_000,
    long_steps=600,
    carried=200,
    cold=3,
    repeats=1,
    warm_up=5,
)
TINY: Final = Sizes(
    singly=8,
    batches=20,
    drain=20,
    chains=3,
    floor_stages=4,
    asked=3,
    items=200,
    suspended=20,
    schedules=20,
    due=5,
    keys=4,
    woken=5,
    idle_seconds=1,
    replayed=20,
    long_steps=20,
    carried=10,
    cold=1,
    repeats=1,
    warm_up=1,
)
"""Sizes for the smoke test."""


def cases(sizes: Sizes) -> list[Case]:
    """Return all cases with these sizes."""
    many = sizes.repeats
    return [
        Case(
            name="create_singly",
            unit="runs/s",
            measure=lambda site: workloads.create_singly(site, sizes.singly, 1),
            floor=lambda site: floors.create_singly(site, sizes.singly, 1),
            repeats=many,
        ),
        Case(
            name="create_16_at_once",
            unit="runs/s",
            measure=lambda site: workloads.create_singly(site, 2 * sizes.singly, 16),
            floor=lambda site: floors.create_singly(site, 2 * sizes.singly, 16),
            repeats=many,
        ),
        Case(
            name="create_in_batches",
            unit="runs/s",
            measure=lambda site: workloads.create_batches(site, sizes.batches),
            floor=lambda site: floors.create_batches(site, 10 * sizes.batches),
            repeats=many,
        ),
        Case(
            name="drain",
            unit="runs/s",
            measure=lambda site: workloads.drain(site, sizes.drain),
            floor=lambda site: floors.drain(site, 4 * sizes.drain),
            repeats=many,
        ),
        *(_chain(sizes, at_once) for at_once in (50, 200)),
        *(_map(sizes, runs) for runs in (1, 10, 100)),
        Case(
            name="latency_in_process",
            unit="ms",
            measure=lambda site: workloads.latency_in_process(site, sizes.asked),
            floor=lambda site: floors.latency_in_process(site, sizes.asked),
            repeats=1,
            warms_up_itself=True,
        ),
        Case(
            name="latency_to_process",
            unit="ms",
            measure=lambda site: workloads.latency_to_process(site, sizes.asked),
            floor=lambda site: floors.latency_to_process(site, sizes.asked),
            repeats=1,
            warms_up_itself=True,
        ),
        Case(
            name="replay",
            unit="steps/s",
            measure=lambda site: replays.replay(site, sizes.replayed),
            floor=lambda site: floors.replay(site, sizes.replayed),
            repeats=many,
        ),
        *_functions(sizes),
        *_suspended(sizes, workloads.suspended(sizes.suspended)),
        *_schedules(sizes),
        Case(
            name="fair_starts",
            unit="runs/s",
            measure=lambda site: fair_workloads.start(site, sizes.batches),
            floor=lambda site: fair_workloads.start_plain(site, sizes.batches),
            repeats=sizes.repeats,
            before=fair_workloads.backlog(sizes.keys, sizes.suspended),
        ),
        Case(
            name="fair_waits",
            unit="ms",
            measure=lambda site: fair_workloads.drain(site, sizes.keys),
            floor=lambda site: fair_workloads.drain_plain(site, sizes.keys),
            repeats=1,
        ),
        Case(
            name="fair_drain",
            unit="runs/s",
            measure=lambda site: fair_workloads.drain(site, sizes.keys),
            floor=lambda site: fair_workloads.drain_plain(site, sizes.keys),
            repeats=sizes.repeats,
        ),
        Case(
            name="starts_gathered",
            unit="runs/s",
            measure=lambda site: gathering_workloads.gather(site, sizes.batches),
            floor=lambda site: floors.create_singly(site, sizes.singly, 1),
            repeats=many,
        ),
        Case(
            name="start_within",
            unit="runs/s",
            measure=lambda site: transaction_workloads.start_within(site, sizes.singly),
            floor=lambda site: transaction_workloads.start_after(site, sizes.singly),
            repeats=many,
        ),
        Case(
            name="topic_of_one",
            unit="messages/s",
            measure=lambda site: topic_workloads.publish(site, 1, sizes.singly),
            floor=lambda site: topic_workloads.signal(site, 1, sizes.singly),
            repeats=sizes.repeats,
        ),
        Case(
            name="topic_of_many",
            unit="messages/s",
            measure=lambda site: topic_workloads.publish(site, sizes.keys, 2),
            floor=lambda site: topic_workloads.signal(site, sizes.keys, 2),
            repeats=1,
        ),
        Case(
            name="topic_group",
            unit="messages/s",
            measure=lambda site: topic_workloads.share(site, sizes.keys, 2),
            floor=lambda site: topic_workloads.signal(site, sizes.keys, 2),
            repeats=1,
        ),
        Case(
            name="topic_waits",
            unit="messages/s",
            measure=lambda site: topic_workloads.wake(site, sizes.keys),
            floor=lambda site: topic_workloads.signal_waits(site, sizes.keys),
            repeats=1,
        ),
        *_of_users(sizes),
    ]


def main(arguments: Sequence[str] | None = None, sizes: Sizes | None = None) -> int:
    """Measure and print. Return the exit code."""
    told = _parser().parse_args(arguments)
    sizes = sizes or (QUICK if told.quick else FULL)
    warm = attrs.evolve(
        sizes,
        **{name: max(1, value // sizes.warm_up) for name, value in attrs.asdict(sizes).items()},
    )
    chosen = [
        (case, warm_up)
        for case, warm_up in zip(cases(sizes), cases(warm), strict=True)
        if not told.only or case.name in told.only
    ]
    began_at = time.monotonic()
    figures: list[Figure] = []
    _say(f"Python {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    for name in told.store or ("sqlite", "postgres"):
        with _opened(name, told.postgres_url) as store:
            _say(store.about)
            for case, warm_up in chosen:
                figure = take(case, store, warm_up=warm_up)
                print(figure.line(), flush=True)
                figures.append(figure)
    _say(f"\n{table(figures)}\n")
    _say(f"{time.monotonic() - began_at:.0f} s in all, load {os.getloadavg()[0]:.1f}")
    return 0


def _chain(sizes: Sizes, at_once: int) -> Case:
    return Case(
        name=f"stages_{at_once}_at_once",
        unit="stages/s",
        measure=lambda site: workloads.chain(site, sizes.chains, at_once),
        floor=lambda site: floors.chain(site, sizes.chains, sizes.floor_stages, at_once),
        repeats=sizes.repeats,
    )


def _map(sizes: Sizes, runs: int) -> Case:
    """Return cases that map the same number of items in one run and in several."""
    return Case(
        name="map" if runs == 1 else f"map_in_{runs}_runs",
        unit="items/s",
        measure=lambda site: workloads.fan(site, max(sizes.items, runs), runs),
        floor=lambda site: floors.fan(site, sizes.items),
        repeats=sizes.repeats,
    )


def _functions(sizes: Sizes) -> Sequence[Case]:
    """Return cases of durable functions: against SQL, late and early steps, and wake-ups with and without replay."""
    early, asked = max(1, sizes.long_steps // 10), min(sizes.asked, 50)
    return (
        Case(
            name="steps",
            unit="steps/s",
            measure=lambda site: functions.chains(site, sizes.chains),
            floor=lambda site: floors.chain(site, sizes.chains, sizes.floor_stages, 200),
            repeats=sizes.repeats,
        ),
        Case(
            name="steps_of_long_run",
            unit="steps/s",
            measure=lambda site: functions.long_chain(site, early, before=sizes.long_steps - early),
            floor=lambda site: functions.long_chain(site, early),
            repeats=sizes.repeats,
        ),
        Case(
            name="steps_at_once",
            unit="steps/s",
            measure=lambda site: functions.fan_out(site, max(2, sizes.long_steps // 6)),
            floor=lambda site: floors.fan(site, sizes.items),
            repeats=sizes.repeats,
        ),
        Case(
            name="update_of_long_run",
            unit="ms",
            measure=lambda site: functions.update_run(site, sizes.replayed, asked),
            floor=lambda site: functions.update_run(site, 1, asked),
            repeats=1,
            warms_up_itself=True,
        ),
        Case(
            name="wake_from_memory",
            unit="ms",
            measure=lambda site: functions.wake(site, early, asked, function_cache=10),
            floor=lambda site: functions.wake(site, early, asked, function_cache=0),
            repeats=1,
            warms_up_itself=True,
        ),
    )


def _suspended(sizes: Sizes, before: Before) -> Sequence[Case]:
    """Return cases of the cost of suspended runs for other runs, and of waking suspended runs."""
    return (
        Case(
            name="suspended_idle",
            unit="cpu ms/min",
            measure=lambda site: workloads.idle(site, sizes.idle_seconds),
            floor=lambda site: workloads.idle(site, sizes.idle_seconds),
            repeats=1,
            warms_up_itself=True,
            before=before,
        ),
        Case(
            name="suspended_drain",
            unit="runs/s",
            measure=lambda site: workloads.drain(site, sizes.drain),
            floor=lambda site: workloads.drain(site, sizes.drain),
            repeats=sizes.repeats,
            before=before,
        ),
        Case(
            name="suspended_wake",
            unit="runs/s",
            measure=lambda site: workloads.wake(site, sizes.woken),
            floor=lambda site: floors.wake(site, sizes.woken, sizes.suspended),
            repeats=sizes.repeats,
            before=before,
        ),
    )


def _schedules(sizes: Sizes) -> Sequence[Case]:
    """Return cases of the cost of schedules that are not due, and of many that are due at one instant."""
    before = schedule_workloads.not_due(sizes.schedules)
    return (
        Case(
            name="schedules_idle",
            unit="cpu ms/min",
            measure=lambda site: workloads.idle(site, sizes.idle_seconds),
            floor=lambda site: workloads.idle(site, sizes.idle_seconds),
            repeats=1,
            warms_up_itself=True,
            before=before,
        ),
        Case(
            name="schedules_due_at_once",
            unit="ms",
            measure=lambda site: schedule_workloads.fire(site, sizes.due),
            floor=lambda site: floors.latency_in_process(site, sizes.asked),
            repeats=1,
            warms_up_itself=True,
            before=before,
        ),
    )


def _of_users(sizes: Sizes) -> Sequence[Case]:
    """Return cases of what users do. Their floors are the same work with small values, alone, or without an engine."""
    few = max(1, sizes.carried // 5)
    return (
        Case(
            name="values_of_1_kb",
            unit="runs/s",
            measure=lambda site: user_workloads.values(site, sizes.carried, 1_000),
            floor=lambda site: user_workloads.values(site, sizes.carried, user_workloads.SMALL),
            repeats=sizes.repeats,
        ),
        Case(
            name="values_of_100_kb",
            unit="runs/s",
            measure=lambda site: user_workloads.values(site, few, 100_000),
            floor=lambda site: user_workloads.values(site, few, user_workloads.SMALL),
            repeats=sizes.repeats,
        ),
        Case(
            name="steps_of_5_ms",
            unit="steps/s",
            measure=lambda site: user_workloads.slow_steps(site, sizes.chains),
            floor=lambda site: user_workloads.sleeps(site, sizes.chains),
            repeats=sizes.repeats,
        ),
        Case(
            name="signals_in_random_order",
            unit="runs/s",
            measure=lambda site: user_workloads.signals(site, sizes.woken),
            floor=lambda site: floors.wake(site, sizes.woken, sizes.woken),
            repeats=sizes.repeats,
        ),
        Case(
            name="latency_beside_load",
            unit="ms",
            measure=lambda site: user_workloads.beside_load(site, sizes.asked),
            floor=lambda site: workloads.latency_to_process(site, sizes.asked),
            repeats=1,
            warms_up_itself=True,
        ),
        Case(
            name="drain_by_4_processes",
            unit="runs/s",
            measure=lambda site: user_workloads.drain_by(site, sizes.drain, 4),
            floor=lambda site: user_workloads.drain_by(site, sizes.drain, 1),
            repeats=sizes.repeats,
        ),
        Case(
            name="cold_worker",
            unit="ms",
            measure=lambda site: user_workloads.cold_worker(site, sizes.cold),
            floor=lambda site: user_workloads.imports(site, sizes.cold),
            repeats=1,
            warms_up_itself=True,
        ),
        Case(
            name="cold_handler",
            unit="ms",
            measure=lambda site: user_workloads.cold_handler(site, sizes.cold),
            floor=lambda site: user_workloads.imports(site, sizes.cold),
            repeats=1,
            warms_up_itself=True,
        ),
    )


@contextlib.contextmanager
def _opened(name: str, postgres_url: str | None) -> Generator[Store]:
    with sqlite_store() if name == "sqlite" else postgres_store(postgres_url) as store:
        yield store


def _parser() -> argparse.ArgumentParser:
    names = [case.name for case in cases(FULL)]
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks",
        description=f"How fast Holdfast is, beside hand-written SQL that does the same. A chain has {STAGES} stages.",
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of the work, once, in a minute or two")
    parser.add_argument(
        "--only", action="append", choices=names, metavar="NAME", help=f"one or several of {', '.join(names)}"
    )
    parser.add_argument("--store", action="append", choices=("sqlite", "postgres"), help="default: both")
    parser.add_argument(
        "--postgres-url",
        metavar="URL",
        help="a server whose user may create databases; without it one is started, with fsync on",
    )
    return parser


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
