"""A rolling deploy: workers are replaced one by one, and runs of both versions continue."""

import signal
from collections import Counter

import pytest

from holdfast.ports.records.job import JobState
from holdfast.ports.records.run import RunStatus
from tests.chaos.fork_server import Process
from tests.chaos.programs import LETTER_1, LETTER_2
from tests.chaos.site import Site

pytestmark = pytest.mark.chaos

OLD = ("letter@1",)
NEW = ("letter@1", "letter@2")
WORKERS = 3
EACH = 12


def test_runs_of_both_versions_end_on_their_own_code_while_workers_are_replaced(site: Site) -> None:
    old = [site.worker(f"old {number}", *OLD, work_seconds=0.05) for number in range(WORKERS)]
    runs: dict[str, str] = {}

    def start(version: int) -> None:
        for _ in range(EACH):
            letter = LETTER_1 if version == 1 else LETTER_2
            runs[site.start(letter(""))] = str(version) * (3 if version == 1 else 4)

    start(1)
    start(2)  # whoever starts runs was deployed first: nobody has this code yet
    site.until(lambda: site.active() <= EACH, "the old runs are done")
    waiting = [site.job(run) for run, wanted in runs.items() if wanted == "2222"]
    # Workers that lack their code have not so much as touched them.
    assert {(job.state, job.epoch, job.attempts) for job in waiting} == {(JobState.QUEUED, 0, 0)}

    new: list[Process] = []
    for number, leaving in enumerate(old):
        start(1)
        start(2)
        new.append(site.worker(f"new {number}", *NEW, work_seconds=0.05))
        site.until_started(1, run=next(reversed(runs)))
        leaving.signal(signal.SIGTERM)
        assert leaving.wait() == 0
    start(1)
    start(2)
    site.until_done(60)

    assert {run: site.result(run) for run in runs} == runs
    assert {site.run(run).status for run in runs} == {RunStatus.COMPLETED}
    audit = site.audit()
    assert (audit.lost, audit.repeats) == (0, 0)
    kinds = Counter(row.type for run in runs for row in site.history(run))
    assert set(kinds) == {"run.created", "stage.completed", "run.completed"}
    by = {process.pid: process.name.split()[0] for process in (*old, *new)}
    shares = Counter((by[start.pid], wanted) for start in site.book.entries() if (wanted := runs[start.run]))
    assert shares["old", "2222"] == 0
    assert shares["old", "111"] >= EACH * 3
    assert min(shares["new", "111"], shares["new", "2222"]) > 0
    print(dict(shares))
