"""Planted bugs in rates of starts and in limits that are changed while running, for the workload of limits."""

from typing import Final

from tests.mutants.mutant import Edit, Mutant


def _mutant(name: str, breaks: str, caught_by: tuple[str, ...], *edits: Edit) -> Mutant:
    return Mutant(name=name, breaks=breaks, caught_by=caught_by, edits=edits, workload="limits")


LIMITS: Final = (
    _mutant(
        "takes-next-of-paused-queue",
        "A settle takes the next job of a queue that is paused.",
        ("F1",),
        Edit(
            "kernel/rules/settlement.py",
            "        if is_queue_paused(self.state.tables.limits, self.job.namespace, self.job.queue):\n"
            "            return None\n",
            "",
        ),
    ),
    _mutant(
        "claims-from-paused-queue",
        "The store finds jobs of paused queues.",
        ("F1",),
        Edit(
            "adapters/memory/searches.py",
            "    return row is not None and row.is_paused != 0\n",
            "    return False\n",
        ),
    ),
    _mutant(
        "cleared-pause-stays",
        "Clearing a queue forgets its pause.",
        ("L1", "S7", "stuck"),
        Edit(
            "kernel/rules/limits.py",
            "after = evolve(known, slots=None, rate_limit=None, rate_period=None, is_paused=0)\n",
            "after = evolve(known, slots=None, rate_limit=None, rate_period=None)\n",
        ),
    ),
    _mutant(
        "outer-levels-ignored",
        "A run starts once its innermost limit has room.",
        ("F1", "S10"),
        Edit(
            "kernel/rules/admissions.py",
            "        limits = slots_in_force(self._state.tables.limits, one)\n",
            "        limits = slots_in_force(self._state.tables.limits, one)[-1:]\n",
        ),
        Edit(
            "kernel/limits/levels.py",
            "    if not around or len(around) != len(one.outer):\n",
            "    if True:\n",
        ),
    ),
    _mutant(
        "outer-slots-uncounted",
        "The slots of a key are counted without those of the keys within it.",
        ("F1", "S10"),
        Edit(
            "adapters/memory/queries/waiting.py",
            "    return (key,) if isinstance(one, Job) else levels_of(key)\n",
            "    return (key,)\n",
        ),
        Edit(
            "kernel/limits/levels.py",
            "        used.update(dict.fromkeys(level_places(place), number))\n",
            "        used.update({place: number})\n",
        ),
    ),
    _mutant(
        "outer-limits-by-the-plan",
        "What an operator has set for an outer limit is ignored.",
        ("F1",),
        Edit(
            "kernel/rules/admissions.py",
            "        limits = slots_in_force(self._state.tables.limits, one)\n",
            "        limits = slots_in_force({}, one)[:-1] + slots_in_force(self._state.tables.limits, one)[-1:]\n",
        ),
        Edit("kernel/limits/levels.py", "    if not one.outer:\n        return one\n", "    return one\n"),
    ),
    _mutant(
        "rates-count-starts-not-units",
        "A start counts as one unit of its rate, whatever it costs.",
        ("F8",),
        Edit(
            "kernel/limits/run_rates.py",
            "with_units(fit.limit, fit.period, fit.now, fit.units)",
            "with_units(fit.limit, fit.period, fit.now, 1)",
        ),
    ),
    _mutant(
        "small-starts-overtake",
        "Behind a run that its rate refuses, a cheaper one begins.",
        ("F9",),
        Edit(
            "kernel/rules/run_rates.py",
            "if name is None or name in self._next_at or name not in self._names:",
            "if name is None or name not in self._names:",
        ),
    ),
)
