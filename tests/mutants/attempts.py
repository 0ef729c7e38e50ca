"""Planted bugs in claims, leases, releases and retries."""

from typing import Final

from tests.mutants.mutant import Edit, Mutant

ATTEMPTS: Final = (
    Mutant(
        name="settle-ignores-epoch",
        breaks="A settle does not check the job's epoch: a worker that lost the lease can store its result.",
        caught_by=("S3",),
        edits=(
            Edit(
                "kernel/rules/settlement.py",
                "        held = find_leased_job(state, command.job, command.epoch, command.namespace)\n",
                "        known = state.tables.job(parse_job_id(command.job))\n"
                "        held = find_leased_job(state, command.job, known.epoch if known else 0, command.namespace)\n",
            ),
        ),
    ),
    Mutant(
        name="heartbeat-ignores-epoch",
        breaks=(
            "A heartbeat does not check the job's epoch: a worker that lost the lease can still send "
            "heartbeats for it."
        ),
        caught_by=("S3",),
        edits=(
            Edit(
                "kernel/rules/heartbeats.py",
                "not is_held(job, held.epoch, command.namespace)",
                "not is_held(job, job.epoch, command.namespace)",
            ),
        ),
    ),
    Mutant(
        name="release-ignores-epoch",
        breaks="A release does not check the job's epoch: a worker that lost the lease can release the job.",
        caught_by=("S3",),
        edits=(
            Edit(
                "kernel/rules/leases.py",
                "    held = find_leased_job(state, command.job, command.epoch, command.namespace)\n",
                "    known = state.tables.job(parse_job_id(command.job))\n"
                "    held = find_leased_job(state, command.job, known.epoch if known else 0, command.namespace)\n",
            ),
        ),
    ),
    Mutant(
        name="attempt-not-counted",
        breaks="A claim does not count as an attempt.",
        caught_by=("S8",),
        edits=(Edit("kernel/runs/builder.py", "attempts=job.attempts + 1,", "attempts=job.attempts,"),),
    ),
    Mutant(
        name="release-keeps-attempt",
        breaks="A released job keeps the attempt that it did not use.",
        caught_by=("S8",),
        edits=(
            Edit(
                "kernel/rules/leases.py",
                "evolve(job, attempts=job.attempts - 1, first_claimed_at",
                "evolve(job, attempts=job.attempts, first_claimed_at",
            ),
        ),
    ),
    Mutant(
        name="reaper-decrements-epoch",
        breaks="The reaper decrements the epoch of a lost job: two claims get the same epoch.",
        caught_by=("S1", "S3"),
        edits=(
            Edit(
                "kernel/rules/sessions.py",
                "    lost = evolve(job, lost_attempts=job.lost_attempts + 1)\n    draft",
                "    lost = evolve(job, lost_attempts=job.lost_attempts + 1, epoch=job.epoch - 1)\n    draft",
            ),
        ),
    ),
    Mutant(
        name="reaper-takes-jobs-of-open-sessions",
        breaks="The reaper requeues jobs whose sessions are open.",
        caught_by=("S3",),
        edits=(
            Edit(
                "kernel/rules/sessions.py",
                "holder is not None and holder.state is SessionState.DEAD",
                "holder is not None",
            ),
            Edit(
                "adapters/memory/searches.py",
                "dead = {key for key, session in sessions.items() if session.state is SessionState.DEAD}",
                "dead = set(sessions)",
            ),
        ),
    ),
    Mutant(
        name="session-reaped-early",
        breaks="The reaper declares a session dead seconds before its lease expires.",
        caught_by=("T1",),
        edits=(
            Edit(
                "kernel/rules/sessions.py",
                "if session.state is SessionState.OPEN and session.expires_at + command.grace < now",
                "if session.state is SessionState.OPEN",
            ),
            Edit(
                "adapters/memory/searches.py",
                "if session.state is SessionState.OPEN and session.expires_at < before",
                "if session.state is SessionState.OPEN and session.expires_at < before + 5_000_000",
            ),
        ),
    ),
    Mutant(
        name="dead-session-renewed",
        breaks="A renewal reopens a dead session.",
        caught_by=("S5",),
        edits=(
            Edit(
                "kernel/rules/sessions.py",
                "    session = open_session(state, command.session)\n    expires_at = max",
                "    session = evolve(state.tables.sessions[command.session], state=SessionState.OPEN)\n"
                "    expires_at = max",
            ),
        ),
    ),
    Mutant(
        name="dead-session-claims",
        breaks="A dead session can claim jobs.",
        caught_by=("S1",),
        edits=(
            Edit(
                "kernel/rules/claims.py",
                "if known is None or known.state is not SessionState.OPEN:",
                "if known is None:",
            ),
        ),
    ),
    Mutant(
        name="dead-session-takes-next-job",
        breaks="A dead session can take the next job of a run together with a settle.",
        caught_by=("S1",),
        edits=(
            Edit(
                "kernel/rules/settlement.py",
                "if session is None or session.state is not SessionState.OPEN:",
                "if session is None:",
            ),
        ),
    ),
    Mutant(
        name="unknown-code-claimed",
        breaks="A host claims jobs of workflows that it has no code for.",
        caught_by=("S6",),
        edits=(
            Edit(
                "kernel/rules/claims.py",
                "    if job.definition not in command.definitions:\n"
                '        return "unknown_code", _RETRY_LATER\n',
                "",
            ),
        ),
    ),
    Mutant(
        name="one-attempt-too-many",
        breaks="A body that fails gets one attempt more than allowed.",
        caught_by=("S8",),
        edits=(
            Edit(
                "kernel/rules/retries.py",
                "    if tries >= most:\n",
                "    if tries > most:\n",
            ),
        ),
    ),
    Mutant(
        name="one-attempt-of-a-run-too-many",
        breaks="A run that is retried as a whole gets one attempt more than allowed.",
        caught_by=("S8",),
        edits=(
            Edit(
                "kernel/rules/retries.py",
                "job.key, attempt.number, None, attempt.first_at, now",
                "job.key, attempt.number - 1, None, attempt.first_at, now",
            ),
        ),
    ),
    Mutant(
        name="last-loss-requeued",
        breaks="The reaper requeues a job that has reached its maximum number of losses.",
        caught_by=("S8", "S12"),
        edits=(
            Edit(
                "kernel/rules/sessions.py",
                "is_given_up(lost.lost_attempts, job.max_attempts):",
                "is_given_up(job.lost_attempts, job.max_attempts):",
            ),
        ),
    ),
    Mutant(
        name="backoff-ignored",
        breaks="A failed body is retried at once, although the history has a later time for the retry.",
        caught_by=("T1",),
        edits=(
            Edit(
                "kernel/rules/retries.py",
                "draft.reschedule_job(job, retry_at)",
                "draft.reschedule_job(job, now)",
            ),
        ),
    ),
    Mutant(
        name="sleeper-woken-early",
        breaks="A sleeping job is woken up to three seconds before its time.",
        caught_by=("T1",),
        edits=(
            Edit("kernel/rules/claims.py", "            and job.wake_at <= now\n", ""),
            Edit(
                "adapters/memory/job_index.py",
                "            if wake_at <= now:\n",
                "            if wake_at <= now + 3_000_000:\n",
            ),
        ),
    ),
    Mutant(
        name="wake-up-queues-nothing",
        breaks="A sleeping job that is due loses its wake-up time and is not queued.",
        caught_by=("S7",),
        edits=(
            Edit(
                "kernel/rules/claims.py",
                "woken = _woken(job)",
                "woken = evolve(job, wake_at=None)",
            ),
        ),
    ),
    Mutant(
        name="host-uses-its-own-clock",
        breaks="A host uses its own wall clock instead of the store's.",
        caught_by=("T1",),
        edits=(
            Edit(
                "hosts/wiring/store_clock.py",
                "return shown + timedelta(0, (self._monotonic() - at) * _RATE)",
                "return self._machine.now()",
            ),
        ),
    ),
    Mutant(
        name="fast-clock-trusted",
        breaks="A host makes no allowance for a monotonic clock that runs too fast.",
        caught_by=("T1",),
        edits=(
            Edit("hosts/wiring/store_clock.py", "(self._monotonic() - at) * _RATE", "self._monotonic() - at"),
        ),
    ),
    Mutant(
        name="heartbeat-extends-nothing",
        breaks="A heartbeat is stored but does not extend the time until the next one.",
        caught_by=("T1",),
        edits=(
            Edit(
                "kernel/rules/heartbeats.py",
                "changes.append(Update(evolve(job, heartbeat_by=heartbeat_deadline(job, now))))",
                "changes.append(Update(job))",
            ),
        ),
    ),
    Mutant(
        name="quiet-run-fails",
        breaks="A run without a deadline fails when nothing has happened to it for a while.",
        caught_by=("S6",),
        edits=(
            Edit(
                "kernel/rules/deadlines.py",
                "run.deadline is None or run.deadline > now:",
                "(run.deadline or run.updated_at) > now:",
            ),
            Edit(
                "adapters/memory/searches.py",
                "        if run.deadline is not None and run.deadline <= store.now\n",
                "        if (run.deadline or run.updated_at + 30_000_000) <= store.now\n",
            ),
            Edit(
                "adapters/memory/searches.py",
                "        (run.deadline, run.key)\n",
                "        (run.deadline or run.updated_at, run.key)\n",
            ),
        ),
    ),
)
