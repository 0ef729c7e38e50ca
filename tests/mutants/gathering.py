"""Planted bugs in gathered starts. The simulator finds them with its workload of gathered starts."""

from typing import Final

from tests.mutants.mutant import Edit, Mutant


def _mutant(name: str, breaks: str, caught_by: tuple[str, ...], *edits: Edit) -> Mutant:
    return Mutant(name=name, breaks=breaks, caught_by=caught_by, edits=edits, workload="gathering")


RULE: Final = "kernel/rules/gathered_starts.py"
STARTS: Final = "ports/records/gatherings.py"
CHANGES: Final = "kernel/runs/gathered_starts.py"

GATHERING: Final = (
    _mutant(
        "start-joins-begun-run",
        "A start joins a run that has begun: its input is never looked at.",
        ("F4",),
        Edit(
            CHANGES,
            "    if gathered is None or not gathered.is_open:\n        return after, ()\n",
            "    if gathered is None or not gathered.is_open or after.status is RunStatus.RUNNING:\n"
            "        return after, ()\n",
        ),
        Edit(RULE, "or run.key in state.excluded or not run.is_gathering:", "or run.key in state.excluded:"),
    ),
    _mutant(
        "begun-run-keeps-its-name",
        "A run that has begun keeps its row, by which starts look for the run that gathers.",
        ("F4",),
        Edit(
            CHANGES,
            "return closed, () if was_blocked else (Delete(GATHERINGS, name),)",
            "return closed, () if was_blocked or closed.status is RunStatus.RUNNING else (Delete(GATHERINGS, name),)",
        ),
    ),
    _mutant(
        "quiet-beyond-within",
        "Each start moves the beginning of the run by its quiet time, without an end.",
        ("F5",),
        Edit(RULE, "min(gathered.until, now + gather.quiet_us))", "now + gather.quiet_us)"),
    ),
    _mutant(
        "full-batch-gathers-on",
        "A batch that is full waits for its time, and gathers on.",
        ("F5",),
        Edit(
            RULE,
            "    return gathered.starts >= gather.starts_max or",
            "    return gathered.starts > 2 * gather.starts_max or",
        ),
    ),
    _mutant(
        "joined-start-is-left-out",
        "A start that joins a run is in its history, and not in its input.",
        ("F4",),
        Edit(
            STARTS,
            "            rows=(*self.rows[:-1], (first, number)) if is_next else (*self.rows, (number, number)),\n",
            "            rows=self.rows,\n",
        ),
        Edit(STARTS, "        is_next = last == number - 1\n", ""),
    ),
    _mutant(
        "rerun-gets-the-first-start-only",
        "A run that is run again gets the input of its first start, and not of those that joined it.",
        ("F4", "L1"),
        Edit(
            CHANGES,
            "    if gathered is None:\n        return None\n    return evolve(",
            "    if gathered is None or gathered.starts > 1:\n        return None\n    return evolve(",
        ),
    ),
    _mutant(
        "cancelled-run-takes-starts",
        "A run that was cancelled before it began still takes starts: nothing ever comes of them.",
        ("F4",),
        Edit(
            CHANGES,
            "    if after.status in GATHERING and not was_blocked:\n",
            "    if (after.status in GATHERING or after.status is RunStatus.CANCELLED) and not was_blocked:\n",
        ),
        Edit(
            "kernel/rules/gathered_starts.py",
            "or run.key in state.excluded or not run.is_gathering:",
            "or run.key in state.excluded:",
        ),
        Edit(
            "kernel/dispatch/gathering_reads.py",
            "is None or not run.is_gathering\n",
            "is None\n",
        ),
    ),
)
