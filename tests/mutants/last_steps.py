"""Planted bugs in functions that receive the result of a step before it is stored. The simulator finds them."""

from typing import Final

from tests.mutants.mutant import Edit, Mutant


def _mutant(
    name: str, breaks: str, *edits: Edit, caught_by: tuple[str, ...] = ("D2", "S4", "S6", "M1")
) -> Mutant:
    return Mutant(name=name, breaks=breaks, caught_by=caught_by, edits=edits, workload="last_steps")


RULE: Final = "kernel/rules/function_settlement.py"
REPLAY: Final = "hosts/functions/replay.py"

LAST_STEPS: Final = (
    _mutant(
        "overtaken-function-ends",
        "A function that has received a step before an earlier row ends all the same.",
        Edit(RULE, "or run.last_row == outcome.seen:\n", "or run.last_row >= outcome.seen:\n"),
    ),
    _mutant(
        "end-without-its-step",
        "A function that has returned after a step is ended without the row of the step.",
        Edit(
            RULE,
            "    draft = settlement.draft()\n"
            "    draft.append_of(settlement.job, outcome.step, payload=outcome.result)\n"
            "    row = completed",
            "    draft = settlement.draft()\n    row = completed",
        ),
    ),
    _mutant(
        "next-step-before-the-row",
        "What a function requests after a step is started although the step is not stored.",
        Edit(
            REPLAY,
            "        return isinstance(self.ended, FunctionReturned) and stays_inline(self.ended.output)\n",
            "        return True\n",
        ),
    ),
    _mutant(
        "read-clock-is-not-compared",
        "A function that has read its clock goes on, although the row is stored at another time.",
        Edit(REPLAY, "        if not is_it or ahead.turn.read_clock:\n", "        if not is_it:\n"),
    ),
    _mutant(
        "overtaken-function-goes-on",
        "A function that has received a step before an earlier row is not replayed.",
        Edit(
            REPLAY,
            "        if not is_it or ahead.turn.read_clock:\n",
            "        if ahead.turn.read_clock and not is_it:\n",
        ),
    ),
    _mutant(
        "overtaken-function-is-kept",
        "A function that was overtaken stays in memory, and is resumed there.",
        Edit(
            "hosts/functions/driver.py",
            "is_idle and not self._is_fenced and drive.ahead is None",
            "is_idle and not self._is_fenced",
        ),
    ),
)
