"""Planted bugs in rechecks: after a lock, a wait, a fork, a failed prepare, a lost response."""

from typing import Final

from tests.mutants.by_tests.edits import one_edit
from tests.mutants.mutant import Mutant

RECHECKS: Final[tuple[Mutant, ...]] = (
    one_edit(
        "generation-not-rechecked",
        "A client that waits for a run can get a generation that is no longer the newest.",
        "adapters/sql/transaction.py",
        "if [row[0] for row in found] == [row[0] for row in newest]:",
        "if found is not None:",
        "tests/conformance/test_postgres_persistence.py -k who_waits",
    ),
    one_edit(
        "reaped-job-not-rechecked",
        "The reaper requeues a job that its worker has settled since the search.",
        "kernel/rules/sessions.py",
        "if job is not None and _is_orphan(state, job)]",
        "if job is not None]",
        "tests/unit/kernel/test_sessions.py",
    ),
    one_edit(
        "dead-session-claims",
        "A dead session can claim jobs.",
        "kernel/rules/claims.py",
        "    if found:\n        _require_session(state, command.session)\n",
        "",
        "tests/unit/kernel/test_claims.py",
        "tests/unit/kernel/test_sessions.py",
    ),
    one_edit(
        "claimed-job-not-rechecked",
        "A claim takes a job that another worker has claimed since the search.",
        "kernel/rules/claims.py",
        "job is None or job.state is not JobState.QUEUED or job.tries >= job.max_attempts",
        "job is None or job.tries >= job.max_attempts",
        "tests/unit/kernel/test_claims.py",
    ),
    one_edit(
        "lost-step-not-compensated",
        "A step whose last attempt was lost with its worker is not compensated.",
        "kernel/functions/sagas.py",
        "_UNKNOWN = (TimeoutError, StepLostError, StepResultError)",
        "_UNKNOWN = (TimeoutError, StepResultError)",
        "tests/unit/kernel/functions/test_sagas.py",
    ),
    one_edit(
        "function-clock-goes-back",
        "A function's clock goes back at a row that a host with a slow clock wrote.",
        "kernel/functions/loop.py",
        "        if at > self._now:",
        "        if at != self._now:",
        "tests/unit/kernel/functions/test_machine.py",
    ),
    one_edit(
        "paused-function-keeps-old-timeout",
        "A paused, sleeping function sees a new message only after its old timeout.",
        "kernel/rules/signals.py",
        "        case JobState.PAUSED if job.wake_at is not None:\n"
        "            draft.update_job(evolve(job, wake_at=None))\n",
        "",
        "tests/unit/kernel/test_functions.py",
    ),
    one_edit(
        "commit-receipt-ignored",
        "A transaction whose reply was lost is repeated, although it was committed.",
        "adapters/sql/postgresql/link.py",
        'yield _PUT_RECEIPT, {"receipt": receipt}, True',
        'yield _PUT_RECEIPT, {"receipt": f"{receipt[:-4]}{id(object()) % 10_000:04}"}, True',
        "tests/integration/sql/test_lost_commit_responses.py",
    ),
    one_edit(
        "newer-schema-accepted",
        "A schema of a newer version is not refused.",
        "adapters/sql/schema/migrator.py",
        "    if version not in _known_versions():\n",
        "    if not version:\n",
        "tests/integration/sql/test_schema.py",
    ),
    one_edit(
        "key-of-another-command-accepted",
        "An idempotency key of one command returns its reply to another command.",
        "kernel/dispatch/idempotency.py",
        "if known.fingerprint != _fingerprint(command):",
        "if not known.fingerprint:",
        "tests/unit/kernel/dispatch/test_idempotency.py",
    ),
    one_edit(
        "blob-not-verified",
        "A corrupt blob is returned as it is.",
        "adapters/files/blobs.py",
        "        if sha256(data).hexdigest() != key[-64:]:\n            raise BlobCorruptError(key)\n",
        "",
        "tests/conformance/test_blobs.py",
    ),
)
