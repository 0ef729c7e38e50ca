"""Planted bugs in whole runs: start and end, child runs, concurrency slots, events."""

from typing import Final

from tests.mutants.mutant import Edit, Mutant

RUNS: Final = (
    Mutant(
        name="end-leaves-the-last-job",
        breaks="a run that ends with one job open leaves that where it is: whoever has it goes on",
        caught_by=("S5",),
        edits=(
            Edit(
                "kernel/runs/builder.py",
                "        if self._open_jobs:\n            for node, attempts",
                "        if self._open_jobs > 1:\n            for node, attempts",
            ),
        ),
    ),
    Mutant(
        name="paused-run-goes-on",
        breaks="what follows from a stage that ends while its run is paused is started",
        caught_by=("S7",),
        edits=(
            Edit(
                "kernel/runs/builder.py",
                "        if self._status in HELD:\n"
                "            job = evolve(job, state=JOB_TRANSITIONS.check(job.state, JobState.PAUSED))\n"
                "        elif job.concurrency_key",
                "        if job.concurrency_key",
            ),
        ),
    ),
    Mutant(
        name="pause-forgets-sleepers",
        breaks="a pause does not hold what sleeps: it is woken and claimed",
        caught_by=("S7",),
        edits=(
            Edit(
                "kernel/rules/runs.py",
                "(JobState.QUEUED, JobState.SLEEPING, JobState.LIMITED)",
                "(JobState.QUEUED, JobState.LIMITED)",
            ),
        ),
    ),
    Mutant(
        name="one-start-too-many",
        breaks="one more job starts in a time than its rate limit says",
        caught_by=("S11",),
        edits=(
            Edit(
                "kernel/limits/rates.py",
                "return limit - sum(many for at, many in self.at if at + period > now)",
                "return limit + 1 - sum(many for at, many in self.at if at + period > now)",
            ),
        ),
    ),
    Mutant(
        name="one-over-the-limit",
        breaks="one more gets a slot than a concurrency key, or a stage, has",
        caught_by=("S10",),
        edits=(
            Edit(
                "kernel/rules/admissions.py",
                "used + self._used[slot] >= (one.concurrency_limit or 0)",
                "used_slots + self._used[slot] > (one.concurrency_limit or 0)",
            ),
            Edit(
                "kernel/dispatch/loader.py",
                "0 if one.free is None else one.free for one in found",
                "0 if one.free is None else one.free + 1 for one in found",
            ),
        ),
    ),
    Mutant(
        name="key-not-waited-for",
        breaks="a run with a concurrency key begins at once",
        caught_by=("S10",),
        edits=(
            Edit(
                "kernel/rules/run_creation.py",
                "waits = start_at is not None or command.concurrency_key is not None",
                "waits = start_at is not None",
            ),
        ),
    ),
    Mutant(
        name="retry-takes-a-slot",
        breaks="a job of a stage with max_concurrency that was asleep is queued without a slot",
        caught_by=("S10",),
        edits=(
            Edit(
                "kernel/runs/builder.py",
                "        return JobState.QUEUED\n    return JobState.LIMITED\n",
                "        return JobState.QUEUED\n    return JobState.QUEUED\n",
            ),
        ),
    ),
    Mutant(
        name="begun-early",
        breaks="runs begin up to five seconds before they are to",
        caught_by=("T1",),
        edits=(
            Edit(
                "kernel/rules/admissions.py",
                "if run.status is not RunStatus.PENDING or (run.start_at is not None and run.start_at > now):",
                "if run.status is not RunStatus.PENDING:",
            ),
            Edit(
                "adapters/memory/persistence.py",
                "run.start_at is not None and run.start_at <= now",
                "run.start_at is not None and run.start_at <= now + 5_000_000",
            ),
        ),
    ),
    Mutant(
        name="deadline-ignored",
        breaks="a run whose deadline has passed goes on",
        caught_by=("T3", "W1"),
        edits=(
            Edit(
                "kernel/rules/deadlines.py",
                "run.deadline is None or run.deadline > now:",
                "run.deadline is None or run.deadline < now:",
            ),
        ),
    ),
    Mutant(
        name="only-good-news-told",
        breaks="a child that did not complete tells nobody of its end",
        caught_by=("S7",),
        edits=(
            Edit(
                "kernel/runs/builder.py",
                "        self.add_parent_delivery()\n        if self._children:",
                "        if status is RunStatus.COMPLETED:\n"
                "            self.add_parent_delivery()\n"
                "        if self._children:",
            ),
        ),
    ),
    Mutant(
        name="end-told-to-nobody",
        breaks="the end of a child counts as told if its parent is paused",
        caught_by=("S7",),
        edits=(
            Edit(
                "kernel/rules/children.py",
                "    if parent is None or parent.status in TERMINAL:\n",
                "    if parent is None or parent.status in (*TERMINAL, RunStatus.PAUSED):\n",
            ),
        ),
    ),
    Mutant(
        name="rerun-beside-the-old",
        breaks="a rerun of a run that is paused or pending leaves the former generation active",
        caught_by=("S5",),
        edits=(
            Edit(
                "kernel/rules/reruns.py",
                "ended = None if before.status in TERMINAL else",
                "ended = None if before.status is not RunStatus.RUNNING else",
            ),
        ),
    ),
    Mutant(
        name="rerun-forgets-its-parent",
        breaks="the rerun of a child tells nobody of its end, and its parent waits for ever",
        caught_by=("S7",),
        edits=(
            Edit(
                "kernel/rules/reruns.py",
                "parent=None if before.status in TERMINAL else before.parent,",
                "parent=None,",
            ),
        ),
    ),
    Mutant(
        name="rerun-numbers-on",
        breaks="the events of a rerun are numbered on from those of the generation before",
        caught_by=("O1", "crashed"),
        edits=(
            Edit(
                "kernel/rules/reruns.py",
                "last_row=0 if begins.fork is None",
                "last_row=before.last_row if begins.fork is None",
            ),
        ),
    ),
    Mutant(
        name="rerun-keeps-what-it-runs",
        breaks="a rerun keeps what the stage gave that it is to begin with",
        caught_by=("S4", "S7", "S9"),
        edits=(Edit("kernel/runs/rerun_plan.py", "if is_done and node.name != start:", "if is_done:"),),
    ),
    Mutant(
        name="refused-event-passed-over",
        breaks="an event that a sink refuses is left out, and the next is delivered",
        caught_by=("O2", "O3"),
        edits=(
            Edit(
                "hosts/events/delivery.py",
                "        if error is not None:\n            final = ",
                "        if error is not None and not isinstance(error, EventRefusedError):\n            final = ",
            ),
        ),
    ),
    Mutant(
        name="told-before-delivered",
        breaks="events count as delivered before the sink has them",
        caught_by=("O2", "O3"),
        edits=(
            Edit(
                "hosts/events/flusher.py",
                "                deliver(self._sinks[name], pending, delivery,",
                "                early = DeliveryProgress()\n"
                "                early.delivered += [StreamProgress(run=one.run, number=one.end) for one in pending]\n"
                "                _ProgressWriter(self._core, name, leased, early).settle_new()\n"
                "                deliver(self._sinks[name], pending, delivery,",
            ),
        ),
    ),
    Mutant(
        name="run-back-in-time",
        breaks="a host whose clock is behind sets a run back in time",
        caught_by=("O1", "O2"),
        edits=(
            Edit(
                "kernel/runs/builder.py",
                "self._changed_at = max(now, run.updated_at)",
                "self._changed_at = now",
            ),
        ),
    ),
    Mutant(
        name="end-told-for-ever",
        breaks="what a child gave is told again and again, though the store refuses to keep it",
        caught_by=("L1",),
        edits=(
            Edit(
                "kernel/dispatch/storage_refusals.py",
                "if parent is not None and output is not None:",
                "if parent is None and output is not None:",
            ),
        ),
    ),
    Mutant(
        name="late-flush-counts",
        breaks="whoever once was to deliver a run's events may say how far it came, though another is to by now",
        caught_by=("S3",),
        edits=(
            Edit(
                "kernel/rules/outbox.py",
                "        if stream.holder != command.holder:\n",
                "        if stream.holder is None:\n",
            ),
        ),
    ),
    Mutant(
        name="replay-passes-over",
        breaks="the replay of a dead letter goes on behind the event that was refused",
        caught_by=("O2", "O3"),
        edits=(
            Edit(
                "kernel/rules/outbox.py",
                "delivered, skips = stream.delivered, stream.skipped_rows",
                "delivered, skips = max(stream.delivered, stream.refused_row or 0), stream.skipped_rows",
            ),
        ),
    ),
    # The simulator found these two in the code as it was.
    Mutant(
        name="overrides-without-tests",
        breaks="a run whose stages are treated otherwise has no tests: it does the first stage of each choice",
        caught_by=("S4",),
        edits=(
            Edit(
                "kernel/rules/stage_overrides.py",
                "attrs.evolve(group, nodes=tuple(_changed(node, by_stage.get(node.name)) for node in group.nodes))",
                "attrs.evolve(\n"
                "            group,\n"
                "            nodes=tuple(_changed(node, by_stage.get(node.name)) for node in group.nodes),\n"
                "            test=None,\n"
                "        )",
            ),
        ),
    ),
    Mutant(
        name="clock-ahead-of-the-store",
        breaks="a host takes the store to have looked at its clock halfway through the question",
        caught_by=("T1",),
        edits=(
            Edit(
                "hosts/wiring/store_clock.py",
                "answer = instant(store_time)",
                "answer = instant(store_time) + timedelta(seconds=took / 2)",
            ),
        ),
    ),
)
