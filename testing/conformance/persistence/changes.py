"""The contract of a store for each kind of change, and for several changes to one row in one batch."""

from collections.abc import Sequence
from functools import partial

import attrs
import pytest
from attrs import evolve

from holdfast.ports.changes import (
    CancelExternalWork,
    Change,
    Delete,
    DeleteJobs,
    DeleteJobsOfNode,
    Insert,
    Update,
)
from holdfast.ports.persistence import Persistence, Transaction
from holdfast.ports.queries.history import HistoryOf, NotesOf
from holdfast.ports.queries.values import LoadValues, PlansByFingerprint
from holdfast.ports.records.job import Job, JobKey, JobKind, JobState
from holdfast.ports.records.run import Run, RunStatus
from holdfast.ports.records.session import SessionState
from holdfast.ports.records.values import Payload
from holdfast.ports.references import item_reference
from holdfast.ports.searches import ActiveRuns
from holdfast.ports.tables import JOBS, LEADERS, REPLIES, RUNS, SESSIONS
from holdfast.testing.conformance.builders import (
    NAMESPACE,
    NOW,
    SECOND,
    a_job,
    a_key,
    a_leader_lease,
    a_leased_job,
    a_note,
    a_page,
    a_plan,
    a_reply,
    a_row,
    a_run,
    a_session,
)
from holdfast.testing.conformance.persistence.case import (
    PersistenceCase,
    jobs_of,
    put,
    put_jobs,
    query,
    the_run,
)
from holdfast.testing.conformance.persistence.jobs import FULL_JOB
from holdfast.testing.conformance.persistence.runs import FULL_RUN

_LEASED = a_leased_job(session=a_key(8))
_KEY = JobKey(a_key(1), 1)
_FIXED_OF_RUNS = {"key", "namespace", "id", "generation", "rerun_of", "rerun_from", "inherited"}
_CHANGING_OF_RUNS = [field.name for field in attrs.fields(Run) if field.name not in _FIXED_OF_RUNS]
_CHANGING_OF_JOBS = [field.name for field in attrs.fields(Job) if field.name not in {"run", "number"}]
_CLOSE_BILL = DeleteJobsOfNode(a_key(1), _LEASED.node)

NET_EFFECTS: Sequence[tuple[str, tuple[Change, ...], tuple[Job, ...]]] = (
    (
        "add, update",
        (Insert(a_job(1, 2)), Update(a_job(1, 2, priority=4))),
        (a_job(), a_job(1, 2, priority=4)),
    ),
    ("add, close", (Insert(a_job(1, 2)), Delete(JOBS, JobKey(a_key(1), 2))), (a_job(),)),
    (
        "add, update, close",
        (Insert(a_job(1, 2)), Update(a_job(1, 2, priority=4)), Delete(JOBS, JobKey(a_key(1), 2))),
        (a_job(),),
    ),
    ("update, update", (Update(a_job(priority=4)), Update(_LEASED)), (_LEASED,)),
    ("update, close", (Update(_LEASED), Delete(JOBS, _KEY)), ()),
    ("close, add another", (Delete(JOBS, _KEY), Insert(a_job(1, 2))), (a_job(1, 2),)),
    ("add another, close", (Insert(a_job(1, 2)), Delete(JOBS, _KEY)), (a_job(1, 2),)),
    ("add another, close all", (Insert(a_job(1, 2)), DeleteJobs(a_key(1))), ()),
    ("update, close all", (Update(_LEASED), DeleteJobs(a_key(1))), ()),
    ("close, close all", (Delete(JOBS, _KEY), DeleteJobs(a_key(1))), ()),
    ("close all, add another", (DeleteJobs(a_key(1)), Insert(a_job(1, 2))), (a_job(1, 2),)),
    (
        "close all, add another, update it",
        (DeleteJobs(a_key(1)), Insert(a_job(1, 2)), Update(a_job(1, 2, priority=4))),
        (a_job(1, 2, priority=4),),
    ),
    ("close all, twice", (DeleteJobs(a_key(1)), DeleteJobs(a_key(1))), ()),
    ("close the node", (_CLOSE_BILL,), ()),
    ("close another node", (DeleteJobsOfNode(a_key(1), "ship"),), (a_job(),)),
    ("close the node, twice", (_CLOSE_BILL, _CLOSE_BILL), ()),
    ("update, close the node", (Update(_LEASED), _CLOSE_BILL), ()),
    ("update, close another node", (Update(_LEASED), DeleteJobsOfNode(a_key(1), "ship")), (_LEASED,)),
    ("close, close the node", (Delete(JOBS, _KEY), _CLOSE_BILL), ()),
    ("close the node, close", (_CLOSE_BILL, Delete(JOBS, _KEY)), ()),
    ("add to the node, close it", (Insert(a_job(1, 2)), _CLOSE_BILL), ()),
    (
        "add to the node, update it, close the node",
        (Insert(a_job(1, 2)), Update(a_job(1, 2, priority=4)), _CLOSE_BILL),
        (),
    ),
    ("close the node, add to it", (_CLOSE_BILL, Insert(a_job(1, 2))), (a_job(1, 2),)),
    (
        "close the node, add to it, update that",
        (_CLOSE_BILL, Insert(a_job(1, 2)), Update(a_job(1, 2, priority=4))),
        (a_job(1, 2, priority=4),),
    ),
    (
        "close the node, add to it, close that",
        (_CLOSE_BILL, Insert(a_job(1, 2)), Delete(JOBS, JobKey(a_key(1), 2))),
        (),
    ),
    ("close the node, add to it, close it", (_CLOSE_BILL, Insert(a_job(1, 2)), _CLOSE_BILL), ()),
    (
        "add to another node, close the node",
        (Insert(a_job(1, 2, node="ship")), _CLOSE_BILL),
        (a_job(1, 2, node="ship"),),
    ),
    ("close the node, close all", (_CLOSE_BILL, DeleteJobs(a_key(1))), ()),
    ("close all, close the node", (DeleteJobs(a_key(1)), _CLOSE_BILL), ()),
    (
        "close all, add to the node, close it, add to another",
        (DeleteJobs(a_key(1)), Insert(a_job(1, 2)), _CLOSE_BILL, Insert(a_job(1, 3, node="ship"))),
        (a_job(1, 3, node="ship"),),
    ),
)
"""Changes to run 1, which has job 1; and its jobs after them."""


class Changes(PersistenceCase):
    """`Transaction.apply`."""

    def test_a_run_is_created_and_updated(self, store: Persistence) -> None:
        """An update replaces every field except the fixed ones."""
        put(store, Insert(a_run(7)))
        full = evolve(FULL_RUN, namespace=NAMESPACE, id="run-7", generation=1)
        full = evolve(full, rerun_of=None, rerun_from=None, inherited=None)
        put(store, Update(full))
        assert full == the_run(store, a_key(7))

        put(store, Update(a_run(7)))
        assert a_run(7) == the_run(store, a_key(7))

    def test_an_update_touches_no_other_run(self, store: Persistence) -> None:
        """Whatever they have in common."""
        put(store, Insert(a_run(1)), Insert(a_run(2)))
        put(store, Update(a_run(2, status=RunStatus.FAILED)))

        assert a_run(1) == the_run(store, a_key(1))

    def test_many_runs_are_updated_differently_at_once(self, store: Persistence) -> None:
        """Each gets its own values, including None."""
        runs = [a_run(number, ended_at=NOW) for number in range(300)]
        put(store, *map(Insert, runs))
        changed = [
            evolve(run, last_row=at, ended_at=None if at % 2 else at, result=None if at % 3 else str(at))
            for at, run in enumerate(runs)
        ]
        put(store, *map(Update, reversed(changed)))

        found = query(store, lambda tx: tx.lock(RUNS, [run.key for run in runs]))
        assert changed == sorted(found, key=lambda run: run.key)

    @pytest.mark.parametrize("name", _CHANGING_OF_RUNS)
    def test_of_a_run_that_was_read_each_field_is_updated(self, store: Persistence, name: str) -> None:
        """Alone, or together with the fields that nearly every update changes."""
        put(store, Insert(a_run(1)))
        for fields in ({name}, {name, "last_row"}, {name, "status", "open_jobs"}):
            before = the_run(store, a_key(1))
            other = FULL_RUN if before == a_run(1) else a_run(1)
            changed = evolve(before, **{field: getattr(other, field) for field in fields})
            store.transact(partial(_read_and_put, [Update(changed)]))
            assert changed == the_run(store, a_key(1))

    @pytest.mark.parametrize("name", _CHANGING_OF_JOBS)
    def test_of_a_job_that_was_read_each_field_is_updated(self, store: Persistence, name: str) -> None:
        """As for a run."""
        put_jobs(store, _LEASED)
        for fields in ({name}, {name, "state", "epoch"}):
            (before,) = jobs_of(store, _LEASED.run)
            other = FULL_JOB if before == _LEASED else _LEASED
            changed = evolve(before, **{field: getattr(other, field) for field in fields})
            store.transact(partial(_read_and_put, [Update(changed)]))
            assert jobs_of(store, _LEASED.run) == [changed]

    def test_a_job_that_was_read_is_as_updated_after_its_work_was_cancelled(self, store: Persistence) -> None:
        """Earlier changes of the batch to the same job have no effect."""
        check = evolve(_LEASED, kind=JobKind.POLL)
        put_jobs(store, check)
        changed = evolve(check, epoch=9)
        changes: list[Change] = [CancelExternalWork(check.run, check.node, attempts=4), Update(changed)]
        store.transact(partial(_read_and_put, changes))

        assert jobs_of(store, check.run) == [changed]

    def test_a_run_created_and_updated_in_one_batch_is_stored_as_updated(self, store: Persistence) -> None:
        """The last change to a row wins."""
        put(store, Insert(a_run()), Update(a_run(last_row=1)), Update(a_run(last_row=2)))

        assert the_run(store, a_key(1)).last_row == 2

    def test_changes_are_given_in_any_order_of_tables(self, store: Persistence) -> None:
        """A run's rows may precede the run in a batch."""
        put(
            store,
            Insert(a_job()),
            Insert(a_row()),
            Insert(a_note()),
            Insert(a_run(open_jobs=1)),
        )

        assert [a_job()] == jobs_of(store, a_key(1))
        assert (a_row(),) == store.read(HistoryOf(a_key(1)))

    def test_a_job_is_updated_in_every_field(self, store: Persistence) -> None:
        """And back, to None where it was None."""
        put_jobs(store, a_job(1, 12, namespace="tenant-1"))
        put(store, Update(FULL_JOB))
        assert jobs_of(store, a_key(1)) == [FULL_JOB]

        put(store, Update(a_job(1, 12, namespace="tenant-1")))
        assert [a_job(1, 12, namespace="tenant-1")] == jobs_of(store, a_key(1))

    def test_many_jobs_are_added_updated_and_closed_at_once(self, store: Persistence) -> None:
        """A batch of two thousand changes to six hundred jobs."""
        put_jobs(store, *(a_job(run, number) for run in range(20) for number in range(1, 31)))
        stays = [
            a_leased_job(run, number, session=a_key(run)) for run in range(20) for number in range(1, 16)
        ]
        added = [a_job(run, number, item=number) for run in range(20) for number in range(31, 81)]
        put(
            store,
            *map(Update, stays),
            *(Delete(JOBS, JobKey(a_key(run), number)) for run in range(20) for number in range(16, 31)),
            *map(Insert, added),
        )

        expected = sorted([*stays, *added], key=lambda job: job.key)
        assert expected == jobs_of(store, *(a_key(run) for run in range(20)))

    def test_closing_all_jobs_of_a_run_touches_no_other_run(self, store: Persistence) -> None:
        """Neither its jobs nor its row."""
        put_jobs(store, a_job(1, 1), a_job(1, 2), a_job(2, 1))
        put(store, DeleteJobs(a_key(1)))

        assert [a_job(2, 1)] == jobs_of(store, a_key(1), a_key(2))

    def test_closing_all_jobs_of_a_run_without_jobs_does_nothing(self, store: Persistence) -> None:
        """A run may end without an open job."""
        put(store, Insert(a_run()))
        put(store, DeleteJobs(a_key(1)))

        assert a_run() == the_run(store, a_key(1))

    def test_closing_the_jobs_of_a_node_touches_no_other_node_and_no_other_run(
        self, store: Persistence
    ) -> None:
        """In any state. Names are compared exactly."""
        of_map = [
            a_job(1, number, item=number, state=state, wake_at=NOW)
            for number, state in enumerate(JobState, 1)
        ]
        others = [
            a_job(1, 50 + number, node=node) for number, node in enumerate(("Bill", "bill ", "bil", "ship"))
        ]
        put_jobs(store, *of_map, *others, a_job(2, 1))
        before = the_run(store, a_key(1))
        put(store, DeleteJobsOfNode(a_key(1), "bill"))

        assert [*others, a_job(2, 1)] == jobs_of(store, a_key(1), a_key(2))
        assert before == the_run(store, a_key(1))

    def test_the_nodes_of_many_runs_are_closed_at_once(self, store: Persistence) -> None:
        """Together with added, updated and deleted jobs."""
        jobs = [a_job(run, number) for run in range(50) for number in range(1, 6)]
        jobs += [a_job(run, number, node="ship") for run in range(50) for number in range(6, 9)]
        put_jobs(store, *jobs)
        put(
            store,
            *(DeleteJobsOfNode(a_key(run), "bill") for run in range(0, 50, 2)),
            *(DeleteJobsOfNode(a_key(run), "ship") for run in range(0, 50, 5)),
            *(Insert(a_job(run, 9)) for run in range(50)),
            *(Update(a_job(run, 1, priority=4)) for run in range(1, 50, 2)),
            *(Delete(JOBS, JobKey(a_key(run), 2)) for run in range(50)),
        )

        left = {
            run: [
                *([] if run % 2 == 0 else [1, 3, 4, 5]),
                *([] if run % 5 == 0 else [6, 7, 8]),
                9,
            ]
            for run in range(50)
        }
        found = jobs_of(store, *map(a_key, left))
        assert [(a_key(run), number) for run, numbers in left.items() for number in numbers] == [
            job.key for job in found
        ]
        assert {job.priority for job in found if job.number == 1} == {4}

    def test_closing_a_node_without_jobs_does_nothing(self, store: Persistence) -> None:
        """Neither for a run without jobs of the stage nor for a missing run."""
        put(store, Insert(a_run()))
        put(store, DeleteJobsOfNode(a_key(1), "bill"), DeleteJobsOfNode(a_key(9), "bill"))

        assert a_run() == the_run(store, a_key(1))
        assert jobs_of(store, a_key(1), a_key(9)) == []

    @pytest.mark.parametrize(
        ("changes", "left"), [case[1:] for case in NET_EFFECTS], ids=[n for n, _, _ in NET_EFFECTS]
    )
    def test_several_changes_to_a_job_come_to_their_net_effect(
        self, store: Persistence, changes: tuple[Change, ...], left: tuple[Job, ...]
    ) -> None:
        """As if applied one by one."""
        put_jobs(store, a_job(1, 1), a_job(2, 1))
        put(store, *changes)

        assert [*left, a_job(2, 1)] == jobs_of(store, a_key(1), a_key(2))

    def test_history_is_appended(self, store: Persistence) -> None:
        """Every field of a row survives, and missing values stay None."""
        full = a_row(
            1, 1, type="x.y", node="a b", item=0, epoch=3, payload=Payload(inline='"v"'), data='{"attempt":1}'
        )
        blob = a_row(1, 2, payload=Payload(blob=f"a/b/{'0' * 64}"))
        put_jobs(store, a_job(1, 1), a_job(2, 1))
        put(store, Insert(full), Insert(blob))
        put(store, Insert(a_row(2, 1)), Insert(a_row(1, 3)))

        assert (full, blob, a_row(1, 3)) == store.read(HistoryOf(a_key(1)))

    def test_pages_of_items_are_added(self, store: Persistence) -> None:
        """By run, map and page number."""
        put_jobs(store, a_job(1, 1), a_job(2, 1))
        put(
            store,
            *(
                Insert(a_page(run, page, node=node, items=(Payload(inline=f'"{run} {node} {page}"'),)))
                for run in (1, 2)
                for node in ("a", "b")
                for page in (0, 1)
            ),
        )

        (value,) = store.read(LoadValues(((a_key(2), item_reference("b", 1, 0)),)))
        assert (Payload(inline='"2 b 1"'),) == value.payloads

    def test_a_plan_is_stored_once(self, store: Persistence) -> None:
        """Storing it again does nothing, alone or among new ones."""
        put(store, Insert(a_plan(1)))
        put(store, Insert(a_plan(1, body="other")))
        put(store, Insert(a_plan(2)), Insert(a_plan(1, body="other")), Insert(a_plan(2)))

        found = store.read(PlansByFingerprint((a_plan(1).fingerprint, a_plan(2).fingerprint)))
        assert {a_plan(1), a_plan(2)} == set(found)

    def test_a_reply_is_kept_byte_for_byte(self, store: Persistence) -> None:
        """The order of its keys, its numbers and its escapes are unchanged."""
        body = '{"b":1.0,"a":1e2,"u":"\\u00e9\\ud83d\\ude00","big":123456789012345678901234567890}'
        put(store, Insert(a_reply(body=body)))

        assert [a_reply(body=body)] == query(store, lambda tx: tx.get(REPLIES, [(NAMESPACE, "key-1")]))

    def test_a_session_is_added_and_replaced(self, store: Persistence) -> None:
        """In one batch and in several."""
        put(store, Insert(a_session(1)), Insert(a_session(2)), Insert(a_session(2, host="other")))
        renewed = a_session(1, expires_at=NOW + 90 * SECOND, state=SessionState.DEAD)
        put(store, Insert(renewed))

        found = query(store, lambda tx: tx.get(SESSIONS, [a_key(1), a_key(2)]))
        assert [renewed, a_session(2, host="other")] == sorted(found, key=lambda session: session.id)

    def test_a_duty_is_added_and_replaced(self, store: Persistence) -> None:
        """In one batch and in several."""
        put(store, Insert(a_leader_lease(session=1)), Update(a_leader_lease(session=2)))
        assert [a_leader_lease(session=2)] == query(store, lambda tx: tx.lock(LEADERS, ["maintenance"]))

        put(store, Update(a_leader_lease(session=3, until=NOW + 9)))
        assert [a_leader_lease(session=3, until=NOW + 9)] == query(
            store, lambda tx: tx.lock(LEADERS, ["maintenance"])
        )

    def test_notes_are_added(self, store: Persistence) -> None:
        """Every field survives."""
        put_jobs(store, a_job(1, 1), a_job(2, 1))
        note = a_note(2, job=3, epoch=4, kind="progress", data='{"done":1}')
        put(store, Insert(note), Insert(a_note(1)), Insert(a_note(3, run=2)))

        assert (a_note(1), note) == store.read(NotesOf(a_key(1)))

    def test_no_change_is_a_batch_too(self, store: Persistence) -> None:
        """Nothing is written, and no error is raised."""
        put(store)

        assert query(store, lambda tx: tx.find(ActiveRuns("", 10))) == []


def _read_and_put(changes: Sequence[Change], tx: Transaction) -> None:
    """Apply changes to a run and a job that the transaction has read, and so locked."""
    tx.lock(RUNS, [a_key(1)])
    tx.lock(JOBS, [_LEASED.key])
    tx.apply(changes)
