"""Command line of the simulator, `python -m holdfast.testing.simulation`: simulates many seeds and prints a report.

Exit codes: 0 success, 127 the simulator or a host crashed, 128 a run or host was stuck, 129 an invariant did not hold.
"""

import argparse
import gc
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

from holdfast.testing.simulation.batches import simulate_seeds
from holdfast.testing.simulation.faults import FaultKind
from holdfast.testing.simulation.regression_seeds import REGRESSION_SEEDS
from holdfast.testing.simulation.reports import report
from holdfast.testing.simulation.seeds import Exit, SeedOutcome, simulate_seed
from holdfast.testing.simulation.shrinker import shrink
from holdfast.testing.simulation.store_kinds import STORES, stores
from holdfast.testing.simulation.workloads import RUNS, WORKLOADS, has_faultless_phase

_CHUNK_MAX = 25
_PROGRESS_EVERY = 1_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Simulate the seeds, print the report, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m holdfast.testing.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="number of seeds")
    parser.add_argument("--first", type=int, default=1, help="first seed")
    parser.add_argument("--store", choices=STORES, default="memory")
    parser.add_argument("--workload", choices=tuple(WORKLOADS), default=RUNS)
    parser.add_argument("--jobs", type=int, default=1, help="number of processes")
    parser.add_argument("--no-kept", action="store_true", help="leave out the regression seeds")
    parser.add_argument("--trace", action="store_true", help="print the trace of each seed")
    parser.add_argument("--keep-on", action="store_true", help="do not stop at the first seed that fails")
    options = parser.parse_args(arguments)
    gc.freeze()  # imported modules stay: the collection after each seed need not traverse them
    kept = [] if options.no_kept or options.workload != RUNS else list(REGRESSION_SEEDS)
    seeds = [
        *kept,
        *(seed for seed in range(options.first, options.first + options.seeds) if seed not in kept),
    ]
    began = time.monotonic()
    done, worst = 0, Exit.FINE
    fired: Counter[FaultKind] = Counter()
    points = 0
    simulate = partial(simulate_seeds, store=options.store, workload=options.workload, trace=options.trace)
    for outcome in _outcomes(seeds, options.jobs, simulate):
        done += 1
        points += outcome.points
        fired.update(one.kind for one in outcome.fired)
        if options.trace:
            print("\n".join(outcome.trace))
            print(f"seed {outcome.seed}: {outcome.exit.name} {outcome.hash}")
        if outcome.exit is not Exit.FINE:
            worst = max(worst, outcome.exit)
            print("\n".join(_report(outcome, options.store, options.workload)), flush=True)
            if not options.keep_on:
                break
        if done % _PROGRESS_EVERY == 0:
            print(f"{done} of {len(seeds)} seeds", file=sys.stderr, flush=True)
    minutes = (time.monotonic() - began) / 60
    spent = sum(os.times()[:4])  # with the child processes
    counted = ", ".join(f"{kind} {fired[kind]}" for kind in FaultKind)
    print(
        f"{done} seeds of {options.workload} on {options.store}, {done / minutes:.0f} a minute,"
        f" {points / max(done, 1):.0f} points each;"
        f" {spent:.0f} s of processor time, {60 * done / spent:.0f} a minute on one core"
    )
    print(f"faults: {counted}")
    print("no violations" if worst is Exit.FINE else f"FAILED: {worst.name}")
    return int(worst)


def _outcomes(
    seeds: Sequence[int], jobs: int, simulate: Callable[[Sequence[int]], list[SeedOutcome]]
) -> Iterator[SeedOutcome]:
    size = min(_CHUNK_MAX, -(-len(seeds) // jobs))  # every process gets some of a small number of seeds, too
    chunks = [seeds[at : at + size] for at in range(0, len(seeds), size)]
    if jobs == 1:
        for chunk in chunks:
            yield from simulate(chunk)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=gc.freeze) as pool:
        try:
            for outcomes in pool.map(simulate, chunks):
                yield from outcomes
        finally:
            pool.shutdown(cancel_futures=True)


def _report(outcome: SeedOutcome, store: str, workload: str) -> Iterator[str]:
    with stores(store) as make:
        play = partial(
            simulate_seed,
            outcome.seed,
            WORKLOADS[workload],
            store=make,
            wastes_nothing=has_faultless_phase(workload),
        )
        shrunk = shrink(lambda schedule: play(schedule=schedule), outcome)
    yield from report(outcome, shrunk)
    yield f"reproduce: make simulate FIRST={outcome.seed} SEEDS=1 STORE={store} WORKLOAD={workload}"


if __name__ == "__main__":
    sys.exit(main())
