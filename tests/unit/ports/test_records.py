"""Records: job keys, payloads that are either inline or a blob, instants in microseconds."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.ports.clock import instant, micros
from holdfast.ports.records.job import JobKey, job_key
from holdfast.ports.records.run import ACTIVE, TERMINAL, RunStatus, attribute_texts
from holdfast.ports.records.values import Payload

RUN_KEYS = st.text(st.characters(codec="utf-8"), min_size=1)


@given(run=RUN_KEYS, number=st.integers(0, 9_999_999_999))
def test_a_job_id_names_its_key(run: str, number: int) -> None:
    key = JobKey(run, number)

    assert job_key(key.text) == key


@pytest.mark.parametrize(
    "text", ["", ".", "r", "r.", ".1", "r.x", "r.-1", "r.+1", "r. 1", "r.1_0", "r.²", "r.12345678901"]
)
def test_what_names_no_job_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a job id"):
        job_key(text)


def test_job_keys_are_ordered_by_run_and_then_by_number() -> None:
    keys = [JobKey("a", 10), JobKey("b", 1), JobKey("a", 9)]

    assert sorted(keys) == [JobKey("a", 9), JobKey("a", 10), JobKey("b", 1)]


def test_attributes_are_the_texts_among_what_is_there() -> None:
    assert attribute_texts('{"a":"1","b":"","c":2,"d":null}') == {"a": "1", "b": ""}
    for nothing in (None, "", "[]", '"a"', "{", "[" * 100_000):
        assert attribute_texts(nothing) == {}


def test_a_payload_is_inline_or_in_a_blob() -> None:
    assert Payload(inline="1").blob is None
    assert Payload(blob="k").inline is None
    for inline, blob in ((None, None), ("1", "k")):
        with pytest.raises(ValueError, match="either inline or in a blob"):
            Payload(inline=inline, blob=blob)


def test_an_empty_text_is_a_place_too() -> None:
    assert Payload(inline="").inline == ""


def test_each_status_is_active_or_terminal() -> None:
    assert set(RunStatus) == ACTIVE | TERMINAL
    assert ACTIVE.isdisjoint(TERMINAL)
    assert {RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED} == TERMINAL


@given(st.datetimes(min_value=datetime(1, 1, 2), max_value=datetime(9999, 12, 30), timezones=st.just(UTC)))  # noqa: DTZ001
def test_an_instant_comes_back_from_its_microseconds(moment: datetime) -> None:
    assert instant(micros(moment)) == moment


def test_instants_are_counted_from_1970_whatever_their_zone() -> None:
    moment = datetime(1970, 1, 1, 2, 0, 0, 5, tzinfo=timezone(timedelta(hours=2)))

    assert micros(moment) == 5
    assert instant(5) == moment
    assert instant(-1) == datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)


def test_a_naive_datetime_is_no_instant() -> None:
    with pytest.raises(ValueError, match="no time zone"):
        micros(datetime(2026, 1, 1))  # noqa: DTZ001
