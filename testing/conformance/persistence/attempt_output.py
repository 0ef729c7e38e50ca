"""The contract of a store for attempt output, annotations, artifacts and model calls."""

# ruff: noqa: S311  # the tests need the same draws each time

from itertools import product
from random import Random
from threading import Barrier, Thread

import pytest
from attrs import evolve

from holdfast.ports.attempt_output import (
    AiCall,
    AiCallKind,
    AiTotal,
    Annotation,
    AnnotationScope,
    is_of_topic,
)
from holdfast.ports.changes import Insert
from holdfast.ports.errors import ConflictError
from holdfast.ports.json import canonical
from holdfast.ports.pagination import ListPlace
from holdfast.ports.persistence import Persistence
from holdfast.ports.queries.history import HistoryOf
from holdfast.ports.queries.run_output import (
    AiCallsOf,
    AiTotalsOf,
    AnnotationFilter,
    AnnotationsOf,
    ArtifactsOf,
    LogOf,
    NewestLine,
    NewestProgress,
    NotesInOrder,
)
from holdfast.ports.queries.runs import CountRuns, ListRuns, RunFilter
from holdfast.ports.records.run import RunStatus
from holdfast.ports.records.values import Payload
from holdfast.ports.searches import AnnotationKeys
from holdfast.testing.conformance.builders import (
    NAMESPACE,
    NOW,
    a_key,
    a_note,
    a_row,
    a_run,
    an_ai_call,
    an_annotation,
    an_artifact,
)
from holdfast.testing.conformance.persistence.case import PersistenceCase, put, query
from holdfast.testing.conformance.persistence.values import TEXTS

RUN = a_key(1)


def found(
    store: Persistence, *annotations: tuple[str, str], attributes: tuple[tuple[str, str], ...] = ()
) -> list[str]:
    """Return the keys of the runs that a filter by annotations finds."""
    which = RunFilter(namespace=NAMESPACE, annotations=annotations, attributes=attributes)
    return [run.key for run in store.read(ListRuns(which))]


class RunOutput(PersistenceCase):
    """The queries of `holdfast.ports.queries.run_output`, and the changes behind them."""

    # Notes

    def test_notes_are_read_in_the_order_in_which_they_were_said(self, store: Persistence) -> None:
        """Not in the order of ids, whose clocks may be wrong; ids break ties."""
        notes = [
            a_note(9, at=NOW),
            a_note(1, at=NOW + 1),
            a_note(2, at=NOW + 1, kind="progress"),
            a_note(3, at=NOW + 5),
        ]
        put(store, *map(Insert, reversed(notes)), Insert(a_note(4, run=2)))

        assert tuple(notes) == store.read(NotesInOrder(RUN))
        assert tuple(notes[:2]) == store.read(NotesInOrder(RUN, limit=2))
        assert tuple(notes[2:]) == store.read(NotesInOrder(RUN, after=ListPlace(NOW + 1, a_key(1))))
        assert tuple(notes[1:]) == store.read(NotesInOrder(RUN, after=ListPlace(NOW + 1, "")))
        assert (notes[2],) == store.read(NotesInOrder(RUN, kinds=("progress", "x")))
        assert store.read(NotesInOrder("nobody's")) == ()

    def test_the_newest_progress_of_each_job_is_read(self, store: Persistence) -> None:
        """By job, after a job's number, up to the limit."""
        notes = [(1, 1, NOW + 9), (2, 1, NOW + 3), (3, 1, NOW + 9), (4, 2, NOW), (5, 7, NOW + 1), (6, 7, NOW)]
        put(
            store,
            *(Insert(a_note(number, kind="progress", job=job, at=at)) for number, job, at in notes),
        )
        put(
            store,
            Insert(a_note(7, kind="log", job=1, at=NOW + 99)),
            Insert(a_note(8, run=2, kind="progress")),
        )

        def numbers(query: NewestProgress) -> list[str]:
            return [note.id for note in store.read(query)]

        assert numbers(NewestProgress(RUN)) == [a_key(3), a_key(4), a_key(5)]
        assert numbers(NewestProgress(RUN, limit=2)) == [a_key(3), a_key(4)]
        assert numbers(NewestProgress(RUN, after=(1, ""), limit=1)) == [a_key(4)]
        assert numbers(NewestProgress("nobody's")) == []

    def test_the_newest_progress_of_a_job_is_by_call(self, store: Persistence) -> None:
        """The steps that one job runs have their own; by job and call, page by page."""
        notes = [(1, "", 1), (2, "1", 2), (3, "1", 3), (4, "2", 1)]
        put(
            store,
            *(Insert(a_note(n, kind="progress", call=call, at=NOW + at)) for n, call, at in notes),
        )

        assert [note.id for note in store.read(NewestProgress(RUN))] == [a_key(1), a_key(3), a_key(4)]
        assert [note.id for note in store.read(NewestProgress(RUN, after=(1, "1")))] == [a_key(4)]

    def test_output_of_one_id_is_stored_once(self, store: Persistence) -> None:
        """A second row of the id has no effect, in the same transaction and in a later one."""
        put(store, Insert(a_note(1, data="1")), Insert(a_note(1, data="2")))
        put(store, Insert(a_note(1, data="3")), Insert(a_note(2, data="4")))

        assert [note.data for note in store.read(NotesInOrder(RUN))] == ["1", "4"]

    def test_log_lines_are_read_in_the_order_in_which_they_were_stored(self, store: Persistence) -> None:
        """Whatever their times and ids are: a line that comes late has a greater number than all before it."""
        late = a_note(1, at=NOW - 9, kind="log")
        for one in (a_note(5, at=NOW, kind="log"), a_note(7, at=NOW, kind="progress"), late):
            put(store, Insert(one))
        put(store, Insert(evolve(late, data="2")), Insert(a_note(8, at=NOW, kind="log")))
        put(store, Insert(a_note(2, run=2, kind="log")))

        lines = store.read(LogOf(RUN))
        numbers = [line.number for line in lines]
        assert [line.note.id for line in lines] == [a_key(5), a_key(1), a_key(8)]
        assert lines[1].note == late
        assert numbers[0] == 1
        assert numbers == sorted(set(numbers))
        assert [store.read(LogOf(RUN, number, limit=1)) for number in (0, *numbers)] == [
            *((line,) for line in lines),
            (),
        ]
        assert [line.number for line in store.read(LogOf(a_key(2)))] == [1]
        assert [store.read(NewestLine(run)) for run in (RUN, a_key(2), "nobody's")] == [numbers[-1], 1, 0]
        assert store.read(LogOf("nobody's")) == ()

    def test_the_lines_of_one_transaction_have_different_numbers(self, store: Persistence) -> None:
        """Beside lines of other runs, and output of other kinds."""
        kinds = ("log", "progress", "log", "heartbeat", "log")
        notes = [
            a_note(number, run=1 + number % 2, kind=kind) for number, kind in enumerate((*kinds, *kinds), 1)
        ]
        put(store, *map(Insert, notes))

        for run in (1, 2):
            lines = store.read(LogOf(a_key(run)))
            assert [line.number for line in lines] == [1, 2, 3]
            assert {line.note.id for line in lines} == {
                note.id for note in notes if note.run == a_key(run) and note.kind == "log"
            }

    def test_lines_that_are_stored_together_are_in_order_of_time(self, store: Persistence) -> None:
        """That is the order in which a worker stores them. It is not that of their ids."""
        notes = [a_note(9 - number, at=NOW + number, kind="log") for number in range(8)]
        put(store, *map(Insert, notes))

        assert [line.note for line in store.read(LogOf(RUN))] == notes

    def test_no_line_is_stored_below_one_that_was_read(self, store: Persistence) -> None:
        """A reader that always continues after the last number reads every line once, though several threads store."""
        writers, each = 4, 15
        starting = Barrier(writers + 1)

        def write(writer: int) -> None:
            starting.wait()
            for turn in range(each):
                first = 1 + 2 * (writer * each + turn)
                at = NOW + (turn * 7) % 5
                put(store, *(Insert(a_note(one, at=at, kind="log")) for one in (first, first + 1)))

        threads = [Thread(target=write, args=(writer,)) for writer in range(writers)]
        for thread in threads:
            thread.start()
        starting.wait()
        found: list[str] = []
        last, is_over = 0, False
        while not is_over:
            is_over = not any(thread.is_alive() for thread in threads)
            for line in store.read(LogOf(RUN, last, limit=7)):
                assert line.number > last
                last = line.number
                found.append(line.note.id)
                is_over = False
        assert sorted(found) == sorted(a_key(1 + number) for number in range(2 * writers * each))

    # Annotations

    def test_annotations_are_added(self, store: Persistence) -> None:
        """Every field survives, and any JSON text."""
        full = an_annotation(
            2,
            name="näme",
            value='{"u":"\\u00e9","n":1.0}',
            scope=AnnotationScope.ITEM,
            node="bill",
            item=3,
            job=4,
            epoch=5,
            actor_kind="person",
            actor_id="me",
            actor_version="2",
            reason="it is 😀",
            key="k",
        )
        put(store, Insert(a_run(1)), Insert(full), Insert(an_annotation(1)))

        assert (an_annotation(1), full) == store.read(AnnotationsOf(RUN))
        assert isinstance(store.read(AnnotationsOf(RUN))[1].scope, AnnotationScope)

    @pytest.mark.parametrize("what", TEXTS)
    def test_a_run_is_found_by_any_text_that_was_said_of_it(self, store: Persistence, what: str) -> None:
        """In the name as in the value."""
        text = TEXTS[what]
        put(store, Insert(a_run(1)), Insert(a_run(2)))
        put(store, Insert(an_annotation(1, value=canonical(text))))
        put(store, Insert(an_annotation(2, 2, name=text or "none", value='"text"')))

        assert found(store, ("reviewed", text)) == [a_key(1)]
        assert found(store, (text or "none", "text")) == [a_key(2)]

    def test_runs_are_found_by_what_was_said_of_them(self, store: Persistence) -> None:
        """All annotations together, added with the run or later; only text values; separate from attributes."""
        run = a_run(4, attributes='{"reviewed":"yes"}')
        put(store, *(Insert(a_run(number)) for number in (1, 2, 3)), Insert(run))
        put(store, Insert(a_run(5)), Insert(an_annotation(1, 5)), Insert(an_annotation(2, 5)))
        put(
            store,
            Insert(an_annotation(3, 1)),
            Insert(an_annotation(4, 1, name="by", value='"me"')),
        )
        put(
            store,
            Insert(an_annotation(5, 2, value='"no"')),
            Insert(an_annotation(6, 3, value="1")),
        )
        put(
            store,
            Insert(an_annotation(7, 2)),
            Insert(an_annotation(8, 4, name="by", value='"me"')),
        )

        assert found(store, ("reviewed", "yes")) == [a_key(5), a_key(2), a_key(1)]
        assert found(store, ("reviewed", "yes"), ("by", "me")) == [a_key(1)]
        assert found(store, ("reviewed", "yes"), ("reviewed", "no")) == [a_key(2)]
        assert found(store, ("reviewed", "1")) == found(store, ("reviewed", "Yes")) == []
        assert found(store, ("by", "me"), attributes=(("reviewed", "yes"),)) == [a_key(4)]
        which = RunFilter(namespace=NAMESPACE, annotations=(("reviewed", "yes"),))
        assert store.read(CountRuns(which)) == {RunStatus.RUNNING: 3}
        elsewhere = RunFilter(namespace="tenant-2", annotations=(("reviewed", "yes"),))
        assert store.read(CountRuns(elsewhere)) == {}

    def test_runs_found_by_annotations_are_listed_page_by_page(self, store: Persistence) -> None:
        """In the order of all lists of runs."""
        put(store, *(Insert(a_run(number)) for number in range(9)))
        put(store, *(Insert(an_annotation(number, number)) for number in range(0, 9, 2)))
        which = RunFilter(namespace=NAMESPACE, annotations=(("reviewed", "yes"),), created_before=NOW + 8)
        first = store.read(ListRuns(which, limit=2))
        second = store.read(ListRuns(which, after=first[-1].place, limit=9))

        assert [run.key for run in first + second] == [a_key(number) for number in (6, 4, 2, 0)]

    def test_annotations_are_filtered_and_read_page_by_page(self, store: Persistence) -> None:
        """Each filter, and several together, match the same annotations as a full scan."""
        put(store, Insert(a_run(1)))
        annotations = [
            an_annotation(
                number,
                at=NOW + number // 3,
                name=("a", "a.b", "b%", "b_c")[number % 4],
                value=str(number),
                scope=list(AnnotationScope)[number % 3],
                node=("bill", None)[number % 2],
                item=number % 5 or None,
                actor_kind=("person", "service")[number // 2 % 2],
                actor_id=("me", "you", "")[number % 3],
            )
            for number in range(48)
        ]
        put(store, *map(Insert, Random(1).sample(annotations, len(annotations))))
        put(store, Insert(an_annotation(99, 2)))
        filters = [
            evolve(base, name=name, prefix=prefix, actor_kind=kind, actor_id=actor, scope=scope)
            for name, prefix, kind, actor, scope, base in product(
                (None, "a", "b%"),
                (None, "a", "b_"),
                (None, "person"),
                (None, "you", ""),
                (None, AnnotationScope.STAGE),
                (
                    AnnotationFilter(),
                    AnnotationFilter(node="bill", item=3),
                    AnnotationFilter(since=NOW + 2, until=NOW + 9),
                ),
            )
        ]
        for which in Random(2).sample(filters, 60):
            expected = tuple(one for one in annotations if _matches(one, which))
            assert expected == store.read(AnnotationsOf(RUN, which))
            after = expected[len(expected) // 2].place if expected else ListPlace(NOW, "")
            assert tuple(one for one in expected if one.place > after)[:3] == store.read(
                AnnotationsOf(RUN, which, after=after, limit=3)
            )

    def test_what_can_not_be_stored_was_said_of_nobody(self, store: Persistence) -> None:
        """Such a query is not an error."""
        for text in ("nul \0", "half \ud800"):
            assert store.read(AnnotationsOf(text)) == ()
            assert store.read(AnnotationsOf(RUN, AnnotationFilter(name=text))) == ()
            assert store.read(AiCallsOf(RUN, topic=text)) == ()
            assert store.read(ArtifactsOf(RUN, name=text)) == ()
            assert _names_under_keys(store, (RUN, text)) == []
            assert found(store, ("reviewed", text)) == []

    def test_what_is_said_under_a_key_is_said_once(self, store: Persistence) -> None:
        """A second annotation of the same name and key is a conflict; the names under a key can be read."""
        put(store, Insert(a_run(1)), Insert(a_run(2)))
        put(
            store,
            Insert(an_annotation(1, key="k")),
            Insert(an_annotation(2, name="b", key="k")),
        )
        put(store, Insert(an_annotation(3, key="l")), Insert(an_annotation(4, 2, key="k")))
        put(store, Insert(an_annotation(5)), Insert(an_annotation(6)))
        keys = [(RUN, "k"), (RUN, "m"), (a_key(2), "l")]

        assert _names_under_keys(store, *keys) == [(RUN, "k", "b"), (RUN, "k", "reviewed")]
        assert _names_under_keys(store) == []
        with pytest.raises(ConflictError):
            put(store, Insert(a_row(1, 1)), Insert(an_annotation(7, key="k")))
        with pytest.raises(ConflictError):
            put(store, Insert(an_annotation(7, key="n")), Insert(an_annotation(8, key="n")))
        assert store.read(HistoryOf(RUN)) == ()
        assert len(store.read(AnnotationsOf(RUN))) == 5

    # Artifacts

    def test_artifacts_are_added_and_read(self, store: Persistence) -> None:
        """Every field survives. By job, epoch, call and name; page by page."""
        artifacts = [
            an_artifact("b", job=1),
            an_artifact("a", job=1, epoch=2, node="x", item=3, content_type="a/b", size=2**40, sha256="c"),
            an_artifact("a", job=2),
            an_artifact("c", job=2),
            an_artifact("a", job=2, call="1"),
            an_artifact("ü", job=12),
        ]
        put(store, *map(Insert, reversed(artifacts)), Insert(an_artifact("a", run=2)))

        assert tuple(artifacts) == store.read(ArtifactsOf(RUN))
        assert tuple(artifacts[:2]) == store.read(ArtifactsOf(RUN, limit=2))
        assert tuple(artifacts[2:4]) == store.read(ArtifactsOf(RUN, after=(1, 2, "", "a"), limit=2))
        assert tuple(artifacts[1:3]) == store.read(ArtifactsOf(RUN, name="a", limit=2))
        assert (artifacts[2], artifacts[4]) == store.read(ArtifactsOf(RUN, name="a", after=(1, 2, "", "a")))
        assert store.read(ArtifactsOf(RUN, name="d")) == store.read(ArtifactsOf(a_key(9))) == ()

    def test_an_attempt_has_one_artifact_of_a_name(self, store: Persistence) -> None:
        """A second one is a conflict; other attempts have their own."""
        put(store, Insert(an_artifact()), Insert(an_artifact(epoch=2)))
        with pytest.raises(ConflictError):
            put(store, Insert(an_artifact(size=9)))

        assert [one.size for one in store.read(ArtifactsOf(RUN))] == [3, 3]

    # Model calls

    def test_ai_calls_are_added(self, store: Persistence) -> None:
        """Every field survives."""
        full = an_ai_call(
            2,
            job=3,
            epoch=4,
            node="x",
            item=5,
            topic="a.b",
            model="m/2",
            kind=AiCallKind.BATCH,
            input_tokens=10**12,
            output_tokens=7,
            cost=10**17 + 1,
            duration=8,
            batch="b",
            batch_index=9,
            prompt=Payload(inline='"p"'),
            response=Payload(blob="a/b"),
            error="no",
            metadata='{"a":1}',
        )
        put(store, Insert(full), Insert(an_ai_call(1)), Insert(an_ai_call(3, 2)))

        assert (an_ai_call(1), full) == store.read(AiCallsOf(RUN))
        assert isinstance(store.read(AiCallsOf(RUN))[1].kind, AiCallKind)

    def test_the_result_of_a_batch_is_stored_once(self, store: Persistence) -> None:
        """A repeat does nothing, in the same batch or a later one; other runs have their own."""

        def result(number: int, run: int, index: int, tokens: int = 1, batch: str = "b") -> Insert:
            call = an_ai_call(number, run, batch=batch, batch_index=index, input_tokens=tokens)
            return Insert(call)

        put(store, result(1, 1, 0), result(2, 1, 1), result(3, 1, 0, tokens=9))
        put(store, result(4, 1, 1, tokens=9), result(5, 1, 2), result(6, 2, 0), result(7, 1, 0, batch="c"))
        put(store, Insert(an_ai_call(8)), Insert(an_ai_call(9)))

        assert [call.id for call in store.read(AiCallsOf(RUN))] == [a_key(n) for n in (1, 2, 5, 7, 8, 9)]
        assert len(store.read(AiCallsOf(a_key(2)))) == 1
        assert [total.input_tokens for total in store.read(AiTotalsOf(RUN))] == [4]

    def test_a_call_is_stored_once_however_often_it_is_told(self, store: Persistence) -> None:
        """By its run, its instant and its id."""
        put(store, Insert(an_ai_call(1)), Insert(an_ai_call(1, cost=9)))
        put(store, Insert(an_ai_call(1, cost=9)), Insert(an_ai_call(1, 2)), Insert(an_ai_call(2)))

        assert store.read(AiCallsOf(RUN)) == (an_ai_call(1), an_ai_call(2))
        assert len(store.read(AiCallsOf(a_key(2)))) == 1

    def test_ai_calls_are_found_and_added_up_by_topic_and_model(self, store: Persistence) -> None:
        """Pages and totals equal those of a full scan, to the last digit."""
        draw = Random(3)
        topics = ("a", "a.b", "a.b.c", "a-b", "a/b", "ab", "b", "a.")
        calls = [
            an_ai_call(
                number,
                at=NOW + number // 3,
                topic=draw.choice(topics),
                model=draw.choice(("m-1", "m-2", "ü")),
                input_tokens=draw.randrange(10**15),
                output_tokens=draw.randrange(100),
                cost=draw.choice((None, draw.randrange(10**18), draw.randrange(1_000_000), 999_999)),
                duration=draw.choice((None, draw.randrange(10**9))),
                error=draw.choice((None, None, "no")),
            )
            for number in range(80)
        ]
        put(store, *map(Insert, draw.sample(calls, len(calls))), Insert(an_ai_call(99, 2)))
        for topic in (None, *topics, "A", "c"):
            below = [call for call in calls if is_of_topic(call.topic, topic)]
            for model in (None, "m-2", "x"):
                expected = tuple(call for call in below if model in {None, call.model})
                assert expected == store.read(AiCallsOf(RUN, topic=topic, model=model))
                after = expected[len(expected) // 2].place if expected else ListPlace(NOW, "")
                page = tuple(call for call in expected if call.place > after)[:4]
                assert page == store.read(AiCallsOf(RUN, topic=topic, model=model, after=after, limit=4))
            assert _added_up(below, by_model=True) == store.read(AiTotalsOf(RUN, topic=topic))
            assert _added_up(below, by_model=False) == store.read(AiTotalsOf(RUN, topic=topic, by="topic"))

    def test_all_that_is_said_is_stored_or_nothing(self, store: Persistence) -> None:
        """Together with the other changes of its batch."""
        put(store, Insert(a_run(1)))
        with pytest.raises(ConflictError):
            put(
                store,
                Insert(a_note(1)),
                Insert(an_annotation(1)),
                Insert(an_artifact()),
                Insert(an_ai_call(1)),
                Insert(a_run(1)),
            )

        assert not store.read(NotesInOrder(RUN))
        assert not store.read(AnnotationsOf(RUN))
        assert not store.read(ArtifactsOf(RUN))
        assert not store.read(AiCallsOf(RUN))
        assert found(store, ("reviewed", "yes")) == []


def _names_under_keys(store: Persistence, *keys: tuple[str, str]) -> list[tuple[str, str, str]]:
    return query(store, lambda tx: tx.find(AnnotationKeys(keys)))


def _matches(annotation: Annotation, which: AnnotationFilter) -> bool:
    """A second implementation of the filter, to compare with."""
    wanted = {
        "name": which.name,
        "actor_kind": which.actor_kind,
        "actor_id": which.actor_id,
        "scope": which.scope,
        "node": which.node,
        "item": which.item,
    }
    return (
        all(value is None or getattr(annotation, field) == value for field, value in wanted.items())
        and (which.prefix is None or annotation.name[: len(which.prefix)] == which.prefix)
        and not (which.since is not None and annotation.at < which.since)
        and not (which.until is not None and annotation.at >= which.until)
    )


def _added_up(calls: list[AiCall], *, by_model: bool) -> tuple[AiTotal, ...]:
    totals: dict[str, AiTotal] = {}
    nothing = AiTotal(
        name="", calls=0, failed=0, unpriced=0, input_tokens=0, output_tokens=0, cost=0, duration=0
    )
    for call in calls:
        name = call.model if by_model else call.topic
        so_far = totals.get(name, evolve(nothing, name=name))
        totals[name] = AiTotal(
            name=name,
            calls=so_far.calls + 1,
            failed=so_far.failed + (call.error is not None),
            unpriced=so_far.unpriced + (call.cost is None),
            input_tokens=so_far.input_tokens + call.input_tokens,
            output_tokens=so_far.output_tokens + call.output_tokens,
            cost=so_far.cost + (call.cost or 0),
            duration=so_far.duration + (call.duration or 0),
        )
    return tuple(totals[name] for name in sorted(totals))
