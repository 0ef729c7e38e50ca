"""Planted bugs in driving durable functions: recording, waking, compensations."""

from typing import Final

from tests.mutants.mutant import Edit, Mutant

FUNCTIONS: Final = (
    Mutant(
        name="record-ignores-epoch",
        breaks=(
            "A record does not check the job's epoch: a worker that lost the lease can write to the history."
        ),
        caught_by=("S3",),
        edits=(
            Edit(
                "kernel/rules/function_history.py",
                "    held = find_leased_job(state, command.job, command.epoch, command.namespace)\n",
                "    known = state.tables.job(parse_job_id(command.job))\n"
                "    held = find_leased_job(state, command.job, known.epoch if known else 0, command.namespace)\n",
            ),
        ),
    ),
    Mutant(
        name="resent-record-stored-twice",
        breaks="A record that is sent again after a lost reply is stored twice.",
        caught_by=("L1", "S4", "S8"),
        edits=(
            Edit(
                "kernel/rules/function_history.py",
                "if _identity_of(record) in known:",
                "if False:",
            ),
        ),
    ),
    Mutant(
        name="timer-fired-early",
        breaks="A driver records that a timer has fired seconds before it is due by the store's clock.",
        caught_by=("T1",),
        edits=(
            Edit(
                "kernel/rules/function_history.py",
                "if due <= now:",
                "if due <= now + 2_000_000:",
            ),
            Edit(
                "hosts/functions/replay.py",
                "for one in self.timers() if one.at <= now]",
                "for one in self.timers() if one.at <= now + 1_000_000]",
            ),
        ),
    ),
    Mutant(
        name="function-starts-at-creation-time",
        breaks="A function's clock starts at its run's creation, however long it waited for a worker.",
        caught_by=("L1",),
        edits=(
            Edit(
                "hosts/functions/loader.py",
                "now, begins = body.parts.trusted_now(), body.attempt.epoch == 1",
                "now, begins = None, body.attempt.epoch == 1",
            ),
        ),
    ),
    Mutant(
        name="clock-read-not-recorded",
        breaks="The time that a function read from its clock is not recorded.",
        caught_by=("D2", "S4", "S8", "L1", "T1"),
        edits=(
            Edit(
                "hosts/functions/replay.py",
                "            todo.read[number] = shown\n",
                "            pass\n",
            ),
        ),
    ),
    Mutant(
        name="function-parked-with-unread-rows",
        breaks="A function is parked although it has unread rows.",
        caught_by=("T3", "L1"),
        edits=(
            Edit(
                "kernel/rules/function_settlement.py",
                "    if outcome.seen < run.last_row:\n        wake_at = now\n",
                "",
            ),
        ),
    ),
    Mutant(
        name="message-wakes-no-function",
        breaks="A message is stored, but does not wake the parked function.",
        caught_by=("L1",),
        edits=(
            Edit(
                "kernel/rules/signals.py",
                "        case JobState.SLEEPING:\n            draft.reschedule_job(job, now)\n",
                "        case JobState.SLEEPING:\n            pass\n",
            ),
        ),
    ),
    Mutant(
        name="repeated-message-stored-twice",
        breaks="A message that is sent again under its idempotency key is stored twice.",
        caught_by=("I1",),
        edits=(
            Edit(
                "hosts/client/sync_run_handle.py",
                "            idempotency_key=idempotency_key,\n            run_id=self.id,\n            signal=",
                "            run_id=self.id,\n            signal=",
            ),
        ),
    ),
    Mutant(
        name="replay-resets-attempts",
        breaks="A replay counts the attempts of a step from one again.",
        caught_by=("S8",),
        edits=(
            Edit(
                "hosts/functions/replay.py",
                "                number=retrying.attempt + 1,\n",
                "                number=1,\n",
            ),
        ),
    ),
    Mutant(
        name="step-backoff-ignored",
        breaks="A failed step is retried at once, although its row has a later time for the retry.",
        caught_by=("T1",),
        edits=(
            Edit(
                "hosts/functions/driver.py",
                "            if self._is_due(one, min(now, self._looked_at)):\n",
                "            if one.is_restarted or not one.lost_attempts:\n",
            ),
        ),
    ),
    Mutant(
        name="lost-step-attempt-not-counted",
        breaks="A step that was running when its worker was lost is retried under the same attempt number.",
        caught_by=("S8", "S2"),
        edits=(
            Edit(
                "hosts/functions/driver.py",
                "if self._attempt.attempt > 1 and not drive.is_over:",
                "if False:",
            ),
        ),
    ),
    Mutant(
        name="record-reply-omits-rows",
        breaks="The reply to a record omits the rows that others stored before it.",
        caught_by=("L1", "D2", "S6"),
        edits=(
            Edit("kernel/rules/function_history.py", "rows=(*unseen, *draft.rows)", "rows=tuple(draft.rows)"),
        ),
    ),
    Mutant(
        name="cancel-skips-compensation",
        breaks="A cancel ends a function at once, like a pipeline: nothing is compensated.",
        caught_by=("L1", "S6"),
        edits=(
            Edit(
                "kernel/rules/cancels.py",
                "    if has_code_under_way and not is_older",
                "    if False and has_code_under_way and not is_older",
            ),
        ),
    ),
    Mutant(
        name="deadline-skips-compensation",
        breaks="A deadline ends a function at once, like a pipeline: nothing is compensated.",
        caught_by=("L1",),
        edits=(
            Edit(
                "kernel/rules/deadlines.py",
                "        if run.is_admitted and state.plan_of(run).function is not None:",
                "        if False:",
            ),
        ),
    ),
    Mutant(
        name="failure-skips-compensation",
        breaks="A function that fails is not compensated.",
        caught_by=("L1",),
        edits=(
            Edit(
                "kernel/functions/machine.py",
                "            await self._loop.saga.compensate()\n",
                "            pass\n",
            ),
        ),
    ),
    Mutant(
        name="unknown-outcome-not-compensated",
        breaks=(
            "A step that was running when its run was cancelled is not compensated, although it may have "
            "happened."
        ),
        caught_by=("L1",),
        edits=(
            Edit(
                "kernel/functions/sagas.py",
                "            if due.output is not None or due.takes_unknown or await",
                "            if due.output is not None or not due.takes_unknown and await",
            ),
        ),
    ),
    Mutant(
        name="random-values-change-in-replay",
        breaks="A function's random values differ from replay to replay.",
        caught_by=("D2", "S6", "S4"),
        edits=(
            Edit(
                "hosts/functions/loader.py",
                "seed=run.key if first is None else first.run,",
                'seed=f"{run.key}{body.attempt.epoch}",',
            ),
        ),
    ),
    Mutant(
        name="function-uses-host-clock",
        breaks="A function reads the clock of its host instead of the times of its history rows.",
        caught_by=("D2", "S6", "S4", "T1", "L1"),
        edits=(
            Edit(
                "hosts/functions/loader.py",
                "began_at=run.created_at if first is None else first.at,",
                "began_at=body.parts.trusted_now(),",
            ),
        ),
    ),
    Mutant(
        name="replay-misses-last-row",
        breaks="A replay does not read the last row of the history.",
        caught_by=("S4", "S8", "D2", "L1", "S6"),
        edits=(
            Edit(
                "hosts/functions/loader.py",
                "    history = () if opening.is_new else opening.rows_after(0)\n",
                "    history = () if opening.is_new else opening.rows_after(0)[:-1]\n",
            ),
        ),
    ),
    Mutant(
        name="invocation-exceeds-time-limit",
        breaks="A serverless host drives a function for longer than its invocation lasts.",
        caught_by=("W1",),
        edits=(
            Edit(
                "hosts/functions/driver.py",
                "return (limit is not None and driven_for > limit) or (half is not None and driven_for > half)",
                "return False",
            ),
        ),
    ),
    Mutant(
        name="step-receipt-ignored",
        breaks="A transactional step whose commit got no reply counts as failed: its receipt is not checked.",
        caught_by=("S2", "S4", "S8"),
        edits=(
            Edit(
                "hosts/functions/transactional_steps.py",
                "if lost is not None and not self._was_committed(transaction, answer):",
                "if lost is not None:",
            ),
        ),
    ),
    Mutant(
        name="losses-never-reset",
        breaks="Lost attempts still count against a function after it has made progress.",
        caught_by=("S6", "S8"),
        edits=(
            Edit(
                "kernel/rules/function_history.py",
                "    if draft.rows and (job.lost_attempts > lost_attempts or job.attempts > 1):",
                "    if draft.rows and job.attempts > 1_000:",
            ),
            Edit(
                "kernel/rules/function_settlement.py",
                "evolve(settlement.job, attempts=0, lost_attempts=outcome.lost_attempts), wake_at",
                "settlement.job, wake_at",
            ),
        ),
    ),
    Mutant(
        name="cached-function-misses-rows",
        breaks="A cached function does not get the rows that were stored while it was parked.",
        caught_by=("L1", "W1"),
        edits=(
            Edit(
                "hosts/functions/replay.py",
                "        self._feed(known, now)\n        return True\n",
                "        self.seen += len(new_rows)\n        return True\n",
            ),
        ),
    ),
    Mutant(
        name="stale-cached-function-used",
        breaks="A worker continues a cached function that another worker has driven since.",
        caught_by=("S2", "S4", "S6", "S7", "S8", "D2", "L1"),
        edits=(
            Edit(
                "hosts/execution/function_cache.py",
                "attempt.epoch == idle.epoch + 1 and attempt.attempt == 1 and idle.code is code",
                "idle.code is code",
            ),
            Edit(
                "hosts/functions/replay.py",
                "        if not self._are_next(known):\n            return False\n",
                "        marked = events.PatchMarked.type\n"
                "        known = [one for one in known if not one.is_requested and one.row.type != marked]\n",
            ),
        ),
    ),
    Mutant(
        name="cached-function-loses-retries",
        breaks="A cached function loses its steps that are due for a retry.",
        caught_by=("S6", "L1"),
        edits=(
            Edit(
                "hosts/functions/replay.py",
                "        self._todo.new = self._open_steps()\n        self._feed(",
                "        self._feed(",
            ),
        ),
    ),
    Mutant(
        name="paused-function-claimable",
        breaks="A function whose run is paused can still be claimed.",
        caught_by=("C1", "S7", "S5"),
        edits=(
            Edit(
                "kernel/runs/builder.py",
                "is_held = status in HELD and not job.outlives_run\n    asleep",
                "is_held = status in HELD and not job.outlives_run and job.kind is not JobKind.WORKFLOW\n"
                "    asleep",
            ),
        ),
    ),
)
