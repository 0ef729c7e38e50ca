"""What is measured of everybody: the rows of the table."""

from collections.abc import Mapping, Sequence
from typing import Final, Literal

import attrs

from tests.benchmarks.peers.environments import FLOOR, HOLDFAST

ENGINES: Final = (HOLDFAST, "dbos", "absurd", "edda")
QUEUES: Final = ("procrastinate", "pgqueuer")
WORKERS: Final = (*ENGINES, *QUEUES, FLOOR)
"""Those that do jobs as they come."""
SCHEDULER: Final = "apscheduler"
ALL: Final = (*ENGINES, *QUEUES, SCHEDULER, FLOOR)


@attrs.frozen(kw_only=True)
class Row:
    """Something that is measured.

    Attributes:
        name: What it is called.
        about: What is done, in words.
        workload: What the programs call it.
        sizes: What they are given, if they do not say otherwise in `sizes_of`.
        unit: Of a rate more is better, of a time less. `ms` is of latencies, `s` of the whole.
        who: Those that can do it.
        target: What Holdfast is to reach, in that unit; for times it is the most.
        repeats: How often it is done; the median counts.
        store: The database.
        finished: How many runs have ended in it before.
        has_costs: Whether what each item costs says anything.
    """

    name: str
    about: str
    workload: str
    sizes: Mapping[str, int]
    unit: Literal["/s", "ms", "ms each", "s"]
    who: Sequence[str]
    target: float
    sizes_of: Mapping[str, Mapping[str, int]] = attrs.field(factory=dict[str, Mapping[str, int]])
    repeats: int = 3
    store: Literal["postgres", "sqlite"] = "postgres"
    finished: int = 0
    has_costs: bool = True

    def sizes_for(self, peer: str) -> dict[str, int]:
        """Return what a peer's program is given."""
        return {**self.sizes, **self.sizes_of.get(peer, {})}


_TRIAL: Final = 0.1


@attrs.frozen
class _Share:
    """How much of the full sizes is done."""

    share: float

    def of(self, number: int, *, each: int = 1) -> int:
        return max(each, round(number * self.share) // each * each)

    def whole(self, number: int) -> int:
        """Return all of it, but in a trial: less of this would be something else."""
        return number if self.share >= _TRIAL else self.of(number)


def rows(share: float = 1.0) -> Sequence[Row]:
    """Return everything that is measured, at this share of its full size."""
    some = _Share(share)
    return (
        *_submitted(some),
        *_drained(some),
        *_stepped(some),
        *_of_users(some),
        *_waited_for(some),
        *_on_sqlite(some),
    )


def _submitted(some: _Share) -> Sequence[Row]:
    who = (HOLDFAST, "dbos", "absurd", *QUEUES, FLOOR)
    return (
        Row(
            name="submit, 16 at once",
            about="runs are stored one by one, by 16 threads or tasks",
            workload="submit",
            sizes={"runs": some.of(4_000), "threads": 16},
            unit="/s",
            who=who,
            target=7_000,
        ),
        Row(
            name="submit, batches of 100",
            about="runs are stored, a hundred in a transaction",
            workload="submit_batches",
            sizes={"runs": some.of(20_000, each=100), "batch": 100},
            unit="/s",
            who=who,
            target=40_000,
            sizes_of={peer: {"runs": some.of(4_000, each=100)} for peer in ("dbos", "absurd")},
        ),
    )


def _drained(some: _Share) -> Sequence[Row]:
    one = Row(
        name="drain",
        about="one worker, in a process of its own, does all runs of one step that are there",
        workload="drain",
        sizes={"runs": some.of(5_000), "at_once": 200, "workers": 1},
        unit="/s",
        who=WORKERS,
        target=5_000,
        sizes_of={
            "dbos": {"runs": some.of(1_000), "at_once": 50},
            "absurd": {"runs": some.of(2_000), "at_once": 48},
            "edda": {"runs": some.of(500), "at_once": 50},
            "procrastinate": {"runs": some.of(3_000), "at_once": 20},
            "pgqueuer": {"runs": some.of(30_000)},
            FLOOR: {"runs": some.of(50_000)},
        },
    )
    two = {peer: {**one.sizes_for(peer), "workers": 2} for peer in WORKERS}
    aged = tuple(peer for peer in WORKERS if peer not in {"edda", FLOOR})
    return (
        one,
        attrs.evolve(
            one,
            name="drain, 2 workers",
            about="the same, by two workers",
            target=8_500,
            sizes_of=two,
            who=tuple(peer for peer in WORKERS if peer != FLOOR),
        ),
        attrs.evolve(
            one,
            name="drain, 4 workers",
            about="the same, by four workers",
            target=8_500,
            sizes_of={peer: {**one.sizes_for(peer), "workers": 4} for peer in WORKERS},
            who=tuple(peer for peer in WORKERS if peer != FLOOR),
        ),
        attrs.evolve(
            one,
            name="drain, much has ended",
            about=f"the same by one worker, where {some.of(200_000, each=500):,} runs have ended before",
            who=aged,
            finished=some.of(200_000, each=500),
            repeats=2,
        ),
    )


def _stepped(some: _Share) -> Sequence[Row]:
    targets = {50: 12_000, 200: 15_000}
    return (
        *(
            Row(
                name=f"steps, {at_once} runs at once",
                about=f"one worker takes 200 runs through {some.of(20)} steps each, one after the other",
                workload="steps",
                sizes={"runs": some.whole(200), "length": some.of(20), "at_once": at_once},
                unit="/s",
                who=(*ENGINES, FLOOR),
                sizes_of={FLOOR: {"length": some.of(200)}},
                target=target,
            )
            for at_once, target in targets.items()
        ),
        Row(
            name="steps of one run",
            about=f"one run does {some.of(10_000):,} steps (edda {some.of(3_000):,}), one after the other; in brackets "
            "its first and its last ones",
            workload="long_run",
            sizes={"length": some.of(10_000), "ends": min(100, some.of(1_000))},
            unit="ms each",
            who=(*ENGINES, FLOOR),
            sizes_of={"edda": {"length": some.of(3_000)}},
            target=0.5,
            repeats=1,
        ),
        Row(
            name="500 steps at once",
            about="one run does 500 steps at once, and joins them",
            workload="fan_out",
            sizes={"width": some.whole(500)},
            unit="s",
            who=ENGINES,
            target=0.10,
        ),
        Row(
            name="500 children",
            about="one run starts 500 others of one step, and waits for what they give",
            workload="children",
            sizes={"width": some.whole(500)},
            unit="s",
            who=(HOLDFAST, "dbos", "absurd"),
            target=0.2,
        ),
    )


def _of_users(some: _Share) -> Sequence[Row]:
    who = (HOLDFAST, "dbos", "absurd")
    at_once = {"absurd": {"at_once": 48}}
    return (
        *(
            Row(
                name=f"values of {size // 1_000} KB",
                about=f"one worker does runs of one step that takes and returns a text of {size // 1_000} KB, as the "
                "runs do",
                workload="values",
                sizes={"runs": some.of(runs), "size": size, "at_once": 50},
                unit="/s",
                who=who,
                target=target,
                sizes_of=at_once,
            )
            for size, runs, target in ((1_000, 1_000, 1_500), (100_000, 200, 150))
        ),
        Row(
            name="steps of 5 ms",
            about="one worker takes 200 runs through 10 steps each that sleep for 5 ms, 50 runs at a time",
            workload="slow_steps",
            sizes={"runs": some.whole(200), "length": 10, "at_once": 50},
            unit="/s",
            who=who,
            target=5_000,
            sizes_of=at_once,
        ),
        Row(
            name="signals",
            about=f"{some.of(1_000):,} runs wait (dbos: {some.of(200)}, with a thread for each), and are signalled one "
            "by one, in random order and from four threads, until all have ended",
            workload="signals",
            sizes={"runs": some.of(1_000)},
            unit="/s",
            who=who,
            target=1_000,
            sizes_of={"dbos": {"runs": some.of(200)}},
        ),
    )


def _waited_for(some: _Share) -> Sequence[Row]:
    return (
        Row(
            name="latency",
            about="from a start to its result, where nothing else happens, by a worker in another process: p50 / p99",
            workload="latency",
            sizes={"times": some.of(300)},
            unit="ms",
            who=(HOLDFAST, "dbos", "absurd", *QUEUES, FLOOR),
            target=5,
            repeats=1,
        ),
        Row(
            name="replay",
            about="a worker goes on with a run of 3,000 steps whose worker was killed: until it is where that one was",
            workload="replay",
            sizes={"length": some.whole(3_000), "lease": 5},
            unit="s",
            who=(HOLDFAST, "dbos", "absurd"),
            target=0.015,
            repeats=2,
            has_costs=False,
        ),
        Row(
            name="takeover",
            about="from the SIGKILL of a worker until another has its run; leases last 5 s, all else as it comes",
            workload="takeover",
            sizes={"length": 20, "lease": 5},
            unit="s",
            who=(HOLDFAST, "absurd"),
            target=5 + 5 / 3 + 1,
            has_costs=False,
        ),
        Row(
            name="schedules",
            about=f"{some.of(1_000):,} schedules are due at one instant, beside {some.of(10_000):,} that are not "
            f"(dbos: {some.of(200)} and none, with a thread for each): from the instant to each body, p50 / p99",
            workload="schedules",
            sizes={"due": some.of(1_000), "others": some.of(10_000)},
            unit="ms",
            who=(HOLDFAST, "dbos", SCHEDULER),
            target=2_000,
            sizes_of={"dbos": {"due": some.of(200), "others": 0}},
            repeats=1,
            has_costs=False,
        ),
    )


def _on_sqlite(some: _Share) -> Sequence[Row]:
    who = (HOLDFAST, "dbos", FLOOR)
    return (
        Row(
            name="SQLite: drain",
            about="one worker does all runs of one step that are there",
            workload="drain",
            sizes={"runs": some.of(2_000), "at_once": 200, "workers": 1},
            unit="/s",
            who=who,
            sizes_of={"dbos": {"runs": some.of(500), "at_once": 20}, FLOOR: {"runs": some.of(50_000)}},
            target=6_000,
            store="sqlite",
        ),
        Row(
            name="SQLite: steps, 50 runs at once",
            about=f"one worker takes 100 runs through {some.of(20)} steps each, one after the other",
            workload="steps",
            sizes={"runs": some.whole(100), "length": some.of(20), "at_once": 50},
            unit="/s",
            who=who,
            sizes_of={"dbos": {"at_once": 20}, FLOOR: {"length": some.of(200)}},
            target=14_000,
            store="sqlite",
        ),
    )
