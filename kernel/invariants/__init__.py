"""Invariants of a store: one checker for tests, simulation, chaos runs and `holdfast doctor` (docs/decisions/0018).

`check` and `check_part` check one state of a store, `check_step` a transition between two states, `overdue` one state
and the clock. They use none of the kernel's rules: they read a run's history from its beginning, derive from the plan
alone which rows must exist now, and compare.

    assert check(Snapshot(runs=..., jobs=..., history=..., plans=..., sessions=...)) == []

The invariants: S1 (epochs), S4 (outputs never change), S5 (legal transitions), S6 (correct ends), S7 (no orphans), S8
(attempts), S9 (order of stages), S10 (concurrency limits), S11 (rate limits), S12 (lost attempts), F1 (changed limits),
F2 (bounds of concurrency keys), F3 (runs ended by starts), F4 (gathered starts), F5 (gathering runs are due in time),
F8, F9 (rates of starts), C1 (no work after the end), C2 (abandoned external work is cancelled), M1 (no lost
messages), X1 (messages of topics in order, each once), X2 (subscribers get what they selected), X3 (numbers of
messages), X4 (subscriptions of runs that have not ended), T1 (nothing starts early), T3 (nothing overdue), L1 (nothing
left behind by dead sessions or ended runs), O1 (numbered history).
"""

from holdfast.kernel.invariants.liveness import overdue
from holdfast.kernel.invariants.snapshot_checks import check, check_part
from holdfast.kernel.invariants.snapshots import Snapshot, as_snapshot
from holdfast.kernel.invariants.transition_checks import check_step
from holdfast.kernel.invariants.violations import Violation

__all__ = ["Snapshot", "Violation", "as_snapshot", "check", "check_part", "check_step", "overdue"]
