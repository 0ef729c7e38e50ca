"""The contract of a store for queries that scan everything, as `holdfast doctor` does."""

from attrs import evolve
from typing_extensions import Unpack

from holdfast.ports.changes import AdvanceStreams, Insert, Update
from holdfast.ports.persistence import Persistence
from holdfast.ports.queries.audit import (
    BlobsOf,
    BlobUse,
    HistoriesOf,
    LiveSessions,
    OrphanedRows,
    RelatedRuns,
    SlotsOver,
    SlotsOverLimit,
    StreamPlace,
    StreamPlaces,
    WholeRun,
    WholeRuns,
)
from holdfast.ports.records.job import JobState
from holdfast.ports.records.outbox import StreamHead
from holdfast.ports.records.run import Run, RunName, RunStatus
from holdfast.ports.records.session import SessionState
from holdfast.ports.records.values import Payload
from holdfast.ports.searches import SlotPlace, Waiting
from holdfast.testing.conformance.builders import (
    NAMESPACE,
    NOW,
    RunFields,
    a_completed_row,
    a_job,
    a_key,
    a_note,
    a_page,
    a_row,
    a_run,
    a_session,
    a_sink,
    a_stream,
    an_ai_call,
    an_annotation,
    an_artifact,
)
from holdfast.testing.conformance.persistence.case import PersistenceCase, put, put_jobs, put_run, the_run
from holdfast.testing.conformance.persistence.jobs import FULL_JOB
from holdfast.testing.conformance.persistence.runs import FULL_RUN


def _limited(number: int, limit: int, **fields: Unpack[RunFields]) -> Run:
    run = evolve(a_run(number), last_job=1, concurrency_key="k", concurrency_limit=limit)
    return evolve(run, **fields)


class Inspecting(PersistenceCase):
    """WholeRuns, HistoriesOf, RelatedRuns, OrphanedRows, SlotsOverLimit, LiveSessions, StreamPlaces and BlobsOf."""

    def test_runs_are_read_with_their_jobs_by_key(self, store: Persistence) -> None:
        """Of all namespaces, ended or not, paged by key; jobs by number; every field survives."""
        put_run(store, a_run(3), a_job(3, 10), a_job(3, 9, state=JobState.PENDING_DELIVERY))
        put_run(store, a_run(1, status=RunStatus.FAILED))
        put_run(store, a_run(2, namespace="tenant-2"), a_job(2, 1))

        third = WholeRun(
            the_run(store, a_key(3)), (a_job(3, 9, state=JobState.PENDING_DELIVERY), a_job(3, 10))
        )
        second = WholeRun(the_run(store, a_key(2)), (a_job(2, 1),))
        first = WholeRun(the_run(store, a_key(1)), ())
        assert store.read(WholeRuns()) == (first, second, third)
        assert store.read(WholeRuns(limit=2)) == (first, second)
        assert store.read(WholeRuns(after=a_key(2))) == (third,)
        assert store.read(WholeRuns(limit=0)) == ()
        assert store.read(WholeRuns(keys=(a_key(3), a_key(1), a_key(9), "\0", a_key(3)))) == (first, third)
        assert store.read(WholeRuns(keys=())) == ()

    def test_a_run_that_is_read_with_its_jobs_is_whole(self, store: Persistence) -> None:
        """Every field survives."""
        put(store, Insert(FULL_RUN), Insert(evolve(FULL_JOB, run=FULL_RUN.key)))

        found = store.read(WholeRuns())

        assert found == (WholeRun(FULL_RUN, (evolve(FULL_JOB, run=FULL_RUN.key),)),)

    def test_histories_are_read_without_inline_values(self, store: Persistence) -> None:
        """By run and number, page by page; the key of a blob is included."""
        spilled = a_row(1, 2, payload=Payload(blob="a/b"), data='{"a":1}')
        put(store, *(Insert(a_run(number)) for number in (1, 2, 3)))
        put(store, Insert(a_completed_row(1, 1, item=3)), Insert(spilled))
        put(store, Insert(a_row(2, 1)), Insert(a_row(3, 1)))

        bare = evolve(a_completed_row(1, 1, item=3), payload=None)
        runs = (a_key(3), a_key(1), a_key(9), "\0", a_key(3))
        assert store.read(HistoriesOf(runs=runs)) == (bare, spilled, a_row(3, 1))
        assert store.read(HistoriesOf(runs=runs, limit=2)) == (bare, spilled)
        assert store.read(HistoriesOf(runs=runs, after=(a_key(1), 1))) == (spilled, a_row(3, 1))
        assert store.read(HistoriesOf(runs=runs, after=(a_key(3), 1))) == ()
        assert store.read(HistoriesOf(runs=())) == ()

    def test_the_kin_of_a_name_are_its_newest_and_who_is_waited_for(self, store: Persistence) -> None:
        """Not other generations, and not runs of other namespaces."""
        for generation in (1, 2, 3):
            parent = f"{a_key(9)}.7" if generation == 1 else None
            put(store, Insert(a_run(generation, id="x", generation=generation, parent=parent)))
        put(store, Insert(a_run(4, id="x", namespace="tenant-2", parent=f"{a_key(9)}.7")))
        put(store, Insert(a_run(5, id="y")))

        name = RunName(NAMESPACE, "x")
        assert store.read(RelatedRuns(((name, ""),))) == (a_key(3),)
        assert store.read(RelatedRuns(((name, f"{a_key(9)}.7"), (name, "")))) == (a_key(1), a_key(3))
        assert store.read(RelatedRuns(((name, f"{a_key(9)}.70"),))) == (a_key(3),)
        wanted = ((RunName(NAMESPACE, "y"), ""), (RunName("\0", "y"), ""), (name, ""))
        assert store.read(RelatedRuns(wanted)) == (a_key(3), a_key(5))
        assert store.read(RelatedRuns(())) == ()

    def test_rows_without_a_run_are_found(self, store: Persistence) -> None:
        """In every table, each once, within a range; rows of existing runs are left out."""
        for run in (2, 4):
            put(
                store,
                *(Insert(a_job(run, 1)), Insert(a_job(run, 2)), Insert(a_row(run, 1))),
                *(
                    Insert(a_page(run)),
                    Insert(a_note(run, run)),
                    Insert(an_annotation(run, run)),
                ),
                *(Insert(an_artifact(run=run)), Insert(an_ai_call(run, run))),
            )
        put(store, Insert(a_run(4)), Insert(a_run(1)), Insert(a_row(5, 1)))

        tables = ("ai_calls", "annotations", "artifacts", "attempt_output", "history", "jobs", "map_items")
        of_two = tuple((a_key(2), table) for table in tables)
        assert store.read(OrphanedRows(after="")) == (*of_two, (a_key(5), "history"))
        assert store.read(OrphanedRows(after="", upto=a_key(2))) == of_two
        assert store.read(OrphanedRows(after="", upto=a_key(1))) == ()
        assert store.read(OrphanedRows(after=a_key(2))) == ((a_key(5), "history"),)
        assert store.read(OrphanedRows(after="", limit=1)) == of_two[:1]

    def test_keys_with_too_many_runs_are_found(self, store: Persistence) -> None:
        """Too many means more than the highest limit; waiting and ended runs do not count."""
        put(store, Insert(_limited(1, 1)), Insert(_limited(2, 2)))
        put(store, Insert(_limited(3, 1, status=RunStatus.PENDING)))
        put(store, Insert(_limited(4, 1, status=RunStatus.FAILED)))
        put(store, Insert(_limited(5, 1, status=RunStatus.PAUSED, last_job=0)))
        put(store, Insert(_limited(6, 1, namespace="tenant-2")))
        assert store.read(SlotsOverLimit(Waiting.RUNS)) == ()

        put(store, Insert(_limited(7, 2, status=RunStatus.PAUSED)))
        put(store, Insert(_limited(8, 1, namespace="tenant-2")))
        over = (
            SlotsOver(SlotPlace(NAMESPACE, "k"), 3, 2),
            SlotsOver(SlotPlace("tenant-2", "k"), 2, 1),
        )
        assert store.read(SlotsOverLimit(Waiting.RUNS)) == over
        assert store.read(SlotsOverLimit(Waiting.RUNS, limit=1)) == over[:1]
        assert store.read(SlotsOverLimit(Waiting.JOBS)) == ()

    def test_keys_with_too_many_jobs_are_found(self, store: Persistence) -> None:
        """Queued and leased jobs count."""
        states = (JobState.QUEUED, JobState.LEASED, JobState.SLEEPING, JobState.PAUSED, JobState.LIMITED)
        jobs = [a_job(1, number, state=state) for number, state in enumerate(states)]
        put_jobs(store, *(evolve(job, concurrency_key="k", concurrency_limit=1) for job in jobs))
        put_jobs(store, evolve(a_job(2, 1), concurrency_key="k2", concurrency_limit=1))

        assert store.read(SlotsOverLimit(Waiting.JOBS)) == (SlotsOver(SlotPlace(NAMESPACE, "k"), 2, 1),)
        assert store.read(SlotsOverLimit(Waiting.RUNS)) == ()

    def test_live_sessions_are_counted(self, store: Persistence) -> None:
        """Sessions that are open and have not expired."""
        put(store, Insert(a_session(1, expires_at=NOW)), Insert(a_session(2, expires_at=NOW + 1)))
        put(store, Insert(a_session(3, expires_at=NOW + 9, state=SessionState.DEAD)))

        assert store.read(LiveSessions(NOW)) == 1
        assert store.read(LiveSessions(NOW - 1)) == 2
        assert store.read(LiveSessions(NOW + 1)) == 0

    def test_streams_are_read_with_how_far_their_runs_go(self, store: Persistence) -> None:
        """Of one sink, by run, page by page; a stream without a run has no last row."""
        put(store, Insert(a_sink()), Insert(a_sink("other")))
        put(store, Insert(a_run(1, last_row=7)), Insert(a_row(1, 1)))
        put(
            store,
            *(
                AdvanceStreams(StreamHead(sink=a_sink().key, run=a_key(number), head_row=2, at=NOW))
                for number in (1, 2)
            ),
        )
        put(store, AdvanceStreams(StreamHead(sink=a_sink("other").key, run=a_key(1), head_row=2, at=NOW)))
        put(store, Update(a_stream(1, head_row=3, delivered=2, due_at=None)))

        first = StreamPlace(a_key(1), 3, 2, None, 7)
        second = StreamPlace(a_key(2), 2, 0, NOW, None)
        assert store.read(StreamPlaces(sink=a_sink().key)) == (first, second)
        assert store.read(StreamPlaces(sink=a_sink().key, limit=1)) == (first,)
        assert store.read(StreamPlaces(sink=a_sink().key, after=a_key(1))) == (second,)
        assert store.read(StreamPlaces(sink="nothing")) == ()

    def test_the_blobs_that_runs_refer_to_are_known(self, store: Persistence) -> None:
        """Of artifacts, model calls and map items; a text that only looks like a blob does not count."""
        items = (Payload(inline='"[null,x"'), Payload(blob="item/1"))
        put(store, Insert(a_run(1)), Insert(a_run(2)), Insert(a_page(1, items=items)))
        put(store, Insert(a_page(1, 1, items=(Payload(inline='[null,"x"]'),))))
        put(store, Insert(an_artifact(blob="artifact/1")), Insert(an_artifact(run=2, blob="no")))
        inline = Payload(inline="1")
        put(store, Insert(an_ai_call(1, prompt=Payload(blob="prompt/1"), response=inline)))
        put(store, Insert(an_ai_call(2, response=Payload(blob="response/1"))))

        assert store.read(BlobsOf(runs=(a_key(1), "\0"))) == (
            BlobUse(a_key(1), "ai_call", "prompt/1"),
            BlobUse(a_key(1), "ai_call", "response/1"),
            BlobUse(a_key(1), "artifact", "artifact/1"),
            BlobUse(a_key(1), "item", "item/1"),
        )
        assert store.read(BlobsOf(runs=())) == ()
