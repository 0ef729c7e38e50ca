"""Specs as JSON: both ways, stable, and independent of how texts are read."""

from datetime import UTC, date, datetime, timedelta
from typing import Any, cast

import pytest

from holdfast.kernel.calendars.documents import spec_from_document, spec_to_document
from holdfast.kernel.calendars.occurrences import occurrences
from holdfast.kernel.calendars.specs import Cron, Every, Spec
from holdfast.ports.json import canonical, parse
from holdfast.ports.unreadable import PARSE_ERRORS
from tests.calendars import ZONES, at, shown

SPECS: tuple[Spec, ...] = (
    Cron("30 2 * * *", zone="Europe/Paris"),
    Cron(["@daily", "*/15 9-17 L,LW * FRI#2,MONL"], days="both", gap="skip", fold="last"),
    Cron(
        "0 8 * * MON-FRI",
        zone="America/New_York",
        except_on=[date(2026, 12, 25)],
        start=datetime(2026, 1, 1, tzinfo=UTC),
        end=datetime(2027, 1, 1, tzinfo=UTC),
    ),
    Every(timedelta(hours=6)),
    Every(90, anchor=datetime(2026, 1, 1, tzinfo=UTC), end=datetime(2027, 1, 1, tzinfo=UTC)),
)


@pytest.mark.parametrize("spec", SPECS, ids=repr)
def test_a_spec_is_read_as_it_was_written(spec: Spec) -> None:
    text = canonical(spec_to_document(spec))

    again = spec_from_document(parse(text))

    assert again == spec
    assert repr(again) == repr(spec)
    assert canonical(spec_to_document(again)) == text
    after = at("2026-03-01T00:00Z")
    assert occurrences([again], ZONES, after=after, until=after * 2, limit=50) == occurrences(
        [spec], ZONES, after=after, until=after * 2, limit=50
    )


def test_the_stored_form_never_changes() -> None:
    """It is stored and fingerprinted: a release that writes another one would take each declaration for changed."""
    cron = Cron("30 2 13 * FRI#2", zone="Europe/Paris", except_on=[date(2026, 12, 25)])
    every = Every(timedelta(hours=6), end=datetime(2027, 1, 1, tzinfo=UTC))

    assert canonical(spec_to_document(cron)) == (
        '{"days":null,"end":null,"except_on":["2026-12-25"],"fold":null,"gap":"shift","kind":"cron","patterns":['
        '{"fold":"first","hours":[2],"last_day":false,"last_workday":false,"match":"either","minutes":[30],'
        '"month_days":[13],"months":[1,2,3,4,5,6,7,8,9,10,11,12],"nth_weekdays":[[5,2]],"weekdays":[]}],'
        '"start":null,"text":["30 2 13 * FRI#2"],"zone":"Europe/Paris"}'
    )
    assert canonical(spec_to_document(every)) == (
        '{"anchor":0,"end":1798761600000000,"kind":"every","length":21600000000,"start":null}'
    )


def test_the_sets_are_evaluated_and_the_text_is_only_shown() -> None:
    """A later release may read a text differently, or not at all: what is stored fires as before."""
    document = cast("dict[str, Any]", spec_to_document(Cron("30 2 * * *")))

    again = spec_from_document({**document, "text": ["half past two"]})

    assert isinstance(again, Cron)
    assert again.text == ("half past two",)
    (found,) = occurrences([again], {}, after=at("2026-11-26T00:00Z"), until=at("2026-11-26T12:00Z"), limit=9)
    assert shown(found.at) == "2026-11-26T02:30Z"


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {},
        {"kind": "solar"},
        {"kind": "cron"},
        {"kind": "every", "length": "6h"},
        {"kind": "every", "length": 1, "anchor": 0, "start": None, "end": None},
    ],
)
def test_anything_else_is_an_error_of_parsing(document: object) -> None:
    with pytest.raises(PARSE_ERRORS):
        spec_from_document(document)
