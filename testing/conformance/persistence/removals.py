"""The contract of a store for deleted runs: all their rows are deleted, and no others."""

from typing import Final

from attrs import evolve

from holdfast.ports.changes import AdvanceStreams, Change, DeleteRun, Insert, Update
from holdfast.ports.persistence import Persistence
from holdfast.ports.queries.history import HistoryOf
from holdfast.ports.queries.run_output import (
    AiCallsOf,
    AnnotationsOf,
    ArtifactsOf,
    NotesInOrder,
)
from holdfast.ports.queries.runs import CountRuns, FindRun, ListRuns, RunFilter, RunsByKey
from holdfast.ports.queries.values import LoadValues
from holdfast.ports.records.outbox import StreamHead, StreamKey
from holdfast.ports.records.run import RunName, RunStatus
from holdfast.ports.records.values import Payload
from holdfast.ports.references import item_reference
from holdfast.ports.searches import AnnotationKeys, Generations
from holdfast.ports.tables import STREAMS
from holdfast.testing.conformance.builders import (
    NAMESPACE,
    NOW,
    a_job,
    a_key,
    a_note,
    a_page,
    a_row,
    a_run,
    a_sink,
    an_ai_call,
    an_annotation,
    an_artifact,
)
from holdfast.testing.conformance.persistence.case import PersistenceCase, jobs_of, put, query

SINK: Final = a_sink("audit")
ITEM: Final = item_reference(a_page().node, 0, 0)


def _everything(number: int) -> list[Change]:
    """A run that has ended, and a row of each kind that belongs to it."""
    run = a_run(number, status=RunStatus.COMPLETED, attributes='{"color":"red"}', ended_at=NOW + number)
    annotation = evolve(an_annotation(1, number), name="mood", value='"good"', key=None)
    return [
        Insert(run),
        *(Insert(a_row(number, row)) for row in (1, 2)),
        Insert(a_page(number, items=(Payload(inline="1"),))),
        Insert(evolve(a_note(number, number))),
        Insert(annotation),
        Insert(evolve(annotation, id=a_key(50 + number), name="key", key="once")),
        Insert(an_artifact("report", number)),
        Insert(an_ai_call(number, number)),
        AdvanceStreams(StreamHead(sink=SINK.key, run=run.key, head_row=2, at=NOW)),
    ]


def _left(store: Persistence, number: int) -> list[str]:
    """The names of the queries that still find a run."""
    key = a_key(number)
    by_attribute = RunFilter(namespace=NAMESPACE, attributes=(("color", "red"),))
    by_annotation = RunFilter(namespace=NAMESPACE, annotations=(("mood", "good"),))
    seen = {
        "run": store.read(RunsByKey((key,))),
        "listed": [run for run in store.read(ListRuns(RunFilter(namespace=NAMESPACE))) if run.key == key],
        "attribute": [run for run in store.read(ListRuns(by_attribute)) if run.key == key],
        "annotation": [run for run in store.read(ListRuns(by_annotation)) if run.key == key],
        "history": store.read(HistoryOf(key)),
        "items": [value for value in store.read(LoadValues(((key, ITEM),))) if value.payloads],
        "notes": store.read(NotesInOrder(key)),
        "said": store.read(AnnotationsOf(key)),
        "keys": query(store, lambda tx: tx.find(AnnotationKeys([(key, "once")]))),
        "artifacts": store.read(ArtifactsOf(key)),
        "calls": store.read(AiCallsOf(key)),
        "stream": query(store, lambda tx: tx.lock(STREAMS, [StreamKey(SINK.key, key)])),
        "jobs": jobs_of(store, key),
    }
    return [name for name, rows in seen.items() if rows]


class Removals(PersistenceCase):
    """DeleteRun, `generations`, and the filter for removals."""

    def test_a_removed_run_leaves_nothing(self, store: Persistence) -> None:
        """Other runs keep all their rows."""
        put(store, Insert(SINK), *_everything(1), *_everything(2), *_everything(3))
        whole = _left(store, 2)
        assert whole == _left(store, 1)
        assert len(whole) == 12, whole

        streams = {number: (StreamKey(SINK.key, a_key(number)),) for number in (1, 3)}
        put(store, DeleteRun(a_key(1), streams[1]), DeleteRun(a_key(3), streams[3]))
        assert _left(store, 1) == _left(store, 3) == []
        assert _left(store, 2) == whole

    def test_a_run_that_is_not_there_is_removed_without_effect(self, store: Persistence) -> None:
        """Any number of times."""
        put(store, Insert(SINK), *_everything(1))
        put(store, DeleteRun("nobody's"), DeleteRun("nobody's"))

        assert len(_left(store, 1)) == 12

    def test_what_the_same_transaction_did_to_it_comes_to_nothing(self, store: Persistence) -> None:
        """Whether the run existed before, or not."""
        old, new = a_run(1), a_run(2)
        put(store, Insert(old))
        put(
            store,
            Insert(SINK),
            Update(evolve(old, status=RunStatus.FAILED)),
            Insert(a_row(1, 1)),
            Insert(a_job(1, 1)),
            *_everything(2)[1:],
            Insert(new),
            DeleteRun(old.key),
            DeleteRun(new.key, (StreamKey(SINK.key, new.key),)),
        )

        assert _left(store, 1) == _left(store, 2) == []

    def test_its_name_can_be_used_again_at_once(self, store: Persistence) -> None:
        """In the same transaction, from the first generation on."""
        put(store, Insert(a_run(1, id="x")), Insert(a_run(2, id="x", generation=2)))
        put(store, DeleteRun(a_key(1)), DeleteRun(a_key(2)), Insert(a_run(3, id="x")))

        assert store.read(FindRun(RunName(NAMESPACE, "x"))) == a_run(3, id="x")
        assert store.read(FindRun(RunName(NAMESPACE, "x"), 2)) is None

    def test_all_generations_of_runs_are_read_in_order(self, store: Persistence) -> None:
        """By name and generation, whatever their keys are."""
        x = [a_run(9 - generation, id="x", generation=generation) for generation in (1, 2, 3)]
        y, elsewhere = a_run(1, id="y"), a_run(2, id="x", namespace="tenant-2")
        put(store, *map(Insert, [*x, y, elsewhere]))

        names = [RunName(NAMESPACE, id_) for id_ in ("y", "x", "none", "x")]
        assert query(store, lambda tx: tx.find(Generations(names))) == [*x, y]
        assert query(store, lambda tx: tx.find(Generations([]))) == []

    def test_runs_are_found_by_when_they_ended(self, store: Persistence) -> None:
        """A run that has not ended does not match."""
        put(
            store,
            *(
                Insert(a_run(n, status=RunStatus.COMPLETED, ended_at=NOW + 10 - n, attributes='{"a":"b"}'))
                for n in (1, 2, 3)
            ),
            Insert(a_run(4, attributes='{"a":"b"}')),
        )

        for attributes in ((), (("a", "b"),)):
            which = RunFilter(namespace=NAMESPACE, ended_before=NOW + 9, attributes=attributes)
            found = store.read(ListRuns(which, oldest_first=True))
            assert [run.key for run in found] == [a_key(2), a_key(3)]
            assert store.read(CountRuns(which)) == {RunStatus.COMPLETED: 2}
