"""Datetimes and times as text: ISO 8601, with suffixes in brackets for what it can't express, as in RFC 9557.

`2026-10-25T02:30:00+01:00[Europe/Berlin][_fold=1]`: the key of the zone, so that arithmetic across a clock change stays
correct; `_fold` for the second of two equal wall times; and `_name` for the name of a fixed offset, if it has one.
"""

from collections.abc import Callable
from datetime import UTC, datetime, time, timedelta, timezone, tzinfo
from typing import Final, TypeVar, cast
from urllib.parse import quote, unquote
from zoneinfo import ZoneInfo

from holdfast.kernel.values.codec import class_name, mismatch, unstorable

Moment = TypeVar("Moment", datetime, time)

_FOLD: Final = "_fold=1"
_NAME: Final = "_name="


def write_moment(value: datetime | time) -> str:
    """Return the text of a datetime or time. Mismatch if its zone could not be restored."""
    zone = value.tzinfo
    if zone is None or zone is UTC:
        text = value.isoformat()
    else:
        tag = _tag(zone, value)
        text = f"{value.isoformat()}{tag}"
    return f"{text}[{_FOLD}]" if value.fold else text


def _tag(zone: tzinfo, value: datetime | time) -> str:
    """Return the suffix of a zone, or "" if the offset is enough."""
    if type(zone) is ZoneInfo:
        key = cast("str | None", zone.key)
        if key is None or _zone_named(key) is None:
            raise unstorable("its time zone has no key, so it can't be restored; use ZoneInfo(key)")
        return f"[{key}]"
    try:
        offset, name = zone.utcoffset(None), zone.tzname(None)
        is_fixed = offset is not None and offset == value.utcoffset()
    except Exception:  # noqa: BLE001  # a user's zone may raise anything
        is_fixed, offset, name = False, None, None
    if not is_fixed or offset is None:
        raise unstorable(
            f"its time zone, of type {class_name(zone)}, can't be restored; use zoneinfo.ZoneInfo, or convert the value"
            " with `.astimezone(UTC)`"
        )
    usual = _fixed(offset).tzname(None)
    return "" if name is None or name == usual else f"[{_NAME}{quote(name, safe='')}]"


def read_moment(text: str, read: Callable[[str], Moment]) -> Moment:
    """Return the datetime or time of a text with suffixes. `read` parses the part before them.

    If the zone has another offset today than the text, the wall time is kept. Raises ValueError or Mismatch.
    """
    plain, *tags = text.removesuffix("]").replace("]", "").split("[")
    value = read(plain)
    fold = 0
    for tag in tags:
        if tag == _FOLD:
            fold = 1
        elif tag.startswith(_NAME):
            offset = value.utcoffset()
            if offset is None:
                raise ValueError(text)
            value = value.replace(tzinfo=timezone(offset, unquote(tag.removeprefix(_NAME))))
        elif (zone := _zone_named(tag)) is None:
            raise mismatch(f"unknown time zone {tag!r}; install the package tzdata")
        elif plain.endswith("Z") and isinstance(
            value, datetime
        ):  # RFC 9557 from other writers: an instant to show in that zone
            value = value.astimezone(zone)
            fold = value.fold
        else:
            value = value.replace(tzinfo=zone)
    return value.replace(fold=fold)


def _zone_named(key: str) -> ZoneInfo | None:
    try:
        return ZoneInfo(key)
    except (KeyError, ValueError, OSError):
        return None


def _fixed(offset: timedelta) -> timezone:
    return timezone(offset)
