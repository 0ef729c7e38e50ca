"""Bugs in what becomes of whole runs: their beginning and their end, their children, their slots, their events."""

from typing import Final

from tests.mutants.mutant import Edit, Mutant

OF_RUNS: Final = (
    Mutant(
        name="end-leaves-the-last-job",
        breaks="a run that ends with one job open leaves that where it is: whoever has it goes on",
        caught_by=("S5",),
        edits=(
            Edit(
                "kernel/draft.py",
                "        if self._open_jobs:\n            self._changes.append(CloseJobs",
                "        if self._open_jobs > 1:\n            self._changes.append(CloseJobs",
            ),
        ),
    ),
    Mutant(
        name="paused-run-goes-on",
        breaks="what follows from a stage that ends while its run is paused is started",
        caught_by=("S7",),
        edits=(
            Edit(
                "kernel/draft.py",
                "        if self._status is RunStatus.PAUSED:\n"
                "            job = evolve(job, state=JobState.HELD)\n"
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
                "kernel/decide/runs.py",
                "(JobState.QUEUED, JobState.SLEEPING, JobState.LIMITED)",
                "(JobState.QUEUED, JobState.LIMITED)",
            ),
        ),
    ),
    Mutant(
        name="one-over-the-limit",
        breaks="one more gets a slot than a concurrency key, or a stage, has",
        caught_by=("S10",),
        edits=(
            Edit(
                "kernel/decide/admissions.py",
                "used + self._used[slot] >= (one.concurrency_limit or 0)",
                "used + self._used[slot] > (one.concurrency_limit or 0)",
            ),
            Edit(
                "kernel/loading.py",
                "most = min(one.free, left)",
                "most = min(one.free + 1, left)",
            ),
        ),
    ),
    Mutant(
        name="key-not-waited-for",
        breaks="a run with a concurrency key begins at once",
        caught_by=("S10",),
        edits=(
            Edit(
                "kernel/decide/runs.py",
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
                "kernel/draft.py",
                "return JobState.QUEUED if job.concurrency_key is None or job.has_slot else JobState.LIMITED",
                "return JobState.QUEUED",
            ),
        ),
    ),
    Mutant(
        name="begun-early",
        breaks="runs begin up to five seconds before they are to",
        caught_by=("T1",),
        edits=(
            Edit(
                "kernel/decide/admissions.py",
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
                "kernel/decide/admissions.py",
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
                "kernel/draft.py",
                "        self.owe_parent()\n        if self._children:",
                "        if status is RunStatus.COMPLETED:\n"
                "            self.owe_parent()\n"
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
                "kernel/decide/children.py",
                "parent is None or parent.status in TERMINAL or waiting.waits_for",
                "parent is None or parent.status in (*TERMINAL, RunStatus.PAUSED) or waiting.waits_for",
            ),
        ),
    ),
    Mutant(
        name="rerun-beside-the-old",
        breaks="a rerun of a run that is paused or pending leaves the former generation active",
        caught_by=("S5",),
        edits=(
            Edit(
                "kernel/decide/reruns.py",
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
                "kernel/decide/reruns.py",
                "parent=None if before.status in TERMINAL else before.parent,",
                "parent=None,",
            ),
        ),
    ),
    Mutant(
        name="rerun-numbers-on",
        breaks="the events of a rerun are numbered on from those of the generation before",
        caught_by=("O1", "crashed"),
        edits=(Edit("kernel/decide/reruns.py", "last_row=0,", "last_row=before.last_row,"),),
    ),
    Mutant(
        name="rerun-keeps-what-it-runs",
        breaks="a rerun keeps what the stage gave that it is to begin with",
        caught_by=("S4", "S7", "S9"),
        edits=(Edit("kernel/reruns.py", "if is_done and node.name != start:", "if is_done:"),),
    ),
    Mutant(
        name="refused-event-passed-over",
        breaks="an event that a sink refuses is left out, and the next is delivered",
        caught_by=("O2", "O3"),
        edits=(
            Edit(
                "hosts/delivery.py",
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
                "hosts/flushing.py",
                "                deliver(self._sinks[name], pending, delivery,",
                "                early = Delivery()\n"
                "                early.delivered += [Delivered(run=one.run, number=one.end) for one in pending]\n"
                "                _Telling(self._core, name, leased, early).tell()\n"
                "                deliver(self._sinks[name], pending, delivery,",
            ),
        ),
    ),
    Mutant(
        name="replay-passes-over",
        breaks="the replay of a dead letter goes on behind the event that was refused",
        caught_by=("O2", "O3"),
        edits=(
            Edit(
                "kernel/decide/outbox.py",
                "delivered, skips = stream.delivered, stream.skips",
                "delivered, skips = max(stream.delivered, stream.refused or 0), stream.skips",
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
                "kernel/overrides.py",
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
                "hosts/clock.py",
                "def sync(self, store_time: Micros | None) -> None:",
                "def sync(self, store_time: Micros | None, asked_at: float) -> None:",
            ),
            Edit(
                "hosts/clock.py",
                "self._base, self._base_at = instant(store_time), answered_at",
                "self._base, self._base_at = instant(store_time), (asked_at + answered_at) / 2",
            ),
            Edit(
                "hosts/core.py",
                "        self.clock.sync(self.stores.persistence.read(StoreTime()))",
                "        asked_at = self.stores.clock.monotonic()\n"
                "        self.clock.sync(self.stores.persistence.read(StoreTime()), asked_at)",
            ),
        ),
    ),
)
