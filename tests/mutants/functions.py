"""Planted bugs in driving durable functions: recording, waking, compensations."""

from typing import Final

from tests.mutants.mutant import Edit, Mutant

FUNCTIONS: Final = (
    Mutant(
        name="record-without-epoch",
        breaks="whoever once drove a function may record for it: a record's epoch is not looked at",
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
        breaks="a record whose answer was lost is stored again when it is sent again",
        caught_by=("S4", "S8"),
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
        breaks="a driver whose clock is ahead of the store's by seconds records that a timer has fired",
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
        name="begins-when-created",
        breaks="what a function asks for first counts from when its run was created, however long nobody drove it",
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
        name="clock-read-forgotten",
        breaks="what a function's clock showed is not recorded, though it has looked at it",
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
        name="parked-past-news",
        breaks="a function is parked though there are rows that it has not been told",
        caught_by=("T3", "L1"),
        edits=(
            Edit(
                "kernel/rules/function_history.py",
                "    if outcome.seen < run.last_row:\n        wake_at = now\n",
                "",
            ),
        ),
    ),
    Mutant(
        name="message-wakes-nobody",
        breaks="a message is stored, and a function that is parked is not woken",
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
        name="message-sent-again-stored-twice",
        breaks="a message that is sent again under its idempotency key is another one",
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
        name="tries-forgotten-in-replay",
        breaks="who takes over a function counts the tries of its steps from one again",
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
        name="retry-of-a-step-not-waited-for",
        breaks="a step that has failed is tried again at once, and its row says when it was to be",
        caught_by=("T1",),
        edits=(
            Edit(
                "hosts/functions/driver.py",
                "            if (one.at is None or one.at <= now) and (one.is_restarted or not one.lost_attempts):\n",
                "            if one.is_restarted or not one.lost_attempts:\n",
            ),
        ),
    ),
    Mutant(
        name="lost-try-not-counted",
        breaks="a step that was under way when its worker was lost is tried again under the same number",
        caught_by=("S8", "S2"),
        edits=(
            Edit(
                "hosts/functions/driver.py",
                "if self._body.attempt.attempt > 1 and not drive.is_over:",
                "if False:",
            ),
        ),
    ),
    Mutant(
        name="unseen-rows-not-told",
        breaks="the answer to a record has only the rows that it has stored, and not those of others before",
        caught_by=("L1", "D2", "S6"),
        edits=(
            Edit("kernel/rules/function_history.py", "rows=(*unseen, *draft.rows)", "rows=tuple(draft.rows)"),
        ),
    ),
    Mutant(
        name="cancelled-function-fenced",
        breaks="a function that is cancelled is ended at once, as a pipeline is: it takes nothing back",
        caught_by=("L1", "S6"),
        edits=(
            Edit(
                "kernel/rules/runs.py",
                "    if has_code_under_way and not is_older",
                "    if False and has_code_under_way and not is_older",
            ),
        ),
    ),
    Mutant(
        name="deadline-cuts-functions-off",
        breaks="a function is ended at its deadline, as a pipeline is: it takes nothing back",
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
        name="not-taken-back",
        breaks="what a function has done is not taken back when it fails",
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
        name="unknown-outcome-not-taken-back",
        breaks="a step that was under way when its run was cancelled is taken for one that has not happened",
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
        name="ids-drawn-anew",
        breaks="what a function draws by chance is another thing in each replay",
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
        name="clock-of-the-driver",
        breaks="a function's clock is that of whoever drives it, not that of its rows",
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
        name="replay-of-one-page-short",
        breaks="who takes over a function does not read the last row of its history",
        caught_by=("S4", "S8", "D2", "L1", "S6"),
        edits=(
            Edit(
                "hosts/functions/loader.py",
                "    history = () if is_new else rows_after(body, 0)\n",
                "    history = () if is_new else rows_after(body, 0)[:-1]\n",
            ),
        ),
    ),
    Mutant(
        name="drives-on-when-out-of-time",
        breaks="a serverless function drives on for longer than its invocation lasts",
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
        name="commit-not-looked-for",
        breaks="a step in a transaction whose commit was not answered counts as failed: its receipt is not looked at",
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
        name="losses-never-forgiven",
        breaks="a function that has come further since is still blamed for the workers that were lost before",
        caught_by=("S6", "S8"),
        edits=(
            Edit(
                "kernel/rules/function_history.py",
                "    if draft.rows and (job.lost_attempts > lost_attempts or job.attempts > 1):",
                "    if draft.rows and job.attempts > 1_000:",
            ),
            Edit(
                "kernel/rules/function_history.py",
                "        evolve(job, attempts=0, lost_attempts=outcome.lost_attempts), wake_at, now, run.status\n",
                "        job, wake_at, now, run.status\n",
            ),
        ),
    ),
    Mutant(
        name="kept-function-not-told-the-news",
        breaks="a function that was kept in memory is not told what has come while it rested",
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
        name="kept-though-others-drove-it",
        breaks="a function that was kept in memory goes on from there, though another worker has driven it since",
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
        name="open-steps-of-kept-function-forgotten",
        breaks="a step that is to be tried again is not, if its function was kept in memory meanwhile",
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
        name="paused-function-goes-on",
        breaks="a function whose run is paused stays claimable",
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
