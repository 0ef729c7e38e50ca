"""What must be true of a store at every moment, and between any two: the invariants that Holdfast promises.

`check` looks at one moment, `check_step` at two, `overdue` at one and the clock. They know nothing of how the engine
decides: they read a run's history from its beginning, work out from the plan alone what must be there now, and compare.
This is the one checker: tests ask it after each command and after a day of chaos, and `holdfast doctor` asks it about a
database, part by part.

    assert check(Snapshot(runs=..., jobs=..., history=..., plans=..., sessions=...)) == []

The names of the invariants are those of the design: S1 (epochs), S4 (outputs stay), S5 (legal transitions), S6
(truthful ends), S7 (no orphans), S8 (attempts), S9 (order of stages), S10 (limits), S11 (rate limits), S12 (losses
with workers), C1 (nothing after the end), M1 (no message lost), T1 (nothing early), T3 (nothing forgotten), L1
(nothing left behind), O1 (numbered history).
"""

from holdfast.kernel.invariants.liveness import overdue
from holdfast.kernel.invariants.snapshot_checks import check, check_part
from holdfast.kernel.invariants.snapshots import Snapshot, as_snapshot
from holdfast.kernel.invariants.transition_checks import check_step
from holdfast.kernel.invariants.violations import Violation

__all__ = ["Snapshot", "Violation", "as_snapshot", "check", "check_part", "check_step", "overdue"]
