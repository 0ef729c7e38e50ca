"""Planted bugs in the treatment of unreadable rows, oversized texts and sleeping jobs."""

from typing import Final

from tests.mutants.by_tests.edits import one_edit
from tests.mutants.mutant import Mutant

UNREADABLE: Final = "tests/integration/hosts/test_unreadable_rows.py"
OF_KERNEL: Final = "tests/unit/kernel/dispatch/test_unreadable_runs.py"
OF_PORTS: Final = "tests/unit/ports/test_unreadable.py"

UNREADABLE_ROWS: Final[tuple[Mutant, ...]] = (
    one_edit(
        "unreadable-run-blocks-others",
        "A search that finds an unreadable run fails for all other runs too, even after that run is blocked.",
        "kernel/dispatch/loader.py",
        "        jobs=tuple(key for key in found.jobs if key.run not in excluded),\n",
        "        jobs=found.jobs,\n",
        OF_KERNEL,
    ),
    one_edit(
        "unreadable-run-not-logged",
        "No log line names the unreadable run that was blocked.",
        "hosts/wiring/services.py",
        "            blocked=_log_unreadable,\n",
        "            blocked=None,\n",
        UNREADABLE,
    ),
    one_edit(
        "unreadable-run-blocked-repeatedly",
        "A blocked run gets another history row each time that it is read.",
        "kernel/dispatch/unreadable_runs.py",
        "        if outline.status in {RunStatus.BLOCKED, *TERMINAL}:\n",
        "        if outline.status in TERMINAL:\n",
        OF_KERNEL,
    ),
    one_edit(
        "ended-run-blocked",
        "An unreadable run that has ended becomes blocked and can continue.",
        "adapters/sql/statements.py",
        "status = CASE WHEN status IN {tables.ENDED} THEN status ELSE 'blocked' END, ",
        "status = 'blocked', ",
        "tests/conformance/test_sqlite_persistence.py",
    ),
    one_edit(
        "leased-job-held",
        "A leased job is taken from its worker because another row of its run is unreadable.",
        "adapters/sql/statements.py",
        "OR state NOT IN ('pending_delivery', 'leased'))",
        "OR state NOT IN ('pending_delivery'))",
        "tests/conformance/test_sqlite_persistence.py",
    ),
    one_edit(
        "batch-fails-with-one-job",
        "All messages of a batch are delivered again because one job is unreadable.",
        "hosts/serverless/host.py",
        "        claimed = [BLOCKED_CLAIM if isinstance(one, UnreadableRowError) else one for one in answers]\n",
        "        claimed = answers\n",
        UNREADABLE,
    ),
    one_edit(
        "terminate-needs-plan",
        "A run whose plan is missing cannot be terminated.",
        "kernel/rules/runs.py",
        "isinstance(command, RunCancel) or state.has_plan(run)",
        "True",
        OF_KERNEL,
    ),
    one_edit(
        "negative-number-readable",
        "A negative number counts as readable.",
        "ports/unreadable.py",
        "        check = _number(0, INSTANT_MAX if name in _INSTANTS else NUMBER_MAX)\n",
        "        check = _number(-NUMBER_MAX, INSTANT_MAX if name in _INSTANTS else NUMBER_MAX)\n",
        OF_PORTS,
    ),
    one_edit(
        "unknown-session-open",
        "A session in an unknown state counts as open and holds its jobs for ever.",
        "ports/unreadable.py",
        'Session: {\n        "state": SessionState.DEAD.value,',
        'Session: {\n        "state": SessionState.OPEN.value,',
        OF_PORTS,
    ),
    one_edit(
        "long-text-stored",
        "A reason of several megabytes is stored.",
        "kernel/dispatch/kernel.py",
        "                check_texts(command)\n",
        "",
        "tests/unit/kernel/dispatch/test_command_bounds.py",
    ),
    one_edit(
        "sleeping-jobs-left-to-maintenance",
        "A worker does not wake the jobs that other workers put to sleep: only maintenance does.",
        "hosts/worker/store_calls.py",
        "        if self._core.clock.monotonic() < self._wake_at:\n",
        "        if self._wake_at:\n",
        "tests/integration/hosts/test_replaced_workers.py",
    ),
    one_edit(
        "repaired-run-stays-blocked",
        "A blocked run does not continue once its rows are readable again.",
        "hosts/inspection/why.py",
        '"unreadable_input", UnreadableRowError.code}\n',
        '"unreadable_input"}\n',
        UNREADABLE,
    ),
)
