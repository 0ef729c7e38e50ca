"""The contract of a store for event sinks, and for the streams of events to them."""

from typing import Final

from attrs import evolve

from holdfast.ports.changes import AdvanceStreams, Delete, Insert, Update
from holdfast.ports.persistence import Persistence
from holdfast.ports.queries.outbox import (
    CountDeadLetters,
    DeadLetter,
    ListDeadLetters,
    ListSinks,
    SinksWithDueStreams,
    StreamRows,
    StreamStart,
)
from holdfast.ports.records.outbox import SinkName, Stream, StreamHead, StreamKey, StreamState
from holdfast.ports.searches import (
    AllSinks,
    DeadLetteredStreams,
    DueStreams,
    RunKeys,
    SinksByName,
    UndeliveredHeads,
)
from holdfast.ports.tables import SINKS, STREAMS
from holdfast.testing.conformance.builders import (
    NAMESPACE,
    NOW,
    SECOND,
    a_key,
    a_row,
    a_run,
    a_sink,
    a_stream,
)
from holdfast.testing.conformance.persistence.case import PersistenceCase, put, query

AUDIT: Final = SinkName(NAMESPACE, "audit")


def an_advance(run: int = 1, number: int = 1, *, sink: str = "audit", at: int = NOW) -> AdvanceStreams:
    """Return the change that announces new history rows to a sink."""
    return AdvanceStreams(StreamHead(sink=a_sink(sink).key, run=a_key(run), head_row=number, at=at))


def put_streams(store: Persistence, *streams: Stream) -> None:
    """Store streams as they are."""
    put(
        store,
        *(AdvanceStreams(StreamHead(sink=one.sink, run=one.run, head_row=1, at=NOW)) for one in streams),
    )
    put(store, *map(Update, streams))


def streams_of(store: Persistence, *runs: int, sink: str = "audit") -> list[Stream]:
    """Return the streams of runs to a sink, by run."""
    return query(
        store, lambda tx: tx.lock(STREAMS, [StreamKey(a_sink(sink).key, a_key(run)) for run in runs])
    )


def due(store: Persistence, now: int = NOW, limit: int = 10, name: SinkName = AUDIT) -> list[str]:
    """Return the keys of the runs whose streams to a sink are due, in order."""
    return [stream.run for stream in query(store, lambda tx: tx.find(DueStreams(*name, limit), now))]


class Sinks(PersistenceCase):
    """Sinks, streams, and their queries."""

    def test_sinks_come_back_as_they_were_stored(self, store: Persistence) -> None:
        """All of them, those of given names, and those of a namespace."""
        plain = a_sink("audit")
        full = a_sink(
            "b.c-d",
            since=1,
            options='{"types":["run.*"]}',
            failures=3,
            retry_at=NOW + 1,
            succeeded_at=NOW,
            swept_at=NOW + 2,
            batch='{"number":1,"read_at":5,"streams":[["run",0,2,null]]}',
            error="OSError: \u00e9",
        )
        other = a_sink("audit", key="01OTHER", namespace="tenant-2")
        put(store, Insert(full), Insert(plain), Insert(other))

        assert sorted([plain, full, other], key=lambda sink: sink.key) == query(
            store, lambda tx: tx.find(AllSinks())
        )
        assert [full] == query(
            store, lambda tx: tx.find(SinksByName([full.sink_name, SinkName(NAMESPACE, "none")], locks=True))
        )
        assert [other] == query(store, lambda tx: tx.find(SinksByName([other.sink_name], locks=False)))
        assert (plain, full) == store.read(ListSinks(NAMESPACE))

    def test_sinks_are_changed_and_removed(self, store: Persistence) -> None:
        """Each by its key, also in the transaction that adds it."""
        put(store, Insert(a_sink("a")), Insert(a_sink("b")), Update(a_sink("b", failures=1)))
        put(store, Update(a_sink("a", failures=2)))
        put(store, Delete(SINKS, a_sink("b").key), Insert(a_sink("c")), Delete(SINKS, a_sink("c").key))

        assert store.read(ListSinks(NAMESPACE)) == (a_sink("a", failures=2),)

    def test_news_make_a_stream_that_is_due(self, store: Persistence) -> None:
        """Of several announcements in one transaction the first sets the time, and the highest sets the row."""
        put(store, an_advance(1, 1), an_advance(1, 3, at=NOW + 5), an_advance(1, 2), an_advance(2, 1))

        assert streams_of(store, 2, 1) == [a_stream(1, head_row=3), a_stream(2)]

    def test_news_never_go_back(self, store: Persistence) -> None:
        """A repair may announce old rows again."""
        put(store, an_advance(1, 5))
        put(store, an_advance(1, 3, at=NOW + 9))

        assert streams_of(store, 1) == [a_stream(1, head_row=5)]

    def test_news_wake_an_idle_stream_and_no_other(self, store: Persistence) -> None:
        """A stream that is held or waits for a retry keeps its time; a dead-lettered one is never due."""
        put_streams(
            store,
            a_stream(1, delivered=1, due_at=None),
            a_stream(2, holder="h", due_at=NOW + 60),
            a_stream(3, state=StreamState.DEAD_LETTERED, due_at=None, dead_lettered_at=NOW),
        )
        put(store, *(an_advance(run, 2, at=NOW + 5) for run in (1, 2, 3)))

        assert [(one.head_row, one.due_at) for one in streams_of(store, 1, 2, 3)] == [
            (2, NOW + 5),
            (2, NOW + 60),
            (2, None),
        ]

    def test_streams_come_back_as_they_were_stored(self, store: Persistence) -> None:
        """With every field."""
        full = a_stream(
            head_row=9,
            delivered=4,
            state=StreamState.DEAD_LETTERED,
            due_at=None,
            holder="h",
            attempts=5,
            refused_row=5,
            failed_at=NOW,
            dead_lettered_at=NOW + 1,
            error="no",
            skipped_rows='{"3":{"reason":"odd"}}',
        )
        put_streams(store, full, a_stream(2))

        assert streams_of(store, 1, 2, 3) == [full, a_stream(2)]

    def test_news_and_a_change_of_one_stream_come_to_both(self, store: Persistence) -> None:
        """A delivery's update does not overwrite an announcement in the same transaction."""
        put(store, an_advance())
        put(store, Update(a_stream(1, delivered=1, due_at=None)), an_advance(1, 2, at=NOW + 7))

        assert streams_of(store, 1) == [a_stream(1, head_row=2, delivered=1, due_at=NOW + 7)]

    def test_due_streams_come_longest_due_first(self, store: Persistence) -> None:
        """Only of that sink, and not before their time."""
        put(store, Insert(a_sink()), Insert(a_sink("other")))
        put_streams(store, *(a_stream(run, due_at=NOW + 10 - run) for run in range(1, 8)))
        put_streams(store, a_stream(8, "other"), a_stream(9, due_at=None), a_stream(10, due_at=NOW + 11))

        assert due(store, NOW + 10, 3) == [a_key(7), a_key(6), a_key(5)]
        assert due(store, NOW + 5, 10) == [a_key(7), a_key(6), a_key(5)]
        assert due(store, NOW + 10, 0) == []
        assert due(store, NOW, name=SinkName(NAMESPACE, "other")) == [a_key(8)]
        assert due(store, NOW, name=SinkName("tenant-2", "audit")) == []

    def test_a_sink_that_is_to_be_left_alone_has_nothing_due(self, store: Persistence) -> None:
        """Until its retry time."""
        put(store, Insert(a_sink(retry_at=NOW + 5)), an_advance())

        assert due(store, NOW + 4) == []
        assert due(store, NOW + 5) == [a_key(1)]
        question = SinksWithDueStreams(NAMESPACE, ("audit", "none"), NOW + 4)
        assert store.read(question) == ()
        assert store.read(evolve(question, now=NOW + 5)) == ("audit",)

    def test_sinks_with_news_are_those_with_a_due_stream(self, store: Persistence) -> None:
        """Among the requested names."""
        put(store, *(Insert(a_sink(name)) for name in ("a", "b", "c", "d")))
        put(store, an_advance(sink="a"), an_advance(sink="b"), an_advance(sink="c", at=NOW + 1))

        assert store.read(SinksWithDueStreams(NAMESPACE, ("d", "c", "b"), NOW)) == ("b",)
        assert store.read(SinksWithDueStreams(NAMESPACE, ("d", "c", "b"), NOW + 1)) == ("b", "c")
        assert store.read(SinksWithDueStreams("tenant-2", ("a",), NOW)) == ()

    def test_sinks_that_clients_read_are_looked_up_by_themselves(self, store: Persistence) -> None:
        """Hosts deliver nothing to them."""
        put(store, Insert(a_sink("a")), Insert(a_sink("b", batch='{"number":0,"read_at":0,"streams":[]}')))
        put(store, an_advance(sink="a"), an_advance(sink="b"))
        question = SinksWithDueStreams(NAMESPACE, ("a", "b"), NOW)

        assert store.read(question) == ("a",)
        assert store.read(evolve(question, are_read=True)) == ("b",)

    def test_rows_of_streams_come_by_run_and_number_and_so_many_of_each(self, store: Persistence) -> None:
        """Starting after a given row."""
        put(store, *(Insert(a_row(run, number)) for run in (1, 2, 3) for number in range(1, 11)))
        starts = (StreamStart(a_key(2), 8, NOW), StreamStart(a_key(1), 3, NOW), StreamStart(a_key(9), 1, NOW))

        found = store.read(StreamRows(starts, 4))

        assert [(row.run, row.number) for row in found] == [
            *((a_key(1), number) for number in (4, 5, 6, 7)),
            *((a_key(2), number) for number in (9, 10)),
        ]
        assert found[0] == a_row(1, 4)

    def test_rows_of_a_new_stream_begin_with_the_first_one_from_since_on(self, store: Persistence) -> None:
        """After that one, rows are included whatever their time."""
        instants = (NOW - 9, NOW - 1, NOW, NOW - 1, NOW + 1)
        put(store, *(Insert(a_row(1, number, at=at)) for number, at in enumerate(instants, 1)))

        def numbers(since: int, limit: int = 10) -> list[int]:
            return [row.number for row in store.read(StreamRows((StreamStart(a_key(1), 0, since),), limit))]

        assert numbers(NOW) == [3, 4, 5]
        assert numbers(NOW, 2) == [3, 4]
        assert numbers(0) == [1, 2, 3, 4, 5]
        assert numbers(NOW + 2) == []

    def test_dead_letters_are_the_parked_streams(self, store: Persistence) -> None:
        """By sink and run, page by page; optionally of one sink or run."""
        put(store, Insert(a_sink("b")), Insert(a_sink("a")), *(Insert(a_run(run)) for run in (1, 2, 3)))
        put_streams(
            store,
            *(
                a_stream(
                    run,
                    sink,
                    state=StreamState.DEAD_LETTERED,
                    due_at=None,
                    head_row=9,
                    refused_row=run,
                    attempts=5,
                    dead_lettered_at=NOW,
                    error="no",
                )
                for run in (1, 2)
                for sink in ("a", "b")
            ),
            a_stream(3, "a"),
        )
        found = store.read(ListDeadLetters(namespace=NAMESPACE))

        assert [(one.sink, one.run_id) for one in found] == [
            (sink, run) for sink in ("a", "b") for run in ("run-1", "run-2")
        ]
        assert found[1] == DeadLetter(
            sink="a",
            run=a_key(2),
            run_id="run-2",
            number=2,
            head_row=9,
            attempts=5,
            dead_lettered_at=NOW,
            error="no",
        )
        pages = [
            store.read(ListDeadLetters(namespace=NAMESPACE, after=after, limit=2))
            for after in (None, found[1].place)
        ]
        assert [*pages[0], *pages[1]] == list(found)
        assert store.read(ListDeadLetters(namespace=NAMESPACE, sink="b")) == found[2:]
        assert store.read(ListDeadLetters(namespace=NAMESPACE, run_id="run-1")) == (found[0], found[2])
        assert store.read(ListDeadLetters(namespace=NAMESPACE, sink="b", run_id="run-1")) == (found[2],)
        assert store.read(ListDeadLetters(namespace="tenant-2")) == ()
        assert store.read(CountDeadLetters(NAMESPACE)) == {"a": 2, "b": 2}
        assert store.read(CountDeadLetters("tenant-2")) == {}

        def dead_lettered(sink: str = "", run_id: str = "", limit: int = 9) -> list[tuple[str, str]]:
            streams = query(store, lambda tx: tx.find(DeadLetteredStreams(NAMESPACE, sink, run_id, limit)))
            return [(stream.sink, stream.run) for stream in streams]

        everything = [(a_sink(sink).key, a_key(run)) for sink in ("a", "b") for run in (1, 2)]
        assert dead_lettered() == everything
        assert dead_lettered(limit=3) == everything[:3]
        assert dead_lettered(sink="b") == everything[2:]
        assert dead_lettered(run_id="run-2") == everything[1::2]
        assert dead_lettered(sink="c") == dead_lettered(run_id="run-3") == []

    def test_what_sinks_have_not_heard_of_is_found(self, store: Persistence) -> None:
        """Runs updated since the sink's start, with rows beyond its stream."""
        put(store, Insert(a_sink(since=NOW + 3)), Insert(a_sink("other")), Insert(a_sink("third")))
        runs = [a_run(number, last_row=5) for number in range(1, 7)]
        put(store, *map(Insert, runs), Insert(a_run(7)), Insert(a_run(8, namespace="tenant-2")))
        put(store, Update(evolve(runs[0], updated_at=NOW + 100)))
        put(store, an_advance(4, 5), an_advance(5, 4), an_advance(6, 6))
        keys = [a_key(number) for number in range(1, 9)]

        def undelivered(*names: str) -> list[tuple[str, str, int]]:
            found = query(store, lambda tx: tx.find(UndeliveredHeads(NAMESPACE, names, keys)))
            return [(head.sink, head.run, head.head_row) for head in found]

        assert undelivered("audit") == [(a_sink().key, a_key(run), 5) for run in (1, 3, 5)]
        assert undelivered("other", "audit") == [
            *undelivered("audit"),
            *((a_sink("other").key, a_key(run), 5) for run in range(1, 7)),
        ]
        assert undelivered() == []
        assert query(store, lambda tx: tx.find(UndeliveredHeads(NAMESPACE, ["audit"], []))) == []
        assert query(store, lambda tx: tx.find(RunKeys("", 3))) == keys[:3]
        assert query(store, lambda tx: tx.find(RunKeys(a_key(6), 3))) == keys[6:]

    def test_streams_of_sinks_that_are_no_more_are_pruned(self, store: Persistence) -> None:
        """And no others."""
        put(store, Insert(a_sink()), an_advance(1), an_advance(1, sink="gone"), an_advance(2, sink="gone"))

        assert store.prune(NOW - SECOND) == 2
        assert streams_of(store, 1) == [a_stream(1)]
        assert streams_of(store, 1, 2, sink="gone") == []

    def test_nasty_names_are_found_or_not_there(self, store: Persistence) -> None:
        """No text breaks a query."""
        for text in ("nul \0", "half \ud800", "'; DROP TABLE holdfast_runs; --", "%", "x" * 10_000):
            assert store.read(ListSinks(text)) == ()
            assert store.read(SinksWithDueStreams(text, (text,), NOW)) == ()
            assert store.read(ListDeadLetters(namespace=text, sink=text, run_id=text)) == ()
            assert store.read(CountDeadLetters(text)) == {}
            assert store.read(StreamRows((StreamStart(text, 0, 0),), 5)) == ()
            assert due(store, name=SinkName(text, text)) == []
            assert query(store, lambda tx: tx.find(SinksByName([SinkName(text, text)], locks=True))) == []  # noqa: B023
            assert query(store, lambda tx: tx.lock(STREAMS, [StreamKey(text, text)])) == []  # noqa: B023
            assert query(store, lambda tx: tx.find(DeadLetteredStreams(text, text, text, 5))) == []  # noqa: B023
            assert query(store, lambda tx: tx.find(UndeliveredHeads(text, [text], [text]))) == []  # noqa: B023
