"""Planted bugs in the treatment of unreadable rows, oversized texts and sleeping jobs."""

from typing import Final

from tests.mutants.by_tests.edits import one_edit
from tests.mutants.mutant import Mutant

UNREADABLE: Final = "tests/integration/hosts/test_unreadable_rows.py"
OF_KERNEL: Final = "tests/unit/kernel/dispatch/test_unreadable_runs.py"
OF_PORTS: Final = "tests/unit/ports/test_unreadable.py"

UNREADABLE_ROWS: Final[tuple[Mutant, ...]] = (
    one_edit(
        "unreadable-run-is-not-passed-over",
        "a search that finds a run which can't be read fails for the others, too, once that is blocked",
        "kernel/dispatch/loader.py",
        "        jobs=tuple(key for key in found.jobs if key.run not in excluded),\n",
        "        jobs=found.jobs,\n",
        OF_KERNEL,
    ),
    one_edit(
        "unreadable-run-is-not-named",
        "no log says which run was blocked",
        "hosts/wiring/services.py",
        "            blocked=_log_unreadable,\n",
        "            blocked=None,\n",
        UNREADABLE,
    ),
    one_edit(
        "unreadable-run-is-blocked-again-and-again",
        "a run that is blocked gets a row more each time that somebody comes to it",
        "kernel/dispatch/unreadable_runs.py",
        "        if outline.status in {RunStatus.BLOCKED, *TERMINAL}:\n",
        "        if outline.status in TERMINAL:\n",
        OF_KERNEL,
    ),
    one_edit(
        "ended-run-is-blocked",
        "a run that has ended is blocked, and would go on",
        "adapters/sql/statements.py",
        "status = CASE WHEN status IN {tables.ENDED} THEN status ELSE 'blocked' END, ",
        "status = 'blocked', ",
        "tests/conformance/test_sqlite_persistence.py",
    ),
    one_edit(
        "leased-jobs-are-held",
        "a job that a worker runs is taken from it because another row of its run can't be read",
        "adapters/sql/statements.py",
        "OR state NOT IN ('pending_delivery', 'leased'))",
        "OR state NOT IN ('pending_delivery'))",
        "tests/conformance/test_sqlite_persistence.py",
    ),
    one_edit(
        "batch-fails-with-its-run",
        "all messages of a batch come again because the job of one can't be read",
        "hosts/serverless/host.py",
        "        claimed = [BLOCKED_CLAIM if isinstance(one, UnreadableRowError) else one for one in answers]\n",
        "        claimed = answers\n",
        UNREADABLE,
    ),
    one_edit(
        "terminate-needs-the-plan",
        "a run without its plan can't be ended",
        "kernel/rules/runs.py",
        "isinstance(command, RunCancel) or state.has_plan(run)",
        "True",
        OF_KERNEL,
    ),
    one_edit(
        "negative-numbers-are-read",
        "a number below zero is taken for one that can be read",
        "ports/unreadable.py",
        "        check = _number(0, INSTANT_MAX if name in _INSTANTS else NUMBER_MAX)\n",
        "        check = _number(-NUMBER_MAX, INSTANT_MAX if name in _INSTANTS else NUMBER_MAX)\n",
        OF_PORTS,
    ),
    one_edit(
        "unknown-session-is-open",
        "a session in a state that is not known holds its jobs for ever",
        "ports/unreadable.py",
        'Session: {"state": SessionState.DEAD.value,',
        'Session: {"state": SessionState.OPEN.value,',
        OF_PORTS,
    ),
    one_edit(
        "long-texts-are-stored",
        "megabytes of a reason are stored",
        "kernel/dispatch/kernel.py",
        "                check_texts(command)\n",
        "",
        "tests/unit/kernel/dispatch/test_command_bounds.py",
    ),
    one_edit(
        "sleepers-are-left-behind",
        "what another worker has put to sleep is woken by rounds of maintenance alone",
        "hosts/worker/store_calls.py",
        "        if self._core.clock.monotonic() < self._wake_at:\n",
        "        if self._wake_at:\n",
        "tests/integration/hosts/test_replaced_workers.py",
    ),
    one_edit(
        "unreadable-run-never-goes-on",
        "a run is not let go on once its rows can be read",
        "hosts/inspection/why.py",
        '"unreadable_input", UnreadableRowError.code}\n',
        '"unreadable_input"}\n',
        UNREADABLE,
    ),
)
