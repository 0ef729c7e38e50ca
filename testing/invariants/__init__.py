"""What must be true of a store at every moment, and between any two: the invariants that Holdfast promises.

`check` looks at one moment, `check_step` at two. Both know nothing of how the engine decides: they read a run's
history from its beginning, work out from the plan alone what must be there now, and compare. They are meant for tests:
after each command, at the end of a simulation, on a database after a day of chaos.

    store = MemoryPersistence()
    ...
    assert check(snapshot_of(store)) == []

The names of the invariants are those of the design: S1 (epochs), S4 (outputs stay), S5 (legal transitions), S6
(truthful ends), S7 (no orphans), S8 (attempts), S9 (order of stages), S10 (limits), T1 (nothing early), O1 (numbered
history).
"""

from holdfast.testing.invariants.moments import check
from holdfast.testing.invariants.snapshots import Snapshot, snapshot_of
from holdfast.testing.invariants.steps import check_step
from holdfast.testing.invariants.violations import Violation

__all__ = ["Snapshot", "Violation", "check", "check_step", "snapshot_of"]
