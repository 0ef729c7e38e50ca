"""A simulator: the real kernel and the real hosts, in one thread and virtual time, with faults drawn from a seed.

    def make(random: Random) -> tuple[Scenario, Sizes]:
        start = Deed(at=0, what="start", do=lambda engine: engine.start(fulfil(order), id="x").id)
        return Scenario(workflows=[fulfil], clients=[[start]]), Sizes(workers=2, functions=1)

    outcome = simulate_seed(1, make)
    assert outcome.exit is Exit.FINE, outcome.found

A `Scenario` is what happens: code, and what clients do (`Deed`s, in virtual microseconds from the beginning).
`expected` says what a run must give, `at_end` what else must be true. `Sizes` are the processes and their settings.

`simulate_seed` draws how likely each kind of fault is, unless `strengths` say so. It goes through three phases: faults;
healing, in which nothing goes wrong any more and all must come to its end; and all of it once more without any fault,
where nothing may be done in vain. After every commit the invariants are checked (`holdfast.kernel.invariants`). The
`Outcome` has the exit code, what was found, the trace and its hash, and the faults that fired. `shrink` leaves out as
many of these as it can.

`draw_workload` is a `make` that draws random pipelines over everything that there is, and clients that do all that
clients can; `python -m holdfast.testing.simulation --help` simulates it.

A user's bodies are called as they are. `asyncio.sleep` and `anyio.sleep` take virtual time; `time.sleep`, sockets and
real threads do not belong in a simulation. Whatever draws by chance in a body must draw from a seed.

How it is made: `fibers` (processes, virtual time), `loops` (asyncio in fibers), `faults`, `lives` (a process that meets
them), `ports` and `store` (the only things that are simulated), `processes` (hosts), `watching` and `judging` (checks),
`worlds`, `seeds`, `programs`, `outside` and `workload` (what is drawn), `shrinking` and `reports`.
"""

from holdfast.testing.simulation.faults import Fired, Kind, Schedule
from holdfast.testing.simulation.processes import Deed
from holdfast.testing.simulation.scenarios import Scenario, Sizes
from holdfast.testing.simulation.seeds import Exit, Outcome, simulate_seed
from holdfast.testing.simulation.shrinker import Shrunk, shrink
from holdfast.testing.simulation.workload import draw_workload

__all__ = [
    "Deed",
    "Exit",
    "Fired",
    "Kind",
    "Outcome",
    "Scenario",
    "Schedule",
    "Shrunk",
    "Sizes",
    "draw_workload",
    "shrink",
    "simulate_seed",
]
