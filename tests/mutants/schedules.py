"""Planted bugs in schedules. The simulator finds them with its workload of schedules."""

from typing import Final

from tests.mutants.mutant import Edit, Mutant


def _mutant(name: str, breaks: str, caught_by: tuple[str, ...], *edits: Edit) -> Mutant:
    return Mutant(name=name, breaks=breaks, caught_by=caught_by, edits=edits, workload="schedules")


FIRING: Final = "kernel/rules/schedule_starts.py"
RULES: Final = "kernel/rules/schedules.py"
TIMETABLE: Final = "kernel/schedules/timetable.py"

SCHEDULES: Final = (
    _mutant(
        "schedule-fires-from-now",
        "A firing looks at the last five minutes only, and forgets the times that passed before.",
        ("T4c",),
        Edit(
            TIMETABLE,
            "policy, since = policy_of(row), row.handled_until\n",
            "policy, since = policy_of(row), max(row.handled_until, now - LATE_AFTER)\n",
        ),
    ),
    _mutant(
        "skip-leaves-time-unhandled",
        "A nominal time that is skipped stays due: it is counted again, and started once the other run has ended.",
        ("T4c",),
        Edit(
            FIRING,
            "    following = None if is_over(row) else timetable.after(handled_until)\n",
            "    if firing.skipped and not firing.started:\n"
            "        handled_until = starts.state.tables.schedules[row.key].handled_until\n"
            "        row = evolve(row, handled_until=handled_until)\n"
            "    following = None if is_over(row) else timetable.after(handled_until)\n",
        ),
    ),
    _mutant(
        "paused-schedule-fires",
        "A pause keeps the next nominal time, and the schedule fires.",
        ("T4e", "T4g"),
        Edit(
            RULES,
            "return evolve(row, paused=text_of(pause), next_at=None, updated_at=",
            "return evolve(row, paused=text_of(pause), updated_at=",
        ),
    ),
    _mutant(
        "jitter-in-run-id",
        "The id of a run has the time at which it starts, not its nominal time.",
        ("T4a",),
        Edit(
            FIRING,
            "            id=run_id,\n            start_at=",
            "            id=run_id_of(self.row.name, one.at + jitter_of(self.row, self.policy, one.at)),\n"
            "            start_at=",
        ),
    ),
    _mutant(
        "update-keeps-old-times-due",
        "An update of the times counts from the last nominal time that was handled, not from now.",
        ("T4e",),
        Edit(
            RULES,
            "    cursor = now if known is None else max(now, known.handled_until)\n",
            "    cursor = now if known is None else known.handled_until\n",
        ),
    ),
    _mutant(
        "backfill-starts-existing-run-again",
        "A backfill starts a second run for a nominal time that has one, under another id.",
        ("T4a",),
        Edit(
            FIRING,
            "in_its_way = firing.start(due, run_id_of(row.name, at), priority=BACKFILL_PRIORITY)",
            'in_its_way = firing.start(due, f"{run_id_of(row.name, at)}/{now}", priority=BACKFILL_PRIORITY)',
        ),
    ),
    _mutant(
        "existing-run-started-under-another-id",
        "A nominal time whose run exists, as after a backfill, is started again under another id.",
        ("T4a",),
        Edit(
            FIRING,
            "        if name in self._starts.unreadable or self._starts.state.tables.run_named(name) is not None:\n"
            '            return self._note(due, "existing", run_id)\n',
            "        if name in self._starts.unreadable or self._starts.state.tables.run_named(name) is not None:\n"
            '            run_id += "/again"\n',
        ),
    ),
    _mutant(
        "missed-counted-twice",
        "The nominal time that is made up for counts as missed, too.",
        ("T4c",),
        Edit(
            TIMETABLE,
            "    missed = _count(timetable, since, last.at - 1)\n",
            "    missed = _count(timetable, since, last.at)\n",
        ),
    ),
    _mutant(
        "older-release-plans-again",
        "A host with older time zone data plans schedules again that newer data has planned.",
        ("T4g",),
        Edit(
            RULES,
            "if row.zones < command.version and row.paused is None]",
            "if row.zones != command.version and row.paused is None]",
        ),
    ),
    _mutant(
        "removal-ignores-declaration",
        "A removal of what was declared removes a schedule that was not.",
        ("T4e",),
        Edit(
            RULES,
            "    if known is None or (command.declared is not None and known.declared != command.declared):\n",
            "    if known is None:\n",
        ),
    ),
    _mutant(
        "host-fires-without-code",
        "A host fires schedules of workflows whose code it does not have.",
        ("S6", "T4f"),
        Edit(
            "adapters/memory/searches.py",
            "if row.namespace == namespace and row.workflow in workflows]",
            "if row.namespace == namespace and workflows]",
        ),
    ),
    _mutant(
        "local-time-repeated-by-newer-data",
        "A local time that was handled fires again when newer time zone data has it later.",
        ("T4c", "T4g"),
        Edit(TIMETABLE, "    if again <= 0:\n", "    if again <= 86_400:\n"),
    ),
    _mutant(
        "run-limit-drops-times",
        "A schedule that may start few more runs drops the other times that are due, though some start no run.",
        ("T4c",),
        Edit(
            FIRING,
            "    handled = _start_each(firing, times)\n",
            "    most = None if policy.runs_max is None else policy.runs_max - row.started\n"
            "    times = times[:most]\n"
            "    handled = _start_each(firing, times)\n",
        ),
    ),
    _mutant(
        "skip-ignores-open-run",
        "A schedule whose overlap policy is skip starts a run while another one is under way.",
        ("T4h",),
        Edit(
            FIRING,
            "        if self.overlap is Overlap.SKIP and self._open:\n",
            "        if self.overlap is Overlap.SKIP and len(self._open) > 1:\n",
        ),
    ),
    _mutant(
        "update-repeats-handled-times",
        "An update of the times after the store's clock was set back makes handled times due again.",
        ("T4b",),
        Edit(
            RULES,
            "    cursor = now if known is None else max(now, known.handled_until)\n",
            "    cursor = now\n",
        ),
    ),
    _mutant(
        "resume-repeats-handled-times",
        "A resume after the store's clock was set back makes handled times due again.",
        ("T4b",),
        Edit(
            RULES,
            "        row = evolve(row, handled_until=max(now, row.handled_until))\n",
            "        row = evolve(row, handled_until=now)\n",
        ),
    ),
    _mutant(
        "unknown-zone-stops-schedule",
        "A host that does not know the time zone of a schedule stops it for all hosts.",
        ("T4f",),
        Edit(RULES, "        row = evolve(row, zones=state.zones.version)\n", "        pass\n"),
    ),
    _mutant(
        "schedule-fires-early",
        "A schedule fires a minute before its nominal time.",
        ("T4d",),
        Edit(
            FIRING,
            "        if row.next_at is None or row.next_at > now:\n",
            "        if row.next_at is None or row.next_at > now + 60_000_000:\n",
        ),
        Edit(
            FIRING,
            "    due = due_times(row, timetable, now, limit)\n",
            "    due = due_times(row, timetable, now + 60_000_000, limit)\n",
        ),
        Edit(
            "adapters/memory/searches.py",
            "        if row.next_at is not None and row.next_at <= store.now\n    ]\n    return [row for _, _, row in"
            " sorted(due, key=lambda one: one[:2])[: search.limit]]\n",
            "        if row.next_at is not None and row.next_at <= store.now + 60_000_000\n    ]\n    return [row for"
            " _, _, row in sorted(due, key=lambda one: one[:2])[: search.limit]]\n",
        ),
    ),
)
