"""Planted bugs in the progress of a run through its plan: commits, counters, successors."""

from typing import Final

from tests.mutants.mutant import Edit, Mutant

PROGRESS: Final = (
    Mutant(
        name="advance-in-another-transaction",
        breaks="A settle stores a stage's result, but opens the next stage in a separate transaction.",
        caught_by=("S4", "S7"),
        edits=(
            Edit(
                "kernel/runs/plan_interpreter.py",
                "        after = item_ended(draft, plan, job, evolve(counters, done=counters.done + 1), row)\n"
                "    _go_on(draft, plan, progress.with_node(job.node, after))\n",
                "        after = item_ended(draft, plan, job, evolve(counters, done=counters.done + 1), row)\n"
                "    draft.keep_progress(progress.with_node(job.node, after).to_json())\n",
            ),
        ),
    ),
    Mutant(
        name="batch-ignores-earlier-commands",
        breaks="A command of a batch does not see the changes of the commands before it.",
        caught_by=("O1", "S7", "S4", "crashed"),
        edits=(Edit("kernel/dispatch/kernel.py", "        state.apply(made)\n", ""),),
    ),
    Mutant(
        name="map-joined-without-counters",
        breaks="A map ends when none of its items has a job, instead of when its counters say so.",
        caught_by=("S4", "S7"),
        edits=(
            Edit(
                "kernel/runs/plan_interpreter.py",
                "is_over = counters.done == counters.total",
                "is_over = counters.ended == counters.next",
            ),
        ),
    ),
    Mutant(
        name="outputs-out-of-order",
        breaks="Parallel stages return their outputs in the wrong order.",
        caught_by=("S4",),
        edits=(
            Edit(
                "kernel/runs/plan_interpreter.py",
                "    for node in group.nodes:\n        if node.name not in progress.nodes:",
                "    for node in reversed(group.nodes):\n        if node.name not in progress.nodes:",
            ),
        ),
    ),
    Mutant(
        name="map-item-opened-twice",
        breaks="A map item gets a second job when other items end.",
        caught_by=("S7",),
        edits=(
            Edit(
                "kernel/runs/plan_interpreter.py",
                "evolve(counters, next=max(upto, counters.next))",
                "evolve(counters, next=max(upto - 1, counters.next))",
            ),
        ),
    ),
    Mutant(
        name="last-map-item-skipped",
        breaks="The last item of a map never gets a job.",
        caught_by=("S7",),
        edits=(
            Edit(
                "kernel/runs/plan_interpreter.py",
                "upto = min(counters.total, counters.ended + node.limit)",
                "upto = min(counters.total - 1, counters.ended + node.limit)",
            ),
        ),
    ),
    Mutant(
        name="failed-map-item-counted-twice",
        breaks="A map item whose failure is allowed counts as two failures.",
        caught_by=("S4", "S7"),
        edits=(
            Edit(
                "kernel/runs/plan_interpreter.py",
                "evolve(counters, failed=counters.failed + 1)",
                "evolve(counters, failed=counters.failed + 2)",
            ),
        ),
    ),
    Mutant(
        name="lost-poll-resubmits",
        breaks=(
            "A poll that is lost with its worker runs as a submission again: the external work is submitted "
            "twice."
        ),
        caught_by=("S1", "S7"),
        edits=(
            Edit(
                "kernel/rules/sessions.py",
                "    draft.reschedule_job(lost, now)\n",
                "    kind = JobKind.STAGE if job.kind is JobKind.POLL else job.kind\n"
                "    draft.reschedule_job(evolve(lost, kind=kind), now)\n",
            ),
        ),
    ),
    Mutant(
        name="wake-lost",
        breaks=(
            "A wake that arrives while the stage's body runs is lost: the next poll comes at its usual time."
        ),
        caught_by=("T3",),
        edits=(
            Edit(
                "kernel/rules/external_work.py",
                "until = now if job.wake_at is not None else _next(now + outcome.check_after, outcome.give_up_at)",
                "until = _next(now + outcome.check_after, outcome.give_up_at)",
            ),
        ),
    ),
    Mutant(
        name="external-work-never-given-up",
        breaks="External work that exceeds its time limit is polled for ever, unless a poll fails.",
        caught_by=("T3", "L1"),
        edits=(
            Edit(
                "kernel/rules/external_work.py",
                "if job.give_up_at is not None and now >= job.give_up_at:",
                "if job.give_up_at is not None and failure is not None and now >= job.give_up_at:",
            ),
        ),
    ),
    Mutant(
        name="newest-plan-for-all",
        breaks="A run continues with the plan of the newest code instead of its own.",
        caught_by=("S4", "S7", "S8", "S9", "crashed"),
        edits=(
            Edit(
                "kernel/state.py",
                "        return self.plan_named(run.plan)\n",
                "        return self.workflows.get((run.workflow, None)) or self.plan_named(run.plan)\n",
            ),
        ),
    ),
    Mutant(
        name="reply-in-another-transaction",
        breaks="The reply to an idempotency key is stored in a transaction after that of its effect.",
        caught_by=("I1",),
        edits=(
            Edit(
                "kernel/dispatch/kernel.py",
                "        if command.idempotency_key is not None:\n"
                "            made = (*made, Insert(reply_of(command, decision.reply, now)))\n",
                "",
            ),
            Edit(
                "kernel/dispatch/kernel.py",
                "        if plans:\n            # Only plans",
                "        keyed = {\n"
                "            (one.namespace, one.idempotency_key): (one, answer)\n"
                "            for one, answer in zip(batch, answers, strict=True)\n"
                "            if one.idempotency_key and not isinstance(answer, CommandError)\n"
                "        }\n"
                "\n"
                "        def remember(tx: Transaction) -> None:\n"
                "            now = micros(self.clock.now())\n"
                "            known = {(reply.namespace, reply.key) for reply in tx.get(REPLIES, sorted(keyed))}\n"
                "            tx.apply([Insert(reply_of(*keyed[key], now)) for key in keyed if key not in known])\n"
                "\n"
                "        if keyed:\n"
                "            self.persistence.transact(remember)\n"
                "        if plans:\n            # Only plans",
            ),
        ),
    ),
    Mutant(
        name="refused-result-not-compensated",
        breaks="A step that was done and whose result was refused is not compensated.",
        caught_by=("L1",),
        edits=(
            Edit(
                "kernel/functions/sagas.py",
                "_UNKNOWN = (TimeoutError, StepLostError, StepResultError)",
                "_UNKNOWN = (TimeoutError, StepLostError)",
            ),
        ),
    ),
    Mutant(
        name="lost-claim-reply-ignored",
        breaks=(
            "A worker treats a claim whose reply was lost as not made, and holds jobs that it does not run."
        ),
        caught_by=("L1", "S12"),
        edits=(
            Edit(
                "hosts/worker/store_calls.py",
                "            except STORE_ERRORS:\n                self._is_in_doubt = True\n",
                "            except STORE_ERRORS:\n",
            ),
        ),
    ),
    Mutant(
        name="lost-next-job-ignored",
        breaks="A worker forgets that a settle whose reply was lost may have leased it the next job.",
        caught_by=("L1",),
        edits=(
            Edit(
                "hosts/worker/store_calls.py",
                "                self._is_in_doubt = self._is_in_doubt or any(action.lease_next)\n",
                "",
            ),
        ),
    ),
    Mutant(
        name="blob-failure-ignored",
        breaks="A value counts as stored, although the blob store failed.",
        caught_by=("B1",),
        edits=(
            Edit(
                "hosts/wiring/payloads.py",
                "        self.blobs.put(key, data)\n",
                "        try:\n"
                "            self.blobs.put(key, data)\n"
                "        except Exception:\n"
                "            pass\n",
            ),
        ),
    ),
)
