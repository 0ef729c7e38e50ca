"""Findings of the doctor, and the advice for each."""

from collections import Counter
from collections.abc import Mapping
from typing import Final

import attrs

from holdfast.ports.records.run import Run

FINDINGS: Final = 1_000
"""The default number of findings to list."""
REPAIR: Final = "`holdfast doctor --repair` repairs it."
RERUN: Final = (
    "It can't be repaired without guessing. `holdfast run show ID` shows what is stored, `holdfast run rerun ID`"
    " runs it again from an intact stage, `holdfast run terminate ID` ends it."
)
_ADVICE: Final[Mapping[str, str]] = {
    "O1": "Rows of its history are lost or belong elsewhere, and nothing in the store can replace them: restore them"
    " from a backup. " + RERUN,
    "S5": "Another program wrote to the store. `holdfast run terminate ID` ends a generation that should not"
    " be active.",
    "S6": "Another program wrote to the store: the history shows how the run ended. " + RERUN,
    "C1": "Another program wrote to the store: rows after the end of the run do not count. " + RERUN,
    "S10": "No action is needed: no more are admitted until some of them end. Lower limits of newer starts apply from"
    " then on.",
    "T1": "A clock was wrong when it began. The run needs no action; check the clocks of your hosts.",
    "T3": "Workers do that every few seconds: check their logs for errors of holdfast.maintenance, and at their"
    " clocks. " + REPAIR,
    "L1": "Workers do that every few seconds: check their logs for errors of holdfast.maintenance. " + REPAIR,
    "B1": "Restore the blob from a backup of the blob store. If that can't be done, run the run again from the stage"
    " that produced it, or an earlier one: `holdfast run rerun ID`.",
    "orphan": "The row of their run is lost: restore it from a backup. Until then they have no effect and"
    " do no harm.",
    "unreadable": "Deploy the version that wrote it, or repair the row, and resume the run; `holdfast run"
    " terminate ID` ends it in any case.",
    "blocked": "`holdfast why ID` shows what an operator must do.",
    "dead_letter": "Fix the sink, then `holdfast dead-letter replay --run ID`; --skip skips the event.",
    "sink": "Check the receiver of its events, and whether workers are started with it; `holdfast sink list` shows"
    " more.",
    "schedule_late": "No host that has the code of its workflow fires it: start a worker that has it."
    " `holdfast schedule why NAME` shows more.",
    "schedule_blocked": "Update the schedule; or install what is missing, and then resume it.",
    "trigger_late": "Start a worker that has the code of its workflow. `holdfast trigger show NAME` shows more.",
    "trigger_held": "It tries again every few seconds: end runs, or raise the quota of the namespace.",
    "queue_paused": "Its jobs start once it is unpaused.",
    "unserved": "Start a remote worker that lists the stage in `stages` and serves the queue; `holdfast worker list`"
    " shows those that are there.",
    "schema": "`holdfast db upgrade` upgrades the tables. Nothing else was checked.",
}
REPAIRED_BY_COMMAND: Final = frozenset({"S4", "S5", "S7", "S9", "C2"})
"""Invariants that the command `run.repair` can restore from the plan and the history."""
REPAIRED_BESIDE: Final[Mapping[str, str]] = {"S8": "S5"}
"""Invariants that are restored only by the repair of another one of the same run.

The command does not recount attempts. But it removes the jobs of a run that has ended, and their attempts with them.
"""
NOT_REPAIRABLE: Final = frozenset({"O1", "S6", "C1"})
"""Violations in a history, after which nothing about the run can be repaired."""
REPAIRED_BY_MAINTENANCE: Final = frozenset({"T3", "L1"})
"""Invariants that a maintenance tick restores."""


def _advice_of(finding: "DoctorFinding") -> str:
    return advice_for(finding.code)


@attrs.frozen(kw_only=True)
class DoctorFinding:
    """A problem in a store, or something that waits for an operator."""

    code: str
    """The violated invariant, such as `S7`; or `orphan`, `unreadable`, `blocked`, `dead_letter`, `sink`,
    `schedule_late`, `schedule_blocked`, `trigger_late`, `trigger_held`, `queue_paused`, `unserved` or `schema`."""
    text: str
    """What is wrong."""
    advice: str = attrs.field(default=attrs.Factory(_advice_of, takes_self=True))
    """What to do about it; empty if it is repaired."""
    namespace: str | None = None
    """The namespace; None if unknown."""
    run_id: str | None = None
    """The run that it is about; None if it is about no run, or the run's row is lost."""
    generation: int | None = None
    """The generation of the run."""
    key: str | None = None
    """The store's key of the run, or the name of the sink, limit, queue or schedule."""
    repaired: bool = False
    """Whether it was repaired."""


@attrs.frozen(kw_only=True)
class Diagnosis:
    """The result of the doctor."""

    runs: int
    """How many runs were checked."""
    blobs: int | None
    """How many references to blobs were checked; None if blobs were not to be read."""
    found: Mapping[str, int]
    """The number of findings by code, including those that are not listed."""
    repaired: int
    """How many of them were repaired."""
    findings: tuple[DoctorFinding, ...]
    """The first findings, up to the limit."""

    @property
    def is_sound(self) -> bool:
        """Whether there is no finding, or all are repaired."""
        return sum(self.found.values()) == self.repaired


class FindingCollector:
    """Collects findings: counts all and keeps the first ones."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._found: Counter[str] = Counter()
        self._repaired = 0
        self._findings: list[DoctorFinding] = []
        self.runs = 0
        self.blobs: int | None = None

    def add(self, finding: DoctorFinding) -> None:
        """Add a finding."""
        self._found[finding.code] += 1
        self._repaired += finding.repaired
        if len(self._findings) < self._limit:
            self._findings.append(finding)

    def diagnosis(self) -> Diagnosis:
        """Return the findings collected so far."""
        return Diagnosis(
            runs=self.runs,
            blobs=self.blobs,
            found=dict(sorted(self._found.items())),
            repaired=self._repaired,
            findings=tuple(self._findings),
        )


def of_run(
    code: str, what: str, run: Run, *, advice: str | None = None, repaired: bool = False
) -> DoctorFinding:
    """Return a finding about a run."""
    return DoctorFinding(
        code=code,
        text=what,
        advice=advice_for(code) if advice is None else advice,
        namespace=run.namespace,
        run_id=run.id,
        generation=run.generation,
        key=run.key,
        repaired=repaired,
    )


def advice_for(code: str) -> str:
    """Return the advice for a finding that is not repaired."""
    return _ADVICE.get(code, RERUN)
