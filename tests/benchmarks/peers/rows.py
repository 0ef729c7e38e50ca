"""What is measured of everybody: the rows of the table."""

from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from tests.benchmarks.peers.environments import HOLDFAST

ENGINES: Final = (HOLDFAST, "dbos", "absurd", "edda")
ALL: Final = (*ENGINES, "procrastinate", "pgqueuer")


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
        repeats: How often it is done; the median counts.
    """

    name: str
    about: str
    workload: str
    sizes: Mapping[str, int]
    unit: str
    who: Sequence[str]
    sizes_of: Mapping[str, Mapping[str, int]] = attrs.field(factory=dict[str, Mapping[str, int]])
    repeats: int = 3

    def sizes_for(self, peer: str) -> dict[str, int]:
        """Return what a peer's program is given."""
        return {**self.sizes, **self.sizes_of.get(peer, {})}


def rows(share: float = 1.0) -> Sequence[Row]:
    """Return everything that is measured, at this share of its full size."""

    def some(number: int, *, of: int = 1) -> int:
        return max(of, round(number * share) // of * of)

    queue = tuple(one for one in ALL if one != "edda")
    runs = {"dbos": {"runs": some(1_000)}, "absurd": {"runs": some(2_000)}, "edda": {"runs": some(500)}}
    return (
        Row(
            name="submit, 16 at once",
            about="runs are stored one by one, by 16 threads or tasks",
            workload="submit",
            sizes={"runs": some(4_000), "threads": 16},
            unit="/s",
            who=queue,
        ),
        Row(
            name="submit, batches of 100",
            about="runs are stored, a hundred in a transaction",
            workload="submit_batches",
            sizes={"runs": some(20_000, of=100), "batch": 100},
            unit="/s",
            who=queue,
            sizes_of={peer: {"runs": some(4_000, of=100)} for peer in ("dbos", "absurd")},
        ),
        Row(
            name="drain",
            about="one worker does all runs of one step that are there",
            workload="drain",
            sizes={"runs": some(5_000), "at_once": 200},
            unit="/s",
            who=ALL,
            sizes_of={
                "dbos": {**runs["dbos"], "at_once": 50},
                "absurd": {**runs["absurd"], "at_once": 48},
                "edda": {**runs["edda"], "at_once": 50},
                "procrastinate": {"runs": some(3_000), "at_once": 20},
                "pgqueuer": {"runs": some(50_000)},
            },
        ),
        *(
            Row(
                name=f"steps, {at_once} runs at once",
                about="one worker takes 200 runs through 20 steps each, one after the other",
                workload="steps",
                sizes={"runs": some(200), "length": 20, "at_once": at_once},
                unit="/s",
                who=ENGINES,
            )
            for at_once in (50, 200)
        ),
        Row(
            name="latency",
            about="from a start to its result, where nothing else happens, by a worker in another process",
            workload="latency",
            sizes={"times": some(200)},
            unit="ms",
            who=queue,
            repeats=1,
        ),
        Row(
            name="steps of one run",
            about="one run does 3,000 steps, one after the other; and what each took at its start, and at its end",
            workload="long_run",
            sizes={"length": some(3_000), "ends": min(100, some(1_000))},
            unit="ms each",
            who=ENGINES,
            repeats=1,
        ),
        Row(
            name="500 steps at once",
            about="one run does 500 steps at once, and joins them",
            workload="fan_out",
            sizes={"width": some(500)},
            unit="s",
            who=ENGINES,
        ),
        Row(
            name="500 children",
            about="one run starts 500 others of one step, and waits for what they give",
            workload="children",
            sizes={"width": some(500)},
            unit="s",
            who=tuple(one for one in ENGINES if one != "edda"),
        ),
    )
