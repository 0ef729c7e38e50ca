"""Random schedules under random faults: each nominal time is accounted for once, by a ledger of its own."""

from collections import Counter
from datetime import UTC, datetime

import pytest

from holdfast.kernel.calendars.specs import Cron, Every, Spec
from holdfast.kernel.commands import StartKind
from holdfast.kernel.pipelines import plan
from holdfast.kernel.rules import start_template
from holdfast.kernel.schedules.row_data import timing_of
from holdfast.ports.clock import micros
from holdfast.ports.records.values import Micros
from holdfast.ports.zones import ZoneTable
from holdfast.testing.simulation import Exit, simulate_seed
from holdfast.testing.simulation.batches import simulate_seeds
from holdfast.testing.simulation.faults import Faults
from holdfast.testing.simulation.schedule_ledger import ScheduleLedger
from holdfast.testing.simulation.schedule_times import WalkedTimes
from holdfast.testing.simulation.schedule_workload import draw_schedules
from holdfast.testing.simulation.schedule_zones import ZoneRelease
from holdfast.testing.simulation.store_kinds import stores
from holdfast.testing.simulation.store_time import StoreTimeline

SEEDS = (*range(1, 41), 50, 52)
"""The last two have a time whose run exists already, which is rare."""
ENOUGH = 4
OUTCOMES = {"started", "skipped", "existing", "superseded", "missed"}


@pytest.fixture
def ledgers(monkeypatch: pytest.MonkeyPatch) -> list[ScheduleLedger]:
    """The ledgers of the simulations of a test."""
    made: list[ScheduleLedger] = []
    start = ScheduleLedger.__init__

    def starting(ledger: ScheduleLedger, *args: object, **options: object) -> None:
        start(ledger, *args, **options)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        made.append(ledger)

    monkeypatch.setattr(ScheduleLedger, "__init__", starting)
    return made


@pytest.mark.slow
def test_a_few_seeds_end_well() -> None:
    for outcome in simulate_seeds(range(1, 4), "memory", workload="schedules"):
        assert outcome.exit is Exit.FINE, (outcome.seed, outcome.found)


def has_never_stopped(_: Faults, __: str) -> bool:
    return False


@pytest.mark.slow
def test_a_run_may_be_blocked_if_faults_stopped_one_worker_after_the_other_with_it(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """After two of them here, as ten in a row are rare. It is a violation if no fault stopped them."""
    monkeypatch.setattr(plan, "LOSSES_MAX", 2)
    start_template.start_template_of.cache_clear()
    request.addfinalizer(start_template.start_template_of.cache_clear)
    blocked: list[int] = []
    with stores("memory") as store:
        for seed in range(1, 21):
            outcome = simulate_seed(seed, draw_schedules, store=store, wastes_nothing=False)
            assert outcome.exit is Exit.FINE, (seed, outcome.found)
            if any("run.blocked" in line and "worker_lost" in line for line in outcome.trace):
                blocked.append(seed)
        assert len(blocked) >= ENOUGH
        monkeypatch.setattr(Faults, "has_stopped", has_never_stopped)
        outcome = simulate_seed(blocked[0], draw_schedules, store=store, wastes_nothing=False)
    assert any("the run was blocked: worker_lost" in one for one in outcome.found)


@pytest.mark.slow
def test_each_nominal_time_is_accounted_for_once_whatever_goes_wrong(ledgers: list[ScheduleLedger]) -> None:
    for outcome in simulate_seeds(SEEDS, "memory", workload="schedules"):
        assert outcome.exit is Exit.FINE, (outcome.seed, outcome.found)
    total = Counter[str]()
    for ledger in ledgers:
        total.update(ledger.outcomes)
    rare = {name: total[name] for name in (*OUTCOMES, *StartKind) if total[name] < ENOUGH}
    assert not rare, f"these happened too rarely to test anything: {rare}"


@pytest.mark.slow
def test_a_seed_gives_the_same_trace_on_both_stores() -> None:
    with stores("memory") as memory, stores("sqlite") as sqlite:
        one, again, other = (
            simulate_seed(3, draw_schedules, store=store, wastes_nothing=False)
            for store in (memory, memory, sqlite)
        )
    assert one.exit is Exit.FINE
    assert one.trace == again.trace == other.trace


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1_001, 1_041, 10))
def test_many_seeds(first: int) -> None:
    for outcome in simulate_seeds(range(first, first + 10), "memory", workload="schedules"):
        assert outcome.exit is Exit.FINE, (outcome.seed, outcome.found)


# The parts of the ledger ----------------------------------------------------------------------------------------


def at(text: str) -> Micros:
    return micros(datetime.fromisoformat(text).replace(tzinfo=UTC))


def walked(spec: Spec, after: str, until: str) -> list[str]:
    """Return the nominal times in a zone whose clock is set forward at 02:00 on day 2, and back at 03:00 on day 4."""
    changes = tuple(at(text) // 1_000_000 for text in ("2026-01-02T01:00", "2026-01-04T01:00"))
    table = ZoneTable("A/B", "1", changes, (3_600, 7_200, 3_600))
    times = WalkedTimes(timing_of([spec]), ZoneRelease("1", {"A/B": table}))
    found = times.between(at(after), at(until))
    first = times.first_after(at(after))
    assert first is None or first == found[0]
    return [datetime.fromtimestamp(one // 1_000_000, UTC).strftime("%d %H:%M") for one in found]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (Cron("30 2 * * *", zone="A/B"), ["01 01:30", "02 01:30", "03 00:30", "04 00:30"]),
        (Cron("30 2 * * *", zone="A/B", gap="skip"), ["01 01:30", "03 00:30", "04 00:30"]),
        (Cron("30 2 * * *", zone="A/B", fold="last"), ["01 01:30", "02 01:30", "03 00:30", "04 01:30"]),
        (Cron("30 2 4 * *", zone="A/B", fold="both"), ["04 00:30", "04 01:30"]),
        (Cron("0 2-3 2,4 * *", zone="A/B"), ["02 01:00", "04 00:00", "04 02:00"]),
        (Cron("0 12 * * 0-1", zone="UTC"), ["04 12:00"]),
        (Every(86_400 * 2), ["03 00:00"]),
    ],
)
def test_nominal_times_minute_by_minute(spec: Spec, expected: list[str]) -> None:
    assert walked(spec, "2026-01-01T00:00", "2026-01-04T23:59") == expected


def test_the_clock_of_the_store_may_be_set() -> None:
    now = [100_000_000_000]
    clock = StoreTimeline(lambda: now[0], [(100_000_000_001, -50), (100_000_000_002, 70)])
    assert (clock.now(), clock.earliest(), clock.latest()) == (now[0],) * 3
    now[0] += 1
    assert (clock.now(), clock.earliest(), clock.latest()) == (now[0] - 50, now[0] - 50, now[0])
    now[0] += 1
    assert (clock.now(), clock.earliest(), clock.latest()) == (now[0] + 20, now[0] - 50, now[0] + 20)
    now[0] += 10_000_000_000
    assert (clock.now(), clock.earliest(), clock.latest()) == (now[0] + 20,) * 3
