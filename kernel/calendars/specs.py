"""`Cron` and `Every`: the values with which users define when something happens."""

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Final, Literal, TypeAlias, cast

import attrs

from holdfast.kernel.calendars.patterns import Fold, Match, Pattern, parse_pattern
from holdfast.ports.durations import Duration, length_of, length_within, wanted_length
from holdfast.ports.errors import DefinitionError
from holdfast.ports.validation import AWARE, shown

Gap: TypeAlias = Literal["shift", "skip"]

TEXTS_MAX: Final = 50
"""How many expressions one `Cron` may have."""
EXCEPTIONS_MAX: Final = 1_000
"""How many dates `except_on` may have."""
LENGTH_MIN: Final = timedelta(seconds=1)
LENGTH_MAX: Final = timedelta(days=36_600)
"""The longest interval: 100 years."""
EPOCH_START: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST: Final = datetime(9990, 1, 1, tzinfo=UTC)
_ZONE: Final = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*", re.ASCII)
_ZONE_MAX: Final = 100


def _refused(where: str, argument: str, value: object, words: str) -> DefinitionError:
    return DefinitionError(f"{where}: {argument} is {shown(value)}; it must be {words}")


def _check_choice(argument: str, value: object, *possible: object) -> None:
    if not any(value is one or (isinstance(value, str) and value == one) for one in possible):
        *others, last = map(repr, possible)
        raise _refused("Cron", argument, value, f"{', '.join(others)} or {last}")


def _check_zone(value: object) -> None:
    if isinstance(value, str) and len(value) <= _ZONE_MAX and _ZONE.fullmatch(value):
        return
    key: object = getattr(value, "key", None)
    advice = f"; write zone={key!r}" if isinstance(key, str) else ""
    raise _refused("Cron", "zone", value, f"the name of a time zone, such as 'Europe/Paris'{advice}")


def _check_bounds(where: str, start: object, end: object) -> None:
    for argument, value in (("start", start), ("end", end)):
        if value is None:
            continue
        if not AWARE.test(value):
            raise _refused(where, argument, value, f"{AWARE.words}, or None")
        if not EPOCH_START <= cast("datetime", value) < _LATEST:
            raise _refused(where, argument, value, "from 1970 to 9989")
    if start is not None and end is not None and cast("datetime", start) >= cast("datetime", end):
        raise DefinitionError(
            f"{where}: end is {end}, which is not after start, {start}: it would never fire; give a later end"
        )


def _texts(given: str | Sequence[str]) -> tuple[str, ...]:
    if isinstance(given, str):
        return (given,)
    value = cast("object", given)
    texts = tuple(cast("Sequence[str]", value)) if isinstance(value, list | tuple) else ()
    if not 1 <= len(texts) <= TEXTS_MAX:
        raise _refused("Cron", "text", given, f"a cron expression, or a list of 1 to {TEXTS_MAX} of them")
    return texts


def _dates(given: Iterable[date]) -> tuple[date, ...]:
    value = cast("object", given)
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise _refused("Cron", "except_on", value, "a list of dates, such as [date(2026, 12, 25)]")
    dates = tuple(cast("Iterable[object]", value))
    for one in dates:
        if not isinstance(one, date) or isinstance(one, datetime):
            raise _refused(
                "Cron", "except_on", one, "a list of dates, such as [date(2026, 12, 25)], without times"
            )
    found = tuple(sorted(set(cast("tuple[date, ...]", dates))))
    if len(found) > EXCEPTIONS_MAX:
        raise DefinitionError(
            f"Cron: except_on has {len(found):,} dates, and at most {EXCEPTIONS_MAX:,} are allowed"
        )
    if found and not 1970 <= found[0].year <= found[-1].year < _LATEST.year:
        raise _refused("Cron", "except_on", found[0], "dates from 1970 to 9989")
    return found


def _checked_patterns(cron: "Cron") -> tuple[Pattern, ...]:
    """Validate the options of a Cron, and return its patterns."""
    _check_zone(cron.zone)
    _check_choice("gap", cron.gap, "shift", "skip")
    _check_choice("fold", cron.fold, "first", "last", "both", None)
    _check_choice("days", cron.days, "either", "both", None)
    _check_bounds("Cron", cron.start, cron.end)
    return tuple(dict.fromkeys(parse_pattern(text, cron.days, cron.fold) for text in cron.text))


@attrs.frozen
class Cron:
    """The times that cron expressions match, by the clock of a time zone: `Cron("30 2 * * *", zone="Europe/Paris")`.

    Five fields: minute, hour, day of month, month, day of week. Each is `*`, or a list of numbers, names (`MON`,
    `JAN`), ranges (`MON-FRI`) and steps (`*/15`, `9-17/2`); 0 and 7 are Sunday. `L` is the last day of the month, `LW`
    its last day from Monday to Friday, `FRI#2` the second Friday, `FRIL` the last one. `@hourly`, `@daily`, `@weekly`,
    `@monthly` and `@yearly` are names of expressions.

    If the day of month and the day of week are both restricted, a day must be in one of them.

    Attributes:
        text: One expression or a list of them, at most 50; all of their times fire.
        zone: Name of the time zone whose clock is meant.
        gap: What becomes of a time that the clock skips. "shift": it is later by the length of the gap. "skip": it does
            not fire on that day.
        fold: Which pass of a time that the clock repeats fires: "first", "last" or "both". Default: both passes for an
            expression that allows every hour, which so goes by elapsed time, and the first pass for others.
        days: "either" or "both", for expressions that restrict day of month and day of week. Required if one of these
            fields begins with `*/`, because programs disagree about its meaning. Default: "either".
        except_on: Dates of the zone on which nothing fires.
        start: First possible instant, an aware datetime.
        end: Everything fires before it, an aware datetime.

    Raises:
        DefinitionError: An expression can't be read or never fires, or an option is invalid.
    """

    text: tuple[str, ...] = attrs.field(converter=_texts)
    zone: str = attrs.field(default="UTC", kw_only=True)
    gap: Gap = attrs.field(default="shift", kw_only=True)
    fold: Fold | None = attrs.field(default=None, kw_only=True)
    days: Match | None = attrs.field(default=None, kw_only=True)
    except_on: tuple[date, ...] = attrs.field(default=(), converter=_dates, kw_only=True)
    start: datetime | None = attrs.field(default=None, kw_only=True)
    end: datetime | None = attrs.field(default=None, kw_only=True)
    patterns: tuple[Pattern, ...] = attrs.field(
        init=False, repr=False, default=attrs.Factory(_checked_patterns, takes_self=True)
    )
    """The sets of the expressions, without duplicates."""
    excluded: frozenset[int] = attrs.field(
        init=False,
        repr=False,
        eq=False,
        default=attrs.Factory(
            lambda self: frozenset(one.toordinal() for one in self.except_on), takes_self=True
        ),
    )
    """The ordinals of `except_on`."""

    @classmethod
    def of_patterns(
        cls,
        patterns: tuple[Pattern, ...],
        *,
        text: tuple[str, ...],
        zone: str,
        gap: Gap,
        fold: Fold | None,
        days: Match | None,
        except_on: tuple[date, ...],
        start: datetime | None,
        end: datetime | None,
    ) -> "Cron":
        """Return a Cron that was validated when it was made, with the sets that it had then."""
        cron = cls.__new__(cls)
        for name, value in (
            ("text", text),
            ("zone", zone),
            ("gap", gap),
            ("fold", fold),
            ("days", days),
            ("except_on", except_on),
            ("start", start),
            ("end", end),
            ("patterns", patterns),
            ("excluded", frozenset(one.toordinal() for one in except_on)),
        ):
            object.__setattr__(cron, name, value)
        return cron

    def starting(self, start: datetime) -> "Cron":
        """Return the same times from an instant on, or from its own start if that is later."""
        return Cron.of_patterns(
            self.patterns,
            text=self.text,
            zone=self.zone,
            gap=self.gap,
            fold=self.fold,
            days=self.days,
            except_on=self.except_on,
            start=start if self.start is None else max(start, self.start),
            end=self.end,
        )


def _as_length(value: Duration) -> timedelta:
    length = length_of(value)
    return cast("timedelta", value) if length is None else length


def _check_length(_: object, __: object, value: timedelta) -> None:
    if length_within(value, LENGTH_MIN, LENGTH_MAX) is None:
        raise _refused(
            "Every",
            "length",
            value,
            f"{wanted_length(LENGTH_MIN)}, of 100 years at most; for times of the clock, use Cron",
        )


def _check_anchor(every: "Every", __: object, value: datetime) -> None:
    if not AWARE.test(value):
        raise _refused("Every", "anchor", value, AWARE.words)
    if not EPOCH_START <= value < _LATEST:
        raise _refused("Every", "anchor", value, "from 1970 to 9989")
    _check_bounds("Every", every.start, every.end)


@attrs.frozen
class Every:
    """An interval of elapsed time: `Every(timedelta(hours=6))`. Clock changes do not move it.

    It fires at the anchor, and at every multiple of the length before and after it, whenever a process starts.

    Attributes:
        length: A timedelta or a number of seconds, from one second to 100 years.
        anchor: One of the instants, an aware datetime. Default: 1970-01-01T00:00Z.
        start: First possible instant, an aware datetime.
        end: Everything fires before it, an aware datetime.

    Raises:
        DefinitionError: A value is out of range.
    """

    length: timedelta = attrs.field(converter=_as_length, validator=_check_length)
    anchor: datetime = attrs.field(default=EPOCH_START, kw_only=True, validator=_check_anchor)
    start: datetime | None = attrs.field(default=None, kw_only=True)
    end: datetime | None = attrs.field(default=None, kw_only=True)


Spec: TypeAlias = Cron | Every
"""When something happens."""
