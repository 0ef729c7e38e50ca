"""Two other evaluators, cronsim and croniter, on random expressions in UTC. A difference that is not listed fails.

Around clock changes both have other rules than ours, so there `zoneinfo` is the oracle (test_zone_changes.py).
"""

import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Final, Literal

import pytest
from croniter import croniter
from cronsim import CronSim, CronSimError

from holdfast.kernel.calendars.occurrences import next_after, occurrences
from holdfast.kernel.calendars.specs import Cron
from holdfast.ports.clock import instant, micros
from holdfast.ports.errors import DefinitionError
from tests.sizes import sized

START: Final = datetime(2026, 1, 1, tzinfo=UTC)
NEVER: Final = datetime(9990, 1, 1, tzinfo=UTC)


def by_cronsim(text: str, after: datetime) -> Iterator[datetime]:
    return CronSim(text, after)


def by_croniter(text: str, after: datetime) -> Iterator[datetime]:
    walk = croniter(text, after)
    while True:
        yield walk.get_next(datetime)


def ours(cron: Cron, after: datetime, count: int) -> list[datetime]:
    found = occurrences([cron], {}, after=micros(after), until=micros(NEVER), limit=count)
    return [instant(one.at) for one in found]


def random_text(draw: random.Random) -> str:
    """Return an expression that both of the others can read."""

    def field(least: int, most: int, stars: float, *, stepped: bool = True) -> str:
        if draw.random() < stars:
            return f"*/{draw.randint(2, 12)}" if stepped and draw.random() < 0.3 else "*"
        parts: list[str] = []
        for _ in range(draw.randint(1, 3)):
            first = draw.randint(least, most - 2)
            last = draw.randint(first + 1, most - (first == least))
            step = draw.randint(1, 5)
            parts.append(draw.choice((f"{first}", f"{first}-{last}", f"{first}-{last}/{step}")))
        return ",".join(parts)

    return " ".join(
        (
            field(0, 59, 0.2),
            field(0, 23, 0.4),
            draw.choice(("*", field(1, 28, 0.3, stepped=False), "L", "15,L")),
            field(1, 12, 0.7),
            draw.choice(("*", field(0, 5, 0.3, stepped=False), "MON-FRI", "FRI#2", "MON#1,WED#5")),
        )
    )


@pytest.mark.sized
@pytest.mark.parametrize("oracle", [by_cronsim, by_croniter])
def test_random_expressions(oracle: Callable[[str, datetime], Iterator[datetime]]) -> None:
    draw = random.Random(20_261_126)
    for _ in range(sized(60, 200)):
        text = random_text(draw)
        if oracle is by_croniter and "#" in text:
            continue  # with an n-th weekday, its first result may be at a minute that is not in the set
        after = START + timedelta(minutes=draw.randrange(20 * 366 * 1_440))
        count = sized(40, 500)

        assert ours(Cron(text), after, count) == list(islice(oracle(text, after), count)), text


@pytest.mark.sized
def test_random_instants() -> None:
    """The next one from any instant, not only from the one before."""
    draw = random.Random(20_261_127)
    for _ in range(sized(20, 200)):
        text = random_text(draw)
        cron = [Cron(text)]
        for _ in range(sized(20, 500)):
            after = START + timedelta(seconds=draw.randrange(20 * 366 * 86_400))
            found = next_after(cron, {}, micros(after))
            assert found is not None
            assert instant(found.at) == next(by_cronsim(text, after)), (text, after)


def answer(oracle: Callable[[str, datetime], Iterator[datetime]], text: str) -> str:
    """Return the days of the first occurrences, or "refused"."""
    try:
        return " ".join(one.strftime("%m-%d") for one in islice(oracle(text, START), 3))
    except (ValueError, CronSimError):
        return "refused"


@pytest.mark.parametrize(
    ("text", "days", "is_ours", "cronsim", "croniter_"),
    [
        # A field that begins with a star restricts in addition for cronsim, as in Debian's cron.
        ("0 0 */10 * MON", None, "refused", "05-11 06-01 08-31", "01-05 01-11 01-12"),
        ("0 0 */10 * MON", "both", "05-11 06-01 08-31", "05-11 06-01 08-31", "01-05 01-11 01-12"),
        ("0 0 */10 * MON", "either", "01-05 01-11 01-12", "05-11 06-01 08-31", "01-05 01-11 01-12"),
        ("0 0 */1 * MON", None, "refused", "01-05 01-12 01-19", "01-02 01-03 01-04"),
        # A list of all days is meant as a star by people, and not by programs.
        ("0 0 1-31 * MON", None, "refused", "01-02 01-03 01-04", "01-02 01-03 01-04"),
        # An n-th weekday and a day of the month: either here, both for croniter.
        ("0 0 1 * FRI#1", None, "01-02 02-01 02-06", "01-02 02-01 02-06", "01-02 02-06 03-06"),
        # A range of one value is that value here, and all of the field for croniter.
        ("0 0 24-24 1 *", None, "01-24 01-24 01-24", "01-24 01-24 01-24", "01-02 01-03 01-04"),
        # A step in it goes on to the end of the field for cronsim.
        ("0 0 29-29/1 1 *", None, "01-29 01-29 01-29", "01-29 01-30 01-31", "01-02 01-03 01-04"),
        # What only some can read.
        ("0 0 LW * *", None, "01-30 02-27 03-31", "01-30 02-27 03-31", "refused"),
        ("0 0 * * FRIL", None, "01-30 02-27 03-27", "refused", "refused"),
        ("0 0 * * 5L", None, "01-30 02-27 03-27", "01-30 02-27 03-27", "refused"),
        ("0 0 * * L5", None, "refused", "refused", "01-30 02-27 03-27"),
        ("0 0 * * FRI#2,MON", None, "01-05 01-09 01-12", "01-05 01-09 01-12", "refused"),
        ("0 0 * * FRI-SUN", None, "01-02 01-03 01-04", "refused", "01-02 01-03 01-04"),
        ("0 0 ? * MON", None, "01-05 01-12 01-19", "refused", "01-05 01-12 01-19"),
        ("@daily", None, "01-02 01-03 01-04", "refused", "01-02 01-03 01-04"),
        ("0 22-2 * * *", None, "refused", "refused", "01-01 01-01 01-01"),
        ("5/15 0 * * *", None, "refused", "01-01 01-01 01-01", "01-01 01-01 01-01"),
        ("*/90 0 * * *", None, "refused", "01-02 01-03 01-04", "01-02 01-03 01-04"),
        ("0 0 * * * 30", None, "refused", "refused", "01-01 01-02 01-03"),
        ("0 0 30 2 *", None, "refused", "refused", "refused"),
    ],
)
def test_known_differences(
    text: str, days: Literal["either", "both"] | None, is_ours: str, cronsim: str, croniter_: str
) -> None:
    try:
        found = " ".join(one.strftime("%m-%d") for one in ours(Cron(text, days=days), START, 3))
    except DefinitionError:
        found = "refused"

    assert (found, answer(by_cronsim, text), answer(by_croniter, text)) == (is_ours, cronsim, croniter_)
