"""The kernel: the rules of the engine, without a clock, randomness or I/O of its own.

Theory of operation
===================

The store is the only source of truth, and every change to it is a decision. A host sends a command. The command's rule
is two pure functions: `reads(command)` names the rows that it needs, and `decide(state, command, now, ids)` returns a
reply, a list of row changes and hints. `kernel/dispatch` reads and locks the rows, calls the rules, and writes the
changes, in one transaction for a batch of commands. It is the only package here that writes to the store, through
the protocols of `ports/`. `history/reader.py` and `runs/rerun_preview.py` read snapshots, which no decision depends on.

Why pure: any decision can be repeated from a JSON file (`dispatch/decision_records.py`), a test or the simulator
drives the same code as a worker does, and a transaction can be retried at any time. No rule decodes a payload or
calls user code. Only `authoring/` and `functions/` do, where a host drives a durable function.

What happens to a run: `run.create` stores its row, its first history row and its first jobs. Workers claim jobs under a
lease, run bodies outside of any transaction, and settle them. A settle carries the epoch of its claim, and a settle
with an old epoch changes nothing. It stores the result as a history row, deletes the job and opens the next jobs, all
in one transaction. The plan of a pipeline says what they are (`pipelines/`). A durable function has one job
that drives it: the outcomes of its calls are recorded as rows and fed to its code (`functions/`).

Guaranteed: a state change happens exactly once, a recorded result never changes, and a worker that has lost its lease
writes nothing. `kernel/invariants` states these promises as checks, independent of the rules. docs/explanation has the
whole list (guarantees.md) and the overview (architecture.md).

Not pretty, and why it stays: asyncio is in `functions/`, because the code of users is asyncio code; and `authoring/`,
the API that users write workflows with, is here because a plan and a replay need its definitions.

Reading order
=============

1. The vocabulary: `ports/records` (the rows), `ports/changes.py` (what a decision may write), `ports/persistence.py`
   (the store), `kernel/state.py` (`Reads`, `State`, `Decision`).
2. A command from its arrival to its commit: `commands/command.py`, `commands/jobs.py`, `rules/registry.py`,
   `dispatch/kernel.py`, `dispatch/loader.py`, `dispatch/idempotency.py`.
3. A pipeline: `pipelines/plan.py`, `pipelines/progress.py`, `runs/transitions.py`, `runs/builder.py`,
   `runs/plan_interpreter.py`, `rules/starts.py`, `rules/runs.py`.
4. The life of a job: `rules/claims.py`, `rules/leases.py`, `rules/settlement.py`, `rules/outcomes.py`,
   `rules/retries.py`, `rules/sessions.py`.
5. A durable function: `functions/protocol.py`, `functions/loop.py`, `functions/machine.py`,
   `rules/function_history.py`, `rules/function_settlement.py`.
6. What must always hold: `invariants/snapshot_checks.py`.

The rest in any order: limits (`limits/`, `rules/admissions.py`), messages
(`rules/signals.py`, `rules/unread_messages.py`), child runs (`rules/children.py`), external work
(`rules/external_work.py`), the times of schedules (`calendars/`), sinks (`rules/outbox.py`), reruns and forks
(`runs/rerun_plan.py`, `runs/forks.py`), values as JSON (`values/`) and the stored form of errors
(`history/exceptions.py`).
"""
