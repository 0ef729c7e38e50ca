"""Specs as JSON documents, in which they are stored and fingerprinted.

A document has the sets of each expression, which are evaluated, and its text, which is shown: a release that reads a
text differently does not move the times of a stored spec. Instants are microseconds since the epoch. `canonical` of a
document is the same for equal specs, in every release.
"""

from datetime import date, datetime, timedelta
from typing import Any, Final, Literal, TypeAlias, TypedDict, cast

from holdfast.kernel.calendars.patterns import Days, Fold, Match, Pattern
from holdfast.kernel.calendars.specs import Cron, Every, Gap, Spec
from holdfast.ports.clock import instant, micros
from holdfast.ports.errors import DefinitionError
from holdfast.ports.records.values import Micros

_MICROSECOND: Final = timedelta(microseconds=1)


class PatternDocument(TypedDict):
    """The sets of one expression."""

    minutes: list[int]
    hours: list[int]
    month_days: list[int]
    last_day: bool
    last_workday: bool
    months: list[int]
    weekdays: list[int]
    nth_weekdays: list[list[int]]
    match: Match
    fold: Fold


class CronDocument(TypedDict):
    """A Cron."""

    kind: Literal["cron"]
    text: list[str]
    patterns: list[PatternDocument]
    zone: str
    gap: Gap
    fold: Fold | None
    days: Match | None
    except_on: list[str]
    start: Micros | None
    end: Micros | None


class EveryDocument(TypedDict):
    """An Every."""

    kind: Literal["every"]
    length: Micros
    anchor: Micros
    start: Micros | None
    end: Micros | None


SpecDocument: TypeAlias = CronDocument | EveryDocument


def spec_to_document(spec: Spec) -> SpecDocument:
    """Return a spec as plain JSON data."""
    if isinstance(spec, Every):
        return {
            "kind": "every",
            "length": spec.length // _MICROSECOND,
            "anchor": micros(spec.anchor),
            "start": _micros(spec.start),
            "end": _micros(spec.end),
        }
    return {
        "kind": "cron",
        "text": list(spec.text),
        "patterns": [_pattern_to_document(one) for one in spec.patterns],
        "zone": spec.zone,
        "gap": spec.gap,
        "fold": spec.fold,
        "days": spec.days,
        "except_on": [one.isoformat() for one in spec.except_on],
        "start": _micros(spec.start),
        "end": _micros(spec.end),
    }


def spec_from_document(document: object) -> Spec:
    """Return the spec of a document. Texts are not read again.

    Raises:
        ValueError: The document was not made by `spec_to_document`, or by a newer release. So are TypeError and
            KeyError: see PARSE_ERRORS in `ports/unreadable.py`.
    """
    stored = cast("Any", document)
    match stored["kind"]:
        case "every":
            try:
                return Every(
                    timedelta(microseconds=stored["length"]),
                    anchor=instant(stored["anchor"]),
                    start=_instant(stored["start"]),
                    end=_instant(stored["end"]),
                )
            except DefinitionError as error:
                raise ValueError(str(error)) from None
        case "cron":
            return Cron.of_patterns(
                tuple(_pattern_from_document(one) for one in stored["patterns"]),
                text=tuple(stored["text"]),
                zone=stored["zone"],
                gap=stored["gap"],
                fold=stored["fold"],
                days=stored["days"],
                except_on=tuple(date.fromisoformat(one) for one in stored["except_on"]),
                start=_instant(stored["start"]),
                end=_instant(stored["end"]),
            )
        case kind:
            raise ValueError(f"a spec has the unknown kind {kind!r}")


def _pattern_to_document(pattern: Pattern) -> PatternDocument:
    days = pattern.days
    return {
        "minutes": list(pattern.minutes),
        "hours": list(pattern.hours),
        "month_days": list(days.month_days),
        "last_day": days.last_day,
        "last_workday": days.last_workday,
        "months": list(pattern.months),
        "weekdays": list(days.weekdays),
        "nth_weekdays": [list(one) for one in days.nth_weekdays],
        "match": days.match,
        "fold": pattern.fold,
    }


def _pattern_from_document(stored: Any) -> Pattern:
    return Pattern(
        minutes=tuple(stored["minutes"]),
        hours=tuple(stored["hours"]),
        months=tuple(stored["months"]),
        days=Days(
            month_days=tuple(stored["month_days"]),
            last_day=stored["last_day"],
            last_workday=stored["last_workday"],
            weekdays=tuple(stored["weekdays"]),
            nth_weekdays=tuple((weekday, ordinal) for weekday, ordinal in stored["nth_weekdays"]),
            match=stored["match"],
        ),
        fold=stored["fold"],
    )


def _micros(at: datetime | None) -> Micros | None:
    return None if at is None else micros(at)


def _instant(value: Micros | None) -> datetime | None:
    return None if value is None else instant(value)
