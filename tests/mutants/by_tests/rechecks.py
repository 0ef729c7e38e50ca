"""Planted bugs in rechecks: after a lock, a wait, a fork, a failed prepare, a lost response."""

from typing import Final

from tests.mutants.by_tests.edits import one_edit
from tests.mutants.mutant import Mutant

RECHECKS: Final[tuple[Mutant, ...]] = (
    one_edit(
        "no-second-look-at-generations",
        "who waits for a run is given the generation that there was before",
        "adapters/sql/transaction.py",
        "if [row[0] for row in found] == [row[0] for row in newest]:",
        "if found is not None:",
        "tests/conformance/test_postgres_persistence.py -k who_waits",
    ),
    one_edit(
        "reaped-without-a-second-look",
        "a job that its holder has settled since the search is freed all the same",
        "kernel/rules/sessions.py",
        "if job is not None and _is_orphan(state, job)]",
        "if job is not None]",
        "tests/unit/kernel/test_sessions.py",
    ),
    one_edit(
        "dead-session-claims",
        "a session that was declared dead may claim",
        "kernel/rules/claims.py",
        "    if found:\n        _require_session(state, command.session)\n",
        "",
        "tests/unit/kernel/test_claims.py",
        "tests/unit/kernel/test_sessions.py",
    ),
    one_edit(
        "claimed-while-no-longer-queued",
        "a claim takes a job that somebody else has taken since the search",
        "kernel/rules/claims.py",
        "job is None or job.state is not JobState.QUEUED or job.tries >= job.max_attempts",
        "job is None or job.tries >= job.max_attempts",
        "tests/unit/kernel/test_claims.py",
    ),
    one_edit(
        "saga-forgets-what-was-lost",
        "a step whose last try was lost with its worker is not taken back",
        "kernel/functions/sagas.py",
        "_UNKNOWN = (TimeoutError, StepLostError, StepResultError)",
        "_UNKNOWN = (TimeoutError, StepResultError)",
        "tests/unit/kernel/functions/test_sagas.py",
    ),
    one_edit(
        "function-clock-goes-back",
        "the clock of a function goes back where a row was written by a host whose clock is behind",
        "kernel/functions/loop.py",
        "        if at > self._now:",
        "        if at != self._now:",
        "tests/unit/kernel/functions/test_machine.py",
    ),
    one_edit(
        "paused-sleeper-deaf",
        "a message to a paused function that sleeps is heard when its old timeout is over",
        "kernel/rules/signals.py",
        "        case JobState.PAUSED if job.wake_at is not None:\n"
        "            draft.update_job(evolve(job, wake_at=None))\n",
        "",
        "tests/unit/kernel/test_functions.py",
    ),
    one_edit(
        "receipt-not-looked-for",
        "a transaction whose answer was lost is made again though it was committed",
        "adapters/sql/postgresql/connection.py",
        'yield _PUT_RECEIPT, {"receipt": receipt}, True',
        'yield _PUT_RECEIPT, {"receipt": f"{receipt[:-4]}{id(object()) % 10_000:04}"}, True',
        "tests/integration/sql/test_lost_commit_responses.py",
    ),
    one_edit(
        "newer-tables-migrated",
        "tables of a newer version are not refused",
        "adapters/sql/schema/migrator.py",
        "    if version not in _known_versions():\n",
        "    if not version:\n",
        "tests/integration/sql/test_schema.py",
    ),
    one_edit(
        "other-command-under-a-key",
        "an idempotency key is answered with what another command was answered",
        "kernel/dispatch/idempotency.py",
        "if known.fingerprint != _fingerprint(command):",
        "if not known.fingerprint:",
        "tests/unit/kernel/dispatch/test_idempotency.py",
    ),
    one_edit(
        "blob-not-verified",
        "a blob that was damaged is given as it is",
        "adapters/files/blobs.py",
        "        if sha256(data).hexdigest() != key[-64:]:\n            raise BlobCorruptError(key)\n",
        "",
        "tests/conformance/test_blobs.py",
    ),
)
