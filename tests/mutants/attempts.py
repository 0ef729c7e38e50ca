"""Planted bugs in claims, leases, releases and retries."""

from typing import Final

from tests.mutants.mutant import Edit, Mutant

ATTEMPTS: Final = (
    Mutant(
        name="settle-without-epoch",
        breaks="whoever once had a job may settle it: a settle's epoch is not looked at",
        caught_by=("S3",),
        edits=(
            Edit(
                "kernel/rules/settlement.py",
                "    held = find_leased_job(state, command.job, command.epoch, command.namespace)\n",
                "    known = state.tables.job(parse_job_id(command.job))\n"
                "    held = find_leased_job(state, command.job, known.epoch if known else 0, command.namespace)\n",
            ),
        ),
    ),
    Mutant(
        name="heartbeat-without-epoch",
        breaks="whoever once had a job may speak for it: a heartbeat's epoch is not looked at",
        caught_by=("S3",),
        edits=(
            Edit(
                "kernel/rules/leases.py",
                "not is_held(job, held.epoch, command.namespace)",
                "not is_held(job, job.epoch, command.namespace)",
            ),
        ),
    ),
    Mutant(
        name="release-without-epoch",
        breaks="whoever once had a job may give it back: a release's epoch is not looked at",
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
        breaks="a claim does not count as an attempt",
        caught_by=("S8",),
        edits=(Edit("kernel/runs/builder.py", "attempts=job.attempts + 1,", "attempts=job.attempts,"),),
    ),
    Mutant(
        name="release-keeps-attempt",
        breaks="an attempt that is given back before it has begun counts all the same",
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
        name="reaper-takes-epoch-back",
        breaks="the job of a lost worker gets the epoch that it had before: the next claim has it for the second time",
        caught_by=("S1", "S3"),
        edits=(
            Edit(
                "kernel/rules/sessions.py",
                "evolve(job, lost_attempts=job.lost_attempts + 1)",
                "evolve(job, lost_attempts=job.lost_attempts + 1, epoch=job.epoch - 1)",
            ),
        ),
    ),
    Mutant(
        name="reaper-takes-from-the-living",
        breaks="the reaper frees jobs whose sessions live",
        caught_by=("S3",),
        edits=(
            Edit(
                "kernel/rules/sessions.py",
                "holder is not None and holder.state is SessionState.DEAD",
                "holder is not None",
            ),
            Edit(
                "adapters/memory/persistence.py",
                "dead = {key for key, session in sessions.items() if session.state is SessionState.DEAD}",
                "dead = set(sessions)",
            ),
        ),
    ),
    Mutant(
        name="reaped-before-its-end",
        breaks="a session is declared dead seconds before its lease is over",
        caught_by=("T1",),
        edits=(
            Edit(
                "kernel/rules/sessions.py",
                "if session.state is SessionState.OPEN and session.expires_at + command.grace < now",
                "if session.state is SessionState.OPEN",
            ),
            Edit(
                "adapters/memory/persistence.py",
                "if session.state is SessionState.OPEN and session.expires_at < before",
                "if session.state is SessionState.OPEN and session.expires_at < before + 5_000_000",
            ),
        ),
    ),
    Mutant(
        name="dead-session-renewed",
        breaks="a session that was declared dead comes back to life when it is renewed",
        caught_by=("S5",),
        edits=(
            Edit(
                "kernel/rules/sessions.py",
                "    session = _open_session(state, command.session)\n    expires_at = max",
                "    session = evolve(state.tables.sessions[command.session], state=SessionState.OPEN)\n"
                "    expires_at = max",
            ),
        ),
    ),
    Mutant(
        name="dead-session-claims",
        breaks="a session that was declared dead may claim",
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
        name="dead-session-goes-on",
        breaks="a session that was declared dead may take the next job of a run that it has settled one of",
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
        breaks="a function claims jobs of workflows that it has no code for",
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
        breaks="a body that fails is tried once more than it may be",
        caught_by=("S8",),
        edits=(
            Edit(
                "kernel/rules/retries.py",
                "job.tries >= min(policy.attempts, job.max_attempts)",
                "job.tries > min(policy.attempts, job.max_attempts)",
            ),
        ),
    ),
    Mutant(
        name="lost-for-ever",
        breaks="a job that was lost with its workers as often as it may be is queued again",
        caught_by=("S8", "S12"),
        edits=(
            Edit(
                "kernel/rules/sessions.py",
                "lost.lost_attempts >= losses_max(job.max_attempts):",
                "lost.lost_attempts > losses_max(job.max_attempts):",
            ),
        ),
    ),
    Mutant(
        name="backoff-ignored",
        breaks="a body that failed is tried again at once, and the history says when it was to be",
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
        name="woken-early",
        breaks="sleepers are woken up to three seconds before their time",
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
        name="fired-without-effect",
        breaks="a sleeper that is due loses its timer, and is not queued",
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
        name="clock-of-the-machine",
        breaks="a host goes by its own wall clock, and not by the store's",
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
        breaks="a host takes its monotonic clock for one that never runs too fast",
        caught_by=("T1",),
        edits=(
            Edit("hosts/wiring/store_clock.py", "(self._monotonic() - at) * _RATE", "self._monotonic() - at"),
        ),
    ),
    Mutant(
        name="heartbeat-unheard",
        breaks="a heartbeat is stored, and the body is taken for silent all the same",
        caught_by=("T1",),
        edits=(
            Edit(
                "kernel/rules/leases.py",
                "changes.append(UpdateJob(evolve(job, heartbeat_by=heartbeat_deadline(job, now))))",
                "changes.append(UpdateJob(job))",
            ),
        ),
    ),
    Mutant(
        name="quiet-runs-fail",
        breaks="a run to which nothing has happened for a while is taken for stuck, and fails",
        caught_by=("S6",),
        edits=(
            Edit(
                "kernel/rules/deadlines.py",
                "run.deadline is None or run.deadline > now:",
                "(run.deadline or run.updated_at) > now:",
            ),
            Edit(
                "adapters/memory/persistence.py",
                "            if run.deadline is not None and run.deadline <= now\n"
                "        ]\n        return [key for _, key in sorted(overdue)",
                "            if (run.deadline or run.updated_at + 30_000_000) <= now\n"
                "        ]\n        return [key for _, key in sorted(overdue)",
            ),
            Edit(
                "adapters/memory/persistence.py",
                "            (run.deadline, run.key)\n",
                "            (run.deadline or run.updated_at, run.key)\n",
            ),
        ),
    ),
)
