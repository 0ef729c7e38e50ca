"""One seed from its beginning to its end: what is drawn from it, the three phases, and what came of them."""

import gc
import logging
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from enum import IntEnum
from random import Random

import attrs

from holdfast.kernel.functions.machine import evict_all, in_memory
from holdfast.ports.persistence import Persistence
from holdfast.testing.simulation.faults import Faults, Fired, Kind, Schedule, draw_strengths
from holdfast.testing.simulation.fibers import START, HostError, SpinningError
from holdfast.testing.simulation.final_checks import wasted, wrong_at_end
from holdfast.testing.simulation.scenarios import Scenario, Sizes
from holdfast.testing.simulation.worlds import World


class Exit(IntEnum):
    """What a simulation comes to, as the exit code of the command line."""

    FINE = 0
    CRASHED = 127
    """The simulator or a host has raised what it must not."""
    STUCK = 128
    """Not all had come to its end within the bound after faults had ceased, or a host got nowhere and did not rest."""
    BROKEN = 129
    """An invariant did not hold."""


@attrs.frozen(kw_only=True)
class Outcome:
    """What one seed came to.

    Attributes:
        exit: Whether it went well, and if not, how badly.
        found: What is wrong, in words, one line each.
        trace: What happened, line by line.
        hash: The sha256 of that.
        points: At how many points something could have gone wrong.
        fired: What did.
        runs: How many runs there were.
        virtual: How many virtual seconds passed until the end.
    """

    seed: int
    exit: Exit
    found: tuple[str, ...]
    trace: tuple[str, ...]
    hash: str
    points: int
    fired: tuple[Fired, ...]
    runs: int
    virtual: float


def simulate_seed(
    seed: int,
    make: Callable[[Random], tuple[Scenario, Sizes]],
    *,
    strengths: Mapping[Kind, float] | None = None,
    schedule: Schedule | None = None,
    store: Callable[[], Persistence] | None = None,
    wastes_nothing: bool = True,
) -> Outcome:
    """Simulate what `make` draws for a seed.

    Args:
        seed: All that happens is a function of it, and of the arguments.
        make: Draws the scenario and the sizes of the world. Called twice, with generators that give the same numbers.
        strengths: How likely each kind of fault is; drawn if left out.
        schedule: Which of the faults are left out.
        store: Makes the store; one in memory if left out.
        wastes_nothing: Whether to do it all again without faults, and check that nothing is done in vain (W1).
    """
    with _quiet(), unswept():
        drawn = draw_strengths(Random(f"{seed}/strengths"))
        faults = Faults(drawn if strengths is None else strengths, schedule or Schedule(), START)
        world = _world(seed, make, faults, store)
        outcome = _played(seed, world)
        if outcome.exit or not wastes_nothing:
            return outcome
        again = _world(seed, make, Faults({}, Schedule(), START), store)
        return _faultless(seed, again, outcome)


def _world(
    seed: int,
    make: Callable[[Random], tuple[Scenario, Sizes]],
    faults: Faults,
    store: Callable[[], Persistence] | None,
) -> World:
    scenario, sizes = make(Random(f"{seed}/scenario"))
    return World(seed, scenario, sizes, faults, persistence=None if store is None else store())


def _played(seed: int, world: World) -> Outcome:
    """Go through the first two phases."""
    try:
        world.run_faults()
        finished = not world.watch.violations and world.heal()
    except HostError as error:
        return _outcome(seed, world, _exit_of(error), (str(error),))
    if world.watch.violations:
        return _outcome(seed, world, Exit.BROKEN, tuple(map(str, world.watch.violations)))
    if not finished:
        return _outcome(seed, world, Exit.STUCK, tuple(world.left()))
    found = tuple(map(str, wrong_at_end(world)))
    return _outcome(seed, world, Exit.BROKEN if found else Exit.FINE, found)


def _faultless(seed: int, world: World, outcome: Outcome) -> Outcome:
    """Go through the third phase: what it comes to, if that is not fine; else what the others came to."""
    try:
        finished = world.run_faultless()
    except HostError as error:
        return _outcome(seed, world, _exit_of(error), (str(error),))
    if not world.watch.violations and not finished:
        return _outcome(seed, world, Exit.STUCK, tuple(world.left()))
    found = tuple(map(str, (*world.watch.violations, *wrong_at_end(world), *wasted(world))))
    return _outcome(seed, world, Exit.BROKEN, found) if found else outcome


def _exit_of(error: HostError) -> Exit:
    return Exit.STUCK if isinstance(error.__cause__, SpinningError) else Exit.CRASHED


def _outcome(seed: int, world: World, exit: Exit, found: tuple[str, ...]) -> Outcome:
    return Outcome(
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
    """Keep hosts from logging each of some thousand faults that happen on purpose."""
    logger = logging.getLogger("holdfast")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)


@contextmanager
def unswept() -> Generator[None]:
    """Keep the garbage collector from looking again and again at a world that becomes garbage all at once.

    Functions of processes that have crashed are taken out of memory: nobody else would.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    others = in_memory()
    try:
        yield
    finally:
        evict_all(besides=others)
        if was_enabled:
            gc.enable()
