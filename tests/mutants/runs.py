"""Planted bugs in whole runs: start and end, child runs, concurrency slots, events."""

from typing import Final

from tests.mutants.mutant import Edit, Mutant

RUNS: Final = (
    Mutant(
        name="last-job-survives-its-run",
        breaks="A run that ends with one open job leaves that job in the store: its worker continues.",
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
        name="paused-run-opens-jobs",
        breaks="A stage that ends while its run is paused starts the stages that follow.",
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
        name="pause-skips-sleeping-jobs",
        breaks="A pause does not hold sleeping jobs: they are woken and claimed.",
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
        name="rate-limit-off-by-one",
        breaks="One job more starts in a period than the rate limit allows.",
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
        name="concurrency-limit-off-by-one",
        breaks="One run or job more gets a slot than the concurrency limit allows.",
        caught_by=("S10",),
        edits=(
            Edit(
                "kernel/rules/admissions.py",
                "used_slots[slot] + self._used[slot] >= limit}",
                "used_slots[slot] + self._used[slot] > limit}",
            ),
            Edit(
                "kernel/dispatch/searches.py",
                "0 if one.free is None else one.free for one in found",
                "0 if one.free is None else one.free + 1 for one in found",
            ),
        ),
    ),
    Mutant(
        name="concurrency-key-ignored",
        breaks="A run with a concurrency key starts at once.",
        caught_by=("S10",),
        edits=(
            Edit(
                "kernel/rules/run_creation.py",
                "return is_later or command.concurrency_key is not None or waits_for_rate(command)",
                "return is_later or waits_for_rate(command)",
            ),
        ),
    ),
    Mutant(
        name="retry-without-slot",
        breaks="A retry of a stage with `max_concurrency` is queued without a slot.",
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
        name="run-started-early",
        breaks="A run with a delayed start begins up to five seconds early.",
        caught_by=("T1",),
        edits=(
            Edit(
                "kernel/rules/admissions.py",
                "waiting.start_at is not None and waiting.start_at > now",
                "False",
            ),
            Edit(
                "adapters/memory/searches.py",
                "run.start_at is not None and run.start_at <= store.now",
                "run.start_at is not None and run.start_at <= store.now + 5_000_000",
            ),
        ),
    ),
    Mutant(
        name="deadline-ignored",
        breaks="A run continues after its deadline.",
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
        name="child-failure-not-delivered",
        breaks="A child run that does not complete never delivers its end to its parent.",
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
        name="child-end-lost-for-paused-parent",
        breaks="A child run's end counts as delivered if its parent is paused, but is not stored there.",
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
        name="rerun-keeps-old-generation-active",
        breaks="A rerun of a paused or pending run leaves the old generation active.",
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
        name="rerun-loses-parent",
        breaks="A rerun of a child run does not deliver its end: the parent waits for ever.",
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
        name="rerun-continues-row-numbers",
        breaks="The first row of a rerun continues the row numbers of the old generation.",
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
        name="rerun-keeps-output-of-its-stage",
        breaks="A rerun keeps the old output of the stage that it starts from.",
        caught_by=(
            "S4",
            "S5",
            "S7",
            "S9",
        ),  # S5: from its last stage, it has nothing to do and begins as completed
        edits=(Edit("kernel/runs/rerun_plan.py", "if is_done and node.name != start:", "if is_done:"),),
    ),
    Mutant(
        name="refused-event-skipped",
        breaks="The flusher skips an event that a sink refuses, and delivers the next.",
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
        name="delivered-before-sent",
        breaks="Events count as delivered before the sink has them.",
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
        name="row-earlier-than-last",
        breaks="A host whose clock is behind stores a row that is earlier than the row before it.",
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
        name="refused-result-delivered-for-ever",
        breaks="A child's result that the store refuses is delivered to its parent for ever.",
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
        name="stale-flusher-stores-progress",
        breaks="A flusher that lost its lease on a stream can still store its progress.",
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
        name="replay-skips-refused-event",
        breaks="A replay of a dead letter continues after the refused event instead of with it.",
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
        name="overrides-lose-conditions",
        breaks="A run with overrides loses its conditions: `when` always takes the first branch.",
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
        name="clock-ahead-of-store",
        breaks=(
            "A host assumes that the store read its clock halfway through a request, so its own clock is "
            "ahead."
        ),
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
