"""The contract of a store for values in its rows: they come back unchanged."""

from typing import Final

import pytest
from attrs import evolve

from holdfast.ports.changes import Insert, Update
from holdfast.ports.persistence import Persistence
from holdfast.ports.queries.history import HistoryOf
from holdfast.ports.queries.runs import FindRun, JobsOfRun
from holdfast.ports.queries.values import PlansByFingerprint
from holdfast.ports.records.job import JobState
from holdfast.ports.records.values import Payload
from holdfast.ports.searches import DueJobs, LatestRuns
from holdfast.ports.tables import SESSIONS
from holdfast.testing.conformance.builders import a_job, a_key, a_plan, a_row, a_run, a_session
from holdfast.testing.conformance.persistence.case import PersistenceCase, put, put_jobs, query, the_run

TEXTS: Final[dict[str, str]] = {
    "empty": "",
    "blanks": " \t\r\n ",
    "line ends": "a\nb\r\nc\rd\u2028e\u0085f",
    "quotes": "a'b\"c`d''e\\'f",
    "backslashes": "\\ \\\\ \\n \\u0000 \\x00",
    "percent and colons": "100% %s %(name)s :name ::text {0} {name} ? $1 @p",
    "SQL": "'); DROP TABLE runs; --",
    "LIKE": "a%b_c[d]*e?",
    "controls": "".join(chr(code) for code in range(1, 32)) + "\x7f",
    "latin": "Größe çà ñandú",
    "composed and not": "é e\u0301",
    "other scripts": "日本語 عربى עברית ไทย",
    "beyond the basic plane": "😀 🏴\U000e0067\U000e0062 \U0001d518 \U0010ffff",
    "JSON that must not be parsed": '{"b": 1, "a": 1.0, "a": 2, "n": 1e400}',
    "a number": "007.50",
    "a word that means something": "null",
}
"""Texts that every store can hold."""

NUMBERS: Final = (0, 1, -1, 2**31 - 1, 2**31, 2**53 + 1, 2**62, 2**63 - 1, -(2**63), 1_767_225_600_123_457)
"""Instants that every store can hold."""


class Values(PersistenceCase):
    """Texts, numbers and sizes."""

    @pytest.mark.parametrize("what", TEXTS)
    def test_a_text_comes_out_as_it_went_in(self, store: Persistence, what: str) -> None:
        """In the fields that hold user data."""
        text = TEXTS[what]
        run = a_run(1, progress=text, error=text, result=text)
        put(store, Insert(run), Insert(a_plan(1, body=text)))
        row = a_row(1, 1, payload=Payload(inline=text), data=text)
        put(store, Insert(row))

        assert run == the_run(store, run.key)
        assert (row,) == store.read(HistoryOf(run.key))
        assert (a_plan(1, body=text),) == store.read(PlansByFingerprint((a_plan(1).fingerprint,)))

    @pytest.mark.parametrize("what", sorted(set(TEXTS) - {"empty"}))
    def test_a_name_is_found_as_it_was_given(self, store: Persistence, what: str) -> None:
        """In the fields of search keys."""
        text = TEXTS[what]
        run = a_run(1, id=text, namespace=text)
        put(store, Insert(run))

        assert run == store.read(FindRun(run.name))
        assert [run] == query(store, lambda tx: tx.find(LatestRuns([run.name])))

    @pytest.mark.parametrize("number", NUMBERS)
    def test_an_instant_comes_out_as_it_went_in(self, store: Persistence, number: int) -> None:
        """All 64 bits of it, in every table."""
        put(store, Insert(a_run(1, created_at=number, updated_at=number, ended_at=number)))
        put(store, Insert(a_row(1, 1, at=number)), Insert(a_session(1, opened_at=number)))
        put_jobs(store, a_job(2, 1))
        put(store, Update(a_job(2, 1, state=JobState.SLEEPING, wake_at=number, leased_at=number)))

        run = the_run(store, a_key(1))
        assert (number, number, number) == (run.created_at, run.updated_at, run.ended_at)
        (row,) = store.read(HistoryOf(a_key(1)))
        (session,) = query(store, lambda tx: tx.get(SESSIONS, [a_key(1)]))
        (job,) = store.read(JobsOfRun(a_key(2)))
        assert (number, number, number, number) == (row.at, session.opened_at, job.wake_at, job.leased_at)

    def test_an_instant_is_compared_as_a_number(self, store: Persistence) -> None:
        """To the microsecond, however far from now."""
        put_jobs(
            store, *(a_job(at, 1, state=JobState.SLEEPING, wake_at=at) for at in (0, 9, 10, 2**53, 2**53 + 1))
        )

        assert [job.wake_at for job in query(store, lambda tx: tx.find(DueJobs(10), 2**53))] == [
            0,
            9,
            10,
            2**53,
        ]

    @pytest.mark.parametrize("size", [10_000, 1_000_000, 4_000_000])
    def test_a_big_value_comes_out_as_it_went_in(self, store: Persistence, size: int) -> None:
        """Up to the four MiB that a batch may hold."""
        text = '"' + "0123456789abcde\\u00e9" * (size // 21) + '"'
        row = a_row(1, 1, payload=Payload(inline=text))
        put_jobs(store, a_job())
        put(store, Insert(row))

        (found,) = store.read(HistoryOf(a_key(1)))

        assert row == found

    @pytest.mark.parametrize("what", sorted(set(TEXTS) - {"empty"}))
    def test_long_texts_and_short_ones_may_be_in_one_batch(self, store: Persistence, what: str) -> None:
        """A store may send long texts in another way. Each comes out in its own row."""
        long = TEXTS[what] * (20_000 // len(TEXTS[what]))
        payloads = (
            Payload(inline=long),
            Payload(inline=TEXTS[what]),
            None,
            Payload(inline=long + "2"),
            Payload(blob="b"),
            Payload(inline=long + "3"),
        )
        put_jobs(store, a_job())
        batch = [a_row(1, number, payload=payload) for number, payload in enumerate(payloads, 1)]
        put(store, *map(Insert, batch))

        assert tuple(batch) == store.read(HistoryOf(a_key(1)))

    def test_rows_of_a_batch_may_differ_in_what_they_have(self, store: Persistence) -> None:
        """A None in one row does not affect the next."""
        put_jobs(store, a_job())
        full = a_row(1, 1, node="a", item=1, epoch=1, payload=Payload(inline="1"), data="{}")
        bare = a_row(1, 2)
        blob = evolve(full, number=3, item=None, payload=Payload(blob="b"))
        put(store, *map(Insert, (full, bare, blob)))

        assert (full, bare, blob) == store.read(HistoryOf(a_key(1)))
