"""Deterministic simulation testing: the real kernel and hosts in one thread and virtual time, with seeded faults.

    def make(random: Random) -> tuple[Scenario, Sizes]:
        start = ClientAction(at=0, what="start", do=lambda engine: engine.start(fulfil(order), id="x").id)
        return Scenario(workflows=[fulfil], clients=[[start]]), Sizes(workers=2, functions=1)

    outcome = simulate_seed(1, make)
    assert outcome.exit is Exit.FINE, outcome.found

A `Scenario` holds the workflows, and the `ClientAction`s of each client, in virtual microseconds since the start.
`expected` checks the result of a run, `at_end` the final state. `Sizes` sets the number of processes and their options.

`simulate_seed` draws a probability for each kind of fault, unless `strengths` is passed. It has three phases: faults;
healing, without faults, in which everything must end; and a second simulation without faults, in which no work may be
done twice. The invariants are checked after every commit (`holdfast.kernel.invariants`). The `Outcome` has the exit
code, the violations, the trace with its hash, and the faults that fired. `shrink` removes faults that a failure does
not need.

`draw_workload` is a `make` that draws random pipelines and durable functions, and clients that use every command;
`draw_schedules` draws schedules, what operators do with them, and time zones whose data changes.
`python -m holdfast.testing.simulation --help` runs both.

Bodies run unchanged. `asyncio.sleep` and `anyio.sleep` take virtual time. Do not use `time.sleep`, sockets or real
threads in a simulated body, and seed its random numbers.

Modules: `fibers` (processes, virtual time), `loops` (asyncio in fibers), `faults`, `process_life` (a process that meets
faults), `ports` and `store` (the only simulated parts), `processes` (hosts), `observer` and `final_checks` (checks),
`worlds`, `seeds`, `programs`, `functions`, `external_service` and `workload` (random input), `shrinker` and `reports`;
of schedules `schedule_workload` and `schedule_zones` (random input), `schedule_ledger`
and `schedule_times` (checks), and `store_time` (a clock of the store that is set).
"""

from holdfast.testing.simulation.faults import FaultKind, FaultSchedule, FiredFault
from holdfast.testing.simulation.processes import ClientAction
from holdfast.testing.simulation.scenarios import Scenario, Sizes
from holdfast.testing.simulation.schedule_workload import draw_schedules
from holdfast.testing.simulation.seeds import Exit, SeedOutcome, simulate_seed
from holdfast.testing.simulation.shrinker import Shrunk, shrink
from holdfast.testing.simulation.workload import draw_workload

__all__ = [
    "ClientAction",
    "Exit",
    "FaultKind",
    "FaultSchedule",
    "FiredFault",
    "Scenario",
    "SeedOutcome",
    "Shrunk",
    "Sizes",
    "draw_schedules",
    "draw_workload",
    "shrink",
    "simulate_seed",
]
