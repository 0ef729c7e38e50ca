"""Unreadable rows: every column is checked, and rows that Holdfast wrote always pass."""

from enum import StrEnum
from typing import get_args

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.ports.records.browser_session import BrowserSession
from holdfast.ports.records.credential import Credential
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.job import Job
from holdfast.ports.records.limits import RateWindow
from holdfast.ports.records.outbox import Sink, Stream
from holdfast.ports.records.run import Run
from holdfast.ports.records.schedule import ScheduleRow
from holdfast.ports.records.session import Session, SessionState
from holdfast.ports.records.values import MapItems
from holdfast.ports.unreadable import (
    INSTANT_MAX,
    PARSE_ERRORS,
    Unreadable,
    first_of_each,
    replace_unreadable,
    unreadable,
    unreadable_columns,
)
from holdfast.testing.conformance.builders import (
    NOW,
    a_browser_session,
    a_credential,
    a_job,
    a_page,
    a_row,
    a_run,
    a_session,
    a_sink,
    a_stream,
)
from holdfast.testing.conformance.persistence.jobs import FULL_JOB
from holdfast.testing.conformance.persistence.runs import FULL_RUN
from holdfast.testing.conformance.persistence.schedules import FULL_SCHEDULE

RECORDS = (FULL_RUN, FULL_JOB, a_run(), a_job(), a_row(), a_page())


def columns_of(record: attrs.AttrsInstance) -> dict[str, object]:
    """Return the columns of a record."""
    columns: dict[str, object] = dict(attrs.asdict(record, recurse=False))
    return columns | {"payload": None, "blob": None} if isinstance(record, HistoryRow) else columns


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_what_is_written_can_be_read(record: Run | Job | HistoryRow | MapItems) -> None:
    assert list(unreadable_columns(type(record), columns_of(record))) == []


@pytest.mark.parametrize(
    ("record", "name"),
    [(record, name) for record in RECORDS for name in columns_of(record)],
    ids=lambda one: one if isinstance(one, str) else type(one).__name__,
)
def test_each_column_is_looked_at(record: Run | Job | HistoryRow | MapItems, name: str) -> None:
    found = dict(unreadable_columns(type(record), columns_of(record) | {name: object()}))

    assert "object object" in found[name]


@pytest.mark.parametrize("record", [a_run(), a_job()], ids=lambda record: type(record).__name__)
def test_a_word_that_is_not_known_is_found(record: Run | Job) -> None:
    words = [
        field.name
        for field in attrs.fields(type(record))
        for kind in (get_args(field.type) or (field.type,))
        if isinstance(kind, type) and issubclass(kind, StrEnum)
    ]
    assert words
    for name in words:
        ((found, why),) = unreadable_columns(type(record), columns_of(record) | {name: "newer"})
        assert (found, why) == (name, "it is 'newer', which this version does not know")


@pytest.mark.parametrize(
    ("name", "value", "can_be"),
    [
        ("created_at", INSTANT_MAX, True),
        ("created_at", INSTANT_MAX + 1, False),
        ("created_at", -1, False),
        ("created_at", True, False),
        ("priority", 2**60, True),
        ("priority", 2**60 + 1, False),
        ("queue_position", -(2**60), True),
        ("queue_position", -(2**60) - 1, False),
        ("progress", "{}", True),
        ("progress", "[]", False),
        ("progress", "[" * 100_000, False),
        ("result", '["map","n",1,2]', True),
        ("result", '["of","k",["item","n",0,1]]', True),
        ("result", '["list",1,["list"]]', True),
        ("result", "true", False),
        ("result", '["map","n",1]', False),
        ("result", '["list",{}]', False),
        ("inherited", '[["k",3]]', True),
        ("inherited", '{"a":1}', True),
        ("inherited", '[["k"]]', False),
        ("inherited", '{"a":"b"}', False),
        ("attributes", '{"a":"b"}', True),
        ("attributes", '{"a":1}', False),
        ("mailbox", '{"unread":[[1,2]]}', True),
        ("mailbox", '{"unread":[1]}', False),
    ],
)
def test_a_column_of_a_run_holds_what_it_may(name: str, value: object, can_be: bool) -> None:
    found = [column for column, _ in unreadable_columns(Run, columns_of(a_run()) | {name: value})]

    assert found == ([] if can_be else [name])


def test_what_a_job_is_given_depends_on_its_kind() -> None:
    deliver, other = (columns_of(a_job()) | {"kind": kind, "input": '"k.1"'} for kind in ("deliver", "stage"))

    assert list(unreadable_columns(Job, deliver)) == []
    assert [column for column, _ in unreadable_columns(Job, other)] == ["input"]


def test_a_row_has_one_value() -> None:
    both = columns_of(a_row()) | {"payload": "1", "blob": f"t/s/e/1/{'a' * 64}"}

    assert list(unreadable_columns(HistoryRow, both)) == [("blob", "the row has a value, too")]


def test_messages_show_a_value_in_one_short_line() -> None:
    ((_, why),) = unreadable_columns(Run, columns_of(a_run()) | {"progress": "x\n\u202e" * 1_000})

    assert len(why) < 300
    assert why.isprintable()


any_value = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary())
SHARED = (a_session(), a_sink(), a_stream(), FULL_SCHEDULE, RateWindow(namespace="n", name="r", updated_at=1))


@pytest.mark.parametrize("record", SHARED, ids=lambda record: type(record).__name__)
@given(st.data())
def test_rows_that_many_share_are_always_readable(
    record: Session | Sink | Stream | ScheduleRow | RateWindow, data: st.DataObject
) -> None:
    """Columns that are not names stay as they are, and a repaired value is readable."""
    columns = columns_of(record)
    hurt = data.draw(st.dictionaries(st.sampled_from(sorted(columns)), any_value, min_size=1))
    found = replace_unreadable(type(record), columns | hurt)

    assert {name: found[name] for name in columns.keys() - hurt.keys()} == {
        name: columns[name] for name in columns.keys() - hurt.keys()
    }
    assert replace_unreadable(type(record), found) == found
    assert type(record)(**found) is not None


def test_a_session_with_an_unreadable_lease_is_lost() -> None:
    columns = columns_of(a_session())

    assert replace_unreadable(Session, columns | {"expires_at": "soon"})["expires_at"] == 0
    assert replace_unreadable(Session, columns | {"state": "newer"})["state"] == SessionState.DEAD


def test_each_column_is_reported_once_in_order() -> None:
    runs = Unreadable("holdfast_runs", "b", "status", "1")
    found = [
        runs,
        Unreadable("holdfast_jobs", "b", "kind", "2"),
        Unreadable("holdfast_jobs", "b", "kind", "1"),
        runs,
    ]

    assert first_of_each(found) == (Unreadable("holdfast_jobs", "b", "kind", "1"), runs)


def test_an_error_without_a_column_is_reported_as_it_is() -> None:
    error = unreadable(a_row(1, 2, at=INSTANT_MAX + 1), OverflowError("too far"))
    other = unreadable(a_run(), KeyError("x"))

    assert (error.table, error.column) == ("holdfast_history", "at")
    assert (other.table, other.column, other.why) == ("holdfast_runs", "*", "KeyError: 'x'")
    assert issubclass(OverflowError, PARSE_ERRORS)


@pytest.mark.parametrize("name", [field.name for field in attrs.fields(Credential) if field.name != "id"])
def test_a_credential_with_an_unreadable_column_allows_no_more(name: str) -> None:
    whole = attrs.evolve(a_credential(), previous_hash="b" * 64, previous_until=NOW + 2, expires_at=NOW + 3)
    columns = {**attrs.asdict(whole), name: object()}
    found = Credential(**replace_unreadable(Credential, columns))

    assert set(found.hashes(NOW)) <= {*whole.hashes(NOW), ""}
    assert set(found.scopes.split()) <= set(whole.scopes.split())
    assert set(found.namespaces.split()) <= set(whole.namespaces.split())
    if name in ("expires_at", "revoked_at"):
        assert found.hashes(NOW) == ()


@pytest.mark.parametrize("name", [field.name for field in attrs.fields(BrowserSession) if field.name != "id"])
def test_a_browser_session_with_an_unreadable_column_allows_no_more(name: str) -> None:
    whole = a_browser_session()
    columns = {**attrs.asdict(whole), name: object()}
    found = BrowserSession(**replace_unreadable(BrowserSession, columns))

    assert found.ends_at <= whole.ends_at
    assert found.hash in {whole.hash, ""}
    assert found.credential is not None
    assert set(found.scopes.split()) <= set(whole.scopes.split())
    assert set(found.namespaces.split()) <= set(whole.namespaces.split())
