"""Workers with clocks that are wrong by minutes or jump by hours: only the database's clock counts."""

import signal
import time
from collections import Counter
from typing import Final

import pytest

from holdfast.kernel.invariants import check
from holdfast.ports.records.run import RunStatus
from tests.chaos.programs import REST, STUMBLE, TREE
from tests.chaos.site import Site

pytestmark = [pytest.mark.chaos, pytest.mark.service]

RUNS: Final = 20
STUMBLES: Final = 0.2
"""Seconds until the retry of STUMBLE. Bodies record their start on the machine's monotonic clock."""
SYNCED: Final = 0.1
"""The largest error, in seconds, of a worker's estimate of the database's time on a busy machine."""


def test_wrong_clocks_make_nothing_early_nothing_twice_and_take_nothing_from_anybody(
    postgres_site: Site,
) -> None:
    site = postgres_site
    workers = [
        site.worker("ahead", wrong_by=600.0),
        site.worker("behind", wrong_by=-600.0),
        site.worker("jumps", wrong_by=0.0, jumps=3_600.0, every=0.3),
        site.worker("jumps back", wrong_by=600.0, jumps=-3_600.0, every=0.4),
    ]
    stumbling = [site.start(STUMBLE(number)) for number in range(RUNS)]
    trees = [site.start(TREE(3)) for _ in range(3)]
    resting = [site.start(REST(3.5)) for _ in range(4)]  # longer than three leases
    site.until_done(60)
    time.sleep(1.5)  # for a lease to run out that nobody has
    for worker in workers:
        worker.signal(signal.SIGTERM)
    said = [(worker.wait(), worker.said)[1] for worker in workers]

    assert {site.run(run).status for run in (*stumbling, *trees, *resting)} == {RunStatus.COMPLETED}
    snapshot = site.snapshot()
    assert check(snapshot) == []
    assert site.repair() == ()
    kinds = Counter(row.type for history in snapshot.history.values() for row in history)
    assert (kinds["stage.lost"], kinds["stage.retrying"]) == (0, RUNS)
    starts = site.book.entries()
    assert len(starts) - len({start.work for start in starts}) == RUNS  # what stumbles does so once
    assert [one["fenced"] + one["sessions_lost"] for one in said] == [0] * len(workers)
    assert sum(one["clock_set"] for one in said) >= 10, "the clocks were hardly set"
    for run in stumbling:
        first, second = sorted(site.book.entries(run=run), key=lambda start: start.attempt)
        assert second.at - first.at >= STUMBLES - SYNCED, "it was tried again too early"
    print("clocks were set", [one["clock_set"] for one in said])
