"""Reads the rows of concurrency and rate limits that the jobs and runs of a batch wait for."""

from collections.abc import Iterable

from holdfast.kernel.composed_searches import LinesOfLimit, WaitingJobs, WaitingRuns
from holdfast.kernel.dispatch.read_set import ReadSet
from holdfast.kernel.dispatch.run_rate_lines import refusing_rates
from holdfast.kernel.limits.concurrency import count_used_slots
from holdfast.kernel.limits.levels import level_places
from holdfast.kernel.limits.rates import queued_rates
from holdfast.kernel.state import Reads, State
from holdfast.ports.persistence import Transaction
from holdfast.ports.records.job import Job
from holdfast.ports.records.limits import RateName, SlotName
from holdfast.ports.records.run import Run
from holdfast.ports.searches import ClaimableJobs, QueuedUnderRates, SlotPlace, UsedSlots, Waiting
from holdfast.ports.tables import RATES, SLOTS


def read_rates(tx: Transaction, state: State, needs: list[Reads], _: ReadSet) -> None:
    """Lock the rate-limit rows of jobs that may be claimed or queued, and of starts of runs.

    For jobs that may be queued, count those already queued under each limit: no other transaction can add to them now.
    """
    tables = state.tables
    names: set[RateName] = set()
    places: dict[RateName, SlotPlace] = {}
    for search, found in state.found.items():
        if isinstance(search, ClaimableJobs | WaitingJobs | LinesOfLimit):
            rates = {
                job.rate for job in map(tables.job, found.jobs) if job is not None and job.rate is not None
            }
            names |= rates
            if isinstance(search, WaitingJobs):
                places.update((rate, SlotPlace(*rate)) for rate in rates)
        elif isinstance(search, WaitingRuns):
            names.update(found.rates)
    state.refusing = frozenset(refusing_rates(state, needs))
    names |= state.refusing
    for reads in needs:
        starting = map(tables.job, reads.starts) if reads.starts else ()
        names.update(job.rate for job in starting if job is not None and job.rate is not None)
    if not names:
        return
    tables.rates.update((window.rate_name, window) for window in tx.lock(RATES, sorted(names)))
    if places:
        queued = tx.find(QueuedUnderRates(sorted(places.values())))
        known = queued_rates(tables)
        state.queued_by_rate.update(
            (rate, queued.get(place, 0) - known[rate]) for rate, place in places.items()
        )


def read_slots(tx: Transaction, state: State, _: list[Reads], __: ReadSet) -> None:
    """Lock the concurrency limits of the waiters found, and count their slots in use: no one else can take one now."""
    tables = state.tables
    runs: dict[SlotName, SlotPlace] = {}
    jobs: dict[SlotName, SlotPlace] = {}
    for search, found in state.found.items():
        if isinstance(search, WaitingRuns):
            runs.update(_levels(tables.runs.get(key) for key in found.runs))
        elif isinstance(search, WaitingJobs):
            jobs.update(_places(tables.job(key) for key in found.jobs))
    if not runs and not jobs:
        return
    tables.slots.update((slot, slot) for slot in tx.lock(SLOTS, sorted((*runs, *jobs))))
    for waiting, names in ((Waiting.RUNS, runs), (Waiting.JOBS, jobs)):
        if names:
            used = tx.find(UsedSlots(waiting, sorted(names.values())))
            known = count_used_slots(tables, waiting)
            state.used_slots.update((name, used.get(place, 0) - known[name]) for name, place in names.items())


def _levels(found: Iterable[Run | None]) -> Iterable[tuple[SlotName, SlotPlace]]:
    for run in found:
        if run is not None and run.concurrency_key is not None:
            places = level_places(SlotPlace(run.namespace, run.concurrency_key))
            yield from zip(run.slots, places, strict=True)


def _places(found: Iterable[Job | None]) -> Iterable[tuple[SlotName, SlotPlace]]:
    for one in found:
        if one is not None and one.slot is not None and one.concurrency_key is not None:
            yield one.slot, SlotPlace(one.namespace, one.concurrency_key)
