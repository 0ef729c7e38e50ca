"""What ended runs have left behind is closed, however it is spread over them."""

import pytest

from holdfast.hosts import endings
from holdfast.ports.changes import AddJob, CreateRun
from holdfast.ports.persistence import OwedJobs, RunsByKey
from holdfast.ports.records import ClosePolicy, JobKind, JobState, RunStatus
from holdfast.testing.conformance.builders import a_job, a_key, a_run
from tests.unit.hosts.bench import Bench
from tests.unit.hosts.test_inputs import SIMPLE


@pytest.mark.parametrize("widths", [(0, 0), (1, 0, 2), (3, 3), (7, 1, 0, 4), (1,) * 8])
@pytest.mark.parametrize("policy", [ClosePolicy.CANCEL, ClosePolicy.TERMINATE])
def test_the_children_of_many_runs_are_closed_some_at_a_time(
    monkeypatch: pytest.MonkeyPatch, widths: tuple[int, ...], policy: ClosePolicy
) -> None:
    """Three at once, of whichever runs they are; then nobody owes anything."""
    monkeypatch.setattr(endings, "CHILDREN_AT_ONCE", 3)
    bench = Bench(SIMPLE)
    plan = SIMPLE.plan().fingerprint
    bench.start(SIMPLE(1))  # its plan is stored with it
    for number, width in enumerate(widths, 1):
        parent = a_run(number, status=RunStatus.COMPLETED, children=width, plan=plan)
        owed = a_job(number, 9, kind=JobKind.DELIVER, state=JobState.OWED, input="null")
        children = [
            a_run(
                100 * number + child,
                parent=f"{parent.key}.{1 + child}",
                close_policy=policy,
                plan=plan,
                open_jobs=1,
                last_job=1,
            )
            for child in range(width)
        ]
        jobs = [AddJob(a_job(child.key)) for child in children]
        changes = [CreateRun(parent), AddJob(owed), *map(CreateRun, children), *jobs]
        bench.store.transact(lambda tx, changes=changes: tx.apply(changes))  # type: ignore[misc]

    bench.core.tell_ends()

    keys = [a_key(100 * number + child) for number, width in enumerate(widths, 1) for child in range(width)]
    assert [run.status for run in bench.store.read(RunsByKey(tuple(keys)))] == [RunStatus.CANCELLED] * len(
        keys
    )
    assert bench.store.read(OwedJobs()) == ()
