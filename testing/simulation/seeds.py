"""The simulation of one seed: the draws, the three phases, and the outcome."""

import gc
import logging
from collections.abc import Callable, Generator, Mapping
from contextlib import closing, contextmanager
from enum import IntEnum
from random import Random

import attrs

from holdfast.kernel.functions.machine import evict_all, in_memory
from holdfast.ports.persistence import Persistence
from holdfast.testing.simulation.faults import FaultKind, Faults, FaultSchedule, FiredFault, draw_strengths
from holdfast.testing.simulation.fibers import START, HostError, SpinningError
from holdfast.testing.simulation.final_checks import wasted_work, wrong_at_end
from holdfast.testing.simulation.loops import close_tasks
from holdfast.testing.simulation.scenarios import Scenario, Sizes
from holdfast.testing.simulation.worlds import World


class Exit(IntEnum):
    """The result of a simulation, as the exit code of the command line."""

    FINE = 0
    CRASHED = 127
    """The simulator or a host raised an unexpected exception."""
    STUCK = 128
    """Something had not ended within the bound after the faults, or a host was in a busy loop."""
    BROKEN = 129
    """An invariant did not hold."""


@attrs.frozen(kw_only=True)
class SeedOutcome:
    """The outcome of one seed.

    Attributes:
        exit: Whether it succeeded, or how it failed.
        found: The violations, one line each.
        trace: The lines of the trace.
        hash: The SHA-256 of the trace.
        points: The number of points at which a fault could have fired.
        fired: The faults that fired.
        runs: The number of runs.
        virtual: The virtual seconds from start to end.
    """

    seed: int
    exit: Exit
    found: tuple[str, ...]
    trace: tuple[str, ...]
    hash: str
    points: int
    fired: tuple[FiredFault, ...]
    runs: int
    virtual: float


def simulate_seed(
    seed: int,
    make: Callable[[Random], tuple[Scenario, Sizes]],
    *,
    strengths: Mapping[FaultKind, float] | None = None,
    schedule: FaultSchedule | None = None,
    store: Callable[[], Persistence] | None = None,
    wastes_nothing: bool = True,
) -> SeedOutcome:
    """Simulate the scenario that `make` draws for a seed.

    Args:
        seed: Determines the whole simulation, together with the other arguments.
        make: Draws the scenario and the sizes of the world. Called twice, with equal random generators.
        strengths: The probability of each kind of fault; drawn if omitted.
        schedule: Restrictions on the faults; none if omitted.
        store: Creates the store; one in memory if omitted.
        wastes_nothing: Whether to simulate again without faults and check that no work is wasted (W1).
    """
    with _quiet(), without_garbage_collection():
        drawn = draw_strengths(Random(f"{seed}/strengths"))
        faults = Faults(drawn if strengths is None else strengths, schedule or FaultSchedule(), START)
        world = _world(seed, make, faults, store)
        with closing(world.hub):
            outcome = _played(seed, world)
        if outcome.exit or not wastes_nothing:
            return outcome
        again = _world(seed, make, Faults({}, FaultSchedule(), START), store)
        with closing(again.hub):
            return _faultless(seed, again, outcome)


def _world(
    seed: int,
    make: Callable[[Random], tuple[Scenario, Sizes]],
    faults: Faults,
    store: Callable[[], Persistence] | None,
) -> World:
    scenario, sizes = make(Random(f"{seed}/scenario"))
    return World(seed, scenario, sizes, faults, persistence=None if store is None else store())


def _played(seed: int, world: World) -> SeedOutcome:
    """Run the fault and healing phases."""
    try:
        world.run_faults()
        finished = not world.watch.violations and world.heal()
    except HostError as error:
        return _outcome(seed, world, _exit_of(error), (str(error),))
    if world.watch.violations:
        return _outcome(seed, world, Exit.BROKEN, tuple(map(str, world.watch.violations)))
    if not finished:
        return _outcome(seed, world, Exit.STUCK, tuple(world.unfinished()))
    found = tuple(map(str, wrong_at_end(world)))
    return _outcome(seed, world, Exit.BROKEN if found else Exit.FINE, found)


def _faultless(seed: int, world: World, outcome: SeedOutcome) -> SeedOutcome:
    """Run the faultless phase; return its outcome if it failed, else the given one."""
    try:
        finished = world.run_faultless()
    except HostError as error:
        return _outcome(seed, world, _exit_of(error), (str(error),))
    if not world.watch.violations and not finished:
        return _outcome(seed, world, Exit.STUCK, tuple(world.unfinished()))
    found = tuple(map(str, (*world.watch.violations, *wrong_at_end(world), *wasted_work(world))))
    return _outcome(seed, world, Exit.BROKEN, found) if found else outcome


def _exit_of(error: HostError) -> Exit:
    return Exit.STUCK if isinstance(error.__cause__, SpinningError) else Exit.CRASHED


def _outcome(seed: int, world: World, exit: Exit, found: tuple[str, ...]) -> SeedOutcome:
    return SeedOutcome(
        seed=seed,
        exit=exit,
        found=found,
        trace=tuple(world.trace.lines),
        hash=world.trace.hash,
        points=world.faults.points,
        fired=tuple(world.faults.fired),
        runs=len(world.store.tables.runs),
        virtual=(world.hub.now - START) / 1_000_000,
    )


@contextmanager
def _quiet() -> Generator[None]:
    """Disable logging: hosts would log each of some thousand injected faults."""
    logger = logging.getLogger("holdfast")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)


@contextmanager
def without_garbage_collection() -> Generator[None]:
    """Disable the garbage collector: a world becomes garbage all at once, and until then collections are wasted.

    At the end, evict the functions of crashed processes and close their tasks, which nothing else would.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    others = in_memory()
    try:
        yield
    finally:
        evict_all(besides=others)
        close_tasks()
        if was_enabled:
            gc.enable()
